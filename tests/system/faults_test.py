import json
import unittest

from job import Job


class FaultsTest(unittest.TestCase):
    """[faults]: what a run makes of faults that were put into it on purpose."""

    def setUp(self):
        self.job = Job(steps=8, checkpoint=False)
        self.addCleanup(self.job.remove)

    def train(self, *rules, arguments=()):
        code, output = self.job.train("--nproc", 2, *[f"--faults.rules={rule}" for rule in rules], *arguments)
        self.assertEqual(self.job.workers(), [])
        return code, output

    def log_of(self, rank):
        return (self.job.run / "logs" / f"rank-{rank}.log").read_text()

    def test_a_late_operation_changes_no_number_and_stands_in_log_and_trace(self):
        undisturbed = Job(steps=8, checkpoint=False)
        self.addCleanup(undisturbed.remove)
        code, output = undisturbed.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        code, output = self.train("site=lane rank=1 kind=gather unit=2 step=5 action=delay for=60ms", arguments=("--trace.enable",))
        self.assertEqual(code, 0, output)
        self.assertEqual(self.job.numbers(), undisturbed.numbers())
        fired = "fault rule 1 (site=lane kind=\"gather\" rank=1 step=5 unit=2 action=delay for=60ms) fired: lane comm, gather L2, step 5, micro-batch 0, L2"
        self.assertEqual(self.log_of(1).count(fired), 1)
        self.assertNotIn("fault rule", self.log_of(0))
        events = json.loads((self.job.run / "trace" / "rank-1.json").read_text())["traceEvents"]
        self.assertEqual([event["ph"] for event in events if event["name"] == fired], ["i"])
        late = [event["dur"] for event in events if event["ph"] == "X" and event["name"] == "gather L2" and event["args"]["step"] == 5]
        self.assertGreaterEqual(late[0], 60000)

    def test_a_failed_operation_ends_the_run_with_an_error_that_names_it(self):
        code, output = self.train("site=lane kind=forward rank=1 unit=2 step=4 action=fail")
        self.assertEqual(code, 1, output)
        self.assertIn("the run has failed after step 3: forward L2: fault rule 1", output)

    def test_a_failed_collective_ends_the_run_and_not_in_a_wait_for_the_other_rank(self):
        code, output = self.train("site=collective kind=reduce rank=0 step=4 action=fail")
        self.assertEqual(code, 1, output)
        # Either rank may be the first to tell: the one that failed, or the other, which its collective told.
        self.assertRegex(output, r"the run has failed after step 3: reduce L3: (communicator \S+, rank \d: reduce L3: )?fault rule 1")

    def test_a_crash_at_a_step_is_a_death_by_signal_9_and_the_error_names_the_last_step_in_the_metrics(self):
        code, output = self.train("site=process rank=1 step=4 action=crash")
        self.assertEqual(code, 1, output)
        # What rank 1 wrote of step 3 may die with it: the step counts once every rank's report has arrived.
        self.assertRegex(output, r"the run has failed after step [23]: rank 1 \(pid \d+\) was killed by signal 9 \(Killed\)")
        self.assertIn(f"the run has failed after step {self.job.metrics()[-1]['step']}:", output)

    def test_a_stalled_operation_is_named_by_the_watchdog(self):
        code, output = self.train("site=lane kind=reduce rank=1 step=4 action=stall", arguments=("--comm.train_timeout_seconds", 3))
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"no step was finished for 3 s .*rank 1 at step 3 waits \d+\.\d s for comm: reduce L3")

    def test_a_rule_that_no_worker_could_obey_is_refused_before_anything_starts(self):
        code, output = self.train("site=storage action=stall")
        self.assertEqual(code, 2, output)
        self.assertIn("faults.rules: rule 1, 'site=storage action=stall': nothing ends a stall of storage but its time", output)
        self.assertFalse(self.job.run.exists())


if __name__ == "__main__":
    unittest.main()
