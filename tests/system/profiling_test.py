"""[profiling]: timelines and pictures of the memory at the steps asked for; and `--dry-run`, which starts nothing."""
import json
import pathlib
import re
import unittest

from job import Job

PRESETS = pathlib.Path(__file__).resolve().parents[1] / "data/presets"


class ProfilingTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(steps=9, checkpoint=False)
        self.addCleanup(self.job.remove)

    def test_a_timeline_has_the_steps_asked_for_and_no_others(self):
        code, output = self.job.train("--nproc", 2, "--profiling.enable_profiling", "--profiling.profile_freq=4", "--profiling.profiler_active=2", "--trace.no_enable")
        self.assertEqual(code, 0, output)
        folder = self.job.run / "profile_traces"
        self.assertEqual(sorted(entry.name for entry in folder.iterdir()), ["iteration_4", "iteration_8"])
        self.assertEqual(list((self.job.run / "trace").glob("*.json")), [])
        for last in (4, 8):
            for rank in range(2):
                events = json.loads((folder / f"iteration_{last}/rank{rank}_trace.json").read_text())["traceEvents"]
                spans = [event for event in events if event["ph"] == "X" and "step" in event.get("args", {})]
                self.assertEqual({event["args"]["step"] for event in spans}, {last - 1, last})
                self.assertEqual({event["pid"] for event in spans}, {rank})
                names = {event["name"] for event in spans}
                self.assertTrue({"forward L1", "backward L1", "gather L1", "verdict"} <= names, names)

    def test_a_picture_of_the_memory_says_what_lies_where_and_who_holds_what(self):
        code, output = self.job.train("--nproc", 2, "--profiling.enable_memory_snapshot", "--profiling.profile_freq=3", "--profiling.save_memory_snapshot_folder=pictures")
        self.assertEqual(code, 0, output)
        for step in (3, 6):
            picture = json.loads((self.job.run / f"pictures/iteration_{step}/rank1_memory_snapshot.json").read_text())
            self.assertEqual((picture["rank"], picture["step"]), (1, step))
            self.assertEqual(set(picture["holders"]), {"data_loader", "compute", "sharding", "checkpoint"})
            self.assertIn("weights: ", picture["holders"]["sharding"])
            self.assertIn(" of 2 slots out", picture["holders"]["sharding"])
            self.assertEqual({edge["edge"]: edge["slots"] for edge in picture["edges"]}, {"batches": 2, "weights": 2, "gradients": 2, "snapshots": 1})
            arena = picture["arena"]
            self.assertGreater(len(arena["buffers"]), 10)
            for buffer in arena["buffers"]:
                self.assertLessEqual(buffer["offset"] + buffer["bytes"], arena["bytes"])
            # No two buffers that live at once share memory.
            for i, a in enumerate(arena["buffers"]):
                for b in arena["buffers"][:i]:
                    if a["bytes"] and b["bytes"] and a["first"] <= b["last"] and b["first"] <= a["last"]:
                        self.assertTrue(a["offset"] + a["bytes"] <= b["offset"] or b["offset"] + b["bytes"] <= a["offset"], (a, b))

    def test_a_dry_run_prints_memory_and_letters_and_leaves_nothing_behind(self):
        code, dry = self.job.train("--nproc", 2, "--dry-run")
        self.assertEqual(code, 0, dry)
        self.assertFalse(self.job.run.exists())
        self.assertRegex(dry, r"gather L0 \[dp_shard.*WeightsGathered sharding → compute")
        self.assertRegex(dry, r"backward L0 .*MicroBatchDone, GradientReady compute → sharding")
        self.assertRegex(dry, r"optimize L3 .*StepReport sharding → checkpoint")
        code, real = self.job.train("--nproc", 2)
        self.assertEqual(code, 0, real)
        planned = re.search(r"all, on the device +([0-9.]+) MiB", dry)[1]
        self.assertIn(f"memory: {planned} MiB of the device", real)
        operations = re.search(r"plan of a step.*: (\d+) operations", dry)[1]
        self.assertIn(f"plan: {operations} operations a step", real)

    def test_presets_of_layers_that_are_not_built_are_estimated_and_then_refused(self):
        for tree in ("june-2025", "v0.2.2"):
            for flavour, parameters in (("70b", "70,553,706,496"), ("405b", "405,853,388,800")):
                self.job.config = PRESETS / tree / f"llama3_{flavour}.toml"
                code, output = self.job.train("--nproc", 128, "--dry-run")
                self.assertEqual(code, 2, output[-2000:])
                self.assertIn(f"{parameters} parameters", output)
                self.assertIn("parallelism.tensor_parallel_degree = 8 is not built yet", output)
                self.assertRegex(output, r"fp32 masters +\d+")

    def test_a_timeline_longer_than_its_period_is_refused(self):
        code, output = self.job.train("--profiling.profile_freq=2", "--profiling.profiler_active=3")
        self.assertEqual(code, 2, output)
        self.assertIn("profiling.profiler_active: a timeline of 3 steps every 2", output)


if __name__ == "__main__":
    unittest.main()
