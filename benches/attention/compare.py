"""Takes turns with the Rust benchmark: the same shapes in PyTorch, a table at the end.

Started by scripts/bench_attention.sh.
"""

import argparse
import os
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F

# name, rows, new positions, keys, query heads, KV heads, head dimension, dtype
SHAPES = [
    ("prefill", 1, 1024, 1024, 32, 8, 128, "f32"),
    ("prefill", 1, 1024, 1024, 32, 8, 128, "bf16"),
    ("prefill", 1, 1024, 1024, 32, 32, 64, "f32"),
    ("prefill", 1, 1024, 1024, 16, 8, 256, "bf16"),
    ("prefill", 4, 256, 256, 32, 8, 96, "f16"),
    ("append", 1, 128, 4096, 32, 8, 128, "f32"),
    ("append", 1, 128, 4096, 32, 8, 128, "bf16"),
    ("append", 8, 16, 2048, 32, 8, 128, "bf16"),
    ("decode", 16, 1, 2048, 32, 8, 128, "f32"),
    ("decode", 16, 1, 2048, 32, 8, 128, "bf16"),
    ("decode", 16, 1, 2048, 32, 8, 128, "f16"),
    ("decode", 1, 1, 16384, 32, 8, 128, "f32"),
    ("decode", 1, 1, 16384, 32, 8, 128, "bf16"),
    ("decode", 4, 1, 2048, 32, 32, 128, "f32"),
    ("decode", 4, 1, 2048, 32, 32, 128, "bf16"),
    ("decode", 16, 1, 4096, 16, 2, 64, "bf16"),
]
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
SECONDS = 0.02  # a turn lasts at least so long


class Rust:
    """The other program."""

    def __init__(self, program):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([program, "--serve"], stdin=pipe, stdout=pipe, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]


def variants(shape):
    """Every way in which PyTorch can be asked for this; the quickest one counts."""
    _, rows, new, keys, query_heads, kv_heads, head_dim, dtype = shape
    dtype = DTYPES[dtype]
    q = torch.randn(rows, query_heads, new, head_dim).to(dtype)
    k, v = (torch.randn(rows, kv_heads, keys, head_dim).to(dtype) for _ in range(2))
    group = query_heads // kv_heads
    expanded = [x.repeat_interleave(group, 1) if group > 1 else x for x in (k, v)]
    if new == 1:
        masks = [{}]
    elif new == keys:
        masks = [{"is_causal": True}]
    else:
        seen = torch.ones(new, keys, dtype=torch.bool).tril(keys - new)
        added = torch.zeros(new, keys, dtype=dtype).masked_fill(~seen, float("-inf"))
        masks = [{"attn_mask": seen}, {"attn_mask": added}]
    ways = []
    for mask in masks:
        ways.append(lambda mask=mask: F.scaled_dot_product_attention(q, *expanded, **mask))
        if group > 1:
            ways.append(
                lambda mask=mask: F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **mask)
            )
        if group > 1 and new == 1:
            # The heads of a group as queries of one head: keys are read once for all of them.
            folded = q.reshape(rows, kv_heads, group, head_dim)
            ways.append(lambda: F.scaled_dot_product_attention(folded, k, v))
    return ways


def seconds(call):
    start, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - start < SECONDS:
        call()
        calls += 1
    return (time.perf_counter() - start) / calls


def compare(rust, shape, threads, rounds):
    _, *numbers, dtype = shape
    words = " ".join(str(number) for number in numbers)
    flops, size = rust.ask(f"shape {threads} {words} {dtype} {dtype}")
    ways = variants(shape)
    # The first calls pay for memory and threads.
    rust.ask("time")
    way = min(ways, key=lambda way: min(seconds(way) for _ in range(3)))
    ours, theirs, ratios, parts = [], [], [], []
    for _ in range(rounds):
        peak, bandwidth = rust.ask(f"peak {threads}")[0], rust.ask(f"bandwidth {threads}")[0]
        ours.append(rust.ask("time")[0])
        theirs.append(seconds(way))
        ratios.append(theirs[-1] / ours[-1])
        parts.append(max(flops / peak, size / bandwidth) / ours[-1])
    middle = statistics.median
    bound = "FMA" if flops / peak > size / bandwidth else "memory"
    cells = [shape[0], words, dtype, str(threads)]
    cells += [f"{middle(ours) * 1e3:.2f}", f"{middle(theirs) * 1e3:.2f}"]
    cells += [f"{middle(ratios):.2f}", f"{middle(parts) * 100:.0f} % of {bound}"]
    return f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    rust = Rust(arguments.program)
    cores = len(os.sched_getaffinity(0))
    capability = torch.backends.cpu.get_cpu_capability()
    print(f"PyTorch {torch.__version__}, {capability}, {cores} cores\n")
    heads = ["", "rows new keys q-heads kv-heads dim", "dtype", "threads", "ms", "PyTorch ms"]
    print(f"| {' | '.join([*heads, 'PyTorch / ours', 'of the machine'])} |")
    print("|---|---|---|--:|--:|--:|--:|--:|")
    for threads in [arguments.threads] if arguments.threads else sorted({1, cores}):
        torch.set_num_threads(threads)
        for shape in SHAPES:
            if arguments.only in shape[0]:
                print(compare(rust, shape, threads, arguments.rounds), flush=True)


with torch.inference_mode():
    main()
