"""`troupe estimate` against what runs of the same configurations then report."""
import json
import pathlib
import subprocess
import unittest

from job import TROUPE, Job

RUNS = {
    "one rank": (1, []),
    "two shards, fp8 gathered": (2, ["--float8.enable_fsdp_float8_all_gather"]),
    "two shards, all computed again": (2, ["--activation_checkpoint.mode", "full"]),
    "two shards, every second product kept": (2, ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "op"]),
    "two shards, fp8 by rows": (2, ["--float8.recipe_name", "rowwise"]),
    "two shards, state in host memory, an average, two micro-batches": (2, ["--training.enable_cpu_offload", "--optimizer.ema_decay", "0.9", "--training.global_batch_size", "4"]),
    "two replicas, three micro-batches summed": (2, ["--parallelism.data_parallel_replicate_degree", "2", "--training.global_batch_size", "6",
                                                     "--parallelism.reduce_gradients", "last"]),
    "two replicas of two shards, bf16": (4, ["--parallelism.data_parallel_replicate_degree", "2", "--training.mixed_precision_param", "bfloat16"]),
    "two shards, layers updated in the backward pass": (2, ["--optimizer.early_step_in_backward", "--training.max_norm", "0", "--training.guard.nonfinite", "stop"]),
    "three shards, weights kept, more slots": (3, ["--parallelism.fsdp_reshard_after_forward", "never", "--slots.gradients", "3",
                                                   "--optimizer.ema_decay", "0.9"]),
}


def estimate(config, *arguments):
    done = subprocess.run([TROUPE, "estimate", str(config), *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


class EstimateTest(unittest.TestCase):
    def test_memory_and_bytes_are_those_that_the_run_then_counts(self):
        for name, (ranks, options) in RUNS.items():
            with self.subTest(name):
                job = Job(steps=2, checkpoint=False)
                self.addCleanup(job.remove)
                code, text, errors = estimate(job.config, *options, "--ranks", ranks, "--gpu", "cpu", "--json")
                self.assertEqual(code, 0, errors)
                expected = json.loads(text)
                code, output = job.train("--ranks-in-process", ranks, *options)
                self.assertEqual(code, 0, output)
                step = job.metrics()[-1]
                self.assertEqual(expected["bytes_gathered"], step["bytes_gathered"])
                self.assertEqual(expected["bytes_reduced"], step["bytes_reduced"])
                self.assertLess(abs(expected["memory"]["planned_bytes"] / step["arena_peak_bytes"] - 1), 0.03)

    def test_the_8b_preset_takes_what_was_measured_on_two_gpus(self):
        preset = pathlib.Path(__file__).resolve().parents[2] / "configs" / "llama3_8b.toml"
        code, text, errors = estimate(preset, "--ranks", 2, "--json")
        self.assertEqual(code, 0, errors)
        memory = json.loads(text)["memory"]
        self.assertEqual(round(memory["planned_bytes"] / 2**30, 3), 129.061)  # benchmarks/results/gpu-2026-11-30.txt
        self.assertLess(abs(memory["device_bytes"] / 2**30 / 131.923 - 1), 0.01)
        self.assertTrue(memory["fits"])

    def test_snapshots_and_their_copies_on_other_hosts_are_counted(self):
        job = Job()
        self.addCleanup(job.remove)
        for ranks, policy, copies in ((8, "respawn", 0), (16, "respawn", 1), (16, "shrink", 1), (16, "stop", 0)):
            with self.subTest(ranks=ranks, policy=policy):
                code, text, errors = estimate(job.config, "--ranks", ranks, "--gpu", "h200", "--elastic.policy", policy)
                self.assertEqual(code, 0, errors)
                lines = [line.split() for line in text.splitlines()]
                kept = [line[-1] for line in lines if line[:4] == ["snapshots", "kept", "by", "the"]]
                copied = [line[-1] for line in lines if line[:2] == ["copies", "for"]]
                self.assertEqual((bool(kept), copied), (policy != "stop", kept * copies), text)

    def test_what_does_not_fit_is_said(self):
        job = Job()
        self.addCleanup(job.remove)
        code, text, errors = estimate(job.config, "--model.flavor", "8B", "--model.dim", 4096, "--model.n_layers", 32, "--model.ffn_hidden", 14336,
                                      "--model.n_heads", 32, "--training.seq_len", 8192, "--gpu", "a100")
        self.assertEqual(code, 0, errors)
        self.assertIn("does not fit", text)

    def test_an_unknown_device_is_refused_with_the_known_ones(self):
        job = Job()
        self.addCleanup(job.remove)
        code, _, errors = estimate(job.config, "--gpu", "h300")
        self.assertEqual(code, 2)
        self.assertIn("known are h200, h100, a100, b200, cpu", errors)


if __name__ == "__main__":
    unittest.main()
