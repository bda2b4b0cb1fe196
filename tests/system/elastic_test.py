"""Epochs with other ranks or another configuration: the same processes go on, no step is lost, every row is seen once."""
import os
import signal
import unittest

from job import Job, alive, finish, wait_until
from live_test import ask
from recovery_test import TOLD, journal, told

STEPS = 60
ENDLESS = 100000
NO_FLOAT8 = ('converters = ["float8"]', "converters = []")


def data(job):
    return [(line["step"], line["digest"], line["step_tokens"]) for line in job.metrics()]


class ElasticJobs(unittest.TestCase):
    """What a run that goes on with other ranks is held against."""

    def job(self, steps=STEPS, checkpoint=False):
        job = Job(steps=steps, checkpoint=checkpoint)
        job.config.write_text(job.config.read_text().replace(*NO_FLOAT8))
        self.addCleanup(job.remove)
        return job

    def run_to_the_end(self, job, *arguments):
        code, output = job.train(*arguments)
        self.assertEqual(code, 0, output)
        return output

    def start(self, job, *arguments):
        process = job.start("--metrics.log_freq", 1000, *arguments)  # nobody reads its output meanwhile
        self.addCleanup(process.kill)
        return process

    def pids(self, job, ranks):
        return [job.pid_of_rank(rank) for rank in ranks]

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        return output

    def expect_the_rows_and_losses_of(self, job, arguments):
        """Of an undisturbed run of as many steps: each row once and in order, the losses but for the order of sums, whose difference grows with every step."""
        whole = self.job(steps=job.metrics()[-1]["step"])
        self.run_to_the_end(whole, *arguments)
        self.assertEqual(data(job), data(whole))
        changed = journal(job, "epoch")[1]["first_step"]
        for one, other in zip(job.metrics(), whole.metrics()):
            near = 1e-5 if one["step"] < changed + 30 else 1e-2
            self.assertAlmostEqual(one["loss"], other["loss"], delta=near * abs(other["loss"]), msg=f"step {one['step']}")

    def expect_the_run_from_a_checkpoint(self, job, after, before, then, first=None):
        """From `first` on what a run tells, bit for bit, that took the arguments `then` from the checkpoint of step `after`."""
        other = self.job(steps=after, checkpoint=True)
        self.run_to_the_end(other, *before)
        self.run_to_the_end(other, *then, "--training.steps", job.metrics()[-1]["step"])
        first = first or after + 1
        here = [line for line in told(job) if line["step"] >= first]
        self.assertEqual(here, [line for line in told(other) if line["step"] >= first])
        self.assertGreater(len(here), 5)


class ElasticTest(ElasticJobs):
    def test_after_a_death_those_that_are_left_go_on_and_a_rank_joins_again(self):
        job = self.job(steps=ENDLESS)
        replicated = ("--nproc", 4, "--parallelism.data_parallel_replicate_degree", 2)
        process = self.start(job, *replicated, "--elastic.policy", "shrink", "--elastic.memory_interval", 4)
        job.wait_for_step(20, process)
        before = self.pids(job, range(4))
        os.kill(before[1], signal.SIGKILL)
        wait_until(lambda: journal(job, "recovered"), "the others go on")
        job.wait_for_step(job.metrics()[-1]["step"] + 20, process)
        epoch = journal(job, "epoch")[1]
        self.assertEqual(epoch["members"], [0, 2, 3])
        self.assertRegex(epoch["restored_from"], r"the snapshot of step \d+ in memory")
        shrunk = [line["step"] for line in job.metrics() if line["epoch"] == 2]
        code, output, _ = ask("join", job)
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"rank 1 joins, .*\nin force from step \d+ on")
        job.wait_for_step(int(output.split("in force from step ")[1].split()[0]) + 20, process)
        self.assertEqual(self.pids(job, (0, 2, 3)), [before[0], *before[2:]])
        self.stop(process)
        self.assertEqual(journal(job, "epoch")[2]["members"], [0, 1, 2, 3])
        self.assertEqual(journal(job, "epoch")[2]["first_step"], journal(job, "epoch_ends")[0]["after_step"] + 1)
        self.assertEqual([line["step"] for line in job.metrics()], list(range(1, job.metrics()[-1]["step"] + 1)))
        self.assertEqual(job.workers(), [])
        self.expect_the_rows_and_losses_of(job, replicated)
        until = shrunk[0] + 20
        job_until = self.job()
        job_until.metrics = lambda: [line for line in job.metrics() if line["step"] <= until]
        self.expect_the_run_from_a_checkpoint(job_until, epoch["restore_step"], replicated, ("--nproc", 3, "--training.global_batch_size", 4), shrunk[0])

    def test_keys_of_an_epoch_change_in_the_same_processes_as_in_a_run_from_a_checkpoint(self):
        changes = ("training.local_batch_size=2", "training.global_batch_size=4", "parallelism.data_parallel_replicate_degree=2", "activation_checkpoint.mode=full",
                   "slots.weights=3")
        job = self.job(steps=ENDLESS)
        process = self.start(job, "--nproc", 4)
        job.wait_for_step(10, process)
        before = self.pids(job, range(4))
        code, output, _ = ask("set", job, "--dry-run", *changes)
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"would be in force from about step \d+ on, by a new epoch .*device memory planned a rank: [\d.]+ MiB now, [\d.]+ MiB then; "
                                 r"mesh dp_replicate 2 × dp_shard 2, 1 micro-batches of 2 rows")
        code, output, _ = ask("set", job, *changes)
        self.assertEqual(code, 0, output)
        step = int(output.split("in force from step ")[1].split()[0])
        for refused, why in (("debug.seed=3", "frozen"), ("parallelism.data_parallel_shard_degree=3", "4 ranks"), ("runtime.device=cuda", "when the processes start")):
            code, output, _ = ask("set", job, "slots.gradients=3", refused)
            self.assertEqual(code, 1, output)
            self.assertIn(why, output)
        job.wait_for_step(step + 20, process)
        self.stop(process)
        self.assertEqual(self.pids(job, range(4)), before)
        self.assertEqual([(epoch["first_step"], epoch["changes"]) for epoch in journal(job, "epoch")], [(1, []), (step, list(changes))])
        self.assertEqual([line["from_step"] for line in journal(job, "change_in_force")], [step])
        planned = self.job(steps=job.metrics()[-1]["step"])
        planned.config.write_text(planned.config.read_text() + f"[[changes]]\nstep = {step}\n[changes.set]\n" +
                                  "".join(f'"{key}" = {value if value.isdigit() else repr(value)}\n' for key, value in (change.split("=") for change in changes)))
        self.run_to_the_end(planned, "--nproc", 4)
        self.assertEqual(told(planned), told(job))
        flags = [f"--{change}" for change in changes]
        self.expect_the_run_from_a_checkpoint(job, step - 1, ("--nproc", 4), ("--nproc", 4, *flags))

    def test_ranks_beyond_those_that_the_run_began_with_join_and_leave(self):
        job = self.job(steps=ENDLESS)
        process = self.start(job, "--nproc", 2)
        job.wait_for_step(10, process)
        before = self.pids(job, range(2))
        for command, ranks, members in (("join", 2, [0, 1, 2, 3]), ("leave", 1, [0, 1, 2])):
            code, output, _ = ask(command, job, "--ranks", ranks)
            self.assertEqual(code, 0, output)
            self.assertEqual(journal(job, "epoch")[-1]["members"], members)
            job.wait_for_step(job.metrics()[-1]["step"] + 10, process)
        wait_until(lambda: not alive(job.pid_of_rank(3)), "the process of rank 3 ends")
        self.stop(process)
        self.assertEqual(self.pids(job, range(2)), before)
        self.expect_the_rows_and_losses_of(job, ("--nproc", 2))

    def test_what_is_edited_in_the_file_changes_the_run_all_or_nothing(self):
        job = self.job(steps=ENDLESS)
        process = self.start(job, "--nproc", 2, "--lr_scheduler.total_steps", ENDLESS)  # whenever the change comes, the rate has hardly fallen
        job.wait_for_step(5, process)
        text = job.config.read_text()
        job.config.write_text(text.replace("lr = 1e-3", "lr = 5e-4").replace("dim = 32", "dim = 64"))
        log = job.run / "logs" / "launcher.log"
        wait_until(lambda: "model.dim is frozen" in log.read_text(), "the edit is refused")
        self.assertRegex(log.read_text(), r"job\.toml was edited, and nothing is changed: \S+job\.toml:7:1: model\.dim is frozen")
        self.assertEqual(journal(job, "changed"), [])
        job.config.write_text(text.replace("lr = 1e-3", "lr = 5e-4") + "[slots]\ngradients = 3\n")
        wait_until(lambda: journal(job, "change_in_force"), "the edit is in force")
        step = journal(job, "change_in_force")[0]["from_step"]
        job.wait_for_step(step + 5, process)
        self.stop(process)
        rates = {line["step"]: line["lr"] for line in job.metrics()}
        self.assertAlmostEqual(rates[step] / rates[step - 1], 0.5, delta=0.01)


if __name__ == "__main__":
    unittest.main()
