"""The part of torch.distributed.checkpoint in `benchmarks/run checkpoint`: saves and loads the same state, each time that a line is read.

    torch_checkpoint.py FOLDER TENSORS ROWS COLUMNS

Reads "save N" and "load N" from standard input and answers with seconds, or with "wrong" where what was loaded is not what was saved.
"""

import shutil
import sys
import time
import warnings

import torch
import torch.distributed.checkpoint as dcp


def main() -> None:
    warnings.simplefilter("ignore")
    folder, tensors, rows, columns = sys.argv[1], *map(int, sys.argv[2:])
    state = {f"layer.{i}": torch.arange(rows * columns, dtype=torch.float32).remainder_(8191).mul_(0.37).reshape(rows, columns) for i in range(tensors)}
    again = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    print("ready", flush=True)
    for line in sys.stdin:
        what, number = line.split()
        place = f"{folder}/torch-{number}"
        for tensor in again.values():
            tensor.zero_()
        begin = time.perf_counter()
        if what == "save":
            dcp.save(state, checkpoint_id=place)
        else:
            dcp.load(again, checkpoint_id=place)
        seconds = time.perf_counter() - begin
        good = what == "save" or all(torch.equal(state[name], again[name]) for name in state)
        if what == "load":
            shutil.rmtree(place)
        print(seconds if good else "wrong", flush=True)


if __name__ == "__main__":
    main()
