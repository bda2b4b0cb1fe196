"""elastic.policy = "respawn": processes are killed, stopped or fail, and the run tells what an undisturbed one tells."""
import os
import signal
import unittest

from job import Job, alive, finish, wait_until, whole_lines

TOLD = ("step", "loss", "grad_norm", "lr", "outcome", "digest", "tokens", "step_tokens")
RESPAWN = ("--elastic.policy", "respawn")


def told(job):
    return [{key: line[key] for key in TOLD} for line in job.metrics()]


def journal(job, event):
    return [line for line in whole_lines(job.run / "journal.jsonl") if line["event"] == event]


def undisturbed(steps, ranks):
    """What a run of so many steps tells that nothing happens to."""
    job = Job(steps=steps, checkpoint=False)
    try:
        code, output = job.train("--nproc", ranks)
        assert code == 0, output
        return told(job)
    finally:
        job.remove()


class RecoveryTest(unittest.TestCase):
    STEPS = 800  # some 3 s: a signal of the test comes long before the end, also from a busy machine

    @classmethod
    def setUpClass(cls):
        cls.undisturbed = undisturbed(cls.STEPS, 4)

    def start(self, *arguments, checkpoint=False, every=4):
        self.job = Job(steps=self.STEPS, checkpoint=checkpoint)
        self.addCleanup(self.job.remove)
        process = self.job.start("--nproc", 4, *RESPAWN, "--elastic.memory_interval", every, *arguments)
        self.addCleanup(process.kill)
        return process

    def expect_the_undisturbed_run(self, process):
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        self.assertEqual(told(self.job), self.undisturbed, output)
        self.assertEqual(self.job.workers(), [])
        return output

    def test_a_process_killed_by_9_is_started_again_and_the_others_stay(self):
        process = self.start()
        self.job.wait_for_step(20, process)
        before = [self.job.pid_of_rank(rank) for rank in range(4)]
        os.kill(before[2], signal.SIGKILL)
        output = self.expect_the_undisturbed_run(process)
        self.assertIn("the process of rank 2 is started again", output)
        after = [self.job.pid_of_rank(rank) for rank in range(4)]
        self.assertEqual([after[rank] for rank in (0, 1, 3)], [before[rank] for rank in (0, 1, 3)])
        self.assertNotEqual(after[2], before[2])
        epochs = journal(self.job, "epoch")
        self.assertEqual(len(epochs), 2)
        self.assertRegex(epochs[1]["restored_from"], r"the snapshot of step \d+ in memory")
        self.assertGreaterEqual(epochs[1]["restore_step"], 16)
        self.assertEqual(len(journal(self.job, "recovered")), 1)  # how soon: benchmarks/run recovery

    def test_a_process_that_dies_before_the_run_has_begun_is_started_again_and_nothing_else(self):
        output = self.expect_the_undisturbed_run(self.start("--faults.rules", "site=letter kind=Join rank=2 action=crash"))
        self.assertEqual([line["rank"] for line in journal(self.job, "respawn")], [2], output)
        self.assertEqual([line["first_step"] for line in journal(self.job, "epoch")], [1], output)

    def test_a_process_that_cannot_begin_ends_the_run_by_its_name(self):
        code, output = finish(self.start("--faults.rules", "site=letter kind=Join rank=2 times=always action=crash"))
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"rank 2 \(pid \d+\) was killed by signal 9 \(Killed\); its process has ended 3 times before the run began \(elastic\.attempts\)")
        self.assertEqual(self.job.workers(), [])

    def test_a_process_that_dies_when_its_work_is_done_costs_nothing(self):
        output = self.expect_the_undisturbed_run(self.start("--faults.rules", "site=letter kind=Stopped rank=1 action=crash"))
        self.assertIn("was killed by signal 9 (Killed); its work was done", output)
        self.assertEqual(journal(self.job, "respawn"), [])

    def test_two_die_at_once_and_one_of_them_again_while_the_run_recovers(self):
        process = self.start()
        self.job.wait_for_step(10, process)
        first = self.job.pid_of_rank(3)
        for pid in (self.job.pid_of_rank(0), first):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.job.pid_of_rank(3) != first, "rank 3 joins again")
        os.kill(self.job.pid_of_rank(3), signal.SIGKILL)
        self.expect_the_undisturbed_run(process)
        self.assertEqual(len(journal(self.job, "respawn")), 3)

    def test_without_snapshots_in_memory_the_newest_checkpoint_or_the_seed_is_gone_back_to(self):
        for interval, wanted in ((1000, "the seed"), (30, r"the checkpoint of step \d+")):
            process = self.start("--checkpoint.interval", interval, checkpoint=True, every=0)
            self.job.wait_for_step(70, process)
            os.kill(self.job.pid_of_rank(1), signal.SIGKILL)
            self.expect_the_undisturbed_run(process)
            self.assertRegex(journal(self.job, "epoch")[1]["restored_from"], wanted)

    def test_a_stopped_process_is_told_apart_from_a_dead_one_and_wakes_to_nothing(self):
        process = self.start("--comm.train_timeout_seconds", 4)
        self.job.wait_for_step(20, process)
        victim = self.job.pid_of_rank(1)
        os.kill(victim, signal.SIGSTOP)
        wait_until(lambda: not alive(victim), "the stopped process is killed before the next epoch")
        output = self.expect_the_undisturbed_run(process)
        self.assertRegex(output, rf"rank 1 \(pid {victim} on \S+\) has been silent for \d+\.\d s, though its process has not ended \(stopped, .*\), "
                                 r"and holds up the others in comm: \S+")

    def test_a_step_that_fails_three_times_stops_the_run_and_names_its_data(self):
        process = self.start("--faults.rules", "site=lane kind=forward rank=1 step=33 action=fail times=always")
        code, output = finish(process)
        self.assertEqual(code, 1, output)
        self.assertIn("step 33 has now ended 3 epochs (elastic.attempts); it trains on rows 128 to 131 of the data order", output)
        self.assertEqual(told(self.job), self.undisturbed[:32])
        self.assertEqual(self.job.workers(), [])

    # Others have updated some of their layers by then, and this one some of its own: a state of no step.
    def test_a_process_that_dies_between_two_updates_within_a_backward_pass_costs_nothing(self):
        early = ("--optimizer.early_step_in_backward", "--training.max_norm", 0, "--training.guard.nonfinite", "stop")
        whole = Job(steps=60, checkpoint=False)
        self.addCleanup(whole.remove)
        code, output = whole.train("--nproc", 4, *early)
        self.assertEqual(code, 0, output)
        for layer in (3, 1, 0):
            self.job = Job(steps=60, checkpoint=False)
            self.addCleanup(self.job.remove)
            code, output = self.job.train("--nproc", 4, *RESPAWN, "--elastic.memory_interval", 4, *early,
                                          "--faults.rules", f"site=lane kind=optimize unit={layer} rank=2 step=33 action=crash")
            self.assertEqual(code, 0, output)
            self.assertEqual(len(journal(self.job, "epoch")), 2, output)
            self.assertEqual(told(self.job), told(whole), output)

    def test_a_process_of_several_ranks_takes_them_all_along_and_brings_them_back(self):
        self.job = Job(steps=self.STEPS, checkpoint=False)
        self.addCleanup(self.job.remove)
        process = self.job.start("--ranks-in-process", 4, *RESPAWN)
        self.addCleanup(process.kill)
        self.job.wait_for_step(20, process)
        os.kill(self.job.pid_of_rank(0), signal.SIGKILL)
        self.expect_the_undisturbed_run(process)
        self.assertRegex(journal(self.job, "epoch")[1]["restored_from"], "in memory")

    def test_a_run_whose_first_checkpoint_is_damaged_meanwhile_ends_and_says_so(self):
        job = self.job = Job(steps=20)
        self.addCleanup(job.remove)
        code, output = job.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        process = job.start("--nproc", 2, *RESPAWN, "--elastic.memory_interval", 0, "--training.steps", 100000)
        self.addCleanup(process.kill)
        job.wait_for_step(25, process)
        for shard in (job.run / "checkpoint" / "step-20").glob("*.safetensors"):
            content = bytearray(shard.read_bytes())
            content[len(content) // 2] ^= 1
            shard.write_bytes(content)
        os.kill(job.pid_of_rank(1), signal.SIGKILL)
        code, output = finish(process)
        self.assertEqual(code, 1, output)
        self.assertIn("the run began with the checkpoint of step 20, and there is no other state to go on from", output)
        self.assertEqual(job.workers(), [])


if __name__ == "__main__":
    unittest.main()
