"""The dashboard of a real run, in a browser."""
import json
import os
import pathlib
import re
import signal
import sys
import threading
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from browser import BrowserTest  # noqa: E402
from job import Job, wait_until, whole_lines  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402
from shown_run import ShownRun  # noqa: E402


class DashboardTest(BrowserTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.job = Job(checkpoint=False)
        cls.shown = ShownRun(cls.job, "--nproc", 2, "--training.steps", 1000000, "--lr_scheduler.total_steps", 1000000)
        cls.process, cls.url, cls.port, cls.token = cls.shown.process, cls.shown.url, cls.shown.port, cls.shown.token
        cls.job.wait_for_step(30, cls.process)

    @classmethod
    def tearDownClass(cls):
        cls.shown.end()
        cls.job.remove()
        super().tearDownClass()

    def open(self):
        self.driver.get(self.url)
        self.run_js("await window.ready;")

    def fetch(self, path, **headers):
        try:
            with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers), timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as problem:
            return problem.code, problem.read().decode()

    def until(self, condition, what):
        WebDriverWait(self.driver, 30, 0.1).until(lambda _: condition(), what)

    def text(self, identity):
        return self.driver.find_element(By.ID, identity).text

    def test_it_shows_charts_ranks_and_the_journal_of_a_run(self):
        self.open()
        # The parts of the page are asked for one by one, and come in any order.
        self.until(lambda: "step" in self.text("headline"), "the headline")
        self.assertNotIn("token", self.driver.current_url, "the token does not stay in the address")
        self.assertEqual(len(self.driver.find_elements(By.CSS_SELECTOR, "#charts figure")), 6)
        newest = lambda: self.driver.find_element(By.CSS_SELECTOR, "#charts output").text
        self.until(lambda: re.search(r"^\d(\.\d+)? at step \d+$", newest()), "the newest step in numbers")
        self.until(lambda: len(self.driver.find_elements(By.CSS_SELECTOR, "#ranks tbody tr")) == 2, "two ranks")
        self.until(lambda: "epoch" in self.text("journal"), "the journal")
        self.until(lambda: re.search(r"median \d+\.\d+ ms, longest", self.text("heat-scale")), "the heat map's scale")
        painted = self.run_js("""
            const heat = document.getElementById('heat'), seen = new Set(heat.getContext('2d').getImageData(60, 2, heat.width - 70, 1).data);
            const chart = document.querySelector('#charts canvas'), line = chart.getContext('2d').getImageData(60, 0, chart.width - 70, chart.height).data;
            const labels = [...document.querySelectorAll('#charts figure:first-child .dygraph-axis-label')].map((label) => label.textContent);
            let blue = 0;
            for (let i = 0; i < line.length; i += 4) blue += line[i] === 76 && line[i + 1] === 142 && line[i + 2] === 219;
            return [seen.size, blue, labels];""")
        self.assertGreater(painted[0], 3)
        self.assertGreater(painted[1], 20)
        self.assertTrue(len(painted[2]) >= 3 and all(re.fullmatch(r"(step )?[\d,.]+|", label) for label in painted[2]), painted[2])
        self.keep_picture("dashboard.png")

    def test_a_setting_is_tried_and_changed_and_the_journal_says_by_whom(self):
        self.open()
        field = self.driver.find_element(By.ID, "optimizer.lr")
        self.assertEqual(float(field.get_attribute("value")), 1e-3)
        field.clear()
        field.send_keys("2e-4")
        self.driver.find_element(By.ID, "try").click()
        self.until(lambda: self.text("answer"), "an answer")
        self.assertNotIn("changed", (self.job.run / "journal.jsonl").read_text())
        self.driver.find_element(By.CSS_SELECTOR, "#settings button:not([type=button])").click()
        changed = lambda: [line for line in whole_lines(self.job.run / "journal.jsonl") if line["event"] == "changed"]
        self.until(changed, "a line in the journal")
        line = changed()[-1]
        self.assertEqual((line["changes"], line["by"]), (["optimizer.lr=2e-4"], "the dashboard"))
        self.job.wait_for_step(line["from_step"], self.process)
        rates = {step["step"]: step["lr"] for step in self.job.metrics()}
        self.assertAlmostEqual(rates[line["from_step"]] / rates[line["from_step"] - 1], 0.2, delta=0.01, msg="the schedule goes on with a fifth of the rate")
        field = self.driver.find_element(By.ID, "optimizer.lr")
        field.clear()
        field.send_keys("fast")
        self.driver.find_element(By.ID, "try").click()
        self.until(lambda: self.driver.find_element(By.ID, "answer").get_attribute("class") == "bad", "a refusal")
        self.driver.get_log("browser")  # the refusal is a 409, which the browser tells of

    def test_recorded_steps_open_as_a_timeline(self):
        self.open()
        self.driver.find_element(By.CSS_SELECTOR, "#record button").click()
        self.until(lambda: len(self.driver.window_handles) == 2, "a second window")
        first, second = self.driver.window_handles
        self.driver.switch_to.window(second)
        self.until(lambda: self.driver.execute_script("return !!window.viewer"), "the timeline")
        self.assertEqual(self.run_js("return viewer.timeline.header.steps.length;"), 3)
        self.assertEqual(self.run_js("return viewer.timeline.header.ranks.map((rank) => rank.label);"), ["rank 0", "rank 1", "launcher"])
        self.keep_picture("dashboard-timeline.png")
        self.driver.close()
        self.driver.switch_to.window(first)

    def test_who_does_not_know_the_token_sees_and_changes_nothing(self):
        for path in ("/", "/api/state", "/api/history", "/api/journal", "/timeline", "/?token=" + "0" * 32):
            self.assertEqual(self.fetch(path)[0], 403, path)
        self.assertEqual(self.fetch("/api/state", **{"X-Troupe-Token": self.token})[0], 200)
        self.assertEqual(self.fetch("/api/state", **{"X-Troupe-Token": self.token, "Host": "evil.example:80"})[0], 403)
        # The cookie alone, which another site's form would send too, changes nothing.
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/api/set", data=b'{"changes": ["optimizer.lr=1"]}', headers={"Cookie": f"troupe_token_{self.port}={self.token}"})
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        self.assertEqual(refused.exception.code, 403)

    def test_the_cookie_is_of_this_port_alone(self):
        self.open()
        self.assertEqual([cookie["name"] for cookie in self.driver.get_cookies()], [f"troupe_token_{self.port}"])

    def test_steps_are_recorded_for_one_request_at_a_time_and_the_page_goes_on_answering(self):
        header, answers = {"X-Troupe-Token": self.token}, []
        requests = [threading.Thread(target=lambda: answers.append(self.fetch("/timeline?steps=5", **header))) for _ in range(8)]
        workers = self.job.workers()
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)  # no step ends, so that whoever records waits
        try:
            for request in requests:
                request.start()
            wait_until(lambda: len(answers) == len(requests) - 1, "all but one are told to come again")
            self.assertEqual({status for status, _ in answers}, {429})
            self.assertIn("steps are being recorded", answers[0][1])
            self.assertEqual(self.fetch("/api/journal", **header)[0], 200)
        finally:
            for pid in workers:
                os.kill(pid, signal.SIGCONT)
        for request in requests:
            request.join()
        self.assertEqual(answers[-1][0], 200)

    def test_prometheus_reads_its_metrics(self):
        status, text = self.fetch("/metrics")
        self.assertEqual(status, 200)
        names, samples = set(), {}
        for line in text.splitlines():
            if found := re.fullmatch(r"# TYPE (troupe_[a-z_]+) (gauge|counter)", line):
                self.assertNotIn(found[1], names, "a family stands once")
                names.add(found[1])
                self.assertEqual(found[2] == "counter", found[1].endswith("_total"), line)
            elif not line.startswith("#"):
                found = re.fullmatch(r"(troupe_[a-z_]+)(\{[a-z]+=\"[^\"]*\"\})? (NaN|[-+0-9.e]+)", line)
                self.assertIsNotNone(found, line)
                self.assertIn(found[1], names, "after its TYPE")
                samples[found[1] + (found[2] or "")] = found[3]
        self.assertGreaterEqual(float(samples["troupe_step"]), 30)
        self.assertIn('troupe_rank_step_seconds{rank="1"}', samples)
        self.assertGreater(float(samples["troupe_loss"]), 0)
        root = pathlib.Path(__file__).resolve().parents[2]
        documented = set(re.findall(r"`(troupe_[a-z_]+)`", (root / "docs" / "dashboard.md").read_text()))
        self.assertEqual(names - documented, set(), "every name is documented")
        board = json.loads((root / "tools" / "grafana" / "troupe.json").read_text())
        asked = set(re.findall(r"troupe_[a-z_]+", json.dumps([target["expr"] for panel in board["panels"] for target in panel.get("targets", [])])))
        self.assertTrue(asked and asked <= names, asked - names)


if __name__ == "__main__":
    unittest.main()
