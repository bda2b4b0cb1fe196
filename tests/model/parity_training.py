"""Twenty steps of `troupe train` against the same steps in PyTorch: torchtitan's Llama 3 (and torchao's fp8) in a loop of this file's own.

    parity_training.py PATH/TO/troupe PATH/TO/model_parity_inputs [CASE ...]

Weights and token ids are the run's own (model_parity_inputs). Losses, norms before clipping and learning rates are read from metrics.jsonl and compared step
by step. In fp32 each is within 1e-5 of PyTorch's, relative. In bf16 and fp8 the run lies among PyTorch's own with sums in another order (the batch row
by row, attention by its formula) or initial weights changed by at most their last bit: its largest difference to one of them is no larger than the largest
between two of them. In fp8 with fp32 sums the first step is within 1e-5 too. Exit code 0: all are.
"""

import itertools
import json
import subprocess
import sys
import tempfile
import types
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR

STEPS, ROWS, SEQ, LR, WARMUP = 20, 4, 32, 2e-3, 4
SHAPE = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "multiple_of": 64, "norm_eps": 1e-5, "rope_theta": 500000.0}
VOCABULARY = 272  # a multiple of 16, so that the head may be fp8
CONFIG = """
[job]
dump_folder = "{folder}/run"
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
mixed_precision_param = "float32"
dataset = "text"
dataset_path = ["{folder}/text.txt"]
[metrics]
log_freq = 1
"""


@dataclass
class Case:
    """One run: options of `troupe train`, and what the PyTorch loop does in their place."""

    troupe: list
    ranks: int = 1
    bf16: bool = False
    optimizer: type = torch.optim.AdamW
    max_norm: float = 1.0
    betas: tuple = (0.9, 0.95)
    eps: float = 1e-8
    decay: object = 0.1  # or a function of the parameter's name
    schedule: dict = field(default_factory=dict)
    float8: str = ""
    filters: tuple = ("output",)


def key(name: str, value) -> list:
    return [f"--{name}={value}"]


def float8(recipe: str, *more: str) -> list:
    return ["--model.converters=float8", f"--float8.recipe_name={recipe}", *(more or ["--float8.filter_fqns=output"])]


CASES = {
    "fp32": Case([]),
    "fp32 two ranks": Case(key("training.local_batch_size", 2), ranks=2),
    "fp32 accumulation": Case([*key("training.local_batch_size", 1), *key("training.global_batch_size", ROWS)]),
    "fp32 two ranks, accumulation": Case([*key("training.local_batch_size", 1), *key("training.global_batch_size", ROWS)], ranks=2),
    "fp32 three ranks of unequal shards": Case([*key("training.local_batch_size", 1), *key("training.global_batch_size", 3)], ranks=3),
    "replicas": Case([*key("training.local_batch_size", 2), *key("parallelism.data_parallel_replicate_degree", 2)], ranks=2),
    "replicas of shards, accumulation": Case([*key("training.local_batch_size", 1), *key("training.global_batch_size", 8),
                                              *key("parallelism.data_parallel_replicate_degree", 2), *key("parallelism.reduce_gradients", "last")], ranks=4),
    "weights kept gathered": Case([*key("training.local_batch_size", 2), *key("parallelism.fsdp_reshard_after_forward", "never")], ranks=2),
    "activations computed again": Case(key("activation_checkpoint.mode", "full")),
    "activations kept by operation": Case([*key("activation_checkpoint.mode", "selective"), *key("activation_checkpoint.selective_ac_option", "op")]),
    "fp32 no clipping": Case(key("training.max_norm", 0), max_norm=float("inf")),
    "Adam": Case([*key("optimizer.name", "Adam"), *key("optimizer.beta1", 0.8), *key("optimizer.beta2", 0.99), *key("optimizer.eps", 1e-6)],
                 optimizer=torch.optim.Adam, betas=(0.8, 0.99), eps=1e-6),
    "AdamW for-loop, no decay": Case([*key("optimizer.implementation", "for-loop"), *key("optimizer.weight_decay", 0)], decay=0.0),
    "no decay for norms": Case(key("optimizer.decay_norms_and_biases", "false"), decay=lambda name: 0.0 if "norm" in name else 0.1),
    "groups": Case([key("optimizer.param_groups", "match=^tok_embeddings|wq weight_decay=0.5,match=output weight_decay=0")[0]],
                   decay=lambda name: 0.5 if name.startswith("tok_embeddings") or "wq" in name else 0.0 if "output" in name else 0.1),
    "averages of weights": Case(key("optimizer.ema_decay", 0.9)),
    "cosine to a floor": Case([*key("lr_scheduler.decay_type", "cosine"), *key("lr_scheduler.min_lr_factor", 0.1)], schedule={"curve": "cosine", "floor": 0.1}),
    "sqrt after a plateau": Case([*key("lr_scheduler.decay_type", "sqrt"), *key("lr_scheduler.decay_ratio", 0.5)], schedule={"curve": "sqrt", "ratio": 0.5}),
    "a longer schedule": Case(key("lr_scheduler.total_steps", 50), schedule={"total": 50}),
    "bf16": Case(key("training.mixed_precision_param", "bfloat16"), bf16=True),
    "bf16 two ranks": Case([*key("training.mixed_precision_param", "bfloat16"), *key("training.local_batch_size", 2)], ranks=2, bf16=True),
    "fp8 tensorwise": Case(float8("tensorwise"), float8="tensorwise"),
    "fp8 tensorwise, gathered": Case(float8("tensorwise", "--float8.filter_fqns=output", "--float8.enable_fsdp_float8_all_gather", "--float8.precompute_float8_dynamic_scale_for_fsdp"),
                                     float8="tensorwise"),
    "fp8 tensorwise with the head": Case(float8("tensorwise", "--float8.emulate"), float8="tensorwise", filters=()),
    "fp8 rowwise": Case(float8("rowwise"), float8="rowwise"),
    "fp8 rowwise_with_gw_hp": Case(float8("rowwise_with_gw_hp"), float8="rowwise_with_gw_hp"),
    "fp8 rowwise, computed again": Case([*float8("rowwise"), *key("activation_checkpoint.mode", "full")], float8="rowwise"),
    "fp8 rowwise, bf16": Case([*float8("rowwise"), *key("training.mixed_precision_param", "bfloat16")], float8="rowwise", bf16=True),
}


class _Absent(types.ModuleType):
    """Stands for a package that torchtitan imports beside its models and that no model uses."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def torchtitan_model(seq: int) -> torch.nn.Module:
    for name in ("datasets", "datasets.distributed", "torchdata", "torchdata.stateful_dataloader", "torch.utils.tensorboard"):
        sys.modules.setdefault(name, _Absent(name))
    from torchtitan.models.llama3.model.args import RoPEScalingArgs, TransformerModelArgs
    from torchtitan.models.llama3.model.model import Transformer

    return Transformer(TransformerModelArgs(**SHAPE, vocab_size=VOCABULARY, max_seq_len=seq, rope_scaling_args=RoPEScalingArgs(scaling_factor=1.0)))


def factor(step: int, warmup: int = WARMUP, steps: int = STEPS, curve: str = "linear", ratio=None, floor: float = 0.0, total=None) -> float:
    """torchtitan's warm-up, stable, decay at a step from 0, from its description."""
    steps = total or steps
    decay = round(steps * ratio) if ratio is not None else steps - warmup
    stable = steps + 1 - warmup - decay
    if step < warmup:
        return (step + 1) / warmup
    if step < warmup + stable:
        return 1.0
    progress = (step + 1 - warmup - stable) / decay
    fall = {"linear": 1 - progress, "sqrt": 1 - progress**0.5, "cosine": 0.5 * (1 + torch.cos(torch.tensor(torch.pi * progress, dtype=torch.float64)).item())}
    return floor + (1 - floor) * fall[curve]


@dataclass
class Variant:
    """Another order of the same sums, or another last bit."""

    math_attention: bool = False
    by_rows: bool = False  # the batch one row at a time, gradients summed
    disturb: int = 0  # seed of a change of the initial weights by at most their last bit; 0: none


class Reference:
    """The loop of the test's own."""

    def __init__(self, case: Case, inputs: dict, variant: Variant):
        self.case, self.inputs, self.variant = case, inputs, variant
        self.model = torchtitan_model(SEQ)
        generator = torch.Generator().manual_seed(variant.disturb)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(inputs["weight." + name])
                if variant.disturb:
                    parameter.mul_(1 + 2.0**-23 * (2 * torch.rand(parameter.shape, generator=generator) - 1))
        if variant.math_attention:
            for block in self.model.layers.values():
                block.attention.inner_attention.sdpa_backends = [torch.nn.attention.SDPBackend.MATH]
        if case.float8:
            self.to_float8()
        decays = case.decay if callable(case.decay) else lambda name: case.decay
        groups = {}
        for name, parameter in self.model.named_parameters():
            groups.setdefault(decays(name), []).append(parameter)
        self.optimizer = case.optimizer([{"params": p, "weight_decay": d} for d, p in groups.items()], lr=LR, betas=case.betas, eps=case.eps)
        self.scheduler = LambdaLR(self.optimizer, lambda step: factor(step, **case.schedule))

    def to_float8(self) -> None:
        from dataclasses import replace

        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        config = replace(Float8LinearConfig.from_recipe_name(self.case.float8), emulate=True)
        convert_to_float8_training(self.model, config=config, module_filter_fn=lambda _, name: not any(f in name for f in self.case.filters))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if not self.case.bf16:
            return self.model(tokens)
        # As FSDP does with param_dtype bfloat16: fp32 parameters, cast for the pass; gradients come back in fp32.
        cast = {name: p.to(torch.bfloat16) for name, p in self.model.named_parameters()}
        return torch.func.functional_call(self.model, cast, (tokens,))

    def step(self, number: int) -> tuple:
        tokens, labels = (self.inputs[f"{kind}.{number}"].long() for kind in ("tokens", "labels"))
        self.optimizer.zero_grad()
        valid, total = (labels >= 0).sum(), 0.0
        for rows in range(len(tokens)) if self.variant.by_rows else [slice(None)]:
            logits = self.forward(tokens[rows].reshape(-1, SEQ)).flatten(0, 1).float()
            loss = cross_entropy(logits, labels[rows].flatten(), ignore_index=-100, reduction="sum") / valid
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.case.max_norm)
        rate = self.scheduler.get_last_lr()[0]
        self.optimizer.step()
        self.scheduler.step()
        return total, norm.item(), rate

    def run(self) -> list:
        return [self.step(number) for number in range(1, STEPS + 1)]


def difference(ours: list, theirs: list, steps=None) -> tuple:
    """Largest relative difference of losses and of norms."""
    pairs = list(zip(ours, theirs))[:steps]
    return tuple(max(abs(a[i] / b[i] - 1) for a, b in pairs) for i in (0, 1))


class Parity:
    def __init__(self, troupe: str, inputs: str, folder: Path):
        self.troupe, self.inputs_program, self.folder, self.cache = troupe, inputs, folder, {}
        words = "the quick brown fox jumps over a lazy dog while rain falls on seven hills".split()
        generator = torch.Generator().manual_seed(3)
        text = [" ".join(words[i] for i in torch.randint(0, len(words), (40,), generator=generator).tolist()) for _ in range(300)]
        (folder / "text.txt").write_text("\n%\n".join(text))
        self.config = folder / "config.toml"
        shape = "\n".join(f"{name} = {value}" for name, value in SHAPE.items())
        self.config.write_text(CONFIG.format(folder=folder, shape=shape, vocabulary=VOCABULARY, lr=LR, warmup=WARMUP, rows=ROWS, seq=SEQ, steps=STEPS))

    def inputs(self, rows: int) -> dict:
        if rows not in self.cache:
            file = self.folder / f"inputs{rows}.safetensors"
            subprocess.run([self.inputs_program, self.config, str(rows), str(STEPS), file], check=True)
            self.cache[rows] = load_file(file)
        return self.cache[rows]

    def ours(self, case: Case) -> list:
        command = [self.troupe, "train", self.config, "--nproc", str(case.ranks), "--overwrite", *case.troupe]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        lines = [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        assert all(line["outcome"] == "commit" for line in lines), "a step was skipped"
        assert not case.float8 or all(line["float8_non_finite"] == 0 and line["float8_saturated"] == 0 for line in lines)
        return [(line["loss"], line["grad_norm"], line["lr"]) for line in lines]

    def check(self, name: str, case: Case) -> bool:
        rows = ROWS
        for option in case.troupe:
            if option.startswith("--training.global_batch_size="):
                rows = int(option.split("=")[1])
        inputs = self.inputs(rows)
        ours, theirs = self.ours(case), Reference(case, inputs, Variant()).run()
        rates = max(abs(a[2] - b[2]) for a, b in zip(ours, theirs)) <= 1e-15
        loss, norm = difference(ours, theirs)
        if not case.bf16 and not case.float8:
            good = loss <= 1e-5 and norm <= 1e-5
            bound = "1e-05"
        else:
            variants = [Variant(math_attention=True), *(Variant(disturb=seed) for seed in range(1, 6))]
            if not case.float8:  # whose scales are those of a batch
                variants.append(Variant(by_rows=True))
            runs = [theirs, *(Reference(case, inputs, variant).run() for variant in variants)]
            noise = [difference(a, b) for a, b in itertools.combinations(runs, 2)]
            noise_loss, noise_norm = (max(n[i] for n in noise) for i in (0, 1))
            good = any(a <= noise_loss and b <= noise_norm for a, b in (difference(ours, run) for run in runs))
            if not case.bf16:  # one step from the same state: no cast has yet met another last bit
                good = good and max(difference(ours, theirs, 1)) <= 1e-5
            bound = f"PyTorch's own {noise_loss:.1e}, {noise_norm:.1e}"
        falls = theirs[-1][0] < theirs[0][0] - 0.5
        verdict = "ok  " if good and rates and falls else "WRONG"
        first = difference(ours, theirs, 1)
        print(f"{verdict} {name:36} loss {loss:.1e}, norm {norm:.1e} (bound {bound}); first step {first[0]:.1e}, {first[1]:.1e}; loss {theirs[0][0]:.3f} → {theirs[-1][0]:.3f}"
              + ("" if rates else "; learning rates differ") + ("" if falls else "; nothing was learnt"), flush=True)
        return good and rates and falls


def main() -> int:
    torch.set_num_threads(1)
    troupe, inputs, *names = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="troupe-parity-") as folder:
        parity = Parity(troupe, inputs, Path(folder))
        good = [parity.check(name, CASES[name]) for name in names or CASES]
    print(f"{sum(good)} of {len(good)} cases agree")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
