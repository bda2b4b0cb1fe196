"""What a run reports: event files as a small reader with the viewers' rule sees them, and as TensorBoard's own does where it is installed."""
import json
import pathlib
import signal
import struct
import subprocess
import unittest

from job import Job, wait_until

VENV = pathlib.Path(__file__).resolve().parents[2] / "third_party/venv/bin/python"


def fields(message):
    """(number, value) of a protocol buffer; bytes stay bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            yield key >> 3, message[at:at + size]
            at += size


def records(path):
    data = path.read_bytes()
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if at + 16 + length > len(data):
            return  # the tail that a crash cut
        yield data[at + 12:at + 12 + length]
        at += 16 + length


def scalars(folder):
    """{tag: {step: value}}: a session's start drops what earlier files say of its first step and later ones."""
    found = {}
    for path in sorted(folder.glob("events.out.tfevents.*"), key=lambda p: (int(p.name.split(".")[3]), p.stat().st_mtime)):
        for number, record in enumerate(records(path)):
            event = dict(fields(record))
            if number == 0:
                assert event[3] == b"brain.Event:2", event
            if 7 in event and dict(fields(event[7])).get(1) == 1:
                for steps in found.values():
                    for step in [step for step in steps if step >= event.get(2, 0)]:
                        del steps[step]
            for key, value in fields(event.get(5, b"")):
                point = dict(fields(value))
                steps = found.setdefault(point[1].decode(), {})
                assert event[2] not in steps, f"{point[1]} stands twice at step {event[2]}"
                steps[event[2]] = struct.unpack("<f", point[2])[0]
    return found


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class MetricsTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(steps=12)
        self.addCleanup(self.job.remove)

    def folders(self):
        return sorted(entry for entry in (self.job.run / "tb").iterdir() if entry.is_dir())

    def test_event_files_hold_the_numbers_of_the_metrics_file_and_of_each_rank(self):
        code, output = self.job.train("--nproc", 2, "--metrics.enable_tensorboard", "--metrics.save_for_all_ranks", "--metrics.log_freq", 4,
                                      "--metrics.peak_flops", 1e12, "--metrics.peak_flops_fp8", 2e12)
        self.assertEqual(code, 0, output)
        (folder,) = self.folders()
        found = scalars(folder)
        lines = {line["step"]: line for line in self.job.metrics()}
        self.assertEqual(found["loss_metrics/global_avg_loss"], {step: single(lines[step]["loss"]) for step in (1, 4, 8, 12)})
        self.assertEqual(found["lr"], {step: single(lines[step]["lr"]) for step in (1, 4, 8, 12)})
        self.assertEqual(found["n_tokens_seen"][12], lines[12]["tokens"])
        for line in lines.values():
            self.assertAlmostEqual(line["mfu"] / (100 * line["tflops"] * 1e12 / 1e12), 1, delta=1e-12)
            self.assertAlmostEqual(line["mfu_causal"] / (100 * line["tflops_causal"] * 1e12 / 1e12), 1, delta=1e-12)
            self.assertAlmostEqual(line["mfu_fp8"] / line["mfu"], 0.5, delta=1e-12)
        self.assertEqual(found["mfu(%)"][1], single(lines[1]["mfu"]))
        self.assertRegex(output, r"mfu: \d+\.\d\d%")
        ranks = [scalars(folder / f"rank_{rank}") for rank in range(2)]
        for step in (1, 4, 8, 12):
            own = [rank["loss_metrics/global_max_loss"][step] for rank in ranks]
            self.assertEqual(max(own), found["loss_metrics/global_max_loss"][step])
            self.assertNotEqual(own[0], own[1])
        if VENV.exists():
            theirs = json.loads(subprocess.check_output([VENV, pathlib.Path(__file__).with_name("tensorboard_reader.py"), folder], text=True, stderr=subprocess.PIPE))
            for tag, steps in found.items():
                self.assertEqual({step: value for step, value in theirs[tag]}, steps, tag)

    # B143: killed past a checkpoint and resumed, each step is seen once; B145: only the tail is cut
    def test_a_resumed_run_leaves_one_curve(self):
        arguments = ("--nproc", 2, "--metrics.enable_tensorboard", "--checkpoint.enable_first_step_checkpoint")  # and no other: the rest is to be repeated
        first = self.job.start(*arguments, "--training.steps", 100000)
        self.job.wait_for_step(50, first)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        wait_until(lambda: not self.job.workers(), "the workers' end")
        self.assertEqual(self.job.checkpoints(), ["step-1"])
        code, output = self.job.train(*arguments, "--training.steps", self.job.metrics()[-1]["step"] + 20)
        self.assertEqual(code, 0, output)
        (folder,) = self.folders()
        self.assertEqual(len(list(folder.glob("events.*"))), 2)
        steps = scalars(folder)["loss_metrics/global_avg_loss"]
        self.assertEqual(sorted(steps), list(range(1, max(steps) + 1)))
        self.assertEqual(steps, {line["step"]: single(line["loss"]) for line in self.job.metrics()})

    def test_the_log_has_the_lines_that_torchtitans_users_look_for(self):
        code, output = self.job.train("--nproc", 2, "--job.description", "a small one", "--training.steps", 3)
        self.assertEqual(code, 0, output)
        code, resumed = self.job.train("--nproc", 2, "--training.steps", 4)
        self.assertEqual(code, 0, resumed)
        for line in ("Starting job: a small one", "Model llama3 debugmodel size: 35,104 total parameters", "Training starts at step 1",
                     "Building 2-D device mesh with ['dp_replicate', 'dp_shard'], [1, 2]", "Training completed: 3 steps",
                     "Trainer is initialized with local batch size 1, global batch size 2, gradient accumulation steps 1, sequence length 32, total steps 3 (warmup 2)"):
            self.assertIn(line, output)
        self.assertIn("mfu: N/A", output)
        self.assertIsNone(self.job.metrics()[0]["mfu"], "a CPU's peak is unknown")
        self.assertIn("Training starts at step 4", resumed)

    def test_only_the_ranks_asked_for_are_heard(self):
        code, output = self.job.train("--nproc", 2, "--metrics.log_ranks", 1, "--training.steps", 2)
        self.assertEqual(code, 0, output)
        self.assertIn("- rank 1 - info -", output)
        self.assertNotIn("- rank 0 - info -", output)

    def test_an_event_folder_outside_the_run_is_refused(self):
        code, output = self.job.train("--nproc", 1, "--metrics.save_tb_folder", "..")
        self.assertEqual(code, 2, output)
        self.assertIn('metrics.save_tb_folder = ".."', output)


if __name__ == "__main__":
    unittest.main()
