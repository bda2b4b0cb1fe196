# benchmark pytorch: a training step of a Llama of 60 M parameters against PyTorch's: eager, and FSDP2 over Gloo; fp32 and bf16
"""Whole steps of `troupe train` and of PyTorch (torchtitan's Llama 3, benchmarks/pytorch_step.py) in turn, on this machine, with the same threads.

    benchmarks/run pytorch                        all of it: about 25 minutes on two idle cores
    benchmarks/pytorch.py BIN --only one_fp32 --rounds 1 --steps 6 --no-compile

A round runs each side once, in a process of its own, the side that begins alternating; a figure is the median over all rounds' steps but the first two of
each process. Beside a ratio: the part of PyTorch's step that is matrix products and attention (from its own profiler); were all else free on
our side and our products no faster, the ratio would be one over that.

Output, one block a case: name, ranks, threads, type; for each side the median step, the fastest and slowest of those counted and how many, CPU seconds a step
(start-up and, for PyTorch's first process, the profiler's two steps included); the ratio PyTorch / troupe with what is asked of it and its bound; the time from the command
to the first step; the last losses, which show that both learn. Exit code 0: every ratio is as asked. benchmarks/run keeps it in benchmarks/results/pytorch-DATE.txt.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parent / "third_party/venv/bin/python"
SHAPE = {"dim": 512, "layers": 8, "heads": 8, "kv_heads": 8, "vocabulary": 32000, "multiple_of": 256, "ffn_dim_multiplier": None}
FFN = 1536
LIMIT = 600  # seconds; a process that takes longer hangs
WARM = 2  # steps of a process that are not counted
CASES = {  # name: ranks, bf16, ratio asked
    "one_fp32": (1, False, 1.00),
    "one_bf16": (1, True, 1.10),
    "two_fp32": (2, False, 1.3),
    "two_bf16": (2, True, 1.4),
}
CONFIG = """
[model]
name = "llama3"
flavor = "debugmodel"
dim = {dim}
n_layers = {layers}
n_heads = {heads}
n_kv_heads = {kv_heads}
vocab_size = {vocabulary}
ffn_hidden = {ffn}
rope_theta = 500000.0
[optimizer]
lr = 8e-4
[lr_scheduler]
warmup_steps = 200
[training]
local_batch_size = {batch}
seq_len = {seq_len}
steps = {steps}
mixed_precision_param = "{type}"
dataset = "text"
dataset_path = ["{text}"]
[runtime]
threads_per_rank = {threads}
[metrics]
log_freq = 1
"""


def timed_lines(command: list, **more):
    """Runs a command to its end; (seconds since its start, line) for each line, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=complaints, text=True, **more)
        watch = threading.Timer(LIMIT, process.kill)
        watch.start()
        lines = [(time.perf_counter() - began, line.rstrip()) for line in process.stdout]
        watch.cancel()
        if process.wait() != 0:
            complaints.seek(0)
            sys.exit(f"{command[0]} ended with {process.returncode}:\n" + "\n".join(line for _, line in lines[-30:]) + complaints.read()[-3000:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return lines, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Side:
    """Steps of one program over all rounds."""

    def __init__(self):
        self.seconds, self.ready, self.first, self.cpu, self.matrix, self.losses = [], [], [], [], [], []

    def add(self, ready: float, first: float, steps: list, losses: list, cpu: float) -> None:
        self.ready.append(ready)
        self.first.append(first)
        self.seconds += steps[WARM:]
        self.losses = losses
        self.cpu.append(cpu / len(steps))

    @property
    def step(self) -> float:
        return statistics.median(self.seconds)

    def spread(self) -> str:
        return f"{self.step:7.3f} s ({min(self.seconds):.3f} … {max(self.seconds):.3f}, {len(self.seconds)} steps)"


def run_troupe(side: Side, options, folder: Path, ranks: int, bf16: bool) -> None:
    text = folder / "text.txt"
    if not text.exists():
        text.write_bytes(bytes(32 + (i * i * 7 + i // 3) % 90 for i in range(2_000_000)))
    config = folder / "config.toml"
    config.write_text(CONFIG.format(**SHAPE, ffn=FFN, batch=options.batch, seq_len=options.seq_len, steps=options.steps, threads=options.threads,
                                    type="bfloat16" if bf16 else "float32", text=text))
    output = folder / f"run{time.monotonic_ns()}"
    lines, cpu = timed_lines([options.bin / "troupe", "train", config, "--nproc", ranks, "--job.dump_folder", output])
    ready = next(at for at, line in lines if "ranks are ready, plans agree" in line)
    first = next(at for at, line in lines if "step:" in line and " loss:" in line)
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    side.add(ready, first, [r["step_seconds"] for r in records], [r["loss"] for r in records], cpu)


def run_pytorch(side: Side, options, folder: Path, ranks: int, bf16: bool, compiled: bool = False) -> None:
    command = [PYTHON, HERE / "pytorch_step.py", "--shape", json.dumps(SHAPE), "--ranks", ranks, "--threads", options.threads, "--steps", options.steps,
               "--batch", options.batch, "--seq-len", options.seq_len, "--rendezvous", folder / f"rendezvous{time.monotonic_ns()}"]
    command += ["--bf16"] * bf16 + ["--compile"] * compiled + ["--matrix"] * (not side.matrix and not compiled)
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads))
    lines, cpu = timed_lines(command, env=environment)
    records = [(at, json.loads(line)) for at, line in lines if line.startswith("{")]
    steps = [(at, r) for at, r in records if "step" in r]
    side.matrix += [r["matrix"] for _, r in records if "matrix" in r]
    side.add(next(at for at, r in records if "ready" in r), steps[0][0], [r["seconds"] for _, r in steps], [r["loss"] for _, r in steps], cpu)


def compare(name: str, options, folder: Path) -> bool:
    ranks, bf16, asked = CASES[name]
    ours, theirs, compiled = Side(), Side(), Side()
    for number in range(options.rounds):
        runs = [lambda: run_troupe(ours, options, folder, ranks, bf16), lambda: run_pytorch(theirs, options, folder, ranks, bf16)]
        for run in runs if number % 2 == 0 else reversed(runs):
            try:
                run()
            except SystemExit as problem:  # Gloo's processes do not always live to their end
                print(f"  once more, since {problem}", file=sys.stderr)
                run()
        if options.compile and ranks == 1 and number == 0:
            try:
                run_pytorch(compiled, options, folder, ranks, bf16, compiled=True)
            except SystemExit as problem:
                print(f"  torch.compile does not work here: {str(problem).splitlines()[-1]}")
                options.compile = False
    share = statistics.median(theirs.matrix)
    ratio = theirs.step / ours.step
    print(f"{name}: {ranks} rank{'s' * (ranks > 1)} of {options.threads} thread{'s' * (options.threads > 1)}, {'bf16' if bf16 else 'fp32'}")
    print(f"  troupe   {ours.spread()}  {statistics.median(ours.cpu):.2f} CPU s a step, start included")
    print(f"  PyTorch  {theirs.spread()}  {statistics.median(theirs.cpu):.2f}")
    print(f"  ratio    {ratio:.3f}   (asked: {asked:.2f})   matrix work is {share:.1%} of PyTorch's step: bound {1 / share:.2f}")
    if compiled.seconds:
        print(f"  torch.compile  {compiled.spread()}  ratio {compiled.step / ours.step:.3f}")
    ready = statistics.median(theirs.ready) / statistics.median(ours.ready)
    for what, a, b in (("until the first step begins", ours.ready, theirs.ready), ("until it is done", ours.first, theirs.first)):
        a, b = statistics.median(a), statistics.median(b)
        print(f"  from the command {what}: troupe {a:.2f} s, PyTorch {b:.2f} s, {b / a:.1f} times as long" + (" (asked: 4.0)" if a < statistics.median(ours.first) else ""))
    print(f"  losses of the last step: {ours.losses[-1]:.3f}, {theirs.losses[-1]:.3f} (different data)", flush=True)
    return ratio >= asked and ready >= 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path)
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    for name, value in (("rounds", 5), ("steps", 12), ("threads", 1), ("batch", 2), ("seq-len", 512)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help="torch.compile beside eager, once a case")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    if not PYTHON.exists():
        sys.exit("third_party/venv is missing: tools/setup.sh --python makes it")
    print(f"Llama 3 layout, dim {SHAPE['dim']}, {SHAPE['layers']} layers, vocabulary {SHAPE['vocabulary']}; {options.batch} x {options.seq_len} tokens a rank")
    with tempfile.TemporaryDirectory(prefix="troupe-pytorch-") as folder:
        good = [compare(name, options, Path(folder)) for name in options.only]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
