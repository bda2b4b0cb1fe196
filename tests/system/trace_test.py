import json
import os
import subprocess
import unittest

from job import Job, TROUPE


class TraceTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(steps=3, checkpoint=False)
        self.addCleanup(self.job.remove)

    def trace(self, *arguments):
        done = subprocess.run([TROUPE, "trace", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def test_the_timelines_of_all_ranks_become_one_file(self):
        code, output = self.job.train("--nproc", 2, "--trace.enable")
        self.assertEqual(code, 0, output)
        merged = self.job.folder / "merged.json"
        code, output = self.trace(self.job.run, "-o", merged)
        self.assertEqual(code, 0, output)
        self.assertIn(f"timeline of 2 ranks: {merged}", output)
        forwards = {(event["pid"], event["args"]["step"]) for event in json.loads(merged.read_text())["traceEvents"] if event["name"] == "forward L0"}
        self.assertEqual(forwards, {(rank, step) for rank in (0, 1) for step in (1, 2, 3)})
        whole = self.job.run / "trace" / "trace.json"
        self.assertEqual(whole.read_text(), merged.read_text(), "the run itself has written the same")
        whole.unlink()
        self.assertEqual(self.trace(self.job.run)[0], 0)
        self.assertTrue(whole.exists())

    def test_letters_between_processes_have_a_row_of_their_own_and_each_arrow_a_start(self):
        code, output = self.job.train("--nproc", 2, "--trace.enable")
        self.assertEqual(code, 0, output)
        events = json.loads((self.job.run / "trace" / "trace.json").read_text())["traceEvents"]
        rows = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
        spans = {(event["pid"], event["name"]) for event in events if event["ph"] == "X" and rows[event["pid"], event["tid"]].startswith("transport")}
        for rank in (0, 1):
            self.assertIn((rank, "send StepReport"), spans)
            self.assertIn((rank, "receive Horizon"), spans)
            names = [name for (pid, _), name in rows.items() if pid == rank]
            self.assertIn("compute", names)  # the lane's
            self.assertIn("compute actor", names)
            self.assertNotIn("compute 2", names, "a lane runs one operation after the other")
        starts = {event["id"] for event in events if event["ph"] == "s"}
        self.assertEqual([event for event in events if event["ph"] == "f" and event["id"] not in starts], [])

    def test_what_is_no_run_or_has_no_timeline_is_refused_with_its_name(self):
        nowhere = self.job.folder / "nowhere"
        code, output = self.trace(nowhere)
        self.assertEqual(code, 2)
        self.assertIn(f"{nowhere}/trace: no such folder", output)
        (nowhere / "trace").mkdir(parents=True)
        code, output = self.trace(nowhere)
        self.assertEqual(code, 2)
        self.assertIn("holds no rank-N.json", output)
        (nowhere / "trace" / "rank-0.json").write_text("dear diary")
        code, output = self.trace(nowhere)
        self.assertEqual(code, 1)
        self.assertIn("rank-0.json is not a trace that this program wrote", output)
        (nowhere / "trace" / "rank-0.json").unlink()
        (nowhere / "trace" / "rank-0.json").mkdir()
        code, output = self.trace(nowhere)
        self.assertEqual(code, 1)
        self.assertIn("cannot read the trace", output)

    def test_a_folder_that_cannot_be_written_is_named(self):
        code, output = self.job.train("--nproc", 1, "--trace.enable")
        self.assertEqual(code, 0, output)
        code, output = self.trace(self.job.run, "-o", self.job.folder / "none" / "merged.json")
        self.assertEqual(code, 1)
        self.assertIn("none/merged.json", output)
        pipe = self.job.folder / "pipe"  # as /dev/stdout may be
        os.mkfifo(pipe)
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
            code, output = self.trace(self.job.run, "-o", pipe)
            self.assertEqual(code, 0, output)
            self.assertIn("traceEvents", json.loads(reader.stdout.read()))
        self.assertTrue(pipe.is_fifo(), "what is no file is not replaced by one")


if __name__ == "__main__":
    unittest.main()
