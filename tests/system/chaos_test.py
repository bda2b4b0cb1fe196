"""`troupe chaos`: whole runs under random faults, checked by the command itself."""
import re
import unittest

from job import Job, finish


def chaos(test, *arguments, steps=150, limit=300):
    """Exit code and output."""
    job = Job(steps=steps, checkpoint=False)
    test.addCleanup(job.remove)
    process = job.start(*arguments, command="chaos")
    test.addCleanup(process.kill)
    return finish(process, limit)


class ChaosTest(unittest.TestCase):
    def test_eight_rounds_of_random_faults_change_no_number_and_leave_nothing_over(self):
        code, output = chaos(self, "--nproc", 2, "--rounds", 8, "--seed", 3)
        self.assertEqual(code, 0, output)
        self.assertIn("8 of 8 rounds held", output)
        struck, drawn = map(int, re.search(r"(\d+) of (\d+) disturbances struck", output).groups())
        self.assertGreater(2 * struck, drawn, output)  # a signal may come when the run has just ended

    def test_a_broken_invariant_is_exit_code_1_and_names_the_seed_that_repeats_it(self):
        code, output = chaos(self, "--nproc", 2, "--rounds", 1, "--seed", 14, "--recover-within", 0.001)
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"a recovery took \d+\.\d s, more than 0 s")
        self.assertRegex(output, r"again: troupe chaos \S+ --nproc 2 --rounds 1 --seed 14")
        self.assertIn("0 of 1 rounds held", output)

    def test_a_run_too_short_to_be_struck_is_refused(self):
        code, output = chaos(self, steps=6)
        self.assertEqual(code, 2, output)
        self.assertIn("training.steps = 6: faults need a run of at least 20 steps to strike", output)


if __name__ == "__main__":
    unittest.main()
