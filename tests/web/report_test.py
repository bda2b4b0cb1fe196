"""The report's page of a real run, in a browser."""
import json
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from browser import BrowserTest  # noqa: E402
from job import Job, TROUPE  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402


class ReportTest(BrowserTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.job = Job(steps=8, checkpoint=False)
        code, output = cls.job.train("--nproc", 2)
        assert code == 0, output

    @classmethod
    def tearDownClass(cls):
        cls.job.remove()
        super().tearDownClass()

    def report(self, *arguments):
        done = subprocess.run([TROUPE, "trace", str(self.job.run), "--report", *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def open(self, *arguments):
        page = self.path("report.html")
        self.report("--html", page, *arguments)
        self.driver.get(page.as_uri())

    def texts(self, selector):
        return [found.text for found in self.driver.find_elements(By.CSS_SELECTOR, selector)]

    def test_the_page_shows_the_numbers_of_the_report(self):
        told = json.loads(self.report("--json"))
        self.open()
        self.keep_picture("report.png")
        self.assertEqual(self.texts("h2"), ["rank 0", "rank 1", "Who keeps whom waiting", "Slots that would help", "Critical path"])
        rows = self.run_js("return [...document.querySelectorAll('table')].map((table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent)));")
        for rank, table in zip(told["ranks"], rows):
            self.assertEqual([row[0] for row in table[1:]], [lane["lane"] for lane in rank["lanes"]])
            self.assertEqual([row[1] for row in table[1:]], [f"{100 * lane['busy_share']:.1f} %" for lane in rank["lanes"]])
        self.assertIn(f"{told['step_ms']:.3f} ms a step", self.texts("main > p")[0])
        longest = max(told["critical_path"]["hops"], key=lambda hop: hop["ms"] + hop["gap_ms"])
        self.assertEqual(rows[-1][1][2], longest["operation"], "the longest piece of the critical path comes first")

    def test_bars_are_as_wide_as_their_shares(self):
        self.open()
        widths = self.run_js("""
            const bar = [...document.querySelectorAll('.bar')].pop(), whole = bar.getBoundingClientRect().width;
            return [...bar.children].map((part) => part.getBoundingClientRect().width / whole);""")
        self.assertAlmostEqual(sum(widths), 1, delta=0.02, msg="the critical path is divided without a rest")
        self.assertEqual(widths, sorted(widths, reverse=True))

    def test_two_runs_stand_on_one_page(self):
        self.open("--compare", self.job.run)
        self.assertEqual(self.texts("h1"), [str(self.job.run)] * 2)
        self.assertEqual(self.run_js("return performance.getEntriesByType('resource').map((entry) => entry.name);"), [])


if __name__ == "__main__":
    unittest.main()
