"""The launcher and real workers on this machine's GPUs: parity with the CPU, recovery, what the log and the metrics say of the device. The other suites of
this folder run there too, with TROUPE_DEVICE=cuda (tests/system/CMakeLists.txt)."""
import os
import pathlib
import re
import signal
import unittest

import job as support
from job import Job, whole_lines

ROOT = pathlib.Path(os.environ.get("TROUPE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
RELATIVE = {"fp32": 1e-4, "bf16": 1e-2, "fp8": 2e-2}  # of a loss, CPU and GPU
CUDA = ("--device", "cuda")
ROWWISE = ("--float8.recipe_name", "rowwise", "--float8.no_enable_fsdp_float8_all_gather", "--float8.no_precompute_float8_dynamic_scale_for_fsdp")


class GpuTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if support.gpus() == 0:
            raise unittest.SkipTest("no GPU on this machine")

    def job(self, config=None, **options):
        """A job of its own data; `config`: of configs/, in place of the tiny one."""
        made = Job(**options)
        self.addCleanup(made.remove)
        if config is not None:
            made.arguments = ("--job.dump_folder", made.run, "--training.dataset_path", made.folder / "data.txt")
            made.config = ROOT / "configs" / config
        else:
            made.arguments = ()
        return made

    def train(self, made, *arguments, expect=0):
        code, output = made.train("--nproc", 1, *made.arguments, *arguments)
        self.assertEqual(code, expect, output)
        return output

    def losses(self, *arguments, config=None, steps=20, **options):
        made = self.job(config, **options)
        output = self.train(made, "--training.steps", steps, *arguments)
        self.assertEqual([line["outcome"] for line in made.metrics()], ["commit"] * steps)
        return [line["loss"] for line in made.metrics()], output, made

    def expect_close(self, found, right, precision):
        self.assertEqual(len(found), len(right))
        for step, (a, b) in enumerate(zip(found, right), 1):
            self.assertLess(abs(a / b - 1), RELATIVE[precision], f"step {step}: {a} on the GPU, {b} on the CPU")

    def test_quickstart_and_the_debug_model_train_as_on_a_cpu(self):
        for config, precision, more in (("debug_llama3.toml", "fp32", ()), ("quickstart.toml", "bf16", ("--model.converters=",)), ("quickstart.toml", "fp8", ())):
            cpu, _, _ = self.losses("--device", "cpu", *more, config=config)
            gpu, output, made = self.losses(*CUDA, *more, config=config)
            self.expect_close(gpu, cpu, precision)
            self.assertLess(gpu[-1], gpu[0] - 0.2)
            self.assertIn("device: NVIDIA", output)

    def test_options_of_memory_and_precision_train_as_on_a_cpu(self):
        for precision, more in (("fp8", ("--activation_checkpoint.mode", "full")), ("fp8", ("--activation_checkpoint.mode", "auto")),
                                ("fp8", ROWWISE), ("bf16", ("--model.converters=", "--data.isolate_documents")),
                                ("bf16", ("--model.converters=", "--optimizer.ema_decay", "0.9"))):
            cpu, _, _ = self.losses("--device", "cpu", *more, config="quickstart.toml", steps=8)
            gpu, _, _ = self.losses(*CUDA, *more, config="quickstart.toml", steps=8)
            self.expect_close(gpu, cpu, precision)

    def test_the_peak_of_the_memory_is_as_predicted_and_the_rate_of_the_device_is_known(self):
        _, output, made = self.losses(*CUDA, config="quickstart.toml", steps=6)
        predicted = float(re.search(r"memory: ([\d.]+) GiB of the device predicted in use at most", output).group(1))
        found = float(re.search(r"memory: at most ([\d.]+) GiB of the device in use", output + self.log_of_rank_0(made)).group(1))
        self.assertLess(abs(predicted / found - 1), 0.25, f"{predicted} GiB predicted, {found} found; of so small a job CUDA's own share is most")
        last = made.metrics()[-1]
        self.assertGreater(last["mfu"], 0)
        self.assertGreater(last["mfu"], last["mfu_causal"])

    @staticmethod
    def log_of_rank_0(made):
        return (made.run / "logs" / "rank-0.log").read_text()

    def test_a_checkpoint_of_a_gpu_goes_on_there_bit_for_bit_and_on_a_cpu_closely(self):
        straight, _, _ = self.losses(*CUDA, "--debug.deterministic", config="quickstart.toml", steps=12)
        made = self.job("quickstart.toml")
        self.train(made, *CUDA, "--debug.deterministic", "--training.steps", 6, "--lr_scheduler.total_steps", 12)
        halved = [line["loss"] for line in made.metrics()]
        self.train(made, *CUDA, "--debug.deterministic", "--training.steps", 9, "--lr_scheduler.total_steps", 12)
        resumed = [line["loss"] for line in made.metrics()]
        self.assertEqual(resumed[:6], halved)
        self.train(made, "--device", "cpu", "--training.steps", 12, "--lr_scheduler.total_steps", 12)
        all_of_it = [line["loss"] for line in made.metrics()]
        again, _, _ = self.losses(*CUDA, "--debug.deterministic", "--lr_scheduler.total_steps", 12, config="quickstart.toml", steps=12)
        self.assertEqual(all_of_it[:9], again[:9], "the second run went on as if there had been one")
        self.expect_close(all_of_it, again, "fp8")
        self.assertEqual(straight, again, "the schedule is that of 12 steps either way")

    def test_a_worker_killed_by_9_is_started_again_and_the_run_tells_what_an_undisturbed_one_tells(self):
        steps = 1200
        undisturbed, _, _ = self.losses(*CUDA, "--debug.deterministic", steps=steps, checkpoint=False)
        made = self.job(steps=steps, checkpoint=False)
        process = made.start("--nproc", 1, *CUDA, "--debug.deterministic", "--elastic.policy", "respawn", "--elastic.memory_interval", 10)
        self.addCleanup(process.kill)
        made.wait_for_step(60, process)
        victim = made.pid_of_rank(0)
        os.kill(victim, signal.SIGKILL)
        code, output = support.finish(process)
        self.assertEqual(code, 0, output)
        self.assertNotEqual(made.pid_of_rank(0), victim)
        self.assertEqual([line["loss"] for line in made.metrics()], undisturbed)
        recovered = [line for line in whole_lines(made.run / "journal.jsonl") if line["event"] == "recovered"]
        self.assertEqual(len(recovered), 1)
        print(f"recovered in {recovered[0]['seconds']:.2f} s", flush=True)

    def test_more_ranks_than_gpus_are_refused_before_anything_starts(self):
        made = self.job()
        code, output = made.train("--nproc", 64, *CUDA)
        self.assertEqual(code, 2, output)
        self.assertIn("at most one rank a GPU", output)
        self.assertFalse(made.run.exists())

    def test_a_batch_that_does_not_fit_is_refused_with_what_is_free(self):
        made = self.job()
        code, output = made.train("--nproc", 1, *CUDA, "--training.local_batch_size", 4096, "--training.seq_len", 65536, "--model.vocab_size", 4096)
        self.assertNotEqual(code, 0)
        self.assertRegex(output, r"[Oo]ut of memory on NVIDIA|GiB asked|does not fit|device has")

    def test_a_run_ends_on_a_signal_and_leaves_no_process_on_the_gpu(self):
        made = self.job(steps=100000)
        process = made.start("--nproc", 1, *CUDA)
        self.addCleanup(process.kill)
        made.wait_for_step(20, process)
        process.send_signal(signal.SIGTERM)
        code, output = support.finish(process)
        self.assertEqual(code, 0, output)
        self.assertEqual(made.workers(), [])
        self.assertTrue(made.checkpoints(), "the state is saved")


if __name__ == "__main__":
    unittest.main()
