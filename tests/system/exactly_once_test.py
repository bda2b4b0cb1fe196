"""Each kind of data under a death that shrinks the run, a resume and another number of ranks: every token is taken once, and it is the document's own."""
import gzip
import json
import pathlib
import random
import re
import struct
import subprocess
import unittest

from job import Job, TROUPE, finish
from recovery_test import journal
from tokenizer_test import trained_tokenizer

BOS, ROWS, SEQ, STEPS = 256, 8, 32, 6
PARQUET = (pathlib.Path(TROUPE).resolve().parents[1] / "lib/libtroupe_parquet.so").exists()


def documents(count, seed):
    dice = random.Random(seed)
    return ["".join(dice.choice("abcdefgh ") for _ in range(dice.randrange(20, 90))) for _ in range(count)]


def as_bytes(texts, bos=BOS):
    return [[*([] if bos is None else [bos]), *text.encode()] for text in texts]


def json_lines(texts):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


class ExactlyOnceTest(unittest.TestCase):
    def job(self):
        job = Job(steps=STEPS)
        self.addCleanup(job.remove)
        return job

    def train(self, job, *arguments):
        code, output = job.train("--training.global_batch_size", ROWS, "--model.converters", "", *arguments)
        self.assertEqual(code, 0, output)

    def seen(self, job, step, ranks, *data):
        """(source, pass, document, place) → token, of one step; what is shown is what was trained on, by the digest."""
        digest = next(line["digest"] for line in job.metrics() if line["step"] == step)
        found = []
        for rank in range(ranks):
            shown = subprocess.run([TROUPE, "data", "inspect", str(job.config), "--step", str(step), "--rank", str(rank), "--training.global_batch_size", str(ROWS),
                                    *map(str, data)], capture_output=True, text=True, timeout=60)
            self.assertIn(f"rank {rank} of {ranks}: ", shown.stdout, shown.stderr)
            self.assertIn(f"digest of the step, as in metrics.jsonl: {digest}\n", shown.stdout)
            for row in re.split(r"^  row \d+$", shown.stdout, flags=re.M)[1:]:
                source = int((re.search(r"^    source (\d+)", row, re.M) or [0, 1])[1])
                tokens = [int(token) for token in re.search(r"^    tokens(.*)$", row, re.M)[1].split()]
                for number, document, first, last in re.findall(r"^    pass (\d+), document (\d+) \(.*\): its tokens (\d+) to (\d+)$", row, re.M):
                    for place in range(int(first), int(last) + 1):
                        found.append(((source, int(number), int(document), place), tokens.pop(0)))
                self.assertEqual(tokens, [])
        self.assertEqual(len(found), ROWS * SEQ)
        return found

    def expect_each_token_once(self, job, expected, *data):
        """`expected`: by source, the tokens of each document."""
        self.train(job, "--nproc", 3, "--training.steps", 3, "--elastic.policy", "shrink", "--elastic.memory_interval", 1,
                   "--faults.rules", "site=process rank=1 step=2 action=crash", *data)
        self.train(job, "--ranks-in-process", 4, *data)
        shrunk = journal(job, "epoch")[1]
        self.assertEqual(shrunk["members"], [0, 2])
        found = []
        for step in range(1, STEPS + 1):
            found += self.seen(job, step, 4 if step > 3 else 2 if step >= shrunk["first_step"] else 3, *data)
        places = dict(found)
        self.assertEqual(len(places), len(found), "a token was taken twice")
        whole = 0
        for source, texts in enumerate(expected, 1):
            for number in range(1 + max(place[1] for place in places)):
                taken = {place[2:]: token for place, token in places.items() if place[:2] == (source, number)}
                wanted = {(document, at): token for document, tokens in enumerate(texts) for at, token in enumerate(tokens)}
                self.assertEqual(taken, {place: wanted[place] for place in taken}, f"source {source}, pass {number}")
                if any(place[:2] == (source, number + 1) for place in places):
                    self.assertEqual(len(taken), len(wanted), f"source {source}, pass {number}: a token was left out")
                    whole += 1
        return whole

    def test_lines_of_json_and_packed_ones(self):
        texts = documents(20, 3)
        for name, content in (("data.jsonl", json_lines(texts).encode()), ("data.jsonl.gz", gzip.compress(json_lines(texts).encode()))):
            with self.subTest(name):
                job = self.job()
                (job.folder / name).write_bytes(content)
                whole = self.expect_each_token_once(job, [as_bytes(texts)], "--training.dataset", "jsonl", "--training.dataset_path", job.folder / name)
                self.assertEqual(whole, 1)

    def test_token_shards(self):
        job, texts = self.job(), documents(20, 4)
        (job.folder / "data.jsonl").write_text(json_lines(texts))
        (job.folder / "tokenizer.json").write_text(trained_tokenizer("", merges=0))
        (job.folder / "tokenizer_config.json").write_text('{"bos_token": "<bos>", "eos_token": "<eos>"}')
        names = json.loads((job.folder / "tokenizer.json").read_text())
        alphabet, bos = names["model"]["vocab"], names["added_tokens"][0]["id"]
        ids = [[bos, *(alphabet["Ġ" if letter == " " else letter] for letter in text)] for text in texts]
        with_tokenizer = ("--model.hf_assets_path", job.folder)
        code, output = finish(job.start(job.folder / "tokens", *with_tokenizer, "--training.dataset", "jsonl", "--training.dataset_path", job.folder / "data.jsonl",
                                        command="tokenize"))
        self.assertEqual(code, 0, output)
        data = (*with_tokenizer, "--training.dataset", "tokens", "--training.dataset_path", job.folder / "tokens")
        self.assertEqual(self.expect_each_token_once(job, [ids], *data), 1)

    def test_megatrons_files(self):
        job, texts = self.job(), documents(20, 5)
        sizes = [len(text) for text in texts]
        (job.folder / "m.bin").write_bytes("".join(texts).encode())
        index = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 1, len(texts), len(texts) + 1) + struct.pack(f"<{len(texts)}i", *sizes)
        index += struct.pack(f"<{len(texts)}q", *(sum(sizes[:i]) for i in range(len(texts)))) + struct.pack(f"<{len(texts) + 1}q", *range(len(texts) + 1))
        (job.folder / "m.idx").write_bytes(index)
        whole = self.expect_each_token_once(job, [as_bytes(texts, None)], "--training.dataset", "megatron", "--training.dataset_path", job.folder / "m")
        self.assertEqual(whole, 1)

    def test_a_blend(self):
        job, sources = self.job(), [documents(12, 6), documents(6, 7)]
        for name, texts in zip("ab", sources):
            (job.folder / f"{name}.jsonl").write_text(json_lines(texts))
        whole = self.expect_each_token_once(job, [as_bytes(texts) for texts in sources], "--training.dataset", "jsonl", "--training.dataset_path",
                                            f"{job.folder}/a.jsonl,{job.folder}/b.jsonl", "--data.blend_weights", "2,1")
        self.assertEqual(whole, 2)

    def test_rows_of_parquet(self):
        if not PARQUET:  # data_test.py expects the refusal
            return
        texts = [f"row {i}: " + "the quick brown fox "[:3 + i % 17] + "\n" * (i % 3) + "é" * (i % 2) for i in range(120)]
        table = pathlib.Path(__file__).parents[1] / "data/tables/rows.parquet"  # written by pyarrow 26
        self.expect_each_token_once(self.job(), [as_bytes(texts)], "--training.dataset", "parquet", "--training.dataset_path", table, "--data.text_key", "content")


if __name__ == "__main__":
    unittest.main()
