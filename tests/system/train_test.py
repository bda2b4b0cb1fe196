import json
import signal
import subprocess
import unittest

from job import Job, TROUPE, finish


class TrainTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(steps=6)
        self.addCleanup(self.job.remove)

    def test_two_processes_train_to_the_end_and_seal_a_checkpoint(self):
        code, output = self.job.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        lines = self.job.metrics()
        self.assertEqual([line["step"] for line in lines], list(range(1, 7)), output)
        self.assertEqual({line["outcome"] for line in lines}, {"commit"})
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])
        self.assertEqual(self.job.checkpoints(), ["step-6"], output)
        summary = f"Training completed: 6 steps; last loss {lines[-1]['loss']:.4f}; checkpoint of step 6 in {self.job.run}/checkpoint/step-6; metrics in {self.job.run}/metrics.jsonl; timeline in {self.job.run}/trace (troupe trace {self.job.run})"
        self.assertIn(summary, output)
        for name in ("config.toml", "journal.jsonl", "logs/rank-0.log", "logs/rank-1.log"):
            self.assertTrue((self.job.run / name).exists(), name)
        self.assertFalse((self.job.run / "control.json").exists(), "it holds the token of a run that is over")
        self.assertEqual(self.job.workers(), [])

    def test_two_ranks_in_one_process_give_the_same_numbers_as_two_processes(self):
        code, output = self.job.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        other = Job(steps=6)
        self.addCleanup(other.remove)
        code, output = other.train("--ranks-in-process", 2)
        self.assertEqual(code, 0, output)
        self.assertEqual(self.job.numbers(), other.numbers())

    def test_stopped_by_sigterm_and_resumed_equals_the_undisturbed_run(self):
        stopped = Job(steps=100000)
        self.addCleanup(stopped.remove)
        process = stopped.start("--nproc", 2)
        stopped.wait_for_step(3, process)
        process.send_signal(signal.SIGTERM)
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        last = stopped.metrics()[-1]["step"]
        self.assertEqual(stopped.checkpoints(), [f"step-{last}"], output)
        self.assertIn(f"stopped on request after step {last}", output)
        code, output = stopped.train("--nproc", 2, "--training.steps", last + 40)
        self.assertEqual(code, 0, output)
        self.assertIn(f"resuming from the checkpoint of step {last}", output)
        undisturbed = Job(steps=last + 40)
        self.addCleanup(undisturbed.remove)
        code, output = undisturbed.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        self.assertEqual(stopped.numbers(), undisturbed.numbers())

    def test_a_resumed_run_says_what_has_changed_in_its_configuration(self):
        code, output = self.job.train("--nproc", 1)
        self.assertEqual(code, 0, output)
        manifest = json.loads((self.job.run / "checkpoint" / "step-6" / "manifest.json").read_text())
        self.assertIn("warmup_steps = 2", manifest["config"])
        index, = (self.job.run / "index").glob("*.index")
        made = index.stat().st_ino
        code, output = self.job.train("--nproc", 1, "--training.steps", 8, "--optimizer.lr", "5e-4")
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("the configuration has changed since the checkpoint of step 6"), 2, output)
        self.assertIn("the checkpoint of step 6: optimizer.lr: 0.001 before, 5e-04 now", output)
        self.assertIn("training.steps: 6 before, 8 now", output)
        self.assertEqual([file.stat().st_ino for file in (self.job.run / "index").glob("*.index")], [made], "the index of the data is used again")
        self.assertEqual(len(self.job.metrics()), 8)

    def test_a_resumed_run_says_that_its_data_has_changed(self):
        code, output = self.job.train("--training.steps", 2)
        self.assertEqual(code, 0, output)
        code, output = self.job.train("--training.steps", 4)
        self.assertEqual(code, 0, output)
        self.assertNotIn("the files of the data", output)
        data = self.job.folder / "data.txt"
        before = data.stat().st_size
        with data.open("a") as file:
            file.write("\n%\nmore")
        code, output = self.job.train("--training.steps", 6)
        self.assertEqual(code, 0, output)
        self.assertIn(f"{data} had {before} bytes and has {before + 7}", output)

    def test_traces_of_an_earlier_run_of_more_ranks_are_not_merged_into_this_ones(self):
        for ranks, steps in ((2, 6), (1, 8)):
            code, output = self.job.train("--nproc", ranks, "--trace.enable", "--training.steps", steps, "--training.global_batch_size", 2)
            self.assertEqual(code, 0, output)
            self.assertIn(f"timeline in {self.job.run}/trace (troupe trace {self.job.run})", output)
            self.assertEqual(sorted(file.name for file in (self.job.run / "trace").glob("rank-*.json")), [f"rank-{rank}.json" for rank in range(ranks)])

    def test_two_jobs_at_once_on_one_host_both_run(self):
        other = Job(steps=6)
        self.addCleanup(other.remove)
        for code, output in [finish(process) for process in [self.job.start("--nproc", 2), other.start("--nproc", 2)]]:
            self.assertEqual(code, 0, output)
        self.assertEqual(self.job.numbers(), other.numbers())

    def test_a_sample_of_nothing_trained_has_to_be_asked_for(self):
        def sample(*words):
            done = subprocess.run([TROUPE, "sample", str(self.job.config), "--tokens", "2", *words], capture_output=True, text=True, timeout=60)
            return done.returncode, done.stderr

        code, output = sample()
        self.assertEqual(code, 1, output)
        self.assertIn(f"no checkpoint in {self.job.run}", output)
        self.assertEqual(sample("--untrained")[0], 0)
        for nonsense in ("-1", "nan"):
            code, output = sample("--untrained", "--temperature", nonsense)
            self.assertEqual(code, 2, output)
            self.assertIn("expected a number of at least 0", output)

    def test_a_sample_is_drawn_from_the_trained_weights(self):
        code, output = self.job.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        result = subprocess.run([TROUPE, "sample", str(self.job.config), "--prompt", "the ", "--tokens", "8"], capture_output=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.startswith(b"the "), result.stdout)
        self.assertIn(b"step-6", result.stderr)
        by_folder = subprocess.run([TROUPE, "sample", "run", "--prompt", "the ", "--tokens", "8"], cwd=self.job.folder, capture_output=True, timeout=60)
        self.assertEqual((by_folder.returncode, by_folder.stdout), (0, result.stdout), by_folder.stderr)
        result.stdout.decode("utf-8")  # an untrained byte model makes anything; a terminal is given text
