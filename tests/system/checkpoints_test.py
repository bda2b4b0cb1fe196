"""What is saved when, what a run begins with, and that moving it to other ranks changes nothing."""
import json
import os
import pathlib
import signal
import unittest

from job import Job, alive, finish, wait_until

PLAIN = ("--model.converters", "", "--training.global_batch_size", 24)


class CheckpointsTest(unittest.TestCase):
    def job(self, steps=4, **options):
        job = Job(steps=steps, **options)
        self.addCleanup(job.remove)
        return job

    def train(self, job, *arguments, ranks=1):
        code, output = job.train("--ranks-in-process", ranks, *arguments)
        self.assertEqual(code, 0, output)
        return output

    def manifest(self, job, step):
        return json.loads((job.run / "checkpoint" / f"step-{step}" / "manifest.json").read_text())

    def test_first_step_interval_and_last_step_are_saved_and_the_newest_k_kept(self):
        job = self.job(steps=7)
        self.train(job, "--checkpoint.interval", 3, "--checkpoint.enable_first_step_checkpoint", "--checkpoint.keep_latest_k", 0)
        self.assertEqual(job.checkpoints(), ["step-1", "step-3", "step-6", "step-7"])
        job = self.job(steps=7)
        self.train(job, "--checkpoint.interval", 1, "--checkpoint.keep_latest_k", 2)
        self.assertEqual(job.checkpoints(), ["step-6", "step-7"])

    def test_saving_beside_the_training_or_not_gives_the_same_files(self):
        jobs = {mode: self.job(steps=6) for mode in ("disabled", "async", "async_with_pinned_mem")}
        for mode, job in jobs.items():
            self.train(job, "--checkpoint.interval", 1, "--checkpoint.keep_latest_k", 0, "--checkpoint.async_mode", mode, "--optimizer.lr", "1.0", ranks=2)
        shards = {mode: [self.manifest(job, step)["files"] for step in range(1, 7)] for mode, job in jobs.items()}
        self.assertEqual(shards["async"], shards["disabled"], "bytes and hashes of each step")
        self.assertEqual(shards["async_with_pinned_mem"], shards["disabled"])
        self.assertEqual(len({json.dumps(files) for files in shards["disabled"]}), 6, "each step has a state of its own")

    def test_while_saving_is_not_async_a_step_waits_for_the_seal_of_the_one_before(self):
        job = self.job(steps=4)
        self.train(job, "--checkpoint.interval", 1, "--checkpoint.keep_latest_k", 0)
        events = [json.loads(line) for line in (job.run / "journal.jsonl").read_text().splitlines()]
        self.assertEqual([event["step"] for event in events if event["event"] == "sealed"], [1, 2, 3, 4])

    def test_a_run_that_only_loads_saves_nothing(self):
        job = self.job(steps=3)
        self.train(job)
        output = self.train(job, "--checkpoint.load_only", "--training.steps", 6, "--checkpoint.interval", 1)
        self.assertIn("no checkpoint (checkpoint.load_only)", output)
        self.assertEqual(len(job.metrics()), 6)
        self.assertEqual(job.checkpoints(), ["step-3"])

    def test_a_seed_checkpoint_is_where_any_number_of_ranks_begins(self):
        job, plain = self.job(), self.job()
        output = self.train(job, "--checkpoint.create_seed_checkpoint")
        self.assertIn("the initial weights are the checkpoint of step 0", output)
        self.assertEqual(job.checkpoints(), ["step-0"])
        self.assertEqual(job.metrics(), [])
        code, output = job.train("--ranks-in-process", 2, "--checkpoint.create_seed_checkpoint")
        self.assertEqual(code, 2, output)
        self.train(job, ranks=2)
        self.train(plain, ranks=2)
        self.assertEqual(job.numbers(), plain.numbers())
        # Another seed has other initial weights: the first loss shows which were taken.
        seeded, other = self.job(), self.job()
        self.train(seeded, "--checkpoint.create_seed_checkpoint")
        self.train(seeded, "--debug.seed", 5, "--data.no_shuffle")
        self.train(other, "--data.no_shuffle")
        self.assertEqual(seeded.metrics()[0]["loss"], other.metrics()[0]["loss"])

    def test_a_launcher_that_is_told_to_end_while_the_seed_checkpoint_is_written_ends(self):
        job = self.job()
        process = job.start("--checkpoint.create_seed_checkpoint")
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(lambda: children.read_text().strip(), "the worker that writes it has started")
        worker = int(children.read_text().split()[0])
        os.kill(worker, signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        code, output = finish(process)
        self.assertEqual(code, 128 + signal.SIGTERM, output)
        self.assertIn("while the seed checkpoint is written: stopped", output)
        self.assertFalse(alive(worker))
        self.assertEqual(job.checkpoints(), [])

    def test_a_run_begins_with_the_weights_of_another_or_goes_on_where_it_was(self):
        whole, first = self.job(steps=6), self.job(steps=3)
        self.train(whole, ranks=2)
        self.train(first, ranks=2)
        here = first.run / "checkpoint" / "step-3"
        going_on = self.job(steps=6)
        output = self.train(going_on, "--checkpoint.initial_load_path", here, "--checkpoint.no_initial_load_model_only", ranks=2)
        self.assertIn(f"this run begins from {here}", output)
        self.assertEqual(going_on.numbers(), whole.numbers()[3:])
        weights = self.job(steps=2)
        self.train(weights, "--checkpoint.initial_load_path", first.run / "checkpoint", "--checkpoint.interval", 1)
        self.assertEqual([line["step"] for line in weights.metrics()], [1, 2])
        self.assertLess(weights.metrics()[0]["loss"], first.metrics()[0]["loss"] - 0.05)
        self.assertEqual(self.manifest(weights, 2)["data_row"], 2, "data begins at row 0")
        output = self.train(weights, "--checkpoint.initial_load_path", "/nowhere", "--training.steps", 3)
        self.assertIn("resuming from the checkpoint of step 2", output, "a run with checkpoints of its own needs no other")
        code, output = self.job().train("--checkpoint.initial_load_path", "/nowhere")
        self.assertEqual(code, 2)
        self.assertIn('checkpoint.initial_load_path = "/nowhere": there is no such folder', output)

    def test_parts_that_are_excluded_begin_anew(self):
        def second_half(*arguments):
            job = self.job(steps=3)
            self.train(job, "--checkpoint.interval", 1)
            self.train(job, "--training.steps", 6, *arguments)
            return job
        whole = second_half()
        data = second_half("--checkpoint.exclude_from_loading", "dataloader")
        self.assertEqual(data.metrics()[3]["digest"], data.metrics()[0]["digest"], "row 0 again")
        self.assertNotEqual(whole.metrics()[3]["digest"], whole.metrics()[0]["digest"])
        schedule = second_half("--checkpoint.exclude_from_loading", "lr_scheduler,optimizer")
        self.assertEqual([line["lr"] for line in schedule.metrics()[3:]], [line["lr"] for line in schedule.metrics()[:3]])
        self.assertEqual(schedule.metrics()[3]["loss"], whole.metrics()[3]["loss"], "the same weights and rows")
        self.assertNotEqual(schedule.metrics()[5]["loss"], whole.metrics()[5]["loss"], "but other moments")
        code, output = whole.train("--training.steps", 8, "--checkpoint.exclude_from_loading", "train_state")
        self.assertEqual(code, 2)
        self.assertIn("it would begin again at step 1", output)

    def test_the_last_save_holds_weights_alone_in_the_type_asked_for(self):
        job = self.job(steps=2)
        self.train(job, "--checkpoint.last_save_model_only", "--checkpoint.export_dtype", "bfloat16", "--checkpoint.interval", 1)
        tensors = self.manifest(job, 2)["tensors"]
        self.assertEqual({tensor["dtype"] for tensor in tensors.values()}, {"BF16"})
        self.assertFalse([name for name in tensors if name.startswith("optimizer")])
        self.assertTrue([name for name in self.manifest(job, 1)["tensors"] if name.startswith("optimizer")])
        later = self.job(steps=1)
        self.train(later, "--checkpoint.initial_load_path", job.run / "checkpoint" / "step-2", ranks=3)

    def test_moved_from_ranks_to_ranks_a_run_goes_on_as_if_never_moved(self):
        undisturbed, moved = self.job(steps=14), self.job(steps=14)
        self.train(undisturbed, *PLAIN, ranks=2)
        for steps, ranks in ((2, 2), (4, 8), (6, 3), (8, 1), (10, 4), (12, 2), (14, 3)):
            self.train(moved, *PLAIN, "--training.steps", steps, ranks=ranks)
        expected = undisturbed.metrics()
        for line, other in zip(moved.metrics(), expected, strict=True):
            for key in ("loss", "grad_norm"):
                self.assertAlmostEqual(line[key] / other[key], 1, delta=1e-5, msg=f"step {line['step']}: {key}")
            for key in ("lr", "step_tokens", "tokens"):
                self.assertEqual(line[key], other[key])
        self.assertEqual(self.manifest(moved, 14)["data_row"], 14 * 24, "the position in the data is a number of rows")
