"""The dashboard of a run that has 100,000 steps behind it, in a browser. The steps were never trained: the product's own writers of metrics.jsonl and of a
checkpoint's manifest made them, and the run resumed from there."""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from browser import BrowserTest  # noqa: E402
from job import Job, wait_until  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from shown_run import ShownRun  # noqa: E402

STEPS = 100_000
# Milliseconds to draw all charts: of the run's history, and of as many points that stand for a step each.
DRAWING = """
const told = charts.map((chart) => ({first: chart.first, columns: {step: chart.steps, [chart.key]: chart.values}}));
const drawn = (of) => {
  const begun = performance.now();
  for (let i = 0; i < 20; ++i) charts.forEach((chart, k) => chart.show(of[k]));
  return performance.now() - begun;
};
const steps = charts[0].steps.map((_, i) => i + 1), values = steps.map((step) => 2 + Math.sin(step));
const plain = charts.map((chart) => ({first: 1, columns: {step: steps, [chart.key]: {mean: values, least: values, most: values}}}));
const few = Math.min(drawn(plain), drawn(plain), drawn(plain)), whole = Math.min(drawn(told), drawn(told), drawn(told));
return [whole, few];
"""
# The pointer goes over the first chart from left to right, through every pixel; what the chart then says of the steps below it.
POINTED = """
const {plot, output, graph} = charts[0], over = plot.querySelector('canvas:last-of-type'), box = over.getBoundingClientRect(), area = graph.getArea(), said = [];
for (let x = area.x; x <= area.x + area.w; ++x) {
  over.dispatchEvent(new MouseEvent('mousemove', {clientX: box.left + x, clientY: box.top + 60, bubbles: true}));
  said.push(output.textContent);
}
over.dispatchEvent(new MouseEvent('mouseout', {relatedTarget: document.body, bubbles: true}));
return [said, output.textContent];
"""
# Whether something is painted in the chart's colour above the curve in the column of a step, in the first chart.
PAINTED = """
const [of] = arguments, {plot, graph} = charts[0], drawn = plot.querySelector('canvas').getContext('2d');
const high = (x) => {
  const pixels = drawn.getImageData(x - 1, 14, 3, 20).data;
  let painted = 0;
  for (let i = 0; i < pixels.length; i += 4) painted += pixels[i + 3] > 0 && pixels[i + 2] - pixels[i] > 40;
  return painted;
};
return of.map((step) => high(Math.round(graph.toDomXCoord(step))));
"""


def resident(pid, key="VmRSS"):
    """MiB of a process."""
    return int(re.search(rf"{key}:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


class DashboardHistoryTest(BrowserTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.job = Job(steps=3)
        code, output = cls.job.train("--nproc", 1)
        assert code == 0, output
        subprocess.run([os.environ["HISTORY_MAKER"], str(cls.job.run), str(STEPS)], check=True)
        cls.shown = ShownRun(cls.job, "--nproc", 1, "--training.steps", 1_000_000)
        wait_until(lambda: cls.newest_step() > STEPS, "the run goes on behind its history")

    @classmethod
    def tearDownClass(cls):
        cls.shown.end()
        cls.job.remove()
        super().tearDownClass()

    @classmethod
    def newest_step(cls):
        """By the end of metrics.jsonl, which is long."""
        with (cls.job.run / "metrics.jsonl").open("rb") as file:
            file.seek(-4096, os.SEEK_END)
            return json.loads(file.read().split(b"\n")[-2])["step"]

    def open(self):
        self.driver.get(self.shown.url)
        self.run_js("await window.ready;")

    def test_its_charts_show_all_steps_and_stay_quick(self):
        before = resident(self.shown.process.pid)
        self.open()
        grown = resident(self.shown.process.pid, "VmHWM") - before
        with self.subTest("from the first step to the newest"):
            said, afterwards = self.run_js(POINTED)
            ends = [tuple(map(int, re.search(r", steps (\d+)–(\d+)$", text).groups())) for text in said]
            self.assertEqual(ends[0][0], 1)
            self.assertGreater(ends[-1][1], STEPS)
            self.assertTrue(all(after[0] in (before[0], before[1] + 1) for before, after in zip(ends, ends[1:])), "no step is left out")
            self.assertRegex(afterwards, r"^\d(\.\d+)? at step \d+$", "of the newest step once the pointer has gone")
            shown = self.run_js("return charts.map((chart) => [...chart.graph.xAxisRange(), chart.steps[chart.steps.length - 1]]);")
            self.assertTrue(all(begin == 1 and end == newest > STEPS for begin, end, newest in shown), shown)
        with self.subTest("a spike of one step among them is seen, and told where the pointer is"):
            self.assertTrue(any(re.search(r"to 9\.5\), steps", text) and begin <= 77777 <= end for text, (begin, end) in zip(said, ends)), said)
            spike, left, right = self.driver.execute_script(PAINTED, [77777, 74000, 81000])
            self.assertGreater(spike, 5)
            self.assertEqual((left, right), (0, 0))
        with self.subTest("drawn for what the screen has to show, not for what the run did"):
            whole, few = self.run_js(DRAWING)
            points, columns = self.run_js("return [charts[0].steps.length, charts[0].columns()];")
            self.assertLessEqual(points, columns + 1)
        with self.subTest("the launcher keeps numbers and no lines"):
            size = (self.job.run / "metrics.jsonl").stat().st_size / 2**20
            self.assertLess(grown, 0.75 * size, f"MiB for {size:.0f} MiB of metrics.jsonl")
        print(f"\n{STEPS:,} steps: 20 times six charts in {whole:.0f} ms, of a step a point in {few:.0f} ms; the launcher grew by {grown:.1f} MiB from {before:.1f} for {size:.1f} MiB of metrics.jsonl")
        self.keep_picture("dashboard-history.png")

    def test_it_goes_on_with_the_run(self):
        self.open()
        newest = self.newest_step()
        wait_until(lambda: self.driver.execute_script("return charts[0].steps[charts[0].steps.length - 1];") > newest, "the charts follow the run")
        with self.subTest("a chart that somebody has zoomed stays there, and its pointer where it was"):
            self.run_js("charts[0].graph.updateOptions({dateWindow: [20000, 80000]}); charts[0].graph.setSelection(charts[0].row = 170); charts[0].tell();")
            said, newest = self.run_js("return charts[0].output.textContent;"), self.newest_step()
            wait_until(lambda: self.driver.execute_script("return charts[0].steps[charts[0].steps.length - 1];") > newest, "the charts follow the run")
            window, selected, still = self.run_js("return [charts[0].graph.xAxisRange(), charts[0].graph.getSelection(), charts[0].output.textContent];")
            self.assertEqual((window, selected), ([20000, 80000], 170))
            self.assertTrue("steps" in said and "steps" in still, (said, still))
        step = self.driver.find_element(By.CSS_SELECTOR, "#ranks tbody td:nth-child(2)").text
        self.assertGreater(int(step), STEPS)


if __name__ == "__main__":
    unittest.main()
