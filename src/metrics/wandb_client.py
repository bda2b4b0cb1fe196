"""Hands numbers to Weights & Biases through its own client: one JSON object a line on standard input, until that ends.

The first line: {"init": {"dir": RUN, "config": TOML text}}; then {"step": N, "values": {tag: number or null}}.
Answers "ready" or "no client" on standard output once it knows whether the client is there.
"""
import json
import os
import signal
import sys
import tomllib

signal.signal(signal.SIGINT, signal.SIG_IGN)
try:
    import wandb
except ImportError as problem:
    print(f"no client: {problem}", flush=True)
    sys.exit(3)
print("ready", flush=True)

first = json.loads(sys.stdin.readline())["init"]
environment = os.environ.get
id_file = os.path.join(first["dir"], "wandb", "run_id")
run_id = environment("WANDB_RUN_ID")
if run_id is None and os.path.exists(id_file):
    run_id = open(id_file).read().strip()
run = wandb.init(
    project=environment("WANDB_PROJECT", "troupe"),
    entity=environment("WANDB_TEAM"),
    name=environment("WANDB_RUN_NAME"),
    id=run_id,
    notes=environment("WANDB_RUN_NOTES"),
    tags=[tag for tag in environment("WANDB_RUN_TAGS", "").split(",") if tag] or None,
    group=environment("WANDB_RUN_GROUP"),
    job_type=environment("WANDB_RUN_JOB_TYPE"),
    resume="allow",
    dir=first["dir"],
    config=tomllib.loads(first["config"]),
)
os.makedirs(os.path.dirname(id_file), exist_ok=True)
with open(id_file, "w") as file:
    file.write(run.id)
for line in sys.stdin:
    entry = json.loads(line)
    run.log({tag: float("nan") if value is None else value for tag, value in entry["values"].items()}, step=entry["step"])
run.finish()
