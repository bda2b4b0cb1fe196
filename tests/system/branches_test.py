"""Going back to an older checkpoint begins a new branch: the old one is set aside, and the next start goes on from the new."""
import signal
import unittest

from job import Job, finish, wait_until


class BranchesTest(unittest.TestCase):
    def test_the_branch_that_was_left_is_neither_resumed_nor_deleted(self):
        job = Job(steps=60)
        self.addCleanup(job.remove)
        periodic = ("--nproc", 2, "--checkpoint.interval", 20, "--checkpoint.keep_latest_k", 2)
        code, output = job.train(*periodic)
        self.assertEqual(code, 0, output)
        self.assertEqual(sorted(job.checkpoints()), ["step-40", "step-60"])
        process = job.start("--nproc", 2, "--checkpoint.interval", 1000000, "--checkpoint.keep_latest_k", 2, "--checkpoint.load_step", 40, "--training.steps", 100000)
        self.addCleanup(process.kill)
        wait_until(lambda: (job.run / "journal.jsonl").read_text().count('"ready"') == 2, "ready again: the old branch's metrics are cut")
        job.wait_for_step(45, process)
        process.send_signal(signal.SIGTERM)
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        stopped = job.metrics()[-1]["step"]
        self.assertIn("step-60 was renamed to step-60.abandoned-1: it is newer than step 40", output)
        names = {entry.name for entry in (job.run / "checkpoint").iterdir()}
        self.assertEqual(names, {"step-40", "step-60.abandoned-1", f"step-{stopped}"})
        code, output = job.train("--nproc", 2, "--training.steps", stopped + 2)
        self.assertEqual(code, 0, output)
        self.assertIn(f"resuming from the checkpoint of step {stopped}", output)


if __name__ == "__main__":
    unittest.main()
