"""Twenty steps of Troupe and of torchtitan on this machine's GPU, from the same weights and tokens, in bf16 and in fp8.

    torchtitan_losses.py TROUPE INPUTS TITAN [OUT]

TROUPE: the program; INPUTS: cuda_parity_inputs, which writes the weights and tokens that a run begins with; TITAN: the folder that holds torchtitan's package
(v0.2.2), with torchao beside it in PYTHONPATH. torchtitan is its own Trainer with fully_shard (also on one GPU) and without compilation; from outside come the
token ids and, in place of random ones, the weights.

What is noise is measured: torchtitan again as it is, with Flash attention in place of cuDNN's, and from weights changed by at most their last bit. Troupe agrees
if it lies among those runs: its largest difference (over the steps) to one of them is no larger than the largest between two of them. Troupe's own repeats are
printed beside. Exit code 0: it agrees in both precisions.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS, ROWS, SEQ, LR, WARMUP, VOCABULARY = 20, 4, 512, 1e-3, 4, 272
SHAPE = {"dim": 512, "n_layers": 6, "n_heads": 8, "n_kv_heads": 4, "multiple_of": 256, "norm_eps": 1e-5, "rope_theta": 500000.0}
TROUPE_CONFIG = """
[job]
dump_folder = "{folder}/run"
[runtime]
device = "cuda"
[model]
name = "llama3"
flavor = "debugmodel"
{shape}
vocab_size = {vocabulary}
[optimizer]
lr = {lr}
[lr_scheduler]
warmup_steps = {warmup}
[training]
local_batch_size = {rows}
seq_len = {seq}
steps = {steps}
max_norm = 1.0
mixed_precision_param = "bfloat16"
dataset = "text"
dataset_path = ["{folder}/text.txt"]
[metrics]
log_freq = 1
"""
TITAN_CONFIG = """
[job]
dump_folder = "{folder}/titan"
[metrics]
log_freq = 1
disable_color_printing = true
[model]
name = "llama3_same"
flavor = "same"
converters = {converters}
[optimizer]
name = "AdamW"
lr = {lr}
eps = 1e-8
[lr_scheduler]
warmup_steps = {warmup}
[training]
local_batch_size = {rows}
seq_len = {seq}
steps = {steps}
max_norm = 1.0
[checkpoint]
enable = false
[compile]
enable = false
[activation_checkpoint]
mode = "none"
[validation]
enable = false
[quantize.linear.float8]
filter_fqns = ["output"]
enable_fsdp_float8_all_gather = {float8}
precompute_float8_dynamic_scale_for_fsdp = {float8}
"""
VARIANTS = {"": {}, "again": {}, "Flash attention": {"flash": True}, "last bits 1": {"disturb": 1}, "last bits 2": {"disturb": 2}, "last bits 3": {"disturb": 3}}
FLOAT8 = ("--model.converters=float8", "--float8.filter_fqns=output", "--float8.enable_fsdp_float8_all_gather",
          "--float8.precompute_float8_dynamic_scale_for_fsdp")


def torchtitan_run(inputs_file: str, config: str, out: str, flash: bool = False, disturb: int = 0) -> None:
    """In a process of its own: losses and norms of each step into `out`."""
    import dataclasses
    import types

    import torch
    from safetensors.torch import load_file

    try:
        import datasets  # noqa: F401
    except Exception:  # not there, or too old a part of it; torchtitan imports it beside what is used
        stand_in, distributed = types.ModuleType("datasets"), types.ModuleType("datasets.distributed")
        stand_in.Dataset, stand_in.load_dataset, distributed.split_dataset_by_node = type("Dataset", (), {}), None, None
        sys.modules["datasets"], sys.modules["datasets.distributed"] = stand_in, distributed
    import torchtitan.train as titan
    from torch.nn.attention import SDPBackend
    from torchtitan.components.metrics import MetricsProcessor
    from torchtitan.config import ConfigManager
    from torchtitan.distributed import ParallelDims
    from torchtitan.models.attention import ScaledDotProductAttentionWrapper
    from torchtitan.models.llama3 import get_train_spec
    from torchtitan.models.llama3.model.args import RoPEScalingArgs, TransformerModelArgs
    from torchtitan.protocols.train_spec import register_train_spec

    inputs, spec, told = load_file(inputs_file), get_train_spec(), []
    if flash:
        ScaledDotProductAttentionWrapper.sdpa_backends = [SDPBackend.FLASH_ATTENTION]
    ParallelDims.fsdp_enabled = ParallelDims.dp_shard_enabled = property(lambda self: True)
    exists = ParallelDims._mesh_exist
    ParallelDims._mesh_exist = lambda self, name, degree: name == "fsdp" or exists(self, name, degree)

    class SameWeights(spec.model_cls):
        def init_weights(self, *arguments, **options):
            super().init_weights(*arguments, **options)
            generator = torch.Generator().manual_seed(disturb)
            for name, parameter in self.named_parameters():
                value = inputs["weight." + name]
                if disturb:
                    value = value * (1 + 2.0**-23 * (2 * torch.rand(value.shape, generator=generator) - 1))
                local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
                getattr(local, "_tensor", local).copy_(value)

    class Batches:
        def __iter__(self):
            for step in range(1, STEPS + 1):
                yield {"input": inputs[f"tokens.{step}"].long()}, inputs[f"labels.{step}"].long()

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    class Told(MetricsProcessor):
        def log(self, step, global_avg_loss, global_max_loss, grad_norm, extra_metrics=None):
            told.append((float(global_avg_loss), float(grad_norm)))
            super().log(step, global_avg_loss, global_max_loss, grad_norm, extra_metrics)

    arguments = TransformerModelArgs(**SHAPE, vocab_size=VOCABULARY, max_seq_len=SEQ, rope_scaling_args=RoPEScalingArgs(scaling_factor=1.0))
    register_train_spec("llama3_same", dataclasses.replace(
        spec, model_cls=SameWeights, model_args={"same": arguments}, build_dataloader_fn=lambda **_: Batches(), build_tokenizer_fn=None, build_validator_fn=None,
        build_metrics_processor_fn=lambda job, dims, model_args=None, tag=None: Told(job, dims, tag), state_dict_adapter=None))
    trainer = titan.Trainer(ConfigManager().parse_args([f"--job.config_file={config}"]))
    trainer.train()
    Path(out).write_text(json.dumps(told))
    os._exit(0)  # NCCL's end is of no interest


class Comparison:
    def __init__(self, troupe: str, inputs: str, titan: str, folder: Path):
        self.troupe, self.titan, self.folder = troupe, titan, folder
        import random

        dice = random.Random(3)
        words = "the quick brown fox jumps over a lazy dog while rain falls on seven hills and nobody counts the stars above them tonight".split()
        (folder / "text.txt").write_text("\n%\n".join(" ".join(dice.choice(words) for _ in range(60)) for _ in range(3000)))
        values = {"folder": folder, "vocabulary": VOCABULARY, "lr": LR, "warmup": WARMUP, "rows": ROWS, "seq": SEQ, "steps": STEPS}
        self.config = folder / "troupe.toml"
        self.config.write_text(TROUPE_CONFIG.format(shape="\n".join(f"{name} = {value}" for name, value in SHAPE.items()), **values))
        for name, float8 in (("bf16", False), ("fp8", True)):
            (folder / f"titan-{name}.toml").write_text(TITAN_CONFIG.format(
                converters='["quantize.linear.float8"]' if float8 else "[]", float8=str(float8).lower(), **values))
        self.inputs = folder / "inputs.safetensors"
        subprocess.run([inputs, self.config, str(ROWS), str(STEPS), self.inputs], check=True)

    def ours(self, precision: str, *more: str) -> list:
        run = self.folder / "run"
        command = [self.troupe, "train", self.config, "--nproc", "1", "--overwrite", *(FLOAT8 if precision == "fp8" else ()), *more]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return [(line["loss"], line["grad_norm"]) for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())]

    def start_titan(self, precision: str, number: int, **variant):
        out = self.folder / f"titan-{precision}-{number}.json"
        environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(29600 + number + (50 if precision == "fp8" else 0)), "NCCL_NVLS_ENABLE": "0",
                       "PYTHONPATH": os.pathsep.join([self.titan, os.environ.get("PYTHONPATH", "")])}
        arguments = [sys.executable, __file__, "--torchtitan", json.dumps([str(self.inputs), str(self.folder / f"titan-{precision}.toml"), str(out), variant])]
        log = open(self.folder / f"titan-{precision}-{number}.log", "w")
        return subprocess.Popen(arguments, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder), out, log.name

    def theirs(self, precision: str) -> dict:
        started = {name: self.start_titan(precision, number, **variant) for number, (name, variant) in enumerate(VARIANTS.items())}
        runs = {}
        for name, (process, out, log) in started.items():
            if process.wait(300) != 0 or not out.exists():
                raise RuntimeError(f"torchtitan, {precision}, {name or 'as it is'}: exit code {process.returncode}\n{Path(log).read_text()[-3000:]}")
            runs[name or "as it is"] = json.loads(out.read_text())
        return runs

    def check(self, precision: str, out) -> bool:
        theirs, ours = self.theirs(precision), [self.ours(precision) for _ in range(3)]

        def apart(a, b):
            return max(abs(x[0] / y[0] - 1) for x, y in zip(a, b, strict=True))

        noise = {pair: apart(theirs[pair[0]], theirs[pair[1]]) for pair in itertools.combinations(theirs, 2)}
        to_theirs = [min(apart(run, other) for other in theirs.values()) for run in ours]
        good = max(to_theirs) <= max(noise.values())
        base = theirs["as it is"]
        for step in range(STEPS):
            values = [run[step][0] for run in theirs.values()]
            print(f"{precision} step {step + 1:2d}: torchtitan {base[step][0]:.5f} ({min(values):.5f} to {max(values):.5f})  Troupe " + "  ".join(f"{run[step][0]:.5f}" for run in ours)
                  + f"  norms {base[step][1]:.4f}  {ours[0][step][1]:.4f}", file=out)
        print(f"{precision}: largest relative difference of a loss: Troupe to the nearest of torchtitan's runs " + ", ".join(f"{d:.1e}" for d in to_theirs)
              + f"; to torchtitan as it is {apart(ours[0], base):.1e}; between two of torchtitan's {min(noise.values()):.1e} to {max(noise.values()):.1e}"
              + f" (as it is twice {noise['as it is', 'again']:.1e}); between Troupe's own {max(apart(a, b) for a, b in itertools.combinations(ours, 2)):.1e}: "
              + ("agrees" if good else "DIFFERS"), file=out)
        return good


def main() -> int:
    if sys.argv[1] == "--torchtitan":
        inputs, config, out, variant = json.loads(sys.argv[2])
        torchtitan_run(inputs, config, out, **variant)
    troupe, inputs, titan, *rest = sys.argv[1:]
    out = open(rest[0], "w") if rest else sys.stdout
    with tempfile.TemporaryDirectory(prefix="troupe-torchtitan-") as folder:
        comparison = Comparison(troupe, inputs, titan, Path(folder))
        good = [comparison.check(precision, out) for precision in ("bf16", "fp8")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
