"""A tiny training job in a temporary folder, started as a user starts it."""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

TROUPE = os.environ["TROUPE"]
WORKER = os.environ["TROUPE_WORKER"]
DEVICE = os.environ.get("TROUPE_DEVICE", "cpu")  # "cuda": jobs train on this machine's GPUs, bit for bit repeatable as on a CPU (tools/test --device cuda)
PATIENCE = 90  # seconds; the machine may be busy
TIMES = ("tps", "step_seconds", "tflops", "tflops_causal", "mfu", "mfu_causal", "mfu_fp8", "wait_batch_seconds", "wait_weights_seconds", "wait_gradients_seconds",
         "wait_snapshots_seconds", "arena_peak_bytes", "validation_seconds")

CONFIG = """
[job]
dump_folder = "{run}"
[model]
name = "llama3"
flavor = "debugmodel"
dim = 32
n_layers = 2
n_heads = 4
n_kv_heads = 2
ffn_hidden = 64
multiple_of = 32
vocab_size = 258
converters = ["float8"]
[optimizer]
lr = 1e-3
[lr_scheduler]
warmup_steps = 2
total_steps = 1000
[training]
local_batch_size = 1
seq_len = 32
steps = {steps}
mixed_precision_param = "float32"
dataset_path = "{data}"
[checkpoint]
enable = {checkpoint}
interval = 1000000
last_save_model_only = false
[metrics]
log_freq = 1
[comm]
init_timeout_seconds = 60
"""


def gpus():
    return len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())


def on_device(command, arguments):
    """The arguments of a job on DEVICE. A test of more ranks than there are GPUs is left out, and says so."""
    if DEVICE == "cpu" or command != "train" or "--device" in arguments:
        return arguments
    for option in ("--nproc", "--ranks-in-process"):
        given = arguments[arguments.index(option) + 1] if option in arguments else "1"
        ranks = int(given) if given.isdigit() else 1
        if ranks > (gpus() if option == "--nproc" else 1):
            raise unittest.SkipTest(f"{option} {ranks}: this machine has {gpus()} GPUs, one rank each")
    return [*arguments, "--device", DEVICE, "--debug.deterministic"]


class Job:
    def __init__(self, steps=6, checkpoint=True):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="troupe-system-"))
        self.run = self.folder / "run"
        self.config = self.folder / "job.toml"
        data = self.folder / "data.txt"
        words = "the quick brown fox jumps over a lazy dog while rain falls on seven hills".split()
        dice = random.Random(7)
        data.write_text("\n%\n".join(" ".join(dice.choice(words) for _ in range(40)) for _ in range(200)))
        self.config.write_text(CONFIG.format(run=self.run, steps=steps, data=data, checkpoint=str(checkpoint).lower()))

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *arguments, command="train", **kwargs):
        return subprocess.Popen([TROUPE, command, str(self.config), *on_device(command, [str(a) for a in arguments])], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)

    def train(self, *arguments, **kwargs):
        """Runs to the end: exit code and output."""
        return finish(self.start(*arguments, **kwargs))

    def metrics(self):
        return whole_lines(self.run / "metrics.jsonl")

    def numbers(self):
        """metrics.jsonl without what depends on the clock."""
        return [{key: value for key, value in line.items() if key not in TIMES} for line in self.metrics()]

    def wait_for_step(self, step, process):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            lines = self.metrics()
            if lines and lines[-1]["step"] >= step:
                return
            if process.poll() is not None:
                raise AssertionError(f"ended before step {step}: {process.communicate()[0]}")
            time.sleep(0.05)
        process.kill()
        raise AssertionError(f"no step {step} within {PATIENCE} s: {process.communicate()[0]}")

    def checkpoints(self):
        folder = self.run / "checkpoint"
        return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []

    def workers(self):
        """PIDs of live worker processes of this job, by the run's journal."""
        events = whole_lines(self.run / "journal.jsonl")
        pids = {event["pid"] for event in events if event["event"] == "joined"}
        return [pid for pid in pids if alive(pid)]

    def pid_of_rank(self, rank):
        events = whole_lines(self.run / "journal.jsonl")
        return [event["pid"] for event in events if event["event"] == "joined" and event["rank"] == rank][-1]


def whole_lines(file):
    """The objects of a .jsonl file that a live run may be writing to: a line without its end is not there yet."""
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def finish(process, limit=PATIENCE):
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"did not end within {limit} s:\n{output}")
    return process.returncode, output


def wait_until(condition, what, limit=PATIENCE):
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit} s: {what}")
        time.sleep(0.05)
