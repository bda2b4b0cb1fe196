"""B084: killed at random moments while every step is saved beside the training; nothing that was sealed is lost, and the run goes on."""
import os
import random
import signal
import time
import unittest

KILLS = int(os.environ.get("TROUPE_KILLS", 40))

from job import Job, alive, wait_until, whole_lines

OPTIONS = ("--checkpoint.interval", 1, "--checkpoint.keep_latest_k", 2, "--checkpoint.async_mode", "async",
           "--faults.rules=site=lane kind=save action=delay for=30ms times=always")


class KillsTest(unittest.TestCase):
    def sealed(self, job):
        return max((event["step"] for event in whole_lines(job.run / "journal.jsonl") if event["event"] == "sealed"), default=0)

    def test_killed_while_saving_the_newest_sealed_step_is_there_and_the_run_goes_on_as_if_nothing_had_been(self):
        undisturbed, job = Job(steps=100000), Job(steps=100000)
        self.addCleanup(undisturbed.remove)
        self.addCleanup(job.remove)
        seed = random.randrange(1 << 30)
        dice = random.Random(seed)
        for number in range(KILLS):
            began = time.monotonic()
            process = job.start("--nproc", 2, *OPTIONS)
            self.addCleanup(process.kill)
            before = job.metrics()[-1]["step"] if job.metrics() else 0
            job.wait_for_step(before + 2, process)
            time.sleep(dice.uniform(0, 0.3))  # anywhere in copy, write, seal and purge
            workers = job.workers()
            victim = "launcher" if number % 2 == 0 else "rank"
            at = job.metrics()[-1]["step"]
            if victim == "launcher":
                process.kill()
            else:  # a rank dies, and the launcher ends the run
                os.kill(dice.choice(workers), signal.SIGKILL)
            process.communicate()
            wait_until(lambda: not any(alive(pid) for pid in workers), "workers end with their launcher")
            sealed = self.sealed(job)
            whole = [int(name[5:]) for name in job.checkpoints() if name.startswith("step-") and name[5:].isdigit()]
            self.assertTrue(whole and max(whole) >= sealed > 0, f"seed {seed}, kill {number}: sealed {sealed}, found {job.checkpoints()}")
            print(f"kill {number + 1} of {KILLS}, seed {seed}: kill -9 of a {victim} at step {at}; newest sealed step told {sealed}, found whole {max(whole)}; "
                  f"{time.monotonic() - began:.1f} s", flush=True)
        code, output = job.train("--nproc", 2, *OPTIONS, "--training.steps", max(whole) + 3)
        self.assertEqual(code, 0, f"seed {seed}: {output}")
        self.assertIn("resuming from the checkpoint of step", output)
        code, output = undisturbed.train("--nproc", 2, "--training.steps", max(whole) + 3)
        self.assertEqual(code, 0, output)
        self.assertEqual(job.numbers(), undisturbed.numbers(), f"seed {seed}")
