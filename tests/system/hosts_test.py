"""Collectives over the transport: on one host by force, and between two, which are network namespaces with host names of their own."""
import json
import os
import signal
import subprocess
import unittest

from job import Job, TROUPE, WORKER, finish, wait_until
from nodes_test import children, wait_for_copy
from recovery_test import journal, told


def within(namespace):
    """Not `ip -n` or `ip netns exec`: they make all mounts below / slaves, and so fail in a chroot whose / is no mount point."""
    return ["nsenter", f"--net=/run/netns/{namespace}"]


# A name of its own, and no memory or process that the other could see: UCX would take a short cut through them. The namespace's own /sys, where UCX lists interfaces, and
# /proc, where it looks whether the processes of its host live.
APART = ["unshare", "--uts", "--ipc", "--pid", "--mount", "--propagation", "unchanged", "--fork", "--kill-child"]
ENTER = 'mountpoint -q /sys || mount --bind /sys /sys; mount --make-rprivate /sys && mount -t sysfs sysfs /sys && mount --make-rprivate /proc && mount -t proc proc /proc && hostname "$1" && shift && exec "$@"'


def run(*command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stdout.strip()}")
    return done.stdout


class TwoHosts:
    """Two network namespaces joined by a pair of virtual Ethernet devices. In each the device is called `interface`."""
    interface = "troupe0"

    def __init__(self):
        self.names = [f"troupe-{os.getpid()}-{host}" for host in "ab"]
        self.addresses = ["10.213.77.1", "10.213.77.2"]
        pair = [f"tr{os.getpid() % 1000000}{host}" for host in "ab"]
        try:
            for name in self.names:
                run("ip", "netns", "add", name)
            run("ip", "link", "add", pair[0], "type", "veth", "peer", "name", pair[1])
            for device, name, address in zip(pair, self.names, self.addresses):
                run("ip", "link", "set", device, "netns", name, "name", self.interface)
                run(*within(name), "ip", "addr", "add", f"{address}/30", "dev", self.interface)
                run(*within(name), "ip", "link", "set", self.interface, "up")
                run(*within(name), "ip", "link", "set", "lo", "up")
        except (AssertionError, FileNotFoundError) as problem:
            self.remove()
            raise AssertionError(f"this test needs root, iproute2 and the right to make network namespaces: {problem}") from problem

    def remove(self):
        for name in self.names:  # with a namespace goes its device, and with that the other end
            subprocess.run(["ip", "netns", "delete", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    def start(self, host, command, **kwargs):
        command = [*within(self.names[host]), *APART, "sh", "-c", ENTER, "sh", f'host-{"ab"[host]}', *map(str, command)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)

    def bytes_received(self, host):
        return json.loads(run(*within(self.names[host]), "ip", "-s", "-j", "link", "show", self.interface))[0]["stats64"]["rx"]["bytes"]


class HostsTest(unittest.TestCase):
    def setUp(self):
        self.job, self.other = Job(steps=6), Job(steps=6)
        self.addCleanup(self.job.remove)
        self.addCleanup(self.other.remove)

    def train_on_one_host(self, *arguments):
        code, output = self.other.train("--nproc", 2, *arguments)
        self.assertEqual(code, 0, output)

    def torchrun(self, hosts, rank, *arguments):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR=hosts.addresses[0], MASTER_PORT="29500")
        process = hosts.start(rank, [WORKER, self.job.config, "--comm.interface", hosts.interface, *arguments], env=environment)
        self.addCleanup(process.kill)
        return process

    def test_collectives_forced_over_the_transport_give_the_same_numbers_as_shared_memory(self):
        self.train_on_one_host()
        code, output = self.job.train("--nproc", 2, "--comm.collectives", "transport", "--trace.enable")
        self.assertEqual(code, 0, output)
        self.assertEqual(self.job.numbers(), self.other.numbers())
        spans = [event["name"] for event in json.loads((self.job.run / "trace" / "rank-0.json").read_text())["traceEvents"] if event["ph"] == "X"]
        self.assertIn("receive CollectivePart", spans, "they did not go over the transport")

    def test_ranks_of_one_process_cannot_be_joined_over_the_transport(self):
        code, output = self.job.train("--ranks-in-process", 2, "--comm.collectives", "transport")
        self.assertNotEqual(code, 0, output)
        self.assertIn("ranks 0 and 1 share one: start them without --ranks-in-process", output)

    def test_an_interface_that_is_not_there_is_named_with_those_that_are(self):
        code, output = self.job.train("--nproc", 2, "--comm.interface", "nowhere0")
        self.assertEqual(code, 2, output)
        self.assertRegex(output, r'comm.interface = "nowhere0": this host has no such interface.*it has .*lo')

    def test_two_hosts_train_with_the_same_numbers_as_one(self):
        hosts = TwoHosts()
        self.addCleanup(hosts.remove)
        results = [finish(process) for process in [self.torchrun(hosts, rank) for rank in (0, 1)]]
        self.assertEqual([code for code, _ in results], [0, 0], results)
        journal = [json.loads(line) for line in (self.job.run / "journal.jsonl").read_text().splitlines()]
        self.assertEqual({event["host"] for event in journal if event["event"] == "joined"}, {"host-a", "host-b"})
        self.train_on_one_host()
        self.assertEqual(self.job.numbers(), self.other.numbers())
        moved = sum(line["bytes_gathered"] + line["bytes_reduced"] for line in self.job.metrics())
        for host in (0, 1):
            self.assertGreater(hosts.bytes_received(host), moved / 4, "the collectives did not cross the wire")

    def agent(self, hosts, node):
        """`troupe train` on one of them, and its process there."""
        process = hosts.start(node, [TROUPE, "train", self.job.config, "--nproc", 1, "--nnodes", 2, "--node-rank", node, "--comm.interface", hosts.interface,
                                     "--checkpoint.no_enable", "--elastic.policy", "respawn", "--elastic.memory_interval", 4, "--training.steps", 1500])
        self.addCleanup(process.kill)
        return process

    def test_with_an_agent_on_each_host_killed_processes_and_a_killed_host_change_no_number(self):
        hosts = TwoHosts()
        self.addCleanup(hosts.remove)
        processes = [self.agent(hosts, node) for node in (0, 1)]
        wait_for_copy(self.job)
        for rank, step in ((1, 20), (0, 80)):
            self.job.wait_for_step(step, processes[0])
            worker = children(children(processes[rank].pid)[0])[0]  # unshare, troupe, troupe-worker
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: len(journal(self.job, "recovered")) == 2 - rank, "the run goes on")
        self.job.wait_for_step(140, processes[0])
        processes[1].kill()  # and with it all that runs on that host
        processes[1].communicate()
        processes[1] = self.agent(hosts, 1)
        results = [finish(process) for process in processes]
        self.assertEqual([code for code, _ in results], [0, 0], results)
        self.assertIn("node 1 has back what its ranks had kept", results[0][1])
        epochs = journal(self.job, "epoch")
        self.assertEqual(len(epochs), 4)
        for epoch in epochs[1:]:
            self.assertRegex(epoch["restored_from"], r"the snapshot of step \d+ in memory")
        self.train_on_one_host("--checkpoint.no_enable", "--training.steps", 1500)
        self.assertEqual(told(self.job), told(self.other))

    def test_shared_memory_between_two_hosts_is_refused_with_their_names(self):
        hosts = TwoHosts()
        self.addCleanup(hosts.remove)
        results = [finish(process) for process in [self.torchrun(hosts, rank, "--comm.collectives", "shared_memory") for rank in (0, 1)]]
        self.assertTrue(all(code != 0 for code, _ in results), results)
        self.assertIn('comm.collectives = "shared_memory" joins the ranks of one host, but rank 0 is on host-a and rank 1 on host-b', results[0][1])


if __name__ == "__main__":
    unittest.main()
