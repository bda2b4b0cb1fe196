import json
import unittest

from job import Job


class ParallelTest(unittest.TestCase):
    """Whole jobs whose ranks share the work in different ways: the same rows a step, the same losses and norms."""

    ROWS = 8
    STEPS = 20

    def job(self, ranks, *arguments, rows=ROWS, processes=False, checkpoint=False):
        job = Job(steps=self.STEPS, checkpoint=checkpoint)
        self.addCleanup(job.remove)
        job.config.write_text(job.config.read_text().replace('converters = ["float8"]', ""))
        settings = ["--training.global_batch_size", rows]
        code, output = job.train("--nproc" if processes else "--ranks-in-process", ranks, *settings, *arguments)
        self.assertEqual(code, 0, output)
        return job, output

    def expect_same(self, found, expected):
        self.assertEqual(len(found.metrics()), self.STEPS)
        for one, other in zip(found.metrics(), expected.metrics()):
            self.assertEqual(one["outcome"], "commit")
            self.assertEqual(one["tokens"], other["tokens"])
            for key in ("loss", "grad_norm"):
                self.assertAlmostEqual(one[key] / other[key], 1, delta=1e-5, msg=f"{key} of step {one['step']}")

    def test_every_mesh_gives_the_losses_and_norms_of_one_rank(self):
        alone, _ = self.job(1, "--training.local_batch_size", 8)
        replicas = "--parallelism.data_parallel_replicate_degree"
        for ranks, arguments in (
            (2, []),
            (2, [replicas, 2]),
            (3, []),
            (4, [replicas, 2]),
            (4, [replicas, 4, "--parallelism.data_parallel_shard_degree", 1]),
            (8, [replicas, 2]),
        ):
            with self.subTest(ranks=ranks, arguments=arguments):
                job, _ = self.job(ranks, *arguments)
                self.expect_same(job, alone)
        with self.subTest("groups of ranks over the transport"):
            job, _ = self.job(4, replicas, 2, "--comm.collectives", "transport", processes=True)
            self.expect_same(job, alone)

    def test_every_plan_gives_the_losses_and_norms_of_one_rank(self):
        alone, _ = self.job(1, "--training.local_batch_size", 8)
        replicas, reshard = "--parallelism.data_parallel_replicate_degree", "--parallelism.fsdp_reshard_after_forward"
        last = ["--parallelism.reduce_gradients", "last"]
        gathered = {}
        for name, ranks, arguments in (
            ("always", 2, [reshard, "always"]),
            ("default", 2, []),
            ("never", 2, [reshard, "never"]),
            ("last", 2, last),
            ("last and never, replicated", 4, [replicas, 2, reshard, "never", *last]),
            ("offload", 2, ["--training.enable_cpu_offload"]),
        ):
            with self.subTest(name):
                job, _ = self.job(ranks, *arguments)
                self.expect_same(job, alone)
                gathered[name] = job.metrics()[-1]["bytes_gathered"]
        self.assertGreater(gathered["always"], gathered["default"])
        self.assertGreater(gathered["default"], gathered["never"])

    def test_rows_that_no_number_of_ranks_divides_are_trained_on_once(self):
        alone, _ = self.job(1, "--training.local_batch_size", 7, rows=7)
        for ranks, arguments in ((1, ["--training.local_batch_size", 2]), (2, ["--training.local_batch_size", 3]), (3, []), (4, ["--parallelism.data_parallel_replicate_degree", 2])):
            with self.subTest(ranks=ranks):
                job, output = self.job(ranks, *arguments, rows=7)
                self.assertIn("padding", output)
                self.expect_same(job, alone)

    def test_replicas_share_a_checkpoint_and_any_mesh_goes_on_from_it(self):
        replicated = ["--parallelism.data_parallel_replicate_degree", 2]
        undisturbed, _ = self.job(4, *replicated, checkpoint=True)
        sharded, _ = self.job(2, "--training.steps", 12, "--checkpoint.interval", 6, checkpoint=True)
        first, _ = self.job(4, *replicated, "--training.steps", 12, "--checkpoint.interval", 6, processes=True, checkpoint=True)
        manifests = [json.loads((job.run / "checkpoint" / "step-12" / "manifest.json").read_text()) for job in (first, sharded)]
        rows = [{name: sum(part["rows"] for part in tensor["parts"]) for name, tensor in manifest["tensors"].items()} for manifest in manifests]
        self.assertEqual(rows[0], rows[1], "each row is saved once, whatever the replicas")
        self.assertEqual({part["file"] for tensor in manifests[0]["tensors"].values() for part in tensor["parts"]}, {0, 1, 2, 3}, "replicas share the work")
        for ranks, arguments in ((2, []), (4, replicated)):
            code, output = first.train("--ranks-in-process", ranks, "--training.global_batch_size", self.ROWS, *arguments)
            self.assertEqual(code, 0, output)
            self.assertIn("resuming from the checkpoint of step", output)
            self.expect_same(first, undisturbed)
            (first.run / "checkpoint" / "step-20" / "manifest.json").unlink()

    def test_every_way_of_checkpointing_activations_gives_the_same_numbers_and_the_memory_that_was_told(self):
        mode = "--activation_checkpoint.mode"
        option = "--activation_checkpoint.selective_ac_option"
        kept, _ = self.job(2, mode, "none")
        arenas = {}
        for name, arguments in (
            ("full", [mode, "full"]),
            ("op", [mode, "selective", option, "op"]),
            ("2", [mode, "selective", option, "2"]),
            ("memory_budget", [mode, "memory_budget", "--activation_checkpoint.memory_budget", "0.5"]),
            ("auto", [mode, "auto", "--activation_checkpoint.memory_limit_gib", "0.0007"]),
        ):
            with self.subTest(name):
                job, output = self.job(2, *arguments)
                self.assertEqual(job.numbers()[-1] | {"arena_peak_bytes": 0}, kept.numbers()[-1] | {"arena_peak_bytes": 0})
                self.assertIn("activation checkpointing: ", output)
                self.assertNotIn("bytes were planned", output)
                arenas[name] = job.metrics()[-1]["arena_peak_bytes"]
        arenas["none"] = kept.metrics()[-1]["arena_peak_bytes"]
        self.assertLess(arenas["full"], arenas["op"])
        self.assertLess(arenas["op"], arenas["none"])
        self.assertLessEqual(arenas["auto"], 0.0007 * 2**30)

    def test_what_contradicts_itself_is_refused_with_both_keys(self):
        job = Job(steps=1)
        self.addCleanup(job.remove)
        code, output = job.train("--nproc", 1, "--parallelism.fsdp_reshard_after_forward", "never", "--slots.weights", 3)
        self.assertNotEqual(code, 0)
        self.assertIn('parallelism.fsdp_reshard_after_forward = "never" keeps the weights of all 4 units (embedding, blocks, head), but slots.weights = 3', output)
        code, output = job.train("--nproc", 3, "--parallelism.data_parallel_replicate_degree", 2)
        self.assertNotEqual(code, 0)
        self.assertIn("the world of 3 ranks is no multiple of 2", output)
        code, output = job.train("--nproc", 1, "--activation_checkpoint.mode", "auto", "--activation_checkpoint.memory_limit_gib", "0.0001")
        self.assertNotEqual(code, 0)
        self.assertIn("raise activation_checkpoint.memory_limit_gib", output)
        code, output = job.train("--nproc", 1, "--activation_checkpoint.selective_ac_option", "0")
        self.assertNotEqual(code, 0)
        self.assertIn('activation_checkpoint.selective_ac_option: expected "op" or a positive integer as a string, found "0"', output)
