"""Batches that come from loader processes."""
import os
import pathlib
import signal
import unittest

from job import Job, finish


def loader_of(job, launcher):
    """The PID of the launcher's first loader process."""
    children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(child) for child in children if b"--loader" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes()][0]


class LoaderHostsTest(unittest.TestCase):
    def setUp(self):
        self.job, self.other = Job(steps=6), Job(steps=6)
        self.addCleanup(self.job.remove)
        self.addCleanup(self.other.remove)

    def test_one_and_two_loader_processes_give_the_numbers_of_ranks_that_load_for_themselves(self):
        code, output = self.other.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        for hosts in (1, 2):
            with self.subTest(loader_hosts=hosts):
                code, output = self.job.train("--nproc", 2, "--data.loader_hosts", hosts, "--overwrite")
                self.assertEqual(code, 0, output)
                self.assertEqual(self.job.numbers(), self.other.numbers())
                logs = [(self.job.run / "logs" / f"loader-{number}.log").read_text() for number in range(hosts)]
                self.assertIn(f"{12 // hosts} batches sent", logs[0])

    def test_a_resumed_run_goes_on_with_the_row_where_it_stopped(self):
        code, output = self.other.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        for steps in (3, 6):
            code, output = self.job.train("--nproc", 2, "--data.loader_hosts", 1, "--training.steps", steps)
            self.assertEqual(code, 0, output)
        self.assertEqual(self.job.numbers(), self.other.numbers())

    def test_a_killed_loader_process_ends_the_run_and_is_named(self):
        job = Job(steps=100000, checkpoint=False)
        self.addCleanup(job.remove)
        process = job.start("--nproc", 2, "--data.loader_hosts", 1)
        job.wait_for_step(3, process)
        loader = loader_of(job, process.pid)
        os.kill(loader, signal.SIGKILL)
        code, output = finish(process)
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"the run has failed after step \d+: .*loader process")
        self.assertIn(f"loader process 0 (pid {loader}) was killed by signal 9", output)
        self.assertNotIn(f"rank 2 (pid {loader})", output)
        self.assertEqual(job.workers(), [])

    def test_data_that_a_loader_process_cannot_read_is_the_cause_of_the_end(self):
        code, output = self.job.train("--nproc", 2, "--data.loader_hosts", 1, "--training.dataset_path", "/nowhere.txt")
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"the run has failed after step 0: loader process 0: .*/nowhere.txt")

    def test_more_loader_processes_than_ranks_are_refused(self):
        code, output = self.job.train("--nproc", 1, "--data.loader_hosts", 2)
        self.assertEqual(code, 2, output)
        self.assertIn("data.loader_hosts = 2 for 1 ranks", output)


if __name__ == "__main__":
    unittest.main()
