#!/usr/bin/env python3
"""Writes made-up tokens with the rank law of text, p(id) ~ 1 / (id + 1), as Megatron data: what a benchmark beside torchtitan trains on.

  token_law.py PREFIX ROWS [--seq 8192] [--vocabulary 128256] [--seed 1234]      → PREFIX.bin, PREFIX.idx: one document of ROWS · seq + 1 tokens

id = floor(exp(u · ln vocabulary)) - 1 for u uniform in [0, 1).
"""

import argparse
import array
import math
import random
import struct


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix")
    parser.add_argument("rows", type=int)
    parser.add_argument("--seq", type=int, default=8192)
    parser.add_argument("--vocabulary", type=int, default=128256)
    parser.add_argument("--seed", type=int, default=1234)
    o = parser.parse_args()
    count = o.rows * o.seq + 1
    draw, scale = random.Random(o.seed).random, math.log(o.vocabulary)
    with open(o.prefix + ".bin", "wb") as data:
        array.array("i", (min(int(math.exp(draw() * scale)) - 1, o.vocabulary - 1) for _ in range(count))).tofile(data)
    with open(o.prefix + ".idx", "wb") as index:
        index.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, 1, 2))  # version, int32, one sequence, two document bounds
        index.write(struct.pack("<iqqq", count, 0, 0, 1))  # its length, where it begins, the bounds


if __name__ == "__main__":
    main()
