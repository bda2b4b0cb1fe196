"""Epochs with other ranks, or another mesh, on several hosts: each is first sent what it lacks of the state."""
import os
import signal
import unittest

from elastic_test import ElasticJobs
from job import finish, wait_until
from live_test import ask
from nodes_test import BETWEEN_HOSTS, wait_for_copy
from recovery_test import journal

SHRINK = ("--elastic.policy", "shrink", "--elastic.memory_interval", 4)
ENDLESS = 100000


class NodesElasticTest(ElasticJobs):

    def start_node(self, node, policy=SHRINK, nodes=2):
        process = self.run_of.start("--metrics.log_freq", 1000, "--nproc", 2, "--nnodes", nodes, "--node-rank", node, *BETWEEN_HOSTS, *policy)
        self.addCleanup(process.kill)
        return process

    def start(self, policy=SHRINK, nodes=2):
        self.run_of = self.job(steps=ENDLESS)
        self.nodes = [self.start_node(node, policy, nodes) for node in range(nodes)]
        if policy:
            wait_for_copy(self.run_of)
        self.run_of.wait_for_step(20, self.nodes[0])

    def go_on(self, steps=20):
        self.run_of.wait_for_step(self.run_of.metrics()[-1]["step"] + steps, self.nodes[0])

    def stop_all(self):
        self.nodes[0].send_signal(signal.SIGTERM)
        results = [finish(process) for process in self.nodes]
        self.assertEqual([code for code, _ in results], [0] * len(results), results)
        self.assertEqual(self.run_of.workers(), [])
        return results

    def expect_the_checkpointed_run(self, epoch, before, ranks):
        """From the first step that was told in this epoch on."""
        lines = [line for line in self.run_of.metrics() if line["epoch"] == epoch["epoch"]]
        until = lines[0]["step"] + 20
        part = self.job()
        part.metrics = lambda: [line for line in self.run_of.metrics() if line["step"] <= until]
        self.expect_the_run_from_a_checkpoint(part, epoch["restore_step"], ("--nproc", before), ("--nproc", ranks, "--training.global_batch_size", 4),
                                              lines[0]["step"])

    def test_a_host_that_dies_is_done_without_and_joins_again_when_it_comes(self):
        self.start()
        self.nodes[1].kill()
        self.nodes[1].communicate()
        wait_until(lambda: journal(self.run_of, "recovered"), "the others go on")
        self.go_on()
        epoch = journal(self.run_of, "epoch")[1]
        self.assertEqual(epoch["members"], [0, 1])
        self.assertRegex(epoch["restored_from"], r"the snapshot of step \d+ in memory", "the dead host's part is on the first one")
        self.nodes[1] = self.start_node(1)
        wait_until(lambda: journal(self.run_of, "change_in_force"), "it joins")
        self.go_on()
        self.stop_all()
        grown = journal(self.run_of, "epoch")[-1]
        self.assertEqual(grown["members"], [0, 1, 2, 3])
        self.assertEqual(grown["first_step"], journal(self.run_of, "epoch_ends")[-1]["after_step"] + 1, "no step runs again")
        self.assertEqual([line["step"] for line in self.run_of.metrics()], list(range(1, self.run_of.metrics()[-1]["step"] + 1)))
        self.expect_the_rows_and_losses_of(self.run_of, ("--nproc", 4))
        self.expect_the_checkpointed_run(epoch, 4, 2)

    def test_a_process_that_dies_on_one_of_three_hosts_is_done_without_and_joins_again(self):
        self.start(nodes=3)
        os.kill(self.run_of.pid_of_rank(3), signal.SIGKILL)
        wait_until(lambda: journal(self.run_of, "recovered"), "the others go on")
        self.go_on()
        code, output, _ = ask("join", self.run_of)
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"rank 3 joins, .*\nin force from step \d+ on")
        self.go_on()
        code, output, _ = ask("join", self.run_of)
        self.assertEqual(code, 1, output)
        self.assertIn("so many of the 6 that the hosts of this run take are not free where an agent is", output)
        self.stop_all()
        self.assertEqual([epoch["members"] for epoch in journal(self.run_of, "epoch")], [[0, 1, 2, 3, 4, 5], [0, 1, 2, 4, 5], [0, 1, 2, 3, 4, 5]])
        for epoch in journal(self.run_of, "epoch")[1:]:
            self.assertRegex(epoch["restored_from"], r"the snapshot of step \d+ in memory")
        self.expect_the_rows_and_losses_of(self.run_of, ("--nproc", 6))

    def test_a_mesh_changes_in_the_same_processes_on_two_hosts(self):
        self.start(policy=())
        before = self.pids(self.run_of, range(4))
        code, output, _ = ask("set", self.run_of, "parallelism.data_parallel_replicate_degree=2")
        self.assertEqual(code, 0, output)
        step = int(output.split("in force from step ")[1].split()[0])
        self.run_of.wait_for_step(step + 20, self.nodes[0])
        self.stop_all()
        self.assertEqual(self.pids(self.run_of, range(4)), before)
        self.expect_the_run_from_a_checkpoint(self.run_of, step - 1, ("--nproc", 4), ("--nproc", 4, "--parallelism.data_parallel_replicate_degree", 2))


if __name__ == "__main__":
    unittest.main()
