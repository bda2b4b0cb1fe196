#!/usr/bin/env python3
# benchmark buddy_copies: what copying every snapshot to another host's agent costs a step, two agents of one rank each against none, in turns
"""Two agents on this machine, whose processes share the network alone, some four minutes on two cores. Snapshots every 10 steps: with and without, in turns, so that what
else the machine does meets both; the same of one host, where nothing is copied. A step is the mean over a period of 10, each of its ten places the median of all periods: the
steps beside a snapshot count as much as they last. Ends with exit code 1 when the bar is missed."""
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from recovery import CONFIG
from small_job import step_of_a_period

TROUPE = str(pathlib.Path(sys.argv[1]) / "troupe")
ROUNDS, EVERY, STEPS, BAR = 3, 10, 60, 1.03
TRANSPORT = ("--comm.collectives", "transport")
SHAPES = {"two hosts": (1, [("--nnodes", "2", "--node-rank", str(node)) for node in range(2)]), "one host": (2, [()])}


def step_seconds(folder, name, shape, every):
    """Of a run, and how many of its snapshots were sealed."""
    run, config = folder / name, folder / f"{name}.toml"
    config.write_text(CONFIG.format(run=run, steps=STEPS, data=folder / "data.txt"))
    ranks, hosts = SHAPES[shape]
    arguments = ("--nproc", str(ranks), *TRANSPORT, "--elastic.policy", "respawn", "--elastic.memory_interval", str(every), "--checkpoint.no_enable")
    processes = [subprocess.Popen([TROUPE, "train", str(config), *arguments, *host], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for host in hosts]
    outputs = [process.communicate()[0] for process in processes]
    for process, output in zip(processes, outputs):
        if process.returncode != 0:
            sys.exit(output)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    sealed = sum('"event":"kept"' in line for line in (run / "journal.jsonl").read_text().splitlines())
    if every > 0 and sealed < STEPS // every - 2:
        sys.exit(f"{name}: only {sealed} snapshots were sealed")
    return step_of_a_period(lines, EVERY)


def main():
    with tempfile.TemporaryDirectory(prefix="troupe-bench-") as name:
        folder = pathlib.Path(name)
        dice = random.Random(7)
        words = "the quick brown fox jumps over a lazy dog while rain falls on seven hills".split()
        (folder / "data.txt").write_text("\n%\n".join(" ".join(dice.choice(words) for _ in range(60)) for _ in range(2000)))
        times = {(shape, every): [] for shape in SHAPES for every in (0, EVERY)}
        for i in range(ROUNDS):
            for shape, every in times:
                times[shape, every].append(step_seconds(folder, f"{shape.replace(' ', '-')}-{every}-{i}", shape, every))
    costs = {}
    for shape in SHAPES:
        plain, kept = times[shape, 0], times[shape, EVERY]
        costs[shape] = statistics.median(kept) / statistics.median(plain)
        what = "snapshots every 10 steps, each copied to the other host's agent" if shape == "two hosts" else "the same snapshots, nothing copied"
        print(f"{shape}, {what}: step {costs[shape]:.3f} x that without ({statistics.median(plain):.3f} s; the plain runs alone differ by {max(plain) / min(plain):.3f} x)")
    held = costs["two hosts"] <= BAR
    print(f"bar: {BAR} x, {'held' if held else 'MISSED'}")
    if not held:
        sys.exit(1)


if __name__ == "__main__":
    main()
