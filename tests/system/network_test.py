"""Two hosts, which are network namespaces, whose link is cut, slowed, made lossy, and mended."""
import json
import os
import subprocess
import time
import unittest

from hosts_test import TwoHosts, run, within
from job import Job, WORKER, finish


class Link(TwoHosts):
    def cut(self):
        run(*within(self.names[1]), "ip", "link", "set", self.interface, "down")

    def mend(self):
        run(*within(self.names[1]), "ip", "link", "set", self.interface, "up")

    def shape(self, *discipline):
        for name in self.names:
            run(*within(name), "tc", "qdisc", "replace", "dev", self.interface, "root", *discipline)

    def dropped(self):
        """Packets that the shaping of both ends has dropped so far."""
        return sum(int(run(*within(name), "tc", "-s", "qdisc", "show", "dev", self.interface).split("dropped ")[1].split(",")[0]) for name in self.names)


class NetworkTest(unittest.TestCase):
    def start(self, steps, hosts=None, timeout=60):
        self.hosts = hosts or Link()
        self.addCleanup(self.hosts.remove)
        self.job = Job(steps=steps, checkpoint=False)
        self.addCleanup(self.job.remove)
        processes = []
        for rank in (0, 1):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR=self.hosts.addresses[0], MASTER_PORT="29500")
            processes.append(self.hosts.start(rank, [WORKER, self.job.config, "--comm.interface", self.hosts.interface, "--comm.train_timeout_seconds", timeout,
                                                     "--metrics.log_freq", 1000], env=environment))
            self.addCleanup(processes[-1].kill)
        return processes

    def expect_the_numbers_of_one_host(self, processes):
        results = [finish(process, 120) for process in processes]
        self.assertEqual([code for code, _ in results], [0, 0], results)
        other = Job(steps=len(self.job.metrics()), checkpoint=False)
        self.addCleanup(other.remove)
        code, output = other.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        self.assertEqual(self.job.numbers(), other.numbers())

    def test_a_link_that_is_cut_ends_the_run_on_both_hosts_in_time_with_its_cause(self):
        processes = self.start(100000, timeout=5)
        self.job.wait_for_step(20, processes[0])
        self.hosts.cut()
        began = time.monotonic()
        results = [finish(process, 90) for process in processes]
        self.assertTrue(all(code != 0 for code, _ in results), results)
        self.assertLess(time.monotonic() - began, 60)
        self.assertRegex(results[0][1], r"no step was finished for 5 s|rank 1 has sent no heartbeat|the process of rank 1 has ended")
        last = json.loads((self.job.run / "journal.jsonl").read_text().splitlines()[-1])
        self.assertEqual((last["event"], last["ok"]), ("end", False))

    def test_a_link_that_is_cut_and_mended_within_the_time_limit_costs_time_alone(self):
        processes = self.start(1000)
        self.job.wait_for_step(20, processes[0])
        self.hosts.cut()
        at = self.job.metrics()[-1]["step"]
        time.sleep(1.5)  # what the test is about: so long there is no link
        self.assertLess(self.job.metrics()[-1]["step"], at + 10)
        self.hosts.mend()
        self.expect_the_numbers_of_one_host(processes)

    def shaped(self, *discipline):
        hosts = Link()
        self.addCleanup(hosts.remove)
        hosts.shape(*discipline)
        return hosts

    def test_a_slow_link_changes_no_number(self):
        self.expect_the_numbers_of_one_host(self.start(20, self.shaped("tbf", "rate", "20mbit", "burst", "16kb", "latency", "400ms")))

    def test_a_link_that_loses_packets_changes_no_number(self):
        hosts = self.shaped("tbf", "rate", "20mbit", "burst", "4kb", "limit", "6kb")  # a queue of four packets: what comes faster is lost
        self.expect_the_numbers_of_one_host(self.start(20, hosts))
        self.assertGreater(hosts.dropped(), 0, "nothing was lost")


if __name__ == "__main__":
    unittest.main()
