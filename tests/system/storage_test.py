"""Checkpoints that cannot be written: a file stands where their folder would be made."""
import unittest

from job import Job, finish


class StorageTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(steps=400)
        self.addCleanup(self.job.remove)

    def train_with_obstacle_at(self, step, *arguments):
        for _ in range(10):
            process = self.job.start("--nproc", 2, "--overwrite", *arguments)
            self.addCleanup(process.kill)
            self.job.wait_for_step(1, process)
            folder = self.job.run / "checkpoint"
            folder.mkdir(exist_ok=True)
            (folder / f"step-{step}.tmp-1").write_text("in the way")
            in_time = self.job.metrics()[-1]["step"] + 20 < step  # else this test was held up, and the save before it perhaps not
            code, output = finish(process)
            if in_time:
                return code, output
        raise AssertionError("the run was quicker than the test, ten times")

    def test_a_periodic_save_that_fails_is_a_warning_and_training_goes_on(self):
        code, output = self.train_with_obstacle_at(200, "--checkpoint.interval", 200)
        self.assertEqual(code, 0, output)
        self.assertIn("checkpoint of step 200 was not saved", output)
        self.assertEqual(len(self.job.metrics()), 400)
        self.assertIn("step-400", self.job.checkpoints())
        self.assertNotIn("step-200", self.job.checkpoints())

    def test_the_last_save_that_fails_is_an_error(self):
        code, output = self.train_with_obstacle_at(400)
        self.assertEqual(code, 1, output)
        self.assertIn("the last checkpoint (step 400) could not be saved", output)
        self.assertEqual(self.job.workers(), [])
