"""A run whose folder lies on a disk that is really full: a tmpfs of a few MiB, mounted for the test (needs root)."""
import errno
import signal
import subprocess
import threading
import unittest

from job import Job, TROUPE, finish, wait_until, whole_lines

ROOM = 6 << 20  # bytes of the disk


class FullDiskTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(steps=1000000)
        self.addCleanup(self.job.remove)
        self.disk = self.job.folder / "disk"
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "troupe-full-disk", self.disk], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk], check=True)
        self.job.run = self.disk / "run"
        self.output = ""

    def start(self, *arguments):
        process = self.job.start("--nproc", 2, "--job.dump_folder", self.job.run, *arguments)
        self.addCleanup(process.kill)

        self.addCleanup(process.stdout.close)

        def read():
            for line in process.stdout:
                self.output += line

        self.reader = threading.Thread(target=read)
        self.reader.start()
        return process

    def end(self, process):
        code = process.wait(timeout=90)
        self.reader.join()
        return code

    def wait_for(self, text, process):
        wait_until(lambda: text in self.output or process.poll() is not None, text)
        if process.poll() is not None:
            self.reader.join()
        self.assertIn(text, self.output)

    def fill(self):
        """Takes every byte that is free."""
        with open(self.disk / "ballast", "ab", buffering=0) as ballast:
            for size in (65536, 4096, 1):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError as problem:
                    self.assertEqual(problem.errno, errno.ENOSPC)

    def free(self):
        (self.disk / "ballast").unlink()

    def journal(self):
        return whole_lines(self.job.run / "journal.jsonl")

    def test_the_little_shared_memory_that_containers_have_is_enough(self):
        command = f"mount -t tmpfs -o size=16m troupe-shm /dev/shm && exec {TROUPE} train {self.job.config} --nproc 4 --training.steps 3"
        done = subprocess.run(["unshare", "-m", "sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_full_at_a_periodic_save_is_a_warning_and_the_next_interval_saves_again(self):
        process = self.start("--checkpoint.interval", 100)
        self.wait_for("checkpoint of step 100 is sealed", process)
        self.fill()
        self.wait_for("was not saved", process)
        warning = next(line for line in self.output.splitlines() if "was not saved" in line)
        self.assertIn("No space left on device", warning)
        self.assertIn("training goes on, older checkpoints stay", warning)
        self.assertIn("step-100", self.job.checkpoints())
        failed = int(warning.split("checkpoint of step ")[1].split()[0])
        self.free()
        sealed = lambda: [event["step"] for event in self.journal() if event["event"] == "sealed" and event["step"] > failed]
        wait_until(lambda: sealed() or process.poll() is not None, "a checkpoint after the full one")
        self.assertTrue(sealed(), self.output)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(process), 0, self.output)
        steps = [line["step"] for line in self.job.metrics()]
        self.assertEqual(steps, list(range(1, steps[-1] + 1)), "what could not be written waits")
        self.assertIn(failed, [event["step"] for event in self.journal() if event["event"] == "not_sealed"])
        self.assertEqual([name for name in self.job.checkpoints() if "tmp" in name], [])

    def test_full_at_the_last_save_is_an_error(self):
        process = self.start()
        self.job.wait_for_step(2, process)
        self.fill()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(process), 1, self.output)
        self.assertRegex(self.output, r"the last checkpoint \(step \d+\) could not be saved")
        self.assertIn("No space left on device", self.output)
        self.free()
        self.assertEqual(self.job.workers(), [])

    def test_metrics_that_no_disk_took_are_an_error_at_the_end(self):
        process = self.start("--checkpoint.no_enable", "--training.steps", 3000)
        self.wait_for("step:  2 ", process)
        self.fill()
        self.assertEqual(self.end(process), 1, self.output)
        self.assertRegex(self.output, r"at the end of the run: cannot write .*metrics.jsonl: No space left on device; \d+ lines wait in memory.*these are lost")

    def test_full_before_the_first_step_is_an_error_at_once(self):
        self.fill()
        code, output = finish(self.job.start("--nproc", 2, "--job.dump_folder", self.job.run))
        self.assertNotEqual(code, 0, output)
        self.assertIn("No space left on device", output)
        self.assertIn(str(self.job.run), output)


