"""The small job that several benchmarks train on CPUs: a model of some megabytes whose steps take tens of milliseconds."""
import json
import pathlib
import statistics
import subprocess
import sys

TABLES = {
    "model": {"name": "llama3", "flavor": "debugmodel", "dim": 256, "n_layers": 8, "n_heads": 8, "n_kv_heads": 4, "ffn_hidden": 1024, "vocab_size": 258},
    "training": {"local_batch_size": 1, "seq_len": 256, "mixed_precision_param": "float32"},
    "checkpoint": {"enable": False},
}


def step_of_a_period(lines, period, skip=10):
    """Seconds of a step, of lines of metrics.jsonl: the mean over a period of steps, each of its places the median of all periods. What is done once a period counts."""
    steps = [line for line in lines if line["step"] > skip]
    places = [[line["step_seconds"] for line in steps if line["step"] % period == place] for place in range(period)]
    return statistics.fmean(statistics.median(place) for place in places if place)


class SmallJob:
    """In a folder of its own, with its data. `tables`: what differs from TABLES, {"model": {"dim": 512}}."""

    def __init__(self, binaries, folder, steps, text="the quick brown fox jumps over the lazy dog\n" * 5000, **tables):
        self.troupe, self.folder = str(pathlib.Path(binaries) / "troupe"), pathlib.Path(folder).absolute()
        data = self.folder / "data.txt"
        data.write_text(text)
        self.tables = {name: {**table, **tables.get(name, {})} for name, table in TABLES.items()}
        self.tables["training"].update(steps=steps, dataset_path=str(data))

    def config(self, name="run"):
        """A file with the configuration of a run with that name, and the run's folder."""
        run, file = self.folder / name, self.folder / f"{name}.toml"
        written = {"job": {"dump_folder": str(run)}, **self.tables}
        file.write_text("".join(f"[{title}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()) for title, table in written.items()))
        return file, run

    def ask(self, *command):
        """What `troupe …` prints; where it fails the benchmark ends with that."""
        done = subprocess.run([self.troupe, *map(str, command)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        return done.stdout

    def train(self, *arguments, name="run"):
        """Trains it: the lines of its metrics.jsonl, and the run's folder."""
        file, run = self.config(name)
        self.ask("train", file, *arguments)
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()], run
