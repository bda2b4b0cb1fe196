"""metrics.enable_wandb with Weights & Biases' own client, offline."""
import os
import pathlib
import unittest

from job import Job

VENV = pathlib.Path(__file__).resolve().parents[2] / "third_party/venv/bin/python"


class WandbTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(steps=5)
        self.addCleanup(self.job.remove)

    def train(self, *arguments, python=VENV):
        return self.job.train("--nproc", 2, "--metrics.enable_wandb", *arguments, env={**os.environ, "TROUPE_PYTHON": str(python), "WANDB_MODE": "offline"})

    def test_an_offline_run_has_the_numbers_and_a_resumed_one_goes_on_in_it(self):
        for steps in (5, 7):
            code, output = self.train("--training.steps", steps)
            self.assertEqual(code, 0, output)
        self.assertEqual(len({folder.name.rsplit("-", 1)[1] for folder in (self.job.run / "wandb").glob("offline-run-*")}), 1, "one id")
        said = (self.job.run / "logs/wandb.log").read_text()
        for tag in ("loss_metrics/global_avg_loss", "throughput(tps)", "n_tokens_seen"):
            self.assertIn(tag, said)

    def test_a_python_without_the_client_is_refused_before_anything_starts(self):
        (self.job.folder / "wandb.py").write_text("raise ImportError('none here')\n")
        os.environ["PYTHONPATH"] = str(self.job.folder)
        self.addCleanup(os.environ.pop, "PYTHONPATH")
        code, output = self.train(python="python3")
        self.assertEqual(code, 2, output)
        self.assertIn("python3 -m pip install wandb", output)
        self.assertEqual(self.job.workers(), [])


if __name__ == "__main__":
    unittest.main()
