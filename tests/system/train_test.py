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
        self.assertIn("training completed: 6 steps", output)
        for name in ("config.toml", "journal.jsonl", "control.json", "logs/rank-0.log", "logs/rank-1.log"):
            self.assertTrue((self.job.run / name).exists(), name)
        self.assertEqual((self.job.run / "control.json").stat().st_mode & 0o777, 0o600)
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
        steps = 60
        undisturbed, stopped = Job(steps), Job(steps)
        self.addCleanup(undisturbed.remove)
        self.addCleanup(stopped.remove)
        code, output = undisturbed.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        process = stopped.start("--nproc", 2)
        stopped.wait_for_step(3, process)
        process.send_signal(signal.SIGTERM)
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        last = stopped.metrics()[-1]["step"]
        self.assertLess(last, steps, "it was stopped too late to show anything")
        self.assertEqual(stopped.checkpoints(), [f"step-{last}"], output)
        self.assertIn(f"stopped on request after step {last}", output)
        code, output = stopped.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        self.assertIn(f"resuming from the checkpoint of step {last}", output)
        self.assertEqual(stopped.numbers(), undisturbed.numbers())

    def test_two_jobs_at_once_on_one_host_both_run(self):
        other = Job(steps=6)
        self.addCleanup(other.remove)
        for code, output in [finish(process) for process in [self.job.start("--nproc", 2), other.start("--nproc", 2)]]:
            self.assertEqual(code, 0, output)
        self.assertEqual(self.job.numbers(), other.numbers())

    def test_a_sample_is_drawn_from_the_trained_weights(self):
        code, output = self.job.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        result = subprocess.run([TROUPE, "sample", str(self.job.config), "--prompt", "the ", "--tokens", "8"], capture_output=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.startswith(b"the "), result.stdout)
        self.assertIn(b"step-6", result.stderr)
