# benchmark tracing: what keeping the timeline costs a step: runs with trace.enable on and off in turns
"""Each pair of runs is one ratio of median step times; the two of a pair run right behind each other, in alternating order, so that what the machine
does beside them falls on both. The events of a step, counted in the timeline, say how much there was to write down."""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

PAIRS, STEPS, WARM = 4, 14, 3
CONFIG = """
[job]
dump_folder = "{run}"
[model]
name = "llama3"
flavor = "debugmodel"
dim = 256
n_layers = 8
n_heads = 8
n_kv_heads = 4
ffn_hidden = 1024
vocab_size = 258
[training]
local_batch_size = 2
seq_len = 256
steps = {steps}
mixed_precision_param = "float32"
dataset_path = "{data}"
[checkpoint]
enable = false
"""


def run(binaries, traced):
    with tempfile.TemporaryDirectory(dir="build", prefix="tracing-") as folder:
        folder = pathlib.Path(folder).absolute()
        (folder / "data.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 5000)
        config = folder / "job.toml"
        config.write_text(CONFIG.format(run=folder / "run", data=folder / "data.txt", steps=STEPS))
        done = subprocess.run([f"{binaries}/troupe", "train", str(config), "--trace.enable" if traced else "--trace.no_enable"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        seconds = [json.loads(line)["step_seconds"] for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()][WARM:]
        events = 0
        if traced:
            for line in (folder / "run" / "trace" / "rank-0.json").read_text().splitlines():
                events += line.startswith(('{"ph":"X"', '{"ph":"C"', '{"ph":"i"'))
    return statistics.median(seconds), events / STEPS


def main():
    ratios, off = [], []
    for pair in range(PAIRS):
        order = (True, False) if pair % 2 else (False, True)
        seconds = {}
        for traced in order:
            seconds[traced], counted = run(sys.argv[1], traced)
            if traced:
                events = counted
        ratios.append(seconds[True] / seconds[False])
        off.append(seconds[False])
    print(f"a step takes {1e3 * statistics.median(off):.1f} ms without; {events:.0f} events a step are written down")
    print(f"with the timeline / without: {' '.join(f'{ratio:.4f}' for ratio in ratios)}; median {statistics.median(ratios):.4f}")


main()
