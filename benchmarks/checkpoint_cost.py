# benchmark checkpoint_cost: what saving beside the training costs a step, in one run
"""A run of one rank saves every 8 steps. Its steps without a save beside them are the measure for those in which the state is copied and written."""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

INTERVAL, STEPS = 8, 49
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
seq_len = 512
steps = {steps}
mixed_precision_param = "float32"
dataset_path = "{data}"
[checkpoint]
enable = true
interval = {interval}
async_mode = "{mode}"
keep_latest_k = 2
last_save_model_only = false
"""


def run(binaries, mode):
    with tempfile.TemporaryDirectory(dir="build", prefix="checkpoint-cost-") as folder:
        folder = pathlib.Path(folder).absolute()
        (folder / "data.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 5000)
        config = folder / "job.toml"
        config.write_text(CONFIG.format(run=folder / "run", data=folder / "data.txt", interval=INTERVAL, steps=STEPS, mode=mode))
        done = subprocess.run([f"{binaries}/troupe", "train", str(config)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
        bytes_of_state = sum(file["bytes"] for file in json.loads(next((folder / "run" / "checkpoint").glob("step-*/manifest.json")).read_text())["files"])
    return {line["step"]: line["step_seconds"] for line in lines}, bytes_of_state


def main():
    for mode in ("async", "disabled"):
        seconds, bytes_of_state = run(sys.argv[1], mode)
        # A period begins with the step behind a save, in which the copy is taken and the file is written; the last half of it is at rest.
        periods = [[seconds[step] for step in range(first, first + INTERVAL)] for first in range(INTERVAL + 1, STEPS - INTERVAL + 1, INTERVAL)]
        rest = statistics.median(second for period in periods for second in period[INTERVAL // 2:])
        periods_cost = [sum(second - rest for second in period[:INTERVAL // 2]) / rest for period in periods]
        print(f"async_mode {mode}: {bytes_of_state / 1048576:.0f} MiB of state every {INTERVAL} steps of {rest:.3f} s")
        print(f"  each save costs {statistics.median(periods_cost):.3f} steps (each period: {' '.join(f'{cost:.3f}' for cost in periods_cost)})")
        print(f"  of a step, spread over the interval: {100 * statistics.median(periods_cost) / INTERVAL:.2f} %; at the default interval of 500: "
              f"{100 * statistics.median(periods_cost) / 500:.3f} %")


main()
