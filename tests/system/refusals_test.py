import os
import pathlib
import signal
import socket
import subprocess
import time
import unittest

from job import Job, TROUPE, finish, wait_until


def cpu_ticks(pid):
    """Of 10 ms, spent in user code."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11])


class RefusalsTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(steps=4, checkpoint=False)
        self.addCleanup(self.job.remove)

    def refused(self, *arguments, code=2):
        began = time.monotonic()
        got, output = self.job.train(*arguments)
        self.assertEqual(got, code, output)
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual(self.job.workers(), [])
        return output

    def test_a_port_in_use_is_named(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            self.assertIn(f"port {port} on 127.0.0.1 is in use", self.refused("--nproc", 2, "--port", port))

    def test_a_world_that_does_not_divide_is_refused_with_its_factors(self):
        self.assertIn("data_parallel_replicate 2", self.refused("--nproc", 3, "--parallelism.data_parallel_replicate_degree", 2))
        self.assertIn("but the world has 2 ranks", self.refused("--nproc", 2, "--parallelism.data_parallel_shard_degree", 3))

    def test_an_unknown_key_is_refused_with_the_nearest_known_one(self):
        self.assertIn("training.steps", self.refused("--training.step", 3))

    def test_what_is_not_built_yet_is_refused_by_name_and_what_has_no_effect_is_said(self):
        output = self.refused("--nproc", 2, "--parallelism.tensor_parallel_degree", 2, "--training.compile")
        self.assertIn("command line: parallelism.tensor_parallel_degree = 2 is not built yet", output)
        code, output = self.job.train("--nproc", 1, "--training.compile", "--training.steps", 1)
        self.assertEqual(code, 0, output)
        self.assertIn("training.compile has no effect", output)

    def test_missing_data_ends_the_run_and_names_the_path(self):
        output = self.refused("--nproc", 2, "--training.dataset_path", "/nowhere/at/all.txt", code=1)
        self.assertIn("/nowhere/at/all.txt", output)
        self.assertRegex(output, r"rank [01]")

    def test_a_run_that_names_no_data_is_refused_before_anything_starts(self):
        text = self.job.config.read_text()
        self.job.config.write_text("\n".join(line for line in text.splitlines() if not line.startswith("dataset_path")))
        self.assertIn("training.dataset_path is not set", self.refused("--nproc", 2))
        self.assertFalse(self.job.run.exists())

    def test_sizes_that_no_machine_has_are_refused_and_not_taken_for_small_ones(self):
        for key, value, told in (("model.n_layers", 100000000, "at most 4096"), ("training.local_batch_size", 2**32 + 1, "at most 1048576"),
                                 ("parallelism.data_parallel_shard_degree", 2**33, "at most 1048576"), ("training.global_batch_size", 10**9, "micro-batches")):
            for mode in ((), ("--dry-run",)):
                output = self.refused("--nproc", 1, f"--{key}", value, *mode)
                self.assertIn(key, output)
                self.assertIn(told, output)

    def test_a_dry_run_ends_on_a_signal(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            process = self.job.start("--dry-run", "--training.global_batch_size", 8192)
            wait_until(lambda: process.poll() is not None or cpu_ticks(process.pid) > 30, "the dry run is at work")
            self.assertIsNone(process.poll(), "it has ended before the signal")
            process.send_signal(number)
            self.assertEqual(finish(process)[0], -number)

    def test_a_device_that_is_not_there_is_refused_before_anything_starts(self):
        os.environ["TROUPE_CUDA_PLUGIN"] = "/nowhere/libtroupe_cuda.so"
        self.addCleanup(os.environ.pop, "TROUPE_CUDA_PLUGIN")
        output = self.refused("--nproc", 2, "--device", "cuda")
        self.assertIn("/nowhere/libtroupe_cuda.so is not there", output)
        self.assertIn("--nproc 4", self.refused("--ranks-in-process", 4, "--device", "cuda"))
        self.assertFalse(self.job.run.exists(), "no run folder")
        self.assertEqual(self.job.train("--nproc", 1, "--device", "cuda", "--dry-run")[0], 0, "a plan can be looked at anywhere")

    def test_empty_data_ends_the_run(self):
        empty = self.job.folder / "empty.txt"
        empty.write_text("")
        self.assertIn("empty", self.refused("--nproc", 2, "--training.dataset_path", empty, code=1))

    def test_binary_data_ends_the_run(self):
        binary = self.job.folder / "binary.txt"
        binary.write_bytes(b"text\0more" * 100)
        self.assertIn("binary.txt", self.refused("--nproc", 2, "--training.dataset_path", binary, code=1))

    def test_a_second_run_in_the_same_folder_is_refused_with_the_pid(self):
        first = self.job.start("--nproc", 1, "--training.steps", 100000)
        self.job.wait_for_step(1, first)
        code, output = self.job.train("--nproc", 1)
        self.assertEqual(code, 2, output)
        self.assertIn(f"live run with PID {first.pid}", output)
        first.send_signal(signal.SIGINT)
        code, output = finish(first)
        self.assertEqual(code, 0, output)
        self.assertIn("no checkpoint (checkpoint.enable = false)", output)

    def test_a_folder_of_an_earlier_run_needs_overwrite(self):
        code, output = self.job.train()
        self.assertEqual(code, 0, output)
        self.assertIn("--overwrite", self.refused())
        code, output = self.job.train("--overwrite")
        self.assertEqual(code, 0, output)

    def test_a_configuration_inside_the_runs_folder_is_never_deleted_nor_changed(self):
        self.job.run.mkdir()
        own = self.job.run / "config.toml"
        text = "# mine\n" + self.job.config.read_text()
        own.write_text(text)
        self.job.config = own
        self.assertIn("is not empty and holds no sealed checkpoint", self.refused("--nproc", 1))
        self.assertEqual((own.read_text(), [entry.name for entry in self.job.run.iterdir()]), (text, ["config.toml"]))
        for _ in range(2):
            code, output = self.job.train("--nproc", 1, "--overwrite")
            self.assertEqual(code, 0, output)
            self.assertEqual(own.read_text(), text)
            self.assertEqual(len(self.job.metrics()), 4)

    def test_overwrite_begins_anew_where_checkpoints_lie_in_another_folder(self):
        job = Job(steps=4)
        self.addCleanup(job.remove)
        for arguments in ((), ("--overwrite",)):
            code, output = job.train("--nproc", 1, "--checkpoint.folder", "saved", *arguments)
            self.assertEqual(code, 0, output)
            self.assertIn("Training completed: 4 steps", output)
        code, output = job.train("--nproc", 1, "--checkpoint.folder", "../elsewhere")
        self.assertEqual(code, 2, output)
        self.assertIn("expected the name of a folder inside job.dump_folder", output)

    def test_a_number_of_processes_that_makes_no_sense_is_refused(self):
        for number in ("0", "-1", "many", "65536", "99999999999999999999"):
            output = self.refused("--nproc", number)
            self.assertRegex(output, "^troupe train: .*--nproc")
            self.assertLess(len(output.splitlines()), 4, output)
            self.assertFalse(self.job.run.exists(), number)

    def test_a_word_that_is_no_command_and_keys_that_a_command_ignores_are_refused(self):
        def refused(*words):
            done = subprocess.run([TROUPE, *words], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            return done.stderr

        self.assertRegex(refused("trian", "job.toml"), r"unknown command 'trian'; did you mean 'train'\? There are: .*train")
        self.assertIn("unexpected '--training.max_norm=2'", refused("set", str(self.job.run), "optimizer.lr=1e-4", "--training.max_norm=2"))
        self.assertIn("no keys of a configuration", refused("inspect", str(self.job.run), "--training.steps", "3"))

    def test_output_that_no_disk_took_is_an_error_but_no_run_fails_for_its_console(self):
        for command, code in ((["config"], 1), (["train", "--dry-run"], 1), (["train", "--nproc", "1"], 0), (["sample", "--untrained"], 1)):
            with open("/dev/full", "w") as full:
                done = subprocess.run([TROUPE, command[0], self.job.config, *command[1:]], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, code, f"{command}: {done.stderr}")
            self.assertEqual("the output could not be written: No space left on device" in done.stderr, code == 1, done.stderr)

    def test_help_of_every_command_names_exit_codes(self):
        for command in ("train", "config", "sample"):
            text = subprocess.run([TROUPE, command, "--help"], capture_output=True, text=True).stdout
            self.assertIn("Exit codes", text)
            self.assertIn("CONFIG", text)
