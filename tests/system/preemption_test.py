"""Ten pre-emptions at random times, each at another rank: one agreed save, a clean end, and a resumed run equal to the undisturbed one."""
import os
import random
import signal
import unittest

from job import Job, finish


class PreemptionTest(unittest.TestCase):
    def test_ten_signals_to_random_ranks_change_nothing(self):
        ranks = 4
        undisturbed, disturbed = Job(steps=100000), Job(steps=100000)
        self.addCleanup(undisturbed.remove)
        self.addCleanup(disturbed.remove)
        seed = random.randrange(1 << 30)
        dice = random.Random(seed)
        step = 0
        for number in range(10):
            process = disturbed.start("--nproc", ranks)
            step += dice.randint(2, 20)
            disturbed.wait_for_step(step, process)
            kind = dice.choice((signal.SIGTERM, signal.SIGUSR1))
            os.kill(disturbed.pid_of_rank(dice.randrange(ranks)) if number < 8 else process.pid, kind)
            code, output = finish(process)
            self.assertEqual(code, 0, f"seed {seed}: {output}")
            step = disturbed.metrics()[-1]["step"]
            self.assertIn(f"step-{step}", disturbed.checkpoints(), f"seed {seed}: {output}")
            self.assertEqual(disturbed.workers(), [])
        for job in (disturbed, undisturbed):
            code, output = job.train("--nproc", ranks, "--training.steps", step + 20)
            self.assertEqual(code, 0, output)
        self.assertEqual(disturbed.numbers(), undisturbed.numbers(), f"seed {seed}")
