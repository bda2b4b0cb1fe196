"""Workers that no launcher starts: torchrun's and Slurm's variables."""
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time
import unittest

from job import Job, WORKER, finish, wait_until


def free_port():
    """A port whose successor is free too. Below those that the system gives to connections: nobody is handed it before the job listens there."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(1100, lowest - 1) if lowest > 1200 else random.randrange(20000, 60000)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


class StartersTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(steps=4)
        self.addCleanup(self.job.remove)
        self.port = free_port()

    def torchrun(self, rank, world, *arguments, port=None):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port or self.port))
        return self.start(environment, arguments)

    def slurm(self, rank, world, *arguments):
        environment = dict(os.environ, SLURM_PROCID=str(rank), SLURM_NTASKS=str(world), SLURM_LOCALID=str(rank), SLURM_NODELIST="localhost", MASTER_PORT=str(self.port))
        return self.start(environment, arguments)

    def start(self, environment, arguments):
        process = subprocess.Popen([WORKER, str(self.job.config), *map(str, arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.kill)
        return process

    def test_torchruns_variables_start_a_job_whose_rank_0_coordinates(self):
        results = [finish(process) for process in [self.torchrun(rank, 2) for rank in (0, 1)]]
        self.assertEqual([code for code, _ in results], [0, 0], results)
        self.assertEqual(len(self.job.metrics()), 4)
        self.assertEqual(self.job.checkpoints(), ["step-4"])

    def test_a_launcher_does_not_hand_down_what_a_starter_put_into_its_environment(self):
        others = {"TROUPE_INCARNATION": "5", "TROUPE_JOINS": "1", "TROUPE_RANK": "7", "TROUPE_WORLD_SIZE": "3", "TROUPE_COORDINATOR": "192.0.2.1:5", "TROUPE_SECRET": "00",
                  "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "9", "MASTER_PORT": "x", "SLURM_PROCID": "2", "SLURM_NTASKS": "4"}
        code, output = self.job.train("--nproc", 2, env=dict(os.environ, **others))
        self.assertEqual(code, 0, output)

    def test_slurms_variables_do_too(self):
        results = [finish(process) for process in [self.slurm(rank, 2) for rank in (1, 0)]]
        self.assertEqual([code for code, _ in results], [0, 0], results)
        self.assertEqual(len(self.job.metrics()), 4)

    def test_a_run_goes_on_in_whatever_order_and_place_its_ranks_are_started_again(self):
        """B158: what a rank reads goes by its place in the mesh."""
        whole = Job(steps=8)
        self.addCleanup(whole.remove)
        code, output = whole.train("--nproc", 4)
        self.assertEqual(code, 0, output)
        results = [finish(process) for process in [self.torchrun(rank, 4) for rank in range(4)]]
        self.assertEqual([code for code, _ in results], [0] * 4, results)
        self.port = free_port()
        again = []
        for rank in (3, 2, 1, 0):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(3 - rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(self.port))
            again.append(self.start(environment, ("--training.steps", 8)))
        results = [finish(process) for process in again]
        self.assertEqual([code for code, _ in results], [0] * 4, results)
        self.assertEqual(self.job.numbers(), whole.numbers())
        shards = sorted((self.job.run / "checkpoint" / "step-8").glob("*.safetensors"))
        aside = shards[0].with_suffix(".aside")  # two parts change places: what stands in them is asked, not their number
        shards[0].rename(aside)
        shards[3].rename(shards[0])
        aside.rename(shards[3])
        code, output = self.job.train("--nproc", 4, "--training.steps", 10)
        self.assertIn(shards[0].name, output)
        self.assertIn("resuming from the checkpoint of step 4", output)
        self.assertEqual(code, 0, output)

    def test_an_absent_rank_is_named_when_the_time_is_over(self):
        began = time.monotonic()
        results = [finish(process) for process in [self.torchrun(rank, 3, "--comm.init_timeout_seconds", 6) for rank in (0, 2)]]
        self.assertTrue(all(code != 0 for code, _ in results), results)
        self.assertLess(time.monotonic() - began, 60)
        self.assertIn("absent: rank 1", results[0][1])

    def test_another_configuration_is_refused_with_the_rank(self):
        results = [finish(process) for process in [self.torchrun(0, 2), self.torchrun(1, 2, "--training.steps", 5)]]
        self.assertTrue(all(code != 0 for code, _ in results), results)
        self.assertRegex(results[0][1], r"rank 1 .*another configuration")

    def test_a_rank_whose_data_cannot_be_read_ends_all_and_is_named(self):
        began = time.monotonic()
        results = [finish(process) for process in [self.torchrun(0, 2), self.torchrun(1, 2, "--training.dataset_path", "/nowhere.txt")]]
        self.assertTrue(all(code != 0 for code, _ in results), results)
        self.assertLess(time.monotonic() - began, 60)
        self.assertRegex(results[0][1], r"rank 1 could not build its epoch: training.dataset_path: .*/nowhere.txt")

    def test_a_rank_that_joins_twice_is_named(self):
        processes = [self.torchrun(0, 3), self.torchrun(1, 3), self.torchrun(1, 3)]
        results = [finish(process) for process in processes]
        self.assertTrue(all(code != 0 for code, _ in results), results)
        self.assertIn("rank 1 joined twice", results[0][1])

    def test_a_signal_ends_a_worker_that_waits_for_its_coordinator(self):
        process = self.torchrun(1, 2)
        blocked = pathlib.Path(f"/proc/{process.pid}/status")
        wait_until(lambda: int(re.search(r"SigBlk:\s*(\w+)", blocked.read_text())[1], 16) >> (signal.SIGTERM - 1) & 1, "it takes signals from a queue")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code, output = finish(process)
        self.assertEqual(code, 128 + signal.SIGTERM, output)
        self.assertLess(time.monotonic() - began, 30, "comm.init_timeout_seconds is 60")
        self.assertIn("interrupted before it had joined", output)

    def test_a_second_signal_ends_a_worker_without_a_launcher_at_once(self):
        processes = [self.torchrun(rank, 2, "--training.steps", 100000) for rank in (0, 1)]
        self.job.wait_for_step(2, processes[0])
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            processes[1].send_signal(number)  # stopped, so that both are there when it wakes
        code, output = finish(processes[1])
        self.assertIn(code, (128 + signal.SIGINT, 128 + signal.SIGTERM), output)
        code, output = finish(processes[0])
        self.assertEqual(code, 1, output)
        self.assertFalse((self.job.run / "control.json").exists())

    def test_a_masters_port_in_use_is_named_at_once(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", self.port + 1))
            listener.listen()
            code, output = finish(self.torchrun(0, 2))
        self.assertEqual(code, 2, output)
        self.assertIn(f"port {self.port + 1} on 127.0.0.1 is in use", output)
