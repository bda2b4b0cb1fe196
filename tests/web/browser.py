"""A headless Chromium for the tests of pages."""
import os
import pathlib
import subprocess
import tempfile
import unittest

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service


# From the whole timeline into a thousandth of it and out again, along its length, with the rows scrolled in between.
FLIGHT = """
const FRAMES = 240;
const fly = (i) => {
  const t = i / (FRAMES - 1), span = viewer.length * Math.exp(-7 * Math.sin(Math.PI * t)), middle = viewer.length * (0.2 + 0.6 * t);
  viewer.setView(middle - span / 2, middle + span / 2);
  if (i % 8 === 0) viewer.scroll(i % 16 ? 60 : -60);
};
"""


def start():
    options = Options()
    options.binary_location = os.environ["CHROMIUM"]
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,860", "--hide-scrollbars", "--force-device-scale-factor=1"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service(os.environ["CHROMEDRIVER"]), options=options)
    driver.set_script_timeout(60)
    return driver


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="troupe-web-")
        cls.driver = start()

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()
        cls.folder.cleanup()

    def tearDown(self):
        errors = [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE" and "favicon" not in line["message"]]
        self.assertEqual(errors, [], "the page complains")

    def path(self, name):
        return pathlib.Path(self.folder.name) / name

    def page(self, name, spans):
        """A made-up timeline, opened from the disk: {firstPaint} of its viewer."""
        file = self.path(name)
        if not file.exists():
            subprocess.run([os.environ["PAGE_MAKER"], str(file), str(spans)], check=True)
        self.driver.get(file.as_uri())
        self.run_js("await window.timeline;")
        return file

    def run_js(self, code):
        """Runs the body of an async function; returns what it returns."""
        answer = self.driver.execute_async_script(
            "const done = arguments[0]; (async () => {" + code + "})().then((value) => done({value: value === undefined ? null : value}), (problem) => done({problem: String(problem)}));")
        if "problem" in answer:
            raise AssertionError(answer["problem"])
        return answer["value"]

    def keep_picture(self, name):
        """Where a person wants to look at it: PICTURES=folder."""
        if folder := os.environ.get("PICTURES"):
            self.driver.save_screenshot(str(pathlib.Path(folder) / name))


__all__ = ["BrowserTest", "FLIGHT", "start"]
