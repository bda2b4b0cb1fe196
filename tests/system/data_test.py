"""Validation beside the training, compressed files, and what `troupe data inspect` shows."""
import gzip
import json
import pathlib
import random
import re
import subprocess
import unittest

from job import Job, TROUPE

VALIDATION = ("validation_loss", "validation_tokens", "validation_seconds")


class DataTest(unittest.TestCase):
    def job(self, steps=4, **options):
        job = Job(steps=steps, **options)
        self.addCleanup(job.remove)
        return job

    def train(self, job, *arguments, ranks=1):
        code, output = job.train("--ranks-in-process", ranks, *arguments)
        self.assertEqual(code, 0, output)
        return output

    def validation_files(self, job, sizes):
        """One document a file: bos and `size` bytes are size + 1 positions."""
        dice = random.Random(3)
        for i, size in enumerate(sizes):
            (job.folder / f"validation-{i}.txt").write_text("".join(dice.choice("abcdefgh ") for _ in range(size)))
        return ("--validation.enable", "--validation.dataset_path", job.folder / "validation-*.txt", "--validation.seq_len", 16, "--validation.local_batch_size", 2)

    def test_validation_leaves_training_and_checkpoints_as_they_are_bit_for_bit(self):
        options = ("--checkpoint.interval", 2, "--training.global_batch_size", 4)
        plain, validated = self.job(steps=6), self.job(steps=6)
        self.train(plain, *options, ranks=2)
        self.train(validated, *options, *self.validation_files(validated, [500]), "--validation.freq", 2, ranks=2)
        lines = validated.numbers()
        self.assertEqual([line["step"] for line in lines if "validation_loss" in line], [1, 2, 4, 6])
        self.assertEqual([{key: value for key, value in line.items() if key not in VALIDATION} for line in lines], plain.numbers())
        shards = [[json.loads((job.run / "checkpoint" / name / "manifest.json").read_text())["files"] for name in job.checkpoints()] for job in (plain, validated)]
        self.assertEqual(shards[0], shards[1])

    def test_the_validation_loss_is_the_loss_that_training_on_that_data_begins_the_next_step_with(self):
        job = self.job(steps=5)
        (job.folder / "data.txt").write_text("".join(random.Random(5).choice("abcdefgh ") for _ in range(255)))  # with bos: 8 rows of 32
        self.train(job, "--model.converters", "", "--data.no_shuffle", "--training.local_batch_size", 8, "--validation.enable", "--validation.freq", 1,
                   "--validation.dataset_path", job.folder / "data.txt", "--validation.seq_len", 32, "--validation.local_batch_size", 4)
        lines = job.metrics()
        for before, after in zip(lines, lines[1:]):
            self.assertEqual(before["validation_tokens"], after["step_tokens"])
            self.assertAlmostEqual(before["validation_loss"] / after["loss"], 1, delta=1e-6, msg=f"after step {before['step']}")

    # B008: 3 and 5 rows, on any number of ranks
    def test_all_rows_are_validated_once_on_any_number_of_ranks(self):
        found = {}
        for ranks in (1, 2, 3):
            job = self.job(steps=1)
            files = self.validation_files(job, [3 * 16 - 1, 5 * 16 - 1])
            output = self.train(job, "--model.converters", "", "--training.global_batch_size", 6, *files, ranks=ranks)
            found[ranks], = job.metrics()
            self.assertRegex(output, r"validate step:  1  loss: +\d+\.\d+  memory: +\d+\.\d+GiB  tps: [\d,]+")
        for ranks in (2, 3):
            self.assertEqual(found[ranks]["validation_tokens"], 8 * 16)
            self.assertAlmostEqual(found[ranks]["validation_loss"] / found[1]["validation_loss"], 1, delta=1e-5)
        job = self.job(steps=1)
        self.train(job, *self.validation_files(job, [8 * 16 - 1]), "--validation.steps", 1, ranks=2)
        self.assertEqual(job.metrics()[0]["validation_tokens"], 1 * 2 * 2 * 16, "one batch of two rows on each rank")
        job = self.job(steps=1)
        code, output = job.train(*self.validation_files(job, [10]))
        self.assertEqual(code, 1)
        self.assertIn("validation.dataset_path: 1 files, 1 documents, 10 bytes of text make no row of validation.seq_len = 16 tokens", output)

    def test_compressed_files_give_the_run_that_plain_ones_give(self):
        plain, packed = self.job(), self.job()
        text = (packed.folder / "data.txt").read_bytes()
        (packed.folder / "data.txt").unlink()
        (packed.folder / "data.txt.gz").write_bytes(gzip.compress(text[:1000]) + gzip.compress(text[1000:]))
        self.train(plain, ranks=2)
        self.train(packed, "--training.dataset_path", packed.folder / "data.txt.gz", ranks=2)
        self.assertEqual(packed.numbers(), plain.numbers())

    def test_a_loader_process_feeds_the_training_and_each_rank_its_own_validation(self):
        plain, hosted = self.job(), self.job()
        for job, hosts in ((plain, 0), (hosted, 1)):
            code, output = job.train("--nproc", 2, "--data.loader_hosts", hosts, *self.validation_files(job, [600]), "--validation.freq", 2)
            self.assertEqual(code, 0, output)
        self.assertEqual(hosted.numbers(), plain.numbers())

    # B024
    def test_blended_files_give_their_shares_of_the_rows(self):
        job = self.job(steps=10)
        paths = []
        for name, letter in (("a", "a"), ("b", "b"), ("never", "x")):
            paths.append(job.folder / f"{name}.txt")
            paths[-1].write_text("\n%\n".join(letter * 50 for _ in range(6)))  # ten rows
        blend = ("--training.dataset_path", ",".join(map(str, paths)), "--data.blend_weights", "3,1,0", "--training.global_batch_size", 8)
        self.train(job, *blend, ranks=2)
        digests = {line["step"]: line["digest"] for line in job.metrics()}
        sources, rows = [], []
        for step in (1, 10):
            for rank in range(2):
                shown = self.inspect(job, "--step", step, "--rank", rank, *blend)
                self.assertIn(f"digest of the step, as in metrics.jsonl: {digests[step]}\n", shown.stdout, shown.stderr)
                self.assertNotIn("x", re.sub(r"[^\n]*(source|never)[^\n]*", "", "\n".join(re.findall(r"    text (.*)", shown.stdout))))
                rows += [int(row) for row in re.findall(r"^  row (\d+)$", shown.stdout, re.M)]
                sources += re.findall(r"    source (\d), its row", shown.stdout)
        self.assertEqual(sorted(rows), list(range(8)) + list(range(72, 80)))
        self.assertEqual((sources.count("1"), sources.count("2"), sources.count("3")), (12, 4, 0))
        for line in job.metrics():
            self.assertEqual(line["source_loss"][2], None, "a source of weight 0")
            self.assertEqual(sum(line["source_tokens"]), line["step_tokens"])
            together = sum(loss * tokens for loss, tokens in zip(line["source_loss"][:2], line["source_tokens"]))
            self.assertAlmostEqual(together / line["step_tokens"], line["loss"], places=9)
        for ranks in (1, 4):
            other = self.job(steps=10)
            self.train(other, "--model.converters", "", *blend, ranks=ranks)
            if ranks == 1:
                alone = other
        for one, four in zip(alone.metrics(), other.metrics(), strict=True):
            self.assertEqual(one["source_tokens"], four["source_tokens"])
            for loss, same in zip(one["source_loss"][:2], four["source_loss"]):
                self.assertAlmostEqual(loss / same, 1, delta=1e-5)
        code, output = job.train(*blend[:2], "--data.blend_weights", "3,1")
        self.assertNotEqual(code, 0)
        self.assertIn("data.blend_weights: 2 weights for the 3 entries of training.dataset_path", output)
        code, output = job.train(*blend[:2], "--data.blend_weights", "0,0,0")
        self.assertNotEqual(code, 0)
        self.assertIn("data.blend_weights: no weight is above 0", output)

    def test_losses_of_sources_are_the_same_bit_for_bit_after_a_fault_and_in_a_run_that_goes_on(self):
        runs = [self.job(steps=12) for _ in range(3)]
        blend = []
        for job in runs:
            paths = [job.folder / f"{name}.txt" for name in ("a", "b")]
            for path, words in zip(paths, ("one two three four ", "five six ")):
                path.write_text("\n%\n".join(words * (3 + i) for i in range(6)))
            blend.append(("--nproc", 2, "--training.dataset_path", ",".join(map(str, paths)), "--data.blend_weights", "2,1", "--training.global_batch_size", 6))
        undisturbed, faulty, parts = runs
        for job, options in ((undisturbed, ()), (faulty, ("--elastic.policy", "respawn", "--elastic.memory_interval", 3, "--faults.rules", "site=process rank=1 step=8 action=crash")),
                             (parts, ("--training.steps", 5)), (parts, ())):
            code, output = job.train(*blend[runs.index(job)], *options)
            self.assertEqual(code, 0, output)
        self.assertTrue(all(len(line["source_loss"]) == 2 for line in undisturbed.metrics()))
        told = [[(line["step"], line["source_loss"], line["source_tokens"]) for line in job.metrics()] for job in runs]
        self.assertEqual(told[1], told[0])
        self.assertEqual(told[2], told[0])
        self.assertGreater(max(line["epoch"] for line in faulty.metrics()), 1)

    def test_a_run_that_takes_the_weights_of_another_begins_at_the_row_that_it_is_told(self):
        first, second = self.job(steps=4), self.job(steps=3)
        self.train(first, ranks=2)
        (second.folder / "data.txt").write_bytes((first.folder / "data.txt").read_bytes())
        start = ("--checkpoint.initial_load_path", first.run / "checkpoint/step-4", "--checkpoint.initial_data_row", 2)
        expected = [line["digest"] for line in first.metrics()]
        before = self.inspect(second, "--step", 1, "--nproc", 2, *start)
        self.assertIn("of 2 rows from row 2 on", before.stdout, before.stderr)
        self.assertIn(f"as in metrics.jsonl: {expected[1]}\n", before.stdout)
        self.train(second, *start, ranks=2)
        self.assertEqual([line["digest"] for line in second.metrics()], expected[1:])
        self.assertIn(f"as in metrics.jsonl: {expected[2]}\n", self.inspect(second, "--step", 2, *start).stdout)
        self.train(second, *start, "--training.steps", 5, ranks=1)  # goes on behind its own rows
        self.assertIn("of 1 rows from row 8 on", self.inspect(second, "--step", 4, *start).stdout)
        code, output = self.job().train(*start[2:])
        self.assertEqual(code, 2)
        self.assertIn("checkpoint.initial_data_row = 2: says where in the data a run begins that starts from checkpoint.initial_load_path, which is not set", output)

    def test_parquet_gives_the_run_that_its_texts_as_json_lines_give(self):
        table = pathlib.Path(__file__).parents[1] / "data/tables/rows.parquet"  # written by pyarrow 26
        texts = [f"row {i}: " + "the quick brown fox "[:3 + i % 17] + "\n" * (i % 3) + "é" * (i % 2) for i in range(120)]
        lines, rows = self.job(steps=6), self.job(steps=3)
        (lines.folder / "data.jsonl").write_text("".join(json.dumps({"content": text}) + "\n" for text in texts))
        parquet = ("--training.dataset", "parquet", "--training.dataset_path", table)
        if not (pathlib.Path(TROUPE).resolve().parents[1] / "lib/libtroupe_parquet.so").exists():
            code, output = rows.train(*parquet)
            self.assertNotEqual(code, 0)
            self.assertIn("this build of Troupe reads no Parquet or Arrow files", output)
            self.assertIn("run tools/setup.sh --parquet, configure and build again", output)
            return
        code, output = rows.train(*parquet)
        self.assertNotEqual(code, 0)
        self.assertIn('rows.parquet: has no column "text"; its columns are id, content', output)
        key = ("--data.text_key", "content")
        before = self.inspect(rows, "--step", 2, "--rank", 1, "--nproc", 2, *parquet, *key)
        self.assertEqual(before.returncode, 0, before.stderr)
        for document, row in re.findall(r"document (\d+) \([^)]*rows.parquet, row (\d+)\)", before.stdout):
            self.assertEqual(document, row)
        self.assertIn("rows.parquet, row ", before.stdout)
        self.train(rows, *parquet, *key, ranks=2)
        self.train(rows, *parquet, *key, "--training.steps", 6, ranks=2)  # goes on
        self.train(lines, "--training.dataset", "jsonl", "--training.dataset_path", lines.folder / "data.jsonl", *key, ranks=2)
        self.assertEqual([line["digest"] for line in rows.metrics()], [line["digest"] for line in lines.metrics()])
        self.assertIn(f"digest of the step, as in metrics.jsonl: {rows.metrics()[1]['digest']}\n", before.stdout)

    def inspect(self, job, *arguments):
        return subprocess.run([TROUPE, "data", "inspect", str(job.config), *map(str, arguments)], capture_output=True, text=True, timeout=60)

    def test_inspect_prints_what_each_rank_saw_with_the_digest_of_the_metrics(self):
        job = self.job(steps=3)
        batch = ("--training.local_batch_size", 2, "--training.global_batch_size", 8)
        self.train(job, *batch, ranks=2)
        self.train(job, "--training.local_batch_size", 3, "--training.steps", 5, ranks=3)  # another global batch from step 4 on
        digests = {line["step"]: line["digest"] for line in job.metrics()}
        rows = []
        for step in range(1, 6):
            options = batch if step <= 3 else ("--training.local_batch_size", 3)
            for rank in range(2 if step <= 3 else 3):
                shown = self.inspect(job, "--step", step, "--rank", rank, *options, *(("--nproc", 2) if step <= 3 else ()))
                self.assertEqual(shown.returncode, 0, shown.stderr)
                self.assertIn(f"digest of the step, as in metrics.jsonl: {digests[step]}\n", shown.stdout)
                rows += [int(row) for row in re.findall(r"^  row (\d+)$", shown.stdout, re.M)]
        self.assertEqual(sorted(rows), list(range(3 * 8 + 2 * 9)), "every row once")
        text = (job.folder / "data.txt").read_text()
        shown = self.inspect(job, "--step", 900, "--rank", 1, "--training.local_batch_size", 3)
        self.assertEqual(shown.returncode, 0, "what it will see: " + shown.stderr)
        # The first tokens of a document are bos and the bytes of its text.
        for row in re.split(r"^  row ", shown.stdout, flags=re.M)[1:]:
            tokens = [int(token) for token in re.search(r"    tokens((?: \d+)+)\n", row).group(1).split()]
            at = 0
            for byte, begin, end in re.findall(r"at byte (\d+)\): its tokens (\d+) to (\d+)", row):
                count = int(end) - int(begin) + 1
                expected = ([256] + list(text.encode()[int(byte):]))[int(begin):int(end) + 1]
                self.assertEqual(tokens[at:at + count], expected)
                at += count
        by_folder = subprocess.run([TROUPE, "data", "inspect", "run", "--step", "5"], cwd=job.folder, capture_output=True, text=True)
        self.assertIn(f"digest of the step, as in metrics.jsonl: {digests[5]}\n", by_folder.stdout, by_folder.stderr)
        refused = self.inspect(job, "--step", 5, "--rank", 7)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--rank 7: the run has 3 ranks", refused.stderr)
