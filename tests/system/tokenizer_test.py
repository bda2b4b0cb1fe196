"""Training with a tokenizer: on text, on token shards made before, and what is refused."""
import collections
import json
import signal
import time
import unittest

from job import Job, finish

PLAIN = ("--model.converters", "", "--model.vocab_size", 400)


def byte_alphabet():
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(256, 512))
    return {byte: chr(byte if byte in printable else next(spare)) for byte in range(256)}


def trained_tokenizer(text, merges=40, more=()):
    """tokenizer.json of a byte-level BPE whose merges are the most frequent pairs of the words of `text`."""
    alphabet = byte_alphabet()
    words = collections.Counter(tuple(alphabet[byte] for byte in (" " + word).encode()) for word in text.split())
    vocab, learnt = {character: i for i, character in enumerate(alphabet.values())}, []
    for _ in range(merges):
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        learnt.append(list(best))
        vocab["".join(best)] = len(vocab)
        merged = collections.Counter()
        for word, count in words.items():
            out, i = [], 0
            while i < len(word):
                if word[i:i + 2] == best:
                    out.append("".join(best))
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            merged[tuple(out)] += count
        words = merged
    marks = [{"id": len(vocab) + i, "content": mark, "special": True} for i, mark in enumerate(("<bos>", "<eos>", *more))]
    return json.dumps({"added_tokens": marks, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}, "decoder": {"type": "ByteLevel"},
                       "model": {"type": "BPE", "vocab": vocab, "merges": learnt}})


class TokenizerTest(unittest.TestCase):
    def job(self, **options):
        job = Job(**options)
        self.addCleanup(job.remove)
        job.assets = job.folder / "assets"
        job.assets.mkdir()
        (job.assets / "tokenizer.json").write_text(trained_tokenizer((job.folder / "data.txt").read_text()))
        (job.assets / "tokenizer_config.json").write_text('{"bos_token": "<bos>", "eos_token": "<eos>"}')
        return job

    def train(self, job, *arguments):
        code, output = job.train("--model.hf_assets_path", job.assets, *PLAIN, *arguments)
        self.assertEqual(code, 0, output)
        return output

    def test_text_and_token_shards_of_it_train_alike_on_any_number_of_ranks(self):
        text, shards, two = self.job(), self.job(), self.job()
        self.assertIn(" tokens of ", self.train(text))
        code, output = finish(shards.start(shards.folder / "tokens", "--model.hf_assets_path", shards.assets, command="tokenize"))
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"200 documents, \d+ tokens")
        self.train(shards, "--training.dataset", "tokens", "--training.dataset_path", shards.folder / "tokens")
        self.assertEqual(text.numbers(), shards.numbers())
        self.train(text, "--ranks-in-process", 2, "--overwrite", "--training.global_batch_size", 2)
        self.train(two, "--ranks-in-process", 1, "--training.global_batch_size", 2)
        digests = [line["digest"] for line in text.metrics()]
        self.assertGreater(len(set(digests)), 1, digests)
        self.assertEqual(digests, [line["digest"] for line in two.metrics()])
        for one, other in zip(text.metrics(), two.metrics(), strict=True):
            self.assertAlmostEqual(one["loss"], other["loss"], places=5)

    def test_the_answers_of_conversations_alone_are_trained_on_whatever_the_ranks(self):
        runs = []
        for ranks in (1, 2):
            job = self.job(steps=4)
            (job.assets / "tokenizer.json").write_text(trained_tokenizer("a question and an answer", more=("<|im_start|>", "<|im_end|>")))
            (job.folder / "chat.jsonl").write_text("".join(json.dumps({"messages": [
                {"role": "user", "content": f"a question {i} " * (1 + i % 3)}, {"role": "assistant", "content": f"an answer {i * i}"}]}) + "\n" for i in range(40)))
            self.train(job, "--nproc", ranks, "--training.dataset", "jsonl", "--training.dataset_path", job.folder / "chat.jsonl", "--data.records", "messages",
                       "--training.global_batch_size", 4)
            runs.append(job)
        for one, two in zip(*(job.metrics() for job in runs), strict=True):
            self.assertEqual((one["digest"], one["step_tokens"]), (two["digest"], two["step_tokens"]))
            self.assertAlmostEqual(one["loss"], two["loss"], places=4)
            self.assertTrue(0 < one["step_tokens"] < 4 * 32, one)

    def test_a_vocabulary_smaller_than_the_tokenizers_is_refused_with_both_numbers(self):
        job = self.job()
        code, output = job.train("--model.hf_assets_path", job.assets, "--model.vocab_size", 100)
        self.assertEqual(code, 2, output)
        self.assertRegex(output, r"model.vocab_size is 100 but the tokenizer has 298")
        self.assertEqual(job.metrics(), [])

    def test_a_run_does_not_go_on_with_another_tokenizer(self):
        job = self.job(steps=2)
        self.train(job)
        self.train(job, "--training.steps", 3)
        file = job.assets / "tokenizer.json"
        file.write_text(file.read_text() + "\n")
        code, output = job.train("--model.hf_assets_path", job.assets, *PLAIN, "--training.steps", 4)
        self.assertNotEqual(code, 0)
        self.assertIn("ids mean something else; name the old tokenizer, or begin a new run", output)

    def test_tokenizing_that_is_stopped_goes_on(self):
        job = self.job()
        data = job.folder / "data.txt"
        data.write_text("\n%\n".join([data.read_text().replace("%", "-")] * 1800))
        arguments = (job.folder / "tokens", "--part-mib", 1, "--threads", 1, "--model.hf_assets_path", job.assets)
        process = job.start(*arguments, command="tokenize")
        shard = job.folder / "tokens" / "shard-00000.tokens"
        while not shard.exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        code, output = finish(process)
        self.assertEqual(code, 1, output)
        self.assertIn("call this again to go on", output)
        whole = shard.read_bytes()
        shard.write_bytes(whole[:-1])  # what is cut off is made again, whatever its name
        code, output = finish(job.start(*arguments, command="tokenize"))
        self.assertEqual(code, 0, output)
        self.assertEqual(shard.read_bytes(), whole)
        code, output = finish(job.start(*arguments, command="tokenize"))
        self.assertRegex(output, r"(\d+) shards \(\1 made before\)")


if __name__ == "__main__":
    unittest.main()
