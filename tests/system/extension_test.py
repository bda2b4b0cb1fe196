"""job.custom_import: a run of a family, a loss and a data set of a shared library."""
import os
import pathlib
import unittest

from job import Job

EXTENSIONS = pathlib.Path(os.environ["TROUPE"]).parents[1] / "tests/extension"


class ExtensionTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(steps=20)
        self.addCleanup(self.job.remove)
        lines = self.job.config.read_text().splitlines()
        self.job.config.write_text("\n".join(line for line in lines if not line.startswith(("dataset_path", "name =", "flavor", "converters", "n_", "ffn", "multiple", "vocab"))))

    def arguments(self, *more):
        return ("--job.custom_import", EXTENSIONS / "small_extension.so", "--model.name", "parallel", "--model.flavor", "small", "--training.dataset", "counting",
                "--training.loss", "smoothed", *more)

    def test_its_family_loss_and_data_train_on_two_ranks_as_on_one_and_resume(self):
        code, output = self.job.train("--nproc", 2, *self.arguments("--training.global_batch_size", 2))
        self.assertEqual(code, 0, output)
        self.assertIn("Model parallel small size:", output)
        self.assertIn("79 documents", output)
        two = [line["loss"] for line in self.job.metrics()]
        self.assertLess(two[-1], two[0])
        code, output = self.job.train("--nproc", 2, *self.arguments("--training.global_batch_size", 2, "--training.steps", 22))
        self.assertEqual(code, 0, output)
        self.assertEqual(len(self.job.metrics()), 22)
        code, output = self.job.train("--nproc", 1, "--overwrite", *self.arguments("--training.global_batch_size", 2))
        self.assertEqual(code, 0, output)
        for one, other in zip([line["loss"] for line in self.job.metrics()], two):
            self.assertAlmostEqual(one, other, delta=1e-5 * other)

    def test_a_library_that_does_not_fit_is_refused_before_anything_starts(self):
        for library, why in (("broken_extension_1.so", "it was built for version 77"), ("nowhere.so", "cannot be loaded")):
            code, output = self.job.train("--nproc", 2, *self.arguments("--job.custom_import", EXTENSIONS / library)[2:])
            self.assertEqual(code, 2, output)
            self.assertIn(why, output)
            self.assertFalse(self.job.run.exists())


if __name__ == "__main__":
    unittest.main()
