"""Several hosts, each with an agent that starts and watches its workers: `troupe train --nnodes N --node-rank K`. Here they share one machine's network."""
import os
import pathlib
import signal
import time
import unittest

from job import Job, alive, finish, wait_until
from recovery_test import RESPAWN, journal, told, undisturbed

# As between hosts: what their processes share is the network alone.
BETWEEN_HOSTS = ("--comm.collectives", "transport")


def wait_for_copy(job):
    """Until a snapshot is sealed: so that there is one to go on from, on two hosts."""
    wait_until(lambda: journal(job, "kept"), "a snapshot is sealed")


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class NodesTest(unittest.TestCase):
    STEPS = 1000  # a signal of the test comes long before the end, also from a busy machine

    @classmethod
    def setUpClass(cls):
        cls.undisturbed = undisturbed(cls.STEPS, 2)

    def start_node(self, node, *arguments, nodes=2):
        process = self.job.start("--nproc", 1, "--nnodes", nodes, "--node-rank", node, *BETWEEN_HOSTS, *arguments)
        self.addCleanup(process.kill)
        return process

    def start(self, *arguments, steps=STEPS, checkpoint=False, nodes=2):
        """The launcher, which is node 0, and the agents of the others."""
        self.job = Job(steps=steps, checkpoint=checkpoint)
        self.addCleanup(self.job.remove)
        self.arguments = arguments
        return [self.start_node(node, *arguments, nodes=nodes) for node in range(nodes)]

    def expect_the_undisturbed_run(self, processes):
        results = [finish(process) for process in processes]
        self.assertEqual([code for code, _ in results], [0] * len(processes), results)
        self.assertEqual(told(self.job), self.undisturbed, results)
        self.assertEqual(self.job.workers(), [])
        return results

    def test_two_hosts_train_with_the_numbers_of_one(self):
        results = self.expect_the_undisturbed_run(self.start())
        self.assertIn("1 more rank will come from 1 other host", results[0][1])
        self.assertIn("joined the launcher at 127.0.0.1", results[1][1])

    def test_a_worker_killed_by_9_on_either_host_is_started_again_by_its_own_agent(self):
        launcher, agent = self.start(*RESPAWN, "--elastic.memory_interval", 4)
        wait_for_copy(self.job)
        for rank, step, starter in ((1, 20, agent), (0, 120, launcher)):
            self.job.wait_for_step(step, launcher)
            before = self.job.pid_of_rank(rank)
            self.assertIn(before, children(starter.pid))
            os.kill(before, signal.SIGKILL)
            wait_until(lambda: self.job.pid_of_rank(rank) != before, f"rank {rank} joins again")
        results = self.expect_the_undisturbed_run([launcher, agent])
        self.assertRegex(results[0][1], r"rank 1 \(pid \d+ on .+\) was killed by signal 9")
        self.assertRegex(results[0][1], r"rank 0 \(pid \d+\) was killed by signal 9", "also where its peer noticed before the launcher")
        self.assertEqual([line["rank"] for line in journal(self.job, "respawn")], [1, 0])
        self.assertRegex(journal(self.job, "epoch")[1]["restored_from"], r"the snapshot of step \d+ in memory")

    def expect_to_outlive_the_host(self, node, processes):
        """Kills the node's agent, and with it its worker; the same command brings both back."""
        wait_for_copy(self.job)
        self.job.wait_for_step(40, processes[0])
        worker = self.job.pid_of_rank(node)
        processes[node].kill()
        wait_until(lambda: not alive(worker), "the worker dies with its agent")
        processes[node] = self.start_node(node, *self.arguments, nodes=len(processes))
        results = [finish(process) for process in processes]
        self.assertEqual([code for code, _ in results], [0] * len(processes), results)
        self.assertRegex(results[0][1], rf"the agent of node {node} \(.+\) is gone, and its ranks with it")
        self.assertRegex(results[0][1], rf"node {node} has back what its ranks had kept: [12] snapshots from the memory of other hosts")
        self.assertRegex(journal(self.job, "epoch")[1]["restored_from"], r"the snapshot of step \d+ in memory", "and there are no checkpoints")

    def test_a_host_that_dies_goes_on_from_the_copy_of_its_snapshots_on_the_first(self):
        self.expect_to_outlive_the_host(1, self.start(*RESPAWN, "--elastic.memory_interval", 4))
        self.assertEqual(told(self.job), self.undisturbed)

    def test_a_host_that_dies_goes_on_from_the_copy_of_its_snapshots_on_another_agent(self):
        whole = undisturbed(self.STEPS, 3)
        self.expect_to_outlive_the_host(2, self.start(*RESPAWN, "--elastic.memory_interval", 4, nodes=3))
        self.assertEqual(told(self.job), whole)

    def test_a_fault_rule_fires_once_on_another_host(self):
        self.expect_the_undisturbed_run(self.start(*RESPAWN, "--elastic.memory_interval", 4, "--faults.rules", "site=process rank=1 step=33 action=crash"))
        self.assertEqual([(line["rank"], line["step"]) for line in journal(self.job, "fault_fired")], [(1, 33)])

    def test_under_stop_a_death_on_another_host_ends_all_and_its_log_is_shown(self):
        launcher, agent = self.start(steps=100000)
        self.job.wait_for_step(5, launcher)
        os.kill(self.job.pid_of_rank(1), signal.SIGKILL)
        results = [finish(process) for process in (launcher, agent)]
        self.assertEqual([code for code, _ in results], [1, 1], results)
        self.assertRegex(results[0][1], r"rank 1 \(pid \d+ on .+\) was killed by signal 9 \(Killed\); its log .*rank-1.log ends with")
        self.assertIn("the run has failed: ", results[1][1])

    def test_the_launchers_death_ends_the_agent_and_its_workers_within_ten_seconds(self):
        launcher, agent = self.start(steps=100000)
        self.job.wait_for_step(5, launcher)
        workers = [self.job.pid_of_rank(rank) for rank in (0, 1)]
        launcher.kill()
        began = time.monotonic()
        code, output = finish(agent)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(code, 1, output)
        self.assertIn("the run's launcher is gone", output)
        wait_until(lambda: not any(alive(pid) for pid in workers), "no worker is left")

    def test_after_the_launchers_death_the_same_commands_go_on_from_the_newest_checkpoint(self):
        launcher, agent = self.start("--checkpoint.interval", 20, checkpoint=True)
        wait_until(lambda: journal(self.job, "sealed"), "a checkpoint is sealed")
        launcher.kill()
        self.assertEqual(finish(agent)[0], 1)
        wait_until(lambda: not self.job.workers(), "no worker is left")
        sealed = max(line["step"] for line in journal(self.job, "sealed"))
        self.assertIn(f"step-{sealed}", self.job.checkpoints())
        launcher, agent = [self.start_node(node, "--checkpoint.interval", 20) for node in (0, 1)]
        results = [finish(process) for process in (launcher, agent)]
        self.assertEqual([code for code, _ in results], [0, 0], results)
        self.assertRegex(results[0][1], r"resuming from the checkpoint of step \d+")
        self.assertEqual(told(self.job), self.undisturbed)

    def test_an_agent_that_does_not_answer_loses_its_place_to_one_that_comes(self):
        launcher, agent = self.start(*RESPAWN, "--elastic.memory_interval", 4)
        wait_for_copy(self.job)
        for pid in (agent.pid, self.job.pid_of_rank(1)):  # as a host that is out of reach: its connections stand, and nothing comes
            os.kill(pid, signal.SIGSTOP)
        other = self.start_node(1, *self.arguments)
        wait_until(lambda: len(journal(self.job, "recovered")) == 1, "the run goes on")
        agent.kill()
        agent.communicate()
        results = self.expect_the_undisturbed_run([launcher, other])
        self.assertRegex(results[0][1], r"the agent of node 1 \(pid \d+ on .+\) takes the place of pid \d+ on .+, which has not answered for 10 s")

    def test_the_agents_death_leaves_no_orphan_and_is_named(self):
        launcher, agent = self.start(steps=100000)
        self.job.wait_for_step(5, launcher)
        worker = self.job.pid_of_rank(1)
        agent.kill()
        code, output = finish(launcher)
        self.assertEqual(code, 1, output)
        self.assertRegex(output, "the run has failed after step .*(rank|node) 1", "its peer may notice before the launcher does")
        wait_until(lambda: not alive(worker), "the worker dies with its agent")

    def test_a_signal_to_an_agent_stops_the_job_with_a_checkpoint(self):
        launcher, agent = self.start(steps=100000, checkpoint=True)
        self.job.wait_for_step(5, launcher)
        agent.send_signal(signal.SIGTERM)
        results = [finish(process) for process in (launcher, agent)]
        self.assertEqual([code for code, _ in results], [0, 0], results)
        self.assertEqual(len(self.job.checkpoints()), 1)
        self.assertIn("Terminated received by the agent of node 1", results[0][1])

    def test_what_does_not_fit_is_refused_and_named(self):
        self.job = Job(steps=4)
        self.addCleanup(self.job.remove)
        for arguments, wanted in ((("--node-rank", 2), "--node-rank 2 of --nnodes 2: nodes count from 0"),
                                  (("--data.loader_hosts", 1), "data.loader_hosts with --nnodes")):
            code, output = self.job.train("--nproc", 1, "--nnodes", 2, *arguments)
            self.assertEqual(code, 2, output)
            self.assertIn(wanted, output)
        code, output = self.job.train("--nproc", 1, "--nnodes", 2, "--node-rank", 1, "--comm.init_timeout_seconds", 1)
        self.assertEqual(code, 2, output)
        self.assertRegex(output, "control.json.*it is written by the job's launcher")

    def test_an_agent_of_another_world_and_a_second_one_are_refused(self):
        launcher, agent = self.start(steps=100000)
        self.job.wait_for_step(5, launcher)
        code, output = finish(self.start_node(1))
        self.assertEqual(code, 2, output)
        self.assertRegex(output, r"is one too many: node 1 has one, pid \d+")
        code, output = finish(self.start_node(1, nodes=3))
        self.assertEqual(code, 2, output)
        self.assertIn("this job has 2 nodes of 1 ranks each", output)
        agent.send_signal(signal.SIGINT)
        self.assertEqual([finish(process)[0] for process in (launcher, agent)], [0, 0])


if __name__ == "__main__":
    unittest.main()
