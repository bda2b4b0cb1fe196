"""Faults of letters and of storage, put into real runs by rules."""
import unittest

from job import Job, finish
from recovery_test import journal, told, undisturbed


class LettersTest(unittest.TestCase):
    STEPS = 60

    @classmethod
    def setUpClass(cls):
        cls.undisturbed = undisturbed(cls.STEPS, 2)

    def train(self, rule, *arguments, checkpoint=False, patience=60):
        """A run with this rule, which must have fired: its output. `patience`: seconds until a step that does not end ends the epoch."""
        self.job = Job(steps=self.STEPS, checkpoint=checkpoint)
        self.addCleanup(self.job.remove)
        code, output = finish(self.job.start("--nproc", 2, "--elastic.policy", "respawn", "--elastic.memory_interval", 4, "--comm.train_timeout_seconds", patience,
                                             f"--faults.rules={rule}", *arguments))
        self.assertEqual(code, 0, output)
        self.assertEqual(told(self.job), self.undisturbed, output)
        self.assertEqual(self.job.workers(), [])
        self.assertGreaterEqual(len(journal(self.job, "fault_fired")), 1, output)
        return output

    def test_a_report_that_is_lost_costs_an_epoch_and_no_number(self):
        self.train("site=letter kind=StepReport rank=1 step=20 action=drop", patience=3)
        self.assertGreaterEqual(len(journal(self.job, "recovered")), 1)

    def test_a_flipped_bit_is_as_good_as_lost(self):
        self.train("site=letter kind=StepReport rank=1 step=20 action=corrupt", patience=3)
        self.assertGreaterEqual(len(journal(self.job, "recovered")), 1)

    def test_a_letter_that_comes_twice_or_late_changes_nothing(self):
        for fault in ("rank=1 action=duplicate times=50", "kind=StepReport rank=1 action=delay for=20ms times=20"):
            self.train(f"site=letter {fault}")
            self.assertEqual(len(journal(self.job, "epoch")), 1)

    def test_a_letter_that_others_overtake_is_refused_and_told_again_by_the_replay(self):
        self.train("site=letter kind=StepReport rank=1 step=20 action=reorder for=100ms", patience=3)

    def test_a_rank_that_dies_as_it_sends_is_started_again(self):
        self.train("site=letter kind=StepReport rank=1 step=20 action=crash")
        self.assertEqual(len(journal(self.job, "respawn")), 1)


class StorageTest(LettersTest):
    SAVE = ("--checkpoint.interval", 20)
    # Those of letters are run once.
    test_a_report_that_is_lost_costs_an_epoch_and_no_number = None
    test_a_flipped_bit_is_as_good_as_lost = None
    test_a_letter_that_comes_twice_or_late_changes_nothing = None
    test_a_letter_that_others_overtake_is_refused_and_told_again_by_the_replay = None
    test_a_rank_that_dies_as_it_sends_is_started_again = None

    def test_a_write_that_fails_or_a_full_disk_costs_one_checkpoint(self):
        for action, said in (("fail", "Input/output error"), ("full", "No space left on device")):
            output = self.train(f"site=storage kind=write rank=1 step=20 action={action}", *self.SAVE, checkpoint=True)
            self.assertIn("checkpoint of step 20 was not saved", output)
            self.assertIn(said, output)
            self.assertEqual(self.job.checkpoints(), ["step-40", "step-60"])

    def test_slow_storage_holds_up_nothing_but_the_save(self):
        self.train("site=storage kind=sync rank=0 step=20 action=delay for=300ms", *self.SAVE, checkpoint=True)
        self.assertEqual(self.job.checkpoints(), ["step-20", "step-40", "step-60"])

    def test_a_rank_that_dies_half_way_through_a_write_leaves_no_half_of_a_checkpoint(self):
        self.train("site=storage kind=write rank=0 step=40 action=crash", *self.SAVE, checkpoint=True)
        self.assertEqual([name for name in self.job.checkpoints() if "tmp" in name], [])

    def test_a_torn_write_that_nobody_reported_is_found_before_the_checkpoint_is_sealed(self):
        output = self.train("site=storage kind=write rank=1 step=40 action=torn", *self.SAVE, checkpoint=True)
        self.assertIn("checkpoint of step 40 was not saved", output)
        self.assertEqual(self.job.checkpoints(), ["step-20", "step-60"])

    def test_a_flipped_bit_that_nobody_reported_is_found_when_it_is_read(self):
        self.train("site=storage kind=write rank=1 step=60 action=corrupt times=always", *self.SAVE, checkpoint=True)
        code, output = self.job.train("--nproc", 2, "--training.steps", self.STEPS + 2)
        self.assertEqual(code, 0, output)
        self.assertIn("resuming from the checkpoint of step 40", output)


if __name__ == "__main__":
    unittest.main()
