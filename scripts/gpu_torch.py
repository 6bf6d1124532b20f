"""What PyTorch takes for the target shapes, with dense K and V: an upper bound for paged attention.

Prints lines of id, backend, median microseconds; and the rate of a large matrix product in bf16,
against which prefill is measured. Calls follow one another on inputs that are taken in turn, as in
benches/cuda/calls.rs.
"""

import itertools

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

# id, rows, queries, keys, query heads, KV heads, head dim: those of benches/cuda/shapes.rs
SHAPES = [
    ("P1", 1, 8192, 8192, 32, 8, 128),
    ("P3", 16, 2048, 2048, 32, 8, 128),
    ("P5", 4, 4096, 4096, 64, 8, 64),
    ("P6", 4, 4096, 4096, 16, 8, 256),
    ("A1", 1, 512, 32768, 32, 8, 128),
    ("A3", 1, 128, 32768, 32, 8, 128),
    ("A5", 16, 64, 8192, 32, 8, 128),
    ("A6", 64, 16, 4096, 32, 8, 128),
    ("A8", 1, 128, 65536, 32, 32, 128),
    ("D1", 1, 1, 32768, 32, 8, 128),
    ("D2", 64, 1, 4096, 32, 8, 128),
    ("D3", 64, 1, 8192, 64, 8, 128),
    ("C1", 64, 1, 8448, 32, 8, 128),
]
RUNS = 30
CALLS = 8
ROTATED_BYTES = 256 << 20


def median(call, sets):
    times = []
    turn = itertools.cycle(sets)
    for run in range(RUNS + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(CALLS):
            call(*next(turn))
        end.record()
        end.synchronize()
        if run >= 3:
            times.append(begin.elapsed_time(end) * 1000 / CALLS)
    return sorted(times)[len(times) // 2]


def random(*shape):
    return torch.randn(*shape, dtype=torch.bfloat16, device="cuda")


def attend(backend, rows, queries, keys, query_heads, kv_heads, dim):
    tensor_bytes = 4 * rows * dim * (kv_heads * keys + query_heads * queries)
    sets = [
        (
            random(rows, query_heads, queries, dim),
            random(rows, kv_heads, keys, dim),
            random(rows, kv_heads, keys, dim),
        )
        for _ in range(max(1, min(CALLS, ROTATED_BYTES // tensor_bytes)))
    ]
    if queries == 1:
        options = {}
    elif queries == keys:
        options = {"is_causal": True}
    else:
        options = {"attn_mask": causal_lower_right(queries, keys)}

    def call(q, k, v):
        F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)

    with sdpa_kernel(backend):
        return median(call, sets)


def main():
    size = 8192
    a, b = random(size, size), random(size, size)
    rate = 2 * size**3 / median(torch.matmul, [(a, b)]) / 1e6
    print(f"matmul\tbf16\t{rate:.0f}", flush=True)
    for name, *shape in SHAPES:
        for label, backend in [
            ("flash", SDPBackend.FLASH_ATTENTION),
            ("cudnn", SDPBackend.CUDNN_ATTENTION),
        ]:
            try:
                print(f"{name}\t{label}\t{attend(backend, *shape):.1f}", flush=True)
            except RuntimeError as error:
                reason = str(error).splitlines()[0]
                print(f"{name}\t{label}\tnot supported: {reason}", flush=True)


if __name__ == "__main__":
    main()
