# benchmark tracing: what keeping the timeline costs a step: runs with trace.enable on and off in turns; fails from 1 % on
"""Each pair of runs is one ratio of median step times; the two of a pair run right behind each other, in alternating order, so that what the machine
does beside them falls on both. The cost is the median of the ratios, and it must stay under the bar; the interval beside it says how sure that is.
The events of a step, counted in the timeline, say how much there was to write down. Meant for an idle machine."""
import json
import os
import random
import statistics
import sys
import tempfile
import time

from small_job import SmallJob

LEAST_PAIRS, MOST_PAIRS, SECONDS, STEPS, WARM = 6, 40, 270, 44, 4
BAR = 1.0  # percent of a step


def run(binaries, traced):
    with tempfile.TemporaryDirectory(dir="build", prefix="tracing-") as folder:
        lines, run = SmallJob(binaries, folder, STEPS).train("--trace.enable" if traced else "--trace.no_enable")
        events = 0
        if traced:
            for line in (run / "trace" / "rank-0.json").read_text().splitlines():
                events += line.startswith(('{"ph":"X"', '{"ph":"C"', '{"ph":"i"'))
    return statistics.median(line["step_seconds"] for line in lines[WARM:]), events / STEPS


def interval(values):
    """Of the median, by resampling: nine times out of ten it lies there."""
    dice = random.Random(1)
    medians = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(2000))
    return medians[100], medians[-101]


def main():
    begun = time.monotonic()
    ratios, off = [], []
    print(f"load average before: {' '.join(f'{load:.2f}' for load in os.getloadavg())}")
    while len(ratios) < LEAST_PAIRS or (len(ratios) < MOST_PAIRS and time.monotonic() - begun < SECONDS):
        seconds = {}
        for traced in (True, False) if len(ratios) % 2 else (False, True):
            seconds[traced], counted = run(sys.argv[1], traced)
            if traced:
                events = counted
        ratios.append(seconds[True] / seconds[False])
        off.append(seconds[False])
    cost, (low, high) = 100 * (statistics.median(ratios) - 1), interval(ratios)
    print(f"a step takes {1e3 * statistics.median(off):.1f} ms without; {events:.0f} events a step are written down")
    print(f"with the timeline / without, {len(ratios)} pairs: {' '.join(f'{ratio:.4f}' for ratio in ratios)}")
    print(f"the timeline costs {cost:+.2f} % of a step ({100 * (low - 1):+.2f} to {100 * (high - 1):+.2f} %); the bar is {BAR:.0f} %")
    print(json.dumps({"benchmark": "tracing", "cost_percent": round(cost, 3), "bar_percent": BAR, "met": cost < BAR}))
    sys.exit(0 if cost < BAR else 1)


if __name__ == "__main__":
    main()
