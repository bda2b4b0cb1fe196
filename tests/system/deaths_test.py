import os
import resource
import signal
import time
import unittest

from job import Job, alive, finish, wait_until


class DeathsTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(steps=100000, checkpoint=True)
        self.addCleanup(self.job.remove)

    def running(self, ranks=2):
        process = self.job.start("--nproc", ranks)
        self.addCleanup(process.kill)
        self.job.wait_for_step(2, process)
        return process

    def test_a_rank_killed_by_9_ends_the_run_with_an_error_that_names_it(self):
        process = self.running()
        victim = self.job.pid_of_rank(1)
        began = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        code, output = finish(process)
        self.assertEqual(code, 1, output)
        self.assertLess(time.monotonic() - began, 30)
        self.assertIn(f"rank 1 (pid {victim}) was killed by signal 9 (Killed)", output)
        self.assertIn("rank-1.log", output)
        wait_until(lambda: not self.job.workers(), "all workers gone", 10)

    def test_a_launcher_killed_by_9_leaves_no_worker(self):
        process = self.running()
        workers = self.job.workers()
        self.assertEqual(len(workers), 2)
        process.kill()
        process.communicate()
        wait_until(lambda: not any(alive(pid) for pid in workers), "all workers gone", 10)

    def test_a_signal_to_one_rank_stops_all_at_one_step_with_a_checkpoint(self):
        process = self.running()
        os.kill(self.job.pid_of_rank(1), signal.SIGTERM)
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        last = self.job.metrics()[-1]["step"]
        self.assertEqual(self.job.checkpoints(), [f"step-{last}"], output)
        self.assertEqual(self.job.workers(), [])

    def test_a_second_signal_stops_at_once(self):
        process = self.running()
        process.send_signal(signal.SIGSTOP)  # so that both are there when it wakes
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        code, output = finish(process)
        self.assertIn(code, (128 + signal.SIGINT, 128 + signal.SIGTERM), output)
        self.assertEqual(self.job.workers(), [])

    def test_a_terminal_that_hangs_up_stops_all_at_one_step_with_a_checkpoint(self):
        job, process = self.job, self.running()
        for _ in range(2):  # the shell and the system may both say so
            process.send_signal(signal.SIGHUP)
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        self.assertIn("SIGHUP received", output)
        self.assertEqual(job.checkpoints(), [f"step-{job.metrics()[-1]['step']}"])

    def test_a_run_whose_folder_is_taken_away_saves_its_state_and_fails(self):
        job, process = self.job, self.running()
        job.run.rename(job.folder / "elsewhere")
        code, output = finish(process)
        self.assertEqual(code, 1, output)
        self.assertIn(f"the run's folder {job.run} was removed, renamed or replaced", output)
        self.assertEqual(len(job.checkpoints()), 1, output)

    def test_nobody_who_reads_the_console_holds_up_no_step(self):
        job = self.job
        process = job.start("--nproc", 1, "--training.steps", 1500)  # a pipe holds the lines of some 400 steps
        self.addCleanup(process.kill)
        wait_until(lambda: job.metrics() and job.metrics()[-1]["step"] == 1500, "the last step, with a full pipe")
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        self.assertNotIn("step: 1400", output)

    def test_a_limit_on_the_size_of_files_is_an_error_with_the_files_name(self):
        job = Job(steps=4)
        self.addCleanup(job.remove)
        code, output = finish(job.start("--nproc", 1, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))))
        self.assertEqual(code, 2, output)
        self.assertIn("File too large", output)

    def test_a_stopped_rank_is_reported_by_the_watchdog_with_what_others_wait_for(self):
        job = Job(steps=100000, checkpoint=False)
        self.addCleanup(job.remove)
        process = job.start("--nproc", 2, "--comm.train_timeout_seconds", 4, "--comm.init_timeout_seconds", 20)
        self.addCleanup(process.kill)
        job.wait_for_step(2, process)
        os.kill(job.pid_of_rank(1), signal.SIGSTOP)
        code, output = finish(process)
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"no step was finished for 4 s \(comm\.train_timeout_seconds\); newest step of all ranks: \d+; .*rank \d at step \d+ waits \d+\.\d s for \S+")
        self.assertEqual(job.workers(), [])

    def test_a_death_is_seen_though_the_launcher_was_started_with_sigchld_ignored(self):
        process = self.job.start("--nproc", 2, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.addCleanup(process.kill)
        self.job.wait_for_step(2, process)
        os.kill(self.job.pid_of_rank(1), signal.SIGKILL)
        code, output = finish(process)
        self.assertEqual(code, 1, output)
        self.assertIn("was killed by signal 9 (Killed)", output)
        self.assertEqual(self.job.workers(), [])
