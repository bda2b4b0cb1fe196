import re
import signal
import unittest

from job import Job, finish


def memory(pid, key):
    """MiB, by the kernel's account of the process: VmRSS now, VmHWM at most."""
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(rf"{key}:\s+(\d+) kB", status.read()).group(1)) / 1024


class MemoryTest(unittest.TestCase):
    def job(self, steps, checkpoint=False):
        job = Job(steps=steps, checkpoint=checkpoint)
        self.addCleanup(job.remove)
        return job

    def peaks(self, job, step, *arguments):
        """Trains until the step, then stops; the most that each worker had resident."""
        process = job.start(*arguments)
        job.wait_for_step(step, process)
        peaks = [memory(pid, "VmHWM") for pid in job.workers()]
        process.send_signal(signal.SIGTERM)
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        self.assertTrue(peaks, "no worker was there to be looked at")
        return peaks, output

    def test_a_long_run_over_many_passes_of_the_data_does_not_grow(self):
        job = self.job(100000)
        process = job.start("--nproc", 2, "--metrics.log_freq", 100)
        job.wait_for_step(500, process)
        before = [memory(pid, "VmRSS") for pid in job.workers()]
        job.wait_for_step(3000, process)
        after = [memory(pid, "VmRSS") for pid in job.workers()]
        process.send_signal(signal.SIGTERM)
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        self.assertEqual(len(before), 2)
        for early, late in zip(before, after):
            self.assertLess(late - early, 5, f"MiB between steps 500 and 3000: {before} and {after}")

    def test_loading_takes_no_more_than_a_tensor_beside_the_state_tied_or_not(self):
        for tied in (False, True):
            with self.subTest(tied=tied):
                job = self.job(100000, checkpoint=True)
                job.config.write_text(job.config.read_text().replace("vocab_size = 258", "vocab_size = 40960").replace("dim = 32", "dim = 128"))
                arguments = ["--nproc", 4] + (["--model.tied_embeddings"] if tied else [])
                fresh, _ = self.peaks(job, 2, *arguments)
                step = job.metrics()[-1]["step"]
                resumed, output = self.peaks(job, step + 2, *arguments)
                self.assertIn("resuming from the checkpoint of step", output)
                whole = 4 * 3 * 40960 * 128 * (1 if tied else 2) / 2**20
                self.assertLess(max(resumed) - max(fresh), 40, f"MiB beside a fresh start, of a state of {whole:.0f} MiB: {fresh} and {resumed}")

    def test_the_loader_holds_neither_all_documents_nor_their_list(self):
        few = self.job(100000)
        base, _ = self.peaks(few, 2, "--nproc", 1)
        for name, lines, text, limit in (("short", 3_000_000, "x" * 85, 150), ("long", 1, "x" * 50_000_000, 300)):
            with self.subTest(name):
                job = self.job(100000)
                data = job.folder / "data.jsonl"
                line = '{"text": "' + text + '"}\n'
                with data.open("w") as out:
                    for _ in range(max(1, lines // 10000)):
                        out.write(line * min(lines, 10000))
                peaks, _ = self.peaks(job, 2, "--nproc", 1, "--training.dataset", "jsonl", "--training.dataset_path", data)
                self.assertLess(peaks[0] - base[0], limit, f"MiB above {base[0]:.0f} for {data.stat().st_size / 2**20:.0f} MiB of text")
