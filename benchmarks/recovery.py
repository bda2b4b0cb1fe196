#!/usr/bin/env python3
# benchmark recovery: time from kill -9 to the first new step by number of ranks; cost of snapshots in memory; cost of fault rules that never fire
"""Real jobs of the quickstart's size, some eight minutes on two cores. Costs are ratios of a step's time over a period of 10 steps, so that those beside a
snapshot count: with and without, in turns, so that what else the machine does meets both. Ends with exit code 1 when a bar is missed, and names it."""
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from small_job import step_of_a_period

TROUPE = str(pathlib.Path(sys.argv[1]) / "troupe")
ROUNDS, STEPS, PERIOD = 3, 60, 10
CONFIG = """
[job]
dump_folder = "{run}"
[model]
name = "llama3"
flavor = "quickstart"
converters = ["float8"]
[training]
local_batch_size = 1
seq_len = 256
steps = {steps}
dataset_path = "{data}"
"""


def job(folder, name, steps, ranks, *arguments, kill_at=None):
    """Runs it; seconds of a step (step_of_a_period), and of each recovery."""
    run = folder / name
    config = folder / f"{name}.toml"
    config.write_text(CONFIG.format(run=run, steps=steps, data=folder / "data.txt"))
    process = subprocess.Popen([TROUPE, "train", str(config), "--nproc", str(ranks), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    journal = run / "journal.jsonl"
    if kill_at is not None:
        metrics = run / "metrics.jsonl"
        while process.poll() is None and (not metrics.exists() or metrics.read_text().count("\n") < kill_at):
            time.sleep(0.02)
        events = [json.loads(line) for line in journal.read_text().splitlines()]
        os.kill([event["pid"] for event in events if event["event"] == "joined" and event["rank"] == ranks - 1][-1], signal.SIGKILL)
    output = process.communicate()[0]
    if process.returncode != 0:
        sys.exit(output)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    return step_of_a_period(lines, PERIOD), [event["seconds"] for event in events if event["event"] == "recovered"]


def ratio(folder, name, plain, changed):
    """Of the medians of `changed` and `plain`, each over all rounds."""
    times = {"plain": [], name: []}
    for i in range(ROUNDS):
        for which, arguments in (("plain", plain), (name, changed)):
            times[which].append(job(folder, f"{name}-{which}-{i}", STEPS, 2, *arguments)[0])
    return statistics.median(times[name]) / statistics.median(times["plain"]), max(times["plain"]) / min(times["plain"])


class Bars:
    """What is asked for, and what was missed."""

    def __init__(self):
        self.missed = []

    def verdict(self, what, value, bar, unit):
        """In words; no bar: nothing was asked for."""
        if bar is None:
            return "no bar"
        if value > bar:
            self.missed.append(f"{what}: {value:.3f} {unit}, asked: {bar} {unit}")
        return f"bar: {bar} {unit}, {'MISSED' if value > bar else 'held'}"


def main():
    began, bars = time.monotonic(), Bars()
    with tempfile.TemporaryDirectory(prefix="troupe-bench-") as name:
        folder = pathlib.Path(name)
        dice = random.Random(7)
        words = "the quick brown fox jumps over a lazy dog while rain falls on seven hills".split()
        (folder / "data.txt").write_text("\n%\n".join(" ".join(dice.choice(words) for _ in range(60)) for _ in range(2000)))
        for ranks in (1, 2, 4):
            took = []
            for i in range(ROUNDS):
                took += job(folder, f"kill-{ranks}-{i}", 30, ranks, "--elastic.policy", "respawn", "--elastic.memory_interval", "4", kill_at=12)[1]
            if len(took) < ROUNDS:
                sys.exit(f"only {len(took)} of {ROUNDS} kills with {ranks} ranks struck a run that recovered")
            verdict = bars.verdict(f"time to recover with {ranks} ranks, the longest", max(took), 5 if ranks == 4 else None, "s")
            print(f"kill -9 with {ranks} rank{'s' if ranks > 1 else ''}: first new step after " + ", ".join(f"{seconds:.2f}" for seconds in took) + f" s ({verdict})", flush=True)
        respawn = ("--elastic.policy", "respawn")
        for every, bar in ((10, 1.03), (1, None)):
            cost, spread = ratio(folder, f"every{every}", (*respawn, "--elastic.memory_interval", "0"), (*respawn, "--elastic.memory_interval", str(every)))
            verdict = bars.verdict(f"cost of snapshots every {every} steps", cost, bar, "x")
            print(f"snapshots in memory every {every} step{'s' if every > 1 else ''}: step {cost:.3f} x that of none ({verdict}; the plain runs alone differ by {spread:.3f} x)", flush=True)
        rules = ["--faults.rules", ",".join(f"site=lane kind=gather rank=99 step={i + 1} action=fail" for i in range(8))]
        cost, spread = ratio(folder, "rules", (), tuple(rules))
        verdict = bars.verdict("cost of rules that never fire", cost, 1.03, "x")
        print(f"eight rules that never fire: step {cost:.3f} x that without ({verdict}; the plain runs alone differ by {spread:.3f} x)")
    print(f"took {time.monotonic() - began:.0f} s")
    if bars.missed:
        sys.exit("missed: " + "; ".join(bars.missed))


if __name__ == "__main__":
    main()
