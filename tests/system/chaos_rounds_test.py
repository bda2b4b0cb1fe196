"""Two hundred rounds of `troupe chaos` with four ranks; its table is what docs/faults.md speaks of."""
import unittest

from chaos_test import chaos


class ChaosRoundsTest(unittest.TestCase):
    def test_two_hundred_rounds_hold(self):
        code, output = chaos(self, "--nproc", 4, "--rounds", 200, "--seed", 1, steps=300, limit=7000)
        print(output)
        self.assertEqual(code, 0, output)
        self.assertIn("200 of 200 rounds held", output)
