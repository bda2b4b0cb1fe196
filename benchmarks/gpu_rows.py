#!/usr/bin/env python3
"""Where a training step of Llama 3.1 8B's layers goes on a GPU, row by row, from a trace of benchmarks/kernel_trace.cpp.

  gpu_rows.py TRACE [--layers 8] [--tokens 16384] [--target] [--kernels N]

Of each row: calls and milliseconds a step, TFLOP/s or TB/s, the share of the H200's limit (fp8 1,979 and bf16 989 TFLOP/s, 4.8 TB/s; attention counts
the causal half), and with --target what the row should take at batch 2 on one GPU (the faster of the plan's budget and torchtitan's own profile). Matrix
products are told apart by their order in the step. Sums over streams: what runs side by side counts twice; "busy" does not.
"""

import argparse
import re
import statistics

D, F, V, KV, HEADS, HEAD = 4096, 14336, 128256, 1024, 32, 128
FP8, BF16, MEMORY = 1979e12, 989e12, 4.8e12
FORWARD = [("q", D, D), ("k", KV, D), ("v", KV, D), ("o", D, D), ("gate", F, D), ("up", F, D), ("down", D, F)]
BACKWARD = ["down", "up", "gate", "o", "v", "k", "q"]
SIZES = {name: (n, k) for name, n, k in FORWARD}
GROUP = {"q": "qkv", "k": "qkv", "v": "qkv", "o": "o", "gate": "gate-up", "up": "gate-up", "down": "down"}

# Milliseconds a layer, but for those of the whole step. Products and attention's forward: torchtitan's profile; memory-bound rows: bytes at 3.8 TB/s.
TARGETS = {
    "forward products": 4.85, "backward products": 10.48, "attention, forward": 1.83, "attention, backward": 5.59,
    "norms": 0.14, "casts, e4m3": 0.33, "rotary": 0.18, "swiglu": 0.37, "swiglu, backward": 0.62, "casts, e5m2": 0.74, "norms, backward": 0.28,
    "transposes of codes": 0.24, "amax": 0.07,
}
STEP_TARGETS = {"head": 70.4, "cross entropy": 2.2, "embedding": 1.0, "AdamW": 20.6, "gradient norm": 3.3, "weights cast, their amax": 5.2}


def read(path):
    rows = []
    with open(path) as file:
        for line in file:
            parts = line.rstrip("\n").split(" ", 4)
            if len(parts) == 5 and parts[0].isdigit():
                rows.append((int(parts[0]), int(parts[1]), int(parts[2]), int(parts[3]), parts[4]))
    return sorted(rows)


def name_of(kernel, blocks, stream, compute):
    """Row, bytes a call (None: unknown)."""
    k = kernel
    if re.search(r"sdpa.*fprop|flash_fprop", k):
        return "attention, forward"
    if re.search(r"sdpa.*bprop|cudnn", k):
        return "attention, backward"
    if "swiglu_cu" in k:
        return "swiglu, backward" if "backward" in k else "swiglu"
    if "rms_norm_backward" in k:
        return "norms, backward"
    if "rms_norm_cu" in k:
        return "norms"
    if "rotary" in k:
        return "rotary"
    if "cast_transpose_kernel" in k:
        return "casts, e5m2" if "ElementE4" in k else "casts, e4m3"
    if "transpose_bytes" in k:
        return "transposes of codes"
    if "amax_kernel" in k or "scale_kernel" in k:
        return "amax" if stream == compute else "weights cast, their amax"
    if "quantize" in k:
        return "weights cast, their amax"
    if "cast8_kernel" in k or "cast_kernel" in k:
        return "weights cast, their amax"
    if "adamw" in k:
        return "AdamW"
    if "squares" in k or "shard_cu" in k:
        return "gradient norm"
    if "embedding" in k or "mbedding_cu" in k or "cub" in k.lower():
        return "embedding"
    if "ross_entropy" in k:
        return "cross entropy"
    if k == "memcpy":
        return "copies"
    if "nccl" in k:
        return "NCCL"
    return "rest"


def bytes_a_step(tokens, layers, parameters):
    u = 2.0 * tokens * D
    return {
        "norms": (2 * layers + 1) * 2 * u, "rotary": layers * 2 * 2 * 1.25 * u, "swiglu": layers * 3 * u * F / D, "swiglu, backward": layers * 5 * u * F / D,
        "casts, e4m3": layers * 1.5 * u * (3 + F / D), "casts, e5m2": layers * 2 * u * (2 + 1.5 + 2 * F / D), "norms, backward": (2 * layers + 1) * 4 * u,
        "transposes of codes": layers * (u * (3 + F / D) + 2 * 218.1e6), "cross entropy": 4.0 * tokens * V, "AdamW": 28.0 * parameters,
        "gradient norm": 4.0 * parameters, "embedding": 4.0 * V * D + 4 * u,
    }


def products_of(step, layers):
    """(row, name, flops, duration) of the matrix products of one step, in order."""
    order = []
    for _ in range(layers):
        order += [("forward products", f"{GROUP[n]}, forward", SIZES[n]) for n, _, _ in FORWARD]
    order += [("head", "head, forward", (V, D)), ("head", "head, weight gradient", (V, D)), ("head", "head, input gradient", (V, D))]
    for _ in range(layers):
        for n in BACKWARD:
            order += [("backward products", f"{GROUP[n]}, weight gradient", SIZES[n]), ("backward products", f"{GROUP[n]}, input gradient", SIZES[n])]
    gemms = [r for r in step if re.search(r"nvjet|gemm|cutlass|plain_product", r[4])]
    if len(gemms) != len(order):
        return None, gemms
    return [(row, name, n * k, g[1] - g[0]) for (row, name, (n, k)), g in zip(order, gemms)], gemms


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--bf16", action="store_true", help="the layers' products are in bf16")
    parser.add_argument("--target", action="store_true")
    parser.add_argument("--kernels", type=int, default=0, help="also the N longest kernels")
    options = parser.parse_args()
    rows = read(options.trace)
    compute = next((r[2] for r in rows if "sdpa" in r[4]), None)
    ends = [r[1] for r in rows if "decide" in r[4]]
    if compute is None or len(ends) < 2:
        raise SystemExit(f"{options.trace}: {len(rows)} records, {len(ends)} verdicts: two or more are needed, and attention by cuDNN")
    steps = [[r for r in rows if a < r[0] <= b] for a, b in zip(ends[:-1], ends[1:])][-6:]
    spans = [b - a for a, b in zip(ends[:-1], ends[1:])][-6:]
    sums, calls, flops, detail, busy = {}, {}, {}, {}, 0
    for step in steps:
        end = 0
        for r in step:
            busy += max(0, r[1] - max(r[0], end))
            end = max(end, r[1])
        products, gemms = products_of(step, options.layers)
        for r in step:
            if r in gemms:
                continue
            row = name_of(r[4], r[3], r[2], compute)
            sums[row] = sums.get(row, 0) + r[1] - r[0]
            calls[row] = calls.get(row, 0) + 1
        if products is None:
            sums["products"] = sums.get("products", 0) + sum(g[1] - g[0] for g in gemms)
            calls["products"] = calls.get("products", 0) + len(gemms)
            continue
        for row, name, elements, time in products:
            for table, key in ((sums, row), (detail, name)):
                table[key] = table.get(key, 0) + time
            calls[row] = calls.get(row, 0) + 1
            calls[name] = calls.get(name, 0) + 1
            for key in (row, name):
                flops[key] = flops.get(key, 0) + 2.0 * options.tokens * elements
    n = len(steps)
    attention = 2.0 * 2 * options.tokens * 8192 / 2 * HEADS * HEAD * options.layers * n
    flops["attention, forward"], flops["attention, backward"] = attention, 2.5 * attention
    moved = bytes_a_step(options.tokens, options.layers, options.layers * 218.1e6 + 2 * V * D)
    print(f"{n} steps: {statistics.median(spans) / 1e6:.1f} ms from verdict to verdict (median, with the tracer), {busy / n / 1e6:.1f} ms some kernel running; "
          f"{options.layers} layers, {options.tokens} tokens")
    print(f"{'row':28} {'calls':>6} {'ms':>8} {'rate':>14} {'limit':>6}" + (f" {'target':>8} {'over':>6}" if options.target else ""))
    for row, time in sorted(sums.items(), key=lambda kv: -kv[1]):
        show(row, time / n, calls[row] / n, flops.get(row, 0) / n, moved.get(row, 0), options)
    print("\nproducts")
    for row, time in sorted(detail.items(), key=lambda kv: -kv[1]):
        show(row, time / n, calls[row] / n, flops[row] / n, 0, options)
    if options.kernels:
        print("\nkernels")
        by_name = {}
        for step in steps:
            for r in step:
                entry = by_name.setdefault((re.sub(r"_ZN6troupe4cuda|_GLOBAL__N__[0-9a-f_]*", "", r[4])[:90], r[3]), [0, 0])
                entry[0] += r[1] - r[0]
                entry[1] += 1
        for (name, size), (time, count) in sorted(by_name.items(), key=lambda kv: -kv[1][0])[: options.kernels]:
            print(f"{time / n / 1e6:9.3f} ms {count / n:6.1f} calls {time / count / 1e3:9.1f} us  {size:>10} {name}")


def show(row, time, calls, flops, moved, options):
    ms, rate, share = time / 1e6, "", ""
    if flops:
        limit = BF16 if options.bf16 or row.startswith(("head", "attention")) else FP8
        rate, share = f"{flops / time / 1e3:8.0f} TFLOP/s", f"{100 * flops / time * 1e9 / limit:5.0f}%"
    elif moved:
        rate, share = f"{moved / time / 1e3:11.2f} TB/s", f"{100 * moved / time * 1e9 / MEMORY:5.0f}%"
    line = f"{row:28} {calls:6.0f} {ms:8.2f} {rate:>16} {share:>6}"
    if options.target:
        target = STEP_TARGETS.get(row) or TARGETS.get(row, 0) * options.layers
        if target:
            line += f" {target:8.2f} {100 * (ms / target - 1):+5.0f}%"
    print(line)


if __name__ == "__main__":
    main()
