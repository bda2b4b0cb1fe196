"""Weights out to Hugging Face's folder and in again, by the programs alone; tests/model/parity_checkpoints.py asks transformers and PyTorch."""
import json
import pathlib
import shutil
import struct
import subprocess
import unittest

from job import TROUPE, Job, finish
from live_test import end_ahead

LAST = ("--checkpoint.last_save_model_only", "--checkpoint.last_save_in_hf", "--model.converters", "", "--training.global_batch_size", 2)
AGAIN = ("--model.converters", "", "--training.global_batch_size", 2)


def call(*arguments):
    done = subprocess.run([TROUPE, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90)
    return done.returncode, done.stdout


class HuggingFaceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.first = Job(steps=3)
        code, cls.output = cls.first.train("--ranks-in-process", 2, *LAST)
        assert code == 0, cls.output
        cls.sealed = cls.first.run / "checkpoint/step-3"
        cls.folder = cls.first.run / "checkpoint/step-3-hf"

    @classmethod
    def tearDownClass(cls):
        cls.first.remove()

    def begin(self, *arguments, ranks=1):
        job = Job(steps=2)
        self.addCleanup(job.remove)
        code, output = job.train("--ranks-in-process", ranks, *AGAIN, *arguments)
        return code, output, job

    def test_a_run_from_the_folder_is_the_run_from_the_checkpoint(self):
        code, output, native = self.begin("--checkpoint.initial_load_path", self.sealed)
        self.assertEqual(code, 0, output)
        code, output, there = self.begin("--checkpoint.initial_load_path", self.folder, "--checkpoint.initial_load_in_hf", ranks=2)
        self.assertEqual(code, 0, output)
        ours, theirs = ([line["loss"] for line in job.metrics()] for job in (native, there))
        self.assertEqual(ours[0], theirs[0])
        self.assertAlmostEqual(ours[1], theirs[1], delta=1e-5 * ours[1])
        self.assertNotEqual(ours[0], self.first.metrics()[0]["loss"])
        self.assertEqual(there.checkpoints(), ["step-2"])

    def test_another_model_is_refused_with_what_fits_before_anything_starts(self):
        code, output, job = self.begin("--checkpoint.initial_load_path", self.folder, "--checkpoint.initial_load_in_hf", "--model.n_heads", 2, "--model.rope_theta", 10000)
        self.assertEqual(code, 2, output)
        self.assertIn("model.n_heads is 2 here, num_attention_heads is 4 there", output)
        self.assertIn("model.rope_theta is 10000.0 here, rope_theta is 500000.0 there", output)
        self.assertIn("What fits:\n[model]\n", output)
        self.assertEqual(job.metrics(), [])
        code, output, _ = self.begin("--checkpoint.initial_load_path", self.folder)
        self.assertEqual(code, 2, output)
        self.assertIn("it looks like a folder of Hugging Face: set checkpoint.initial_load_in_hf = true", output)
        code, output, _ = self.begin("--checkpoint.initial_load_in_hf")
        self.assertEqual(code, 2, output)
        self.assertIn("name the folder of Hugging Face with checkpoint.initial_load_path", output)

    def test_the_command_writes_what_the_last_save_wrote(self):
        out = self.first.folder / "out"
        code, output = call("convert", self.sealed, "--to", "hf", out)
        self.assertEqual(code, 0, output)
        for name in ("config.json", "model.safetensors"):
            self.assertEqual((out / name).read_bytes(), (self.folder / name).read_bytes(), name)
        code, output = call("convert", self.sealed, "--to", "hf", out)
        self.assertEqual(code, 1)
        self.assertIn("is there already and is not empty", output)
        small = self.first.folder / "small"
        code, output = call("convert", self.sealed, "--to", "hf", small, "--dtype", "bfloat16")
        self.assertEqual(code, 0, output)
        data = (small / "model.safetensors").read_bytes()
        header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        self.assertEqual(header["lm_head.weight"]["dtype"], "BF16")
        self.assertEqual(json.loads((small / "config.json").read_text())["torch_dtype"], "bfloat16")
        code, output = call("convert", pathlib.Path(self.first.run), "--to", "hf", small)
        self.assertEqual(code, 1)
        self.assertIn("is no checkpoint's folder: expected …/step-N", output)

    def test_a_text_ends_with_any_of_the_ids_that_the_folder_names(self):
        prompt = "256,116,104,101"
        _, whole = call("generate", self.folder, "--ids", prompt, "--tokens", 20)
        ids = whole.strip().split(",")[4:]
        folder = self.first.folder / "several-ends"
        shutil.copytree(self.folder, folder)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [257, int(ids[2])]}))
        code, output = call("generate", folder, "--ids", prompt, "--tokens", 20)
        self.assertEqual(code, 0, output)
        self.assertEqual(output.strip().split(",")[4:], ids[:ids.index(ids[2]) + 1])

    def test_an_export_that_fails_is_a_warning_and_the_checkpoint_is_sealed(self):
        folder = self.first.folder / "spoilt"
        shutil.copytree(self.folder, folder)
        job = Job(steps=100000)
        self.addCleanup(job.remove)
        process = job.start(*LAST, "--ranks-in-process", 1, "--metrics.log_freq", 1000, "--checkpoint.initial_load_path", folder, "--checkpoint.initial_load_in_hf")
        job.wait_for_step(2, process)
        (folder / "config.json").write_text("{")  # what the export is to take over
        last = f"step-{end_ahead(job)}"  # not before that
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        self.assertEqual(job.checkpoints(), [last])
        self.assertRegex(output, rf"checkpoint.last_save_in_hf: .*{last} is sealed, but its weights for Hugging Face were not written: .*config.json")
        self.assertRegex(output, rf"`troupe convert .*{last} --to hf .*{last}-hf`")

    def test_text_is_the_same_from_either_and_the_seed_decides_it(self):
        texts = []
        for source in (self.sealed, self.folder):
            code, output = call("generate", source, "--ids", "256,116,104,101", "--tokens", 20)
            self.assertEqual(code, 0, output)
            texts.append(output)
        self.assertEqual(texts[0], texts[1])
        drawn = [call("generate", self.folder, "the", "--tokens", 20, "--temperature", 1.5, "--top-p", 0.9, "--seed", seed)[1] for seed in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        self.assertTrue(drawn[0].startswith("the"))
        code, output = call("generate", self.first.folder, "the")
        self.assertEqual(code, 1)
        self.assertIn("is neither a sealed checkpoint", output)


if __name__ == "__main__":
    unittest.main()
