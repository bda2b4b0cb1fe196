"""`troupe simulate` and `troupe plan` as a user calls them."""
import json
import subprocess
import unittest

from job import TROUPE, Job


def troupe(*arguments):
    done = subprocess.run([TROUPE, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


class SimulateTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(steps=8, checkpoint=False)
        self.addCleanup(self.job.remove)

    def test_a_simulated_timeline_has_the_operations_and_letters_of_a_real_one(self):
        code, output = self.job.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        self.assertEqual(troupe("trace", self.job.run)[0], 0)
        simulated = self.job.folder / "simulated.json"
        code, text, errors = troupe("simulate", self.job.config, "--ranks", 2, "--gpu", "cpu", "--profile", self.job.run, "-o", simulated, "--steps", 6)
        self.assertEqual(code, 0, errors)
        self.assertRegex(text, r"profile: forward block +\d+\.\d+ ms of a core")

        def content(file):
            events = json.loads(file.read_text())["traceEvents"]
            spans = {(event["pid"], event["name"]) for event in events if event["ph"] == "X" and "issued" in event.get("args", {}) and event["args"]["step"] == 5}
            return spans, {event["name"] for event in events if event["ph"] == "s"}

        (real, real_letters), (made, made_letters) = content(self.job.run / "trace" / "trace.json"), content(simulated)
        self.assertEqual({span for span in real if span[1].split()[0] in ("gather", "forward", "backward", "reduce", "optimize", "verdict")},
                         {span for span in made if span[1].split()[0] in ("gather", "forward", "backward", "reduce", "optimize", "verdict")})
        self.assertLessEqual({"WeightsGathered", "GradientReady", "BatchReady"} & real_letters, made_letters)

    def test_a_run_without_a_trace_is_no_profile(self):
        code, output = self.job.train("--nproc", 1, "--trace.no_enable")
        self.assertEqual(code, 0, output)
        code, _, errors = troupe("simulate", self.job.config, "--gpu", "cpu", "--profile", self.job.run)
        self.assertEqual(code, 2)
        self.assertIn("trace.enable = true", errors)

    def test_the_planned_configuration_is_accepted_and_takes_what_was_said(self):
        planned = self.job.folder / "planned.toml"
        code, text, errors = troupe("plan", self.job.config, "--ranks", 2, "--training.global_batch_size", 4, "-o", planned, "--json")
        self.assertEqual(code, 0, errors)
        best = json.loads(text)["best"][0]
        code, _, errors = troupe("config", planned)
        self.assertEqual(code, 0, errors)
        code, text, errors = troupe("estimate", planned, "--ranks", 2, "--json")
        self.assertEqual(code, 0, errors)
        self.assertEqual(json.loads(text)["memory"]["device_bytes"], best["device_bytes"])

    def test_deaths_are_simulated_for_each_policy(self):
        code, text, errors = troupe("simulate", self.job.config, "--ranks", 2, "--death-every", 3, "--intervals", "10,100", "--json")
        self.assertEqual(code, 0, errors)
        self.assertEqual([len(policy["intervals"]) for policy in json.loads(text)["policies"]], [2, 2, 2])

    def test_what_a_simulated_step_has_not_is_said(self):
        code, text, errors = troupe("simulate", self.job.config, "--gpu", "cpu")
        self.assertEqual(code, 0, errors)
        self.assertNotIn("left out", text)
        code, text, errors = troupe("simulate", self.job.config, "--gpu", "cpu", "--live.changes", '["step=5 slots.weights=3"]', "--faults.rules", "site=process rank=0 step=7 action=crash")
        self.assertEqual(code, 0, errors)
        self.assertIn("left out: fault rules", text)
        self.assertIn("left out: planned changes (--change KEY=VALUE shows what one does)", text)

    def test_a_change_of_a_live_run_is_foretold(self):
        code, text, errors = troupe("simulate", self.job.config, "--ranks", 2, "--gpu", "cpu", "--slots.weights", 1, "--change", "slots.weights=2", "--json")
        self.assertEqual(code, 0, errors)
        told = json.loads(text)
        self.assertEqual(told["changes"], ["slots.weights=2"])
        self.assertGreater(told["after"]["device_bytes"], told["before"]["device_bytes"])
        self.assertGreater(told["pause_seconds"], 0.2, "what [recovery] build_seconds says of a CPU")
        code, _, errors = troupe("simulate", self.job.config, "--change", "model.dim=64")
        self.assertEqual(code, 2)
        self.assertIn("model.dim is frozen", errors)

    def test_a_network_file_with_an_unknown_key_is_refused_by_place(self):
        file = self.job.folder / "network.toml"
        file.write_text("[network]\nnic_gpbs = 3\n")
        code, _, errors = troupe("simulate", self.job.config, "--network", file)
        self.assertEqual(code, 2)
        self.assertIn("network.toml:2:1", errors)


if __name__ == "__main__":
    unittest.main()
