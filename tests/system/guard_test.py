"""[training.guard]: training goes back to an earlier state after a loss that is not finite, or a spike, and skips what lies between."""
import math
import unittest

from job import Job
from recovery_test import journal, told

# With step 20 the rate is out of all proportion: its update ruins the weights. From step 21 on it is as before.
RUIN = ("--live.changes=step=20 optimizer.lr={lr},step=21 optimizer.lr=1e-3",)
SNAPSHOTS = ("--elastic.memory_interval", 2, "--training.guard.rollback_steps", 3)
ROLLBACK = ("--training.guard.nonfinite=rollback", *SNAPSHOTS)
SPIKES = ("--training.guard.spike_factor=1.5", "--training.guard.spike_window=8")


class GuardTest(unittest.TestCase):
    def train(self, lr, *arguments, checkpoint=False, steps=40):
        self.job = Job(steps=steps, checkpoint=checkpoint)
        self.addCleanup(self.job.remove)
        return self.again(lr, *arguments)

    def again(self, lr, *arguments):
        code, output = self.job.train("--nproc", 2, *[text.format(lr=lr) for text in RUIN], *arguments)
        self.assertEqual(self.job.workers(), [])
        return code, output

    def expect_a_rollback(self, output, step, to):
        lines = self.job.metrics()
        self.assertEqual([line["step"] for line in lines], list(range(1, 41)), output)
        self.assertEqual([(event["step"], event["to_step"]) for event in journal(self.job, "rollback")], [(step, to)], output)
        after = [line["loss"] for line in lines if line["step"] > step]
        self.assertTrue(all(math.isfinite(loss) and loss < 7 for loss in after), after)

    def test_a_loss_that_is_not_finite_rolls_back_and_a_death_before_or_after_changes_nothing(self):
        code, output = self.train("1e30", *ROLLBACK, "--elastic.policy", "respawn")
        self.assertEqual(code, 0, output)
        self.expect_a_rollback(output, 21, 18)
        self.assertIn("training goes on with step 22 from the snapshot of step 18 in memory (training.guard)", output)
        undisturbed = told(self.job)
        for step in (21, 22, 31):  # with the rollback, before there is a snapshot after it, and then
            code, output = self.train("1e30", *ROLLBACK, "--elastic.policy", "respawn", f"--faults.rules=site=process rank=1 step={step} action=crash")
            self.assertEqual(code, 0, output)
            self.assertEqual(len(journal(self.job, "respawn")), 1, output)
            self.assertEqual(told(self.job), undisturbed, output)

    def test_policy_stop_keeps_snapshots_too_and_checkpoints_of_the_past_are_set_aside_so_that_a_later_start_repeats_it(self):
        code, output = self.train("1e30", *ROLLBACK, "--checkpoint.interval", 8, "--checkpoint.keep_latest_k", 0, checkpoint=True)
        self.assertEqual(code, 0, output)
        self.expect_a_rollback(output, 21, 18)
        self.assertEqual(self.job.checkpoints(), ["step-16", "step-24", "step-32", "step-40", "step-8"])
        undisturbed = told(self.job)
        arguments = (*ROLLBACK, "--checkpoint.interval", 5)
        code, output = self.train("1e30", *arguments, "--faults.rules=site=process rank=1 step=23 action=crash", checkpoint=True)
        self.assertEqual(code, 1, output)
        self.assertEqual(self.job.checkpoints(), ["step-10", "step-15", "step-20.abandoned-1", "step-5"], output)
        code, output = self.again("1e30", *arguments)
        self.assertEqual(code, 0, output)
        self.assertIn("resuming from the checkpoint of step 15", output)
        self.assertEqual(told(self.job), undisturbed, output)

    def test_without_snapshots_it_leads_to_where_the_run_began(self):
        code, output = self.train("1e30", "--training.guard.nonfinite=rollback", "--elastic.memory_interval=0")
        self.assertEqual(code, 0, output)
        self.expect_a_rollback(output, 21, 0)

    def test_a_spike_rolls_back_before_its_cause(self):
        code, output = self.train("30", *SPIKES, *SNAPSHOTS)
        self.assertEqual(code, 0, output)
        self.expect_a_rollback(output, 21, 18)
        self.assertRegex(output, r"step 21: its loss \d+\.\d+ is above 1\.5 times the median of the steps before, \d\.\d+; training goes on with step 22")

    def test_a_spike_stops_the_run_where_that_is_asked_for(self):
        code, output = self.train("30", *SPIKES, "--training.guard.spike=stop")
        self.assertEqual(code, 1, output)
        self.assertIn('(training.guard.spike = "stop")', output)

    def test_more_rollbacks_than_are_allowed_end_the_run(self):
        self.job = Job(steps=40, checkpoint=False)
        self.addCleanup(self.job.remove)
        code, output = self.job.train("--nproc", 2, "--optimizer.lr=1e30", "--lr_scheduler.warmup_steps=0", "--training.guard.nonfinite=rollback",
                                      "--training.guard.rollbacks=3")
        self.assertEqual(code, 1, output)
        self.assertIn("training was rolled back 3 times already (training.guard.rollbacks)", output)
        self.assertEqual(len(journal(self.job, "rollback")), 3)

    def test_more_snapshots_than_are_held_are_refused_with_what_to_do(self):
        code, output = self.train("1e30", "--training.guard.nonfinite=rollback", "--training.guard.rollback_steps=100")
        self.assertNotEqual(code, 0)
        self.assertIn("training.guard.rollback_steps = 100 with elastic.memory_interval = 10 takes 12 snapshots in memory, at most 7 are held", output)


if __name__ == "__main__":
    unittest.main()
