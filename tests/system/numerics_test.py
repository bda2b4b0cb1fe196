"""Schedule, optimizer, fp8 and the guard, as a user meets them: metrics, checkpoints, messages."""
import json
import struct
import unittest

from job import DEVICE, Job

NO_FLOAT8 = "--model.converters="
BFLOAT16 = "--training.mixed_precision_param=bfloat16"
PEAK = 1e-3


def tensors(folder):
    """All tensors of a checkpoint by name: {name: bytes}, parts of several ranks joined in rank order."""
    found = {}
    for file in sorted(folder.glob("rank-*.safetensors")):
        data = file.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = found.get(name, b"") + data[8 + length + begin:8 + length + end]
    return found


class NumericsTest(unittest.TestCase):
    def job(self, **options):
        job = Job(**options)
        self.addCleanup(job.remove)
        return job

    def train(self, job, *arguments, ranks=1):
        code, output = job.train("--nproc", ranks, *arguments)
        self.assertEqual(code, 0, output)
        return output

    def rates(self, job):
        return [line["lr"] / PEAK for line in job.metrics()]

    # B077, B080: the value logged at a step is the one used in it, and depends on the step alone
    def test_the_learning_rate_of_a_step_is_the_same_however_often_the_run_was_stopped(self):
        job = self.job()
        for stop in (1, 3, 7, 9, 10):
            self.train(job, "--lr_scheduler.warmup_steps=2", "--lr_scheduler.decay_ratio=0.8", "--lr_scheduler.total_steps=10", f"--training.steps={stop}")
        for found, right in zip(self.rates(job), [.5, 1, 1, .875, .75, .625, .5, .375, .25, .125], strict=True):
            self.assertAlmostEqual(found, right, 12)

    # B078
    def test_a_warm_up_longer_than_the_run_is_cut_with_a_warning(self):
        job = self.job(steps=5)
        output = self.train(job, "--lr_scheduler.warmup_steps=8", "--lr_scheduler.total_steps=5")
        self.assertIn("lr_scheduler.warmup_steps is 8 but the run has 5 steps", output)
        for found, right in zip(self.rates(job), [.2, .4, .6, .8, 1], strict=True):
            self.assertAlmostEqual(found, right, 12)

    # B082: the configuration wins, and says so
    def test_a_resumed_run_follows_the_learning_rate_of_its_configuration(self):
        job = self.job()
        schedule = ("--lr_scheduler.warmup_steps=0", "--lr_scheduler.total_steps=10")
        self.train(job, *schedule, "--training.steps=5")
        output = self.train(job, *schedule, "--training.steps=7", "--optimizer.lr=5e-4")
        self.assertIn("optimizer.lr: 0.001 before, 5e-04 now", output)
        for found, right in zip(self.rates(job), [1, .9, .8, .7, .6, .25, .2], strict=True):
            self.assertAlmostEqual(found, right, 12)
        before = job.metrics()
        output = self.train(job, *schedule, "--training.steps=4")
        self.assertEqual(job.metrics(), before, output)

    # B083: moments and step counts; also with averages, and of another number of ranks
    def test_weights_moments_and_averages_after_a_resume_are_those_of_the_undisturbed_run(self):
        options = (NO_FLOAT8, "--optimizer.ema_decay=0.9", "--optimizer.beta1=0.9", "--optimizer.beta2=0.95", "--training.global_batch_size=2")
        whole, parts = self.job(), self.job()
        self.train(whole, *options, "--training.steps=3")
        self.train(parts, *options, "--training.steps=2")
        self.train(parts, *options, "--training.steps=3")
        want = tensors(whole.run / "checkpoint/step-3")
        self.assertEqual(tensors(parts.run / "checkpoint/step-3"), want)
        self.assertTrue(any(name.startswith("optimizer.ema.layers.1.") for name in want))
        self.assertNotEqual(want["optimizer.ema.output.weight"], want["output.weight"])
        resharded = self.job()
        self.train(resharded, *options, "--training.steps=2", ranks=2)
        self.train(resharded, *options, "--training.steps=3")
        for line, other in zip(resharded.metrics(), whole.metrics(), strict=True):
            self.assertAlmostEqual(line["grad_norm"] / other["grad_norm"], 1, 5)

    def test_averages_begin_at_the_weights_of_a_checkpoint_without_them_and_may_be_left(self):
        job = self.job()
        self.train(job, "--training.steps=2")
        output = self.train(job, "--training.steps=3", "--optimizer.ema_decay=0.5")
        self.assertIn("step-2 holds no averages of the weights; they begin at its weights", output)
        found = tensors(job.run / "checkpoint/step-3")
        weight, average = (struct.unpack("<f", found[name][:4])[0] for name in ("output.weight", "optimizer.ema.output.weight"))
        before = struct.unpack("<f", tensors(job.run / "checkpoint/step-2")["output.weight"][:4])[0]
        self.assertAlmostEqual(average, (before + weight) / 2, 7)
        self.train(job, "--training.steps=4")

    def test_the_last_checkpoint_may_hold_the_averages_in_place_of_the_weights(self):
        options = ("--optimizer.ema_decay=0.9", "--training.steps=3")
        plain, averaged = self.job(), self.job()
        self.train(plain, *options)
        self.train(averaged, *options, "--checkpoint.last_save_model_only=true", "--checkpoint.last_save_ema=true")
        full, exported = (tensors(job.run / "checkpoint/step-3") for job in (plain, averaged))
        self.assertEqual(exported["output.weight"], full["optimizer.ema.output.weight"])
        self.assertNotIn("optimizer.ema.output.weight", exported)
        code, output = plain.train("--nproc", 1, "--checkpoint.last_save_ema")
        self.assertNotEqual(code, 0)
        self.assertIn("checkpoint.last_save_ema: needs averages", output)

    # B119
    def test_linears_that_do_not_fit_fp8_are_listed_once_with_the_reason(self):
        job = self.job(steps=2)  # vocabulary 258
        output = self.train(job, "--float8.filter_fqns=wo")
        self.assertEqual(output.count("float8: output stays in float32: 258 x 32 is not divisible by 16"), 1, output)
        self.assertEqual(output.count("float8: layers.0.attention.wo stays in float32: filter \"wo\""), 1, output)
        self.assertIn("float8: 12 linear layers, recipe tensorwise", output)
        self.assertEqual("products emulated" in output, DEVICE == "cpu", output)
        output = self.train(self.job(steps=1), "--training.seq_len=20")
        self.assertIn("batch x seq = 1 x 20 = 20 is not divisible by 16", output)
        output = self.train(self.job(steps=1), "--float8.filter_fqns=auto_filter_small_kn")
        self.assertIn("float8: layers.0.attention.wq stays in float32: 32 x 32 is too small to gain (auto_filter_small_kn)", output)
        self.assertIn("float8: 0 linear layers", output)

    def test_every_recipe_trains_and_counts_nothing_strange(self):
        for recipe in ("tensorwise", "rowwise", "rowwise_with_gw_hp"):
            job = self.job(steps=6)
            output = self.train(job, f"--quantize.linear.float8.recipe_name={recipe}", ranks=2)
            self.assertIn(f"recipe {recipe}", output)
            lines = job.metrics()
            self.assertLess(lines[-1]["loss"], lines[0]["loss"])
            self.assertEqual({(line["float8_saturated"], line["float8_non_finite"]) for line in lines}, {(0, 0)})

    def test_what_recipes_cannot_do_is_refused(self):
        job = self.job()
        code, output = job.train("--nproc", 1, "--float8.recipe_name=rowwise", "--float8.enable_fsdp_float8_all_gather")
        self.assertNotEqual(code, 0)
        self.assertIn("float8.enable_fsdp_float8_all_gather: scales of recipe rowwise do not survive sharding by rows", output)
        code, output = job.train("--nproc", 1, "--float8.recipe_name=rowwise_with_gw_hp", "--float8.filter_fqns=auto_filter_small_kn")
        self.assertNotEqual(code, 0)
        self.assertIn("auto_filter_small_kn knows no sizes for rowwise_with_gw_hp", output)

    def test_a_group_that_matches_nothing_is_refused_by_name(self):
        job = self.job(steps=1)
        code, output = job.train("--nproc", 1, "--optimizer.param_groups=match=bias weight_decay=0")
        self.assertNotEqual(code, 0)
        self.assertIn("optimizer.param_groups: no parameter of llama3 debugmodel is left for match=bias", output)
        self.train(job, "--optimizer.param_groups=match=norm weight_decay=0", "--optimizer.decay_norms_and_biases=false", "--overwrite")

    EARLY = ("--optimizer.early_step_in_backward", "--training.guard.nonfinite=stop")

    def test_layers_updated_in_the_backward_pass_have_the_same_weights_in_less_memory(self):
        for ranks, options in ((1, ()), (2, ("--training.global_batch_size=4", "--parallelism.reduce_gradients=last"))):
            runs = []
            for early in ((), self.EARLY):
                job = self.job(steps=5)
                self.train(job, "--training.max_norm=0", *options, *early, ranks=ranks)
                runs.append((tensors(job.run / "checkpoint/step-5"), job.metrics()))
            (late_state, late), (early_state, early) = runs
            self.assertEqual(early_state, late_state)
            for one, other in zip(early, late, strict=True):
                self.assertEqual([one[key] for key in ("loss", "lr", "digest", "outcome")], [other[key] for key in ("loss", "lr", "digest", "outcome")])
                self.assertAlmostEqual(one["grad_norm"] / other["grad_norm"], 1, 12)  # the squares of its parts are summed in another order
                self.assertLess(one["arena_peak_bytes"], other["arena_peak_bytes"])

    def test_what_an_update_in_the_backward_pass_cannot_do_is_refused_with_what_to_do(self):
        job = self.job(steps=1)
        for options, wrong in ((("--training.max_norm=1.5", *self.EARLY), "training.max_norm = 1.5 clips to it: set training.max_norm = 0"),
                               (("--training.max_norm=0", self.EARLY[0]), "set training.guard.nonfinite = \"stop\""),
                               (("--training.max_norm=0", *self.EARLY, "--training.global_batch_size=2"), "set parallelism.reduce_gradients = \"last\"")):
            code, output = job.train("--nproc", 1, *options)
            self.assertNotEqual(code, 0, output)
            self.assertIn("optimizer.early_step_in_backward: ", output)
            self.assertIn(wrong, output)
        self.train(job, "--training.max_norm=0", *self.EARLY, "--overwrite")

    def test_gradients_kept_in_bfloat16_take_less_memory_and_train_alike_where_nothing_is_added_to_them(self):
        half = "--training.weight_gradients=bfloat16"
        runs = []
        for options in ((), (half,)):
            job = self.job(steps=5)
            self.train(job, BFLOAT16, *options)
            runs.append(job.metrics())
        for one, other in zip(*runs, strict=True):
            self.assertLess(abs(other["loss"] / one["loss"] - 1), 1e-2)
            self.assertLess(other["arena_peak_bytes"], one["arena_peak_bytes"])
        self.assertEqual(runs[0][0]["loss"], runs[1][0]["loss"])
        self.assertNotEqual(runs[0][-1]["loss"], runs[1][-1]["loss"])
        for ranks, *options in ((2, BFLOAT16), (1, BFLOAT16, "--training.global_batch_size=2"), (1,), (1, BFLOAT16, "--training.max_norm=0", *self.EARLY)):
            code, output = self.job(steps=1).train("--nproc", ranks, half, *options)
            self.assertNotEqual(code, 0, output)
            self.assertIn('training.weight_gradients = "bfloat16"', output)
            self.assertIn(f"ranks: {ranks}", output)

    def test_a_step_that_wrote_half_a_state_before_its_gradients_were_found_bad_is_never_sealed(self):
        job = self.job()
        code, output = job.train("--nproc", 2, *self.EXPLODE, *self.EARLY, "--training.max_norm=0", "--checkpoint.interval=1", "--elastic.policy=respawn",
                                 "--elastic.memory_interval=1")
        self.assertEqual(code, 1, output)
        self.assertIn("are not used, nor saved", output)
        self.assertEqual([name for name in job.checkpoints() if name.startswith("step-") and "tmp" not in name], ["step-1"], output)

    EXPLODE = ("--optimizer.lr=1e30", "--lr_scheduler.warmup_steps=0", "--training.steps=4")

    def test_steps_that_are_not_finite_are_skipped_counted_and_journalled(self):
        job = self.job(checkpoint=False)
        output = self.train(job, *self.EXPLODE, ranks=2)
        self.assertEqual([line["outcome"] for line in job.metrics()], ["commit", "skip", "skip", "skip"], output)
        self.assertIn("step 2 was skipped: ", output)
        self.assertTrue(all(line["float8_non_finite"] > 0 for line in job.metrics()[1:]))
        events = [json.loads(line) for line in (job.run / "journal.jsonl").read_text().splitlines()]
        self.assertEqual([event["step"] for event in events if event["event"] == "skip"], [2, 3, 4])

    def test_the_guard_stops_the_run_at_the_first_such_step(self):
        job = self.job(checkpoint=False)
        code, output = job.train("--nproc", 2, *self.EXPLODE, "--training.guard.nonfinite=stop")
        self.assertNotEqual(code, 0, output)
        self.assertIn("its weights are those of the step before (training.guard.nonfinite = \"stop\")", output)
        self.assertRegex(output, r"step 2: (\d+ losses are not finite|the gradients' norm is)")
        self.assertEqual([line["outcome"] for line in job.metrics()][:2], ["commit", "skip"])
