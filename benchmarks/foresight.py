#!/usr/bin/env python3
# benchmark foresight: step times that `troupe simulate` predicts, calibrated with three runs, against those of nine other configurations; fails past 10 % in the mean or 20 %
"""Three runs calibrate: one rank with two sizes of the model, and two ranks. Everything else is a prediction, made before the run that it is compared with. Each configuration runs three
times, so that the spread of what is predicted is seen beside the error. Meant for an idle machine: what else runs takes cores that the model does not know of."""
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile

from small_job import SmallJob

ROUNDS, STEPS, WARM = 3, 24, 4
BAR_MEAN, BAR_MOST = 10, 20  # percent
MODEL = {"n_layers": 4, "ffn_hidden": 768, "vocab_size": 2048}
CALIBRATION = {
    "one rank": (1, []),
    "one rank, twice as wide, rows twice as long": (1, ["--model.dim", "512", "--model.ffn_hidden", "1536", "--model.n_layers", "2", "--training.seq_len", "512", "--training.local_batch_size", "1"]),
    "two shards": (2, []),
}
PREDICTED = {
    "wider, one rank": (1, ["--model.dim", "384", "--model.ffn_hidden", "1152"]),
    "deeper, two shards": (2, ["--model.n_layers", "8"]),
    "longer rows, two shards": (2, ["--training.seq_len", "512", "--training.local_batch_size", "1"]),
    "one slot of weights and gradients, two shards": (2, ["--slots.weights", "1", "--slots.gradients", "1"]),
    "three micro-batches, reduced with the last": (2, ["--training.global_batch_size", "12", "--parallelism.reduce_gradients", "last"]),
    "two replicas": (2, ["--parallelism.data_parallel_replicate_degree", "2"]),
    "two replicas of two shards": (4, ["--parallelism.data_parallel_replicate_degree", "2"]),
    "three shards, all computed again": (3, ["--activation_checkpoint.mode", "full"]),
    "four shards, wider": (4, ["--model.dim", "384", "--model.ffn_hidden", "1152"]),
}


def measured(job, name, ranks, arguments):
    """The median of the steps behind the first ones, seconds, and the run's folder."""
    lines, run = job.train("--nproc", ranks, *arguments, name=name)
    return statistics.median(line["step_seconds"] for line in lines[WARM:]), run


def main():
    errors = []
    with tempfile.TemporaryDirectory(prefix="troupe-foresight-") as name:
        folder = pathlib.Path(name)
        words = "the quick brown fox jumps over a lazy dog while rain falls on seven hills".split()
        dice = random.Random(7)
        text = "\n%\n".join(" ".join(dice.choice(words) for _ in range(200)) for _ in range(500))
        job = SmallJob(sys.argv[1], folder, STEPS, text, model=MODEL, training={"local_batch_size": 2})
        (folder / "host.toml").write_text(f"[device]\ncores = {os.cpu_count()}\n")
        print(f"load average before: {' '.join(f'{load:.2f}' for load in os.getloadavg())}")
        profiles = []
        for what, (ranks, arguments) in CALIBRATION.items():
            seconds, run = measured(job, what.replace(" ", "-").replace(",", ""), ranks, [*arguments, "--trace.enable"])
            profiles += ["--profile", run]
            print(f"calibrated with {what:<46} {1e3 * seconds:8.2f} ms")
        config, _ = job.config("foreseen")
        told = job.ask("simulate", config, "--gpu", "cpu", "--network", folder / "host.toml", *profiles)
        print("".join(line + "\n" for line in told.splitlines() if line.startswith("profile: ")), end="")
        for what, (ranks, arguments) in PREDICTED.items():
            told = json.loads(job.ask("simulate", config, "--gpu", "cpu", "--network", folder / "host.toml", "--ranks", ranks, "--json", *profiles, *arguments))
            predicted = told["step_seconds"]
            slug = what.replace(" ", "-").replace(",", "")
            rounds = [measured(job, f"{slug}-{i}", ranks, arguments)[0] for i in range(ROUNDS)]
            middle = statistics.median(rounds)
            error = 100 * (predicted / middle - 1)
            errors.append(error)
            print(f"{what:<46} {ranks} ranks: predicted {1e3 * predicted:8.2f} ms, measured {1e3 * middle:8.2f} ({1e3 * min(rounds):.2f} to {1e3 * max(rounds):.2f}, "
                  f"spread {100 * (max(rounds) / min(rounds) - 1):.1f} %), error {error:+.1f} %")
        print(f"load average after: {' '.join(f'{load:.2f}' for load in os.getloadavg())}")
    mean, most = statistics.mean(abs(error) for error in errors), max(abs(error) for error in errors)
    print(f"mean absolute error {mean:.1f} % (bar {BAR_MEAN}), largest {most:.1f} % (bar {BAR_MOST})")
    print(json.dumps({"benchmark": "foresight", "mean_error_percent": round(mean, 2), "largest_error_percent": round(most, 2), "met": mean <= BAR_MEAN and most <= BAR_MOST}))
    sys.exit(0 if mean <= BAR_MEAN and most <= BAR_MOST else 1)


if __name__ == "__main__":
    main()
