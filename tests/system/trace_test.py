import base64
import json
import os
import re
import signal
import subprocess
import unittest
import zlib

from job import Job, TROUPE, finish


class TraceTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(steps=3, checkpoint=False)
        self.addCleanup(self.job.remove)

    def trace(self, *arguments):
        done = subprocess.run([TROUPE, "trace", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def test_the_timelines_of_all_ranks_become_one_file(self):
        code, output = self.job.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        merged = self.job.folder / "merged.json"
        code, output = self.trace(self.job.run, "-o", merged)
        self.assertEqual(code, 0, output)
        self.assertIn(f"timeline of 2 ranks: {merged}", output)
        forwards = {(event["pid"], event["args"]["step"]) for event in json.loads(merged.read_text())["traceEvents"] if event["name"] == "forward L0"}
        self.assertEqual(forwards, {(rank, step) for rank in (0, 1) for step in (1, 2, 3)})
        self.assertEqual(self.trace(self.job.run)[0], 0)
        whole = self.job.run / "trace" / "trace.json"
        self.assertEqual(whole.read_text(), merged.read_text())

    def test_steps_may_be_chosen(self):
        code, output = self.job.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        merged = self.job.folder / "merged.json"
        self.assertEqual(self.trace(self.job.run, "--steps", "2..3", "-o", merged)[0], 0)
        spans = [event for event in json.loads(merged.read_text())["traceEvents"] if event["ph"] == "X" and "outcome" in event["args"]]
        self.assertEqual({event["args"]["step"] for event in spans}, {2, 3})
        code, output = self.trace(self.job.run, "--steps", "70..80")
        self.assertEqual(code, 1)
        self.assertIn("nothing of steps 70 to 80, but of steps 1 to 3", output)
        for more in (("--html", self.job.folder / "none.html"), ("--report",)):
            code, output = self.trace(self.job.run, "--steps", "70..80", *more)
            self.assertEqual(code, 1, more)
            self.assertIn("nothing of steps 70 to 80, but of steps 1 to 3", output)
        self.assertFalse((self.job.folder / "none.html").exists())
        code, output = self.trace(self.job.run, "--steps", "3..x")
        self.assertEqual(code, 2)
        self.assertIn("--steps 3..x: expected a step or two", output)

    def test_clocks_of_hosts_that_differ_are_aligned_by_letters(self):
        code, output = self.job.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        code, output = self.trace(self.job.run)
        self.assertEqual(code, 0)
        self.assertRegex(output, r"rank 1: clock off by [+-]\d+\.\d+ ms ± \d+\.\d+ ms \(\d+ letters\), within its error: left as it is")
        file = self.job.run / "trace" / "rank-1.json"
        ahead = 7_200_000_000_000  # as if rank 1 had run on a host that was started two hours earlier
        file.write_text(re.sub(r'"origin_ns":"(\d+)"', lambda found: f'"origin_ns":"{int(found[1]) + ahead}"', file.read_text()))
        code, output = self.trace(self.job.run)
        self.assertEqual(code, 0, output)
        offset, error = map(float, re.search(r"rank 1: clock off by ([+-]\d+\.\d+) ms ± (\d+\.\d+) ms .*aligned", output).groups())
        self.assertLessEqual(abs(offset - ahead / 1e6), error)
        whole = json.loads((self.job.run / "trace" / "trace.json").read_text())
        self.assertLess(max(event["ts"] for event in whole["traceEvents"]), 60e6, "microseconds")

    def test_a_rank_that_was_started_again_keeps_its_clock(self):
        code, output = self.job.train("--nproc", 2, "--training.steps", 12, "--elastic.policy", "respawn", "--elastic.memory_interval", 2,
                                      "--faults.rules", "site=process rank=1 step=7 action=crash")
        self.assertEqual(code, 0, output)
        code, output = self.trace(self.job.run)
        self.assertEqual(code, 0, output)
        found = re.search(r"rank 1: clock off by ([+-]\d+\.\d+) ms ± (\d+\.\d+) ms \(\d+ letters\), within its error: left as it is", output)
        self.assertIsNotNone(found, output)
        self.assertLess(abs(float(found[1])), 100, "a process starts in some hundred milliseconds")

    def test_a_live_run_is_shown_as_it_is(self):
        process = self.job.start("--nproc", 2, "--training.steps", 100000)
        self.job.wait_for_step(5, process)
        merged = self.job.folder / "live.json"
        code, output = self.trace(self.job.run, "-o", merged)
        process.send_signal(signal.SIGINT)
        finish(process)
        self.assertEqual(code, 0, output)
        events = json.loads(merged.read_text())["traceEvents"]
        forwards = {event["pid"] for event in events if event["name"] == "forward L0"}
        self.assertEqual(forwards, {0, 1})
        titles = [event["args"]["name"] for event in events if event["name"] == "process_name"]
        self.assertEqual(titles, ["rank 0", "rank 1", "launcher"])
        marks = [event["name"] for event in events if event["ph"] == "i"]
        self.assertTrue(any(mark.startswith("epoch: ") for mark in marks), marks)
        self.assertEqual(list((self.job.run / "trace").glob("live-*")), [], "what was written for it is gone again")

    def test_a_report_says_where_the_time_of_a_step_went(self):
        code, output = self.job.train("--nproc", 2, "--training.steps", 6)
        self.assertEqual(code, 0, output)
        code, output = self.trace(self.job.run, "--report")
        self.assertEqual(code, 0, output)
        for words in ("steps 2 to 6: ", "rank 0\n", "compute    busy ", "critical path: ", "slots that would help", "who keeps whom waiting"):
            self.assertIn(words, output)
        code, output = self.trace(self.job.run, "--report", "--json")
        report = json.loads(output)
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [0, 1])
        for rank in report["ranks"]:
            for lane in rank["lanes"]:
                self.assertAlmostEqual(lane["busy_ms"] + sum(lane["waits_ms"].values()), rank["window_ms"], delta=1e-3, msg=lane["lane"])
            self.assertLessEqual(rank["exposed_ms"], rank["communication_ms"])
        hops = report["critical_path"]
        self.assertAlmostEqual(sum(hop["ms"] + hop["gap_ms"] for hop in hops["hops"]), hops["ms"], delta=1e-3)
        # Through which operations it leads is the machine's affair: a slow disk's path goes through the loads, which are steps ahead.
        self.assertGreater(len(hops["hops"]), 5)
        self.assertAlmostEqual(hops["ms"], report["step_ms"] * report["steps"], delta=1e-3, msg="from the start of the steps to their end")
        self.assertEqual(hops["hops"][-1]["step"], 6)
        code, output = self.trace(self.job.run, "--report", "--compare", self.job.run)
        self.assertEqual(code, 0, output)
        self.assertIn("rank 1 compute busy", output)
        page = self.job.folder / "report.html"
        self.assertEqual(self.trace(self.job.run, "--report", "--html", page)[0], 0)
        self.assertIn("critical_path", page.read_text())

    def test_a_page_holds_the_timeline_and_names_no_other_file(self):
        code, output = self.job.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        page = self.job.folder / "timeline.html"
        code, output = self.trace(self.job.run, "--html", page)
        self.assertEqual(code, 0, output)
        self.assertIn(f"timeline of 2 ranks: {page}", output)
        text = page.read_text()
        self.assertEqual(re.findall(r"""(?:src|href)=["'][^"']+""", text), [])
        header = json.loads(re.search(r'id="timeline-header">(.*?)</script>', text, re.S)[1])
        columns = zlib.decompress(base64.b64decode(re.search(r'id="timeline-data">(.*?)</script>', text, re.S)[1]))
        self.assertEqual(len(columns), header["bytes"])
        self.assertEqual([rank["label"] for rank in header["ranks"]], ["rank 0", "rank 1", "launcher"])
        self.assertEqual([step[0] for step in header["steps"]], [1, 2, 3])

    def test_letters_between_processes_have_a_row_of_their_own_and_each_arrow_a_start(self):
        code, output = self.job.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        self.assertEqual(self.trace(self.job.run)[0], 0)
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
        code, output = self.job.train("--nproc", 1)
        self.assertEqual(code, 0, output)
        code, output = self.trace(self.job.run, "-o", self.job.folder / "none" / "merged.json")
        self.assertEqual(code, 1)
        self.assertIn("none/merged.json", output)
        pipe = self.job.folder / "pipe"  # as /dev/stdout may be
        os.mkfifo(pipe)
        kept = self.job.folder / "kept.json"
        with kept.open("wb") as file, subprocess.Popen(["cat", pipe], stdout=file):
            code, output = self.trace(self.job.run, "-o", pipe)
            self.assertEqual(code, 0, output)
        self.assertIn("traceEvents", json.loads(kept.read_text()))
        self.assertTrue(pipe.is_fifo(), "what is no file is not replaced by one")


if __name__ == "__main__":
    unittest.main()
