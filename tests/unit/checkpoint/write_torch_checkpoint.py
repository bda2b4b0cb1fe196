"""Writes tests/unit/checkpoint/torch_checkpoint: what torch.distributed.checkpoint saves of two ranks, as torchtitan's does.

    write_torch_checkpoint.py FOLDER

Weights are cut by rows and by columns; every value is its index in the tensor (bf16: divided by 16).
"""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def counting(*shape: int, dtype=torch.float32) -> torch.Tensor:
    values = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
    return values if dtype == torch.float32 else (values / 16).to(dtype)


def save(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29641", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))

    def cut(tensor: torch.Tensor, placement) -> torch.Tensor:
        return distribute_tensor(tensor, mesh, [placement])

    dcp.save({
        "by_rows.weight": cut(counting(5, 3), Shard(0)),
        "by_columns.weight": cut(counting(4, 6), Shard(1)),
        "norm.weight": cut(counting(6, dtype=torch.bfloat16), Shard(0)),
        "whole.weight": cut(counting(2, 2), Replicate()),
        "optimizer": {"state.by_rows.weight.step": torch.tensor(7.0), "state.by_rows.weight.exp_avg": cut(counting(5, 3), Shard(0)),
                      "param_groups.by_rows.weight.lr": 1e-3},
        "train_state": {"step": torch.tensor(7, dtype=torch.int32), "ntokens_seen": torch.tensor(1792, dtype=torch.int64)},
        "lr_scheduler": {"last_epoch": 7},
    }, checkpoint_id=folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(save, (sys.argv[1],), nprocs=2)
