# benchmark timeline_page: first paint and frames of the timeline's page with a million spans, in headless Chromium; fails where a bar is missed
"""Times depend on the machine and on what else it does; beside them stands what the same browser needs for an empty page and for an animation that draws
nothing, measured in the same run. The median of the repeats is held to the bars. Needs Chromium and Selenium: tools/setup.sh --browser, and a Python that has it."""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
if subprocess.run([sys.executable, "-c", "import selenium"], capture_output=True).returncode != 0:
    os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])  # Debian's
sys.path.insert(0, str(ROOT / "tests" / "web"))
os.environ.setdefault("CHROMIUM", shutil.which("chromium") or "")
os.environ.setdefault("CHROMEDRIVER", shutil.which("chromedriver") or "")
import browser  # noqa: E402

SPANS, REPEATS = 1_000_000, 3
BAR_PAINT, BAR_FRAME, BAR_BYTES = 3000, 50, 60_000_000  # ms, ms of 95 % of the frames, bytes
ANIMATE = """
const done = arguments[0], times = [], frame = () => new Promise(requestAnimationFrame);
(async () => {
  let before = await frame();
  for (let i = 0; i < 240; ++i) { %s const now = await frame(); times.push(now - before); before = now; }
  done(times);
})();"""


def frames(driver, draw):
    """What 95 % of them stay under, and a line about all."""
    times = sorted(driver.execute_async_script(draw))
    most = times[int(0.95 * len(times))]
    return most, f"median {statistics.median(times):5.1f} ms, 95 % under {most:5.1f} ms, longest {times[-1]:5.1f} ms"


def main():
    subprocess.run(["ninja", "-C", str(ROOT / "build/dev"), "page_maker"], check=True, capture_output=True)
    paints, flights = [], []
    with tempfile.TemporaryDirectory() as folder:
        page, empty = pathlib.Path(folder) / "million.html", pathlib.Path(folder) / "empty.html"
        subprocess.run([ROOT / "build/dev/bin/page_maker", page, str(SPANS)], check=True)
        empty.write_text("<!doctype html><title>empty</title>")
        print(f"{SPANS:,} spans: {page.stat().st_size / 1e6:.1f} MB; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for _ in range(REPEATS):
            driver = browser.start()
            begun = time.monotonic()
            driver.get(empty.as_uri())
            nothing = time.monotonic() - begun
            _, idle = frames(driver, ANIMATE % "")
            driver.get(page.as_uri())
            paint = driver.execute_async_script("const done = arguments[0]; window.timeline.then((viewer) => done(viewer.firstPaint));")
            most, busy = frames(driver, browser.FLIGHT + ANIMATE % "fly(i);")
            driver.quit()
            paints.append(paint)
            flights.append(most)
            print(f"first paint {paint:.0f} ms (an empty page {1e3 * nothing:.0f} ms)\n  frames of a flight  {busy}\n  frames of nothing   {idle}")
        size = page.stat().st_size
    met = statistics.median(paints) < BAR_PAINT and statistics.median(flights) < BAR_FRAME and size < BAR_BYTES
    print(f"first paint {statistics.median(paints):.0f} ms (bar {BAR_PAINT}), 95 % of frames under {statistics.median(flights):.1f} ms (bar {BAR_FRAME}), {size / 1e6:.1f} MB (bar {BAR_BYTES / 1e6:.0f})")
    print(json.dumps({"benchmark": "timeline_page", "first_paint_ms": round(statistics.median(paints)), "frame_ms_95_percent": round(statistics.median(flights), 2), "bytes": size, "met": met}))
    sys.exit(0 if met else 1)


main()
