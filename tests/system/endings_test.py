"""Ends of runs that take their time."""
import os
import signal
import time
import unittest

from job import Job, finish, wait_until, whole_lines
from recovery_test import journal


class StuckWorkerTest(unittest.TestCase):
    def test_a_second_signal_ends_at_once_though_a_worker_does_not_end(self):
        job = Job(steps=100000)
        self.addCleanup(job.remove)
        process = job.start("--nproc", 2)
        self.addCleanup(process.kill)
        job.wait_for_step(2, process)
        stuck = job.pid_of_rank(1)
        os.kill(stuck, signal.SIGSTOP)
        os.kill(job.pid_of_rank(0), signal.SIGKILL)  # the run fails; rank 1, stopped before, does not end by itself
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        journal = job.run / "journal.jsonl"
        wait_until(lambda: '"event":"end"' in journal.read_text(), "the job is over", 40)
        over = time.monotonic()
        process.send_signal(signal.SIGINT)
        code, output = finish(process)
        self.assertEqual(code, 128 + signal.SIGINT, output)
        self.assertLess(time.monotonic() - over, 7, f"the grace of 7.5 s was waited for; the job was over {over - began:.1f} s after the first signal:\n{output}")
        self.assertEqual(job.workers(), [])


class SecondSignalTest(unittest.TestCase):
    def test_what_the_launcher_kills_itself_is_no_death_in_the_journal(self):
        job = Job(steps=100000)
        self.addCleanup(job.remove)
        process = job.start("--nproc", 2, "--faults.rules=site=lane kind=forward rank=1 step=5 action=stall")
        self.addCleanup(process.kill)
        wait_until(lambda: journal(job, "fault_fired"), "rank 1 stands still")
        for _ in range(2):
            asked = len(journal(job, "stop_requested"))
            process.send_signal(signal.SIGINT)
            wait_until(lambda: len(journal(job, "stop_requested")) > asked or process.poll() is not None, "the signal is heard")
        code, output = finish(process)
        self.assertEqual(code, 128 + signal.SIGINT, output)
        self.assertIn("Interrupt again: stopping at once", output)
        events = [line["event"] for line in whole_lines(job.run / "journal.jsonl")]
        self.assertNotIn("fault", events[events.index("stop_requested"):])
        self.assertEqual(job.workers(), [])


class LastMomentTest(unittest.TestCase):
    """Between the last step and the end: rank 1 still writes its part of the last checkpoint."""

    def running(self, seconds):
        self.job = Job(steps=4)
        self.addCleanup(self.job.remove)
        process = self.job.start("--nproc", 2, f"--faults.rules=site=lane kind=save rank=1 step=4 action=delay for={seconds}s")
        self.addCleanup(process.kill)
        self.job.wait_for_step(4, process)
        return process

    def test_a_rank_killed_after_the_last_step_ends_the_run_with_an_error_and_no_checkpoint(self):
        process = self.running(60)
        victim = self.job.pid_of_rank(1)
        began = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        code, output = finish(process)
        self.assertEqual(code, 1, output)
        self.assertLess(time.monotonic() - began, 30)
        self.assertIn(f"the run has failed after step 4: rank 1 (pid {victim}) was killed by signal 9", output)
        self.assertNotIn("step-4", self.job.checkpoints())
        self.assertEqual(self.job.workers(), [])

    def test_a_rank_stopped_for_three_seconds_after_the_last_step_is_waited_for(self):
        process = self.running(8)  # so long the test has to stop it
        late = self.job.pid_of_rank(1)
        os.kill(late, signal.SIGSTOP)
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 3, "three seconds are over", 10)
        self.assertIsNone(process.poll(), "the launcher waits for it")
        os.kill(late, signal.SIGCONT)
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        self.assertEqual(self.job.checkpoints(), ["step-4"], output)
        self.assertEqual(self.job.workers(), [])
