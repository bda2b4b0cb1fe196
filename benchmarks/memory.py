# benchmark memory: what each mode of activation checkpointing was predicted to take, and what it took
"""One process, the debug model on 4 x 512 tokens in fp32. Predicted: the line printed before step one. Measured: the peak resident memory of the whole
process, less that of mode "full"."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

MODES = {
    "none": ["none"],
    "selective, every 2nd block": ["selective", "--activation_checkpoint.selective_ac_option", "2"],
    "selective, op": ["selective", "--activation_checkpoint.selective_ac_option", "op"],
    "memory_budget 0.5": ["memory_budget", "--activation_checkpoint.memory_budget", "0.5"],
    "memory_budget 0.2": ["memory_budget", "--activation_checkpoint.memory_budget", "0.2"],
    "full": ["full"],
}
PLANNED = re.compile(r"activation checkpointing: .*?; ([\d.]+) % of the forward pass is computed again; ([\d.]+) MiB")

CHILD = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:], stdout=open(sys.argv[1], "w"), stderr=subprocess.STDOUT).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def run(binaries, mode, folder):
    run_folder = folder / re.sub(r"\W+", "-", mode)
    data = folder / "data.txt"
    data.write_text("\n%\n".join(f"document {i}: " + "the quick brown fox jumps over the lazy dog " * 40 for i in range(200)))
    config = folder / "job.toml"
    config.write_text('[job]\ndescription = "memory"\n')
    command = [binaries / "troupe", "train", config, "--job.dump_folder", run_folder, "--model.flavor", "debugmodel", "--training.local_batch_size", 4, "--training.seq_len", 512,
               "--training.steps", 6, "--training.mixed_precision_param", "float32", "--training.dataset_path", data, "--checkpoint.no_enable", "--metrics.log_freq", 1,
               "--nproc", 1, "--activation_checkpoint.mode", *MODES[mode]]
    told = subprocess.run([sys.executable, "-c", CHILD, f"{run_folder}.out", *map(str, command)], capture_output=True, text=True, check=True).stdout.split()
    output = pathlib.Path(f"{run_folder}.out").read_text()
    if told[0] != "0":
        raise SystemExit(output)
    again, planned = map(float, PLANNED.search(output).groups())
    steps = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    return {"again": again, "planned": planned, "peak": int(told[1]) / 1024,
            "losses": [step["loss"] for step in steps]}


def main():
    with tempfile.TemporaryDirectory() as folder:
        found = {mode: run(pathlib.Path(sys.argv[1]), mode, pathlib.Path(folder)) for mode in MODES}
    full, none = found["full"], found["none"]
    print("| mode | forward computed again | predicted, MiB | predicted above full | measured above full |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for mode, f in found.items():
        assert f["losses"] == none["losses"], f"{mode}: the losses are not those of none"
        print(f"| {mode} | {f['again']:.1f} % | {f['planned']:.2f} | {f['planned'] - full['planned']:.1f} | {f['peak'] - full['peak']:.1f} |")


if __name__ == "__main__":
    main()
