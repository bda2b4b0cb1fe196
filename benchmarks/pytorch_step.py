"""The PyTorch side of benchmarks/pytorch.py: torchtitan's Llama 3 in an eager loop on a CPU, one process or FSDP2 over Gloo.

Prints a line of JSON when all is ready for the first step, one for each step ({"step", "loss", "seconds"}), and with "matrix" the part of a step that is matrix work:
self time of the matrix products and of attention in PyTorch's own profiler.
"""

import argparse
import contextlib
import json
import os
import sys
import time
import types
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

MATRIX_WORK = ("aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_dot_product_flash_attention_for_cpu",
               "aten::_scaled_dot_product_flash_attention_for_cpu_backward", "mkldnn::", "aten::mkldnn")


PROFILED = 2  # steps


class _Absent(types.ModuleType):
    """Stands for a package that torchtitan imports beside its models and that no model uses."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def torchtitan_model(shape: dict, seq_len: int) -> torch.nn.Module:
    for name in ("datasets", "datasets.distributed", "torchdata", "torchdata.stateful_dataloader", "torch.utils.tensorboard"):
        sys.modules.setdefault(name, _Absent(name))
    from torchtitan.models.llama3.model.args import TransformerModelArgs
    from torchtitan.models.llama3.model.model import Transformer

    args = TransformerModelArgs(dim=shape["dim"], n_layers=shape["layers"], n_heads=shape["heads"], n_kv_heads=shape["kv_heads"], vocab_size=shape["vocabulary"],
                                multiple_of=shape["multiple_of"], ffn_dim_multiplier=shape["ffn_dim_multiplier"], rope_theta=500000.0, max_seq_len=seq_len)
    with torch.device("meta"):
        model = Transformer(args)
    model.to_empty(device="cpu")
    torch.manual_seed(0)
    with torch.no_grad():
        model.init_weights(buffer_device=torch.device("cpu"))
    return model


def shard(model: torch.nn.Module, bf16: bool) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if bf16 else torch.float32, reduce_dtype=torch.float32)
    for block in model.layers.values():
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


class Loop:
    """What torchtitan does in a step: forward, mean cross entropy in fp32, backward, clip, fused AdamW, schedule."""

    def __init__(self, options: argparse.Namespace, rank: int):
        shape = json.loads(options.shape)
        self.model = torchtitan_model(shape, options.seq_len)
        if options.ranks > 1:
            shard(self.model, options.bf16)
        # torchtitan without FSDP: autocast.
        self.autocast = options.bf16 and options.ranks == 1
        self.run = torch.compile(self.model) if options.compile else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=8e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 200))
        generator = torch.Generator().manual_seed(rank)
        text = torch.randint(0, 256, (options.steps + 4, options.batch, options.seq_len + 1), generator=generator)
        self.batches = iter(text)

    def step(self) -> float:
        batch = next(self.batches)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16) if self.autocast else contextlib.nullcontext():
            logits = self.run(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
        del logits
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        self.schedule.step()
        return loss.item()


def matrix_share(loop: Loop) -> float:
    began = time.perf_counter()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(PROFILED):
            loop.step()
    wall = time.perf_counter() - began
    matrix = sum(e.self_cpu_time_total for e in profiler.key_averages() if e.key.startswith(MATRIX_WORK)) / 1e6
    return matrix / wall


def work(rank: int, options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    if options.ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{options.rendezvous}", rank=rank, world_size=options.ranks)
    loop = Loop(options, rank)
    if rank == 0:
        print(json.dumps({"ready": True}), flush=True)
    for step in range(1, options.steps + 1):
        began = time.perf_counter()
        loss = loop.step()
        if rank == 0:
            print(json.dumps({"step": step, "loss": loss, "seconds": time.perf_counter() - began}), flush=True)
    if options.matrix and rank == 0:
        print(json.dumps({"matrix": matrix_share(loop)}), flush=True)
    elif options.matrix:
        for _ in range(PROFILED):
            loop.step()
    if options.ranks > 1:  # without the end of Gloo's threads, which now and then hangs
        dist.barrier()
        sys.stdout.flush()
        os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", required=True)
    for name, value in (("ranks", 1), ("threads", 1), ("steps", 8), ("batch", 2), ("seq-len", 512)):
        parser.add_argument("--" + name, type=int, default=value)
    for name in ("bf16", "compile", "matrix"):
        parser.add_argument("--" + name, action="store_true")
    parser.add_argument("--rendezvous", default="")
    options = parser.parse_args()
    if options.ranks == 1:
        return work(0, options)
    Path(options.rendezvous).unlink(missing_ok=True)
    torch.multiprocessing.spawn(work, (options,), nprocs=options.ranks)


if __name__ == "__main__":
    main()
