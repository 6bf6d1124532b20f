"""What other libraries take for the target shapes over paged K and V: FlashAttention-3, FlashMLA
and FlashInfer, beside the table of benches/cuda in the same visit.

Usage: gpu_peers.py [folder]. The folder, made by `scripts/gpu.sh peers`, holds what they need:
`site`, packages for Python, and `fa3.so` and `flashmla.so`, libraries of operators for torch. What
is missing is skipped and said. Prints lines of id, page size, library, median microseconds, and by
how much a few rows differ from attention in f32. Calls follow one another on inputs that are taken
in turn, as in benches/cuda/calls.rs. Plans are made before: their time is not counted.
"""

import math
import pathlib
import sys

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
sys.path.insert(0, str(FOLDER / "site"))

import torch  # noqa: E402
from gpu_torch import CALLS, ROTATED_BYTES, SHAPES, median, random  # noqa: E402

PAGE_SIZES = {"P3": (1, 16, 64, 128), "A3": (1, 16, 64, 128), "D2": (1, 16, 64, 128)}
# Id, rows, keys, query heads: of benches/cuda/shapes.rs. FlashMLA takes pages of 64 alone.
LATENT_SHAPES = [
    ("M1", 64, 4096, 128),
    ("M2", 64, 4096, 16),
    ("M4", 64, 4096, 64),
    ("M5", 64, 4096, 32),
    ("M6", 1, 65536, 128),
]
LATENT_PAGE_SIZE = 64
LATENT_DIM, VALUE_DIM = 576, 512
LATENT_SCALE = (128 + 64) ** -0.5
WORKSPACE_BYTES = 256 << 20
DEVICE = "cuda"


class Paged:
    """Inputs of a shape: queries, and pages of K and V in no order."""

    def __init__(self, shape, page_size):
        self.rows, self.queries, self.keys, self.query_heads, self.kv_heads, self.dim = shape
        self.page_size = page_size
        self.row_pages = math.ceil(self.keys / page_size)
        self.scale = self.dim**-0.5
        kv_bytes = 4 * self.rows * self.keys * self.kv_heads * self.dim
        pages = self.rows * self.row_pages
        self.sets = []
        for _ in range(max(1, min(CALLS, ROTATED_BYTES // kv_bytes))):
            q = random(self.rows * self.queries, self.query_heads, self.dim)
            k, v = (random(pages, page_size, self.kv_heads, self.dim) for _ in range(2))
            table = torch.randperm(pages, device=DEVICE).to(torch.int32)
            self.sets.append((q, k, v, table.view(self.rows, self.row_pages)))

    def starts(self, of_row):
        end = (self.rows + 1) * of_row
        return torch.arange(0, end, of_row, dtype=torch.int32, device=DEVICE)

    def expected(self, query):
        """Attention of a query of the first row, in f32."""
        q, k, v, table = self.sets[0]
        visible = self.keys - self.queries + query + 1
        k, v = (pages[table[0].long()].flatten(0, 1)[:visible].float() for pages in (k, v))
        grouped = q[query].float().view(self.kv_heads, -1, self.dim)
        weights = (torch.einsum("hgd,thd->hgt", grouped, k) * self.scale).softmax(-1)
        return torch.einsum("hgt,thd->hgd", weights, v).reshape(self.query_heads, self.dim)

    def error(self, out):
        """The largest error of a few queries, relative to their results."""
        errors = []
        for query in sorted({0, self.queries // 2, self.queries - 1}):
            expected = self.expected(query)
            errors.append(((out[query].float() - expected).norm() / expected.norm()).item())
        return max(errors)


def flash_attention_3():
    """Calls of FlashAttention-3, as vLLM builds it."""
    torch.ops.load_library(str(FOLDER / "fa3.so"))
    forward = torch.ops._vllm_fa3_C.fwd
    names = [argument.name for argument in forward.default._schema.arguments]

    def prepare(shape):
        starts = shape.starts(shape.queries)
        used = torch.full((shape.rows,), shape.keys, dtype=torch.int32, device=DEVICE)
        given = {
            "cu_seqlens_q": starts,
            "seqused_k": used,
            "max_seqlen_q": shape.queries,
            "max_seqlen_k": shape.keys,
            "softmax_scale": shape.scale,
            "is_causal": True,
            "window_size_left": -1,
            "window_size_right": -1,
            "softcap": 0.0,
            "is_rotary_interleaved": True,
            "num_splits": 0,
            "sm_margin": 0,
            "attention_chunk": 0,
            "cp_world_size": 1,
            "cp_rank": 0,
        }

        def call(q, k, v, table):
            tensors = {"q": q, "k": k, "v": v, "page_table": table}
            # By name: what a version has besides is None, as a caller in Python would leave it.
            return forward(**{name: (tensors | given).get(name) for name in names})[0]

        return [lambda inputs=inputs: call(*inputs) for inputs in shape.sets]

    return {"FlashAttention-3": prepare}


def flash_infer():
    """Calls of FlashInfer's kernels for Ampere and for Hopper."""
    import flashinfer

    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=DEVICE)

    def prepare(shape, backend):
        starts, pages = shape.starts(shape.queries).cpu(), shape.starts(shape.row_pages).cpu()
        last = torch.full((shape.rows,), (shape.keys - 1) % shape.page_size + 1, dtype=torch.int32)
        calls = []
        for q, k, v, table in shape.sets:
            heads = (shape.query_heads, shape.kv_heads, shape.dim)
            dtypes = {"q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16}
            table = table.flatten()
            if backend == "decode":
                wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
                    workspace, "NHD", use_tensor_cores=True, backend="fa2"
                )
                wrapper.plan(pages, table, last, *heads, shape.page_size, **dtypes)
            else:
                wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
                    workspace, "NHD", backend=backend
                )
                wrapper.plan(
                    starts, pages, table, last, *heads, shape.page_size, causal=True, **dtypes
                )
            calls.append(lambda wrapper=wrapper, q=q, kv=(k, v): wrapper.run(q, kv))
        return calls

    def decode(shape):
        if shape.queries > 1:
            raise NotImplementedError("for one query a row")
        return prepare(shape, "decode")

    return {
        "FlashInfer fa2": lambda shape: prepare(shape, "fa2"),
        "FlashInfer fa3": lambda shape: prepare(shape, "fa3"),
        "FlashInfer decode": decode,
    }


class Latent:
    """Inputs of decoding with latent vectors: their first 512 elements are the values."""

    def __init__(self, rows, keys, query_heads, page_size):
        self.rows, self.keys, self.query_heads, self.page_size = rows, keys, query_heads, page_size
        self.row_pages = math.ceil(keys / page_size)
        pages = rows * self.row_pages
        self.sets = []
        for _ in range(max(1, min(CALLS, ROTATED_BYTES // (2 * rows * keys * LATENT_DIM)))):
            q = random(rows, query_heads, LATENT_DIM)
            latent = random(pages, page_size, LATENT_DIM)
            table = torch.randperm(pages, device=DEVICE).to(torch.int32)
            self.sets.append((q, latent, table.view(rows, self.row_pages)))

    def error(self, out):
        """The largest error of a few rows, relative to their results, in f32."""
        q, latent, table = self.sets[0]
        errors = []
        for row in sorted({0, self.rows // 2, self.rows - 1}):
            keys = latent[table[row].long()].flatten(0, 1)[: self.keys].float()
            weights = (q[row].float() @ keys.T * LATENT_SCALE).softmax(-1)
            expected = weights @ keys[:, :VALUE_DIM]
            found = out[row].float().view(self.query_heads, VALUE_DIM)
            errors.append(((found - expected).norm() / expected.norm()).item())
        return max(errors)


def flash_mla():
    """Calls of FlashMLA, as vLLM builds it."""
    torch.ops.load_library(str(FOLDER / "flashmla.so"))
    forward = torch.ops._flashmla_C.dense_decode_fwd

    def prepare(shape):
        used = torch.full((shape.rows,), shape.keys, dtype=torch.int32, device=DEVICE)
        scale = LATENT_SCALE

        def call(q, latent, table, plan):
            q, latent = q.unsqueeze(1), latent.unsqueeze(2)
            return forward(q, latent, VALUE_DIM, used, table, scale, False, *plan, None)

        # The first call makes the plan.
        plan = call(*shape.sets[0], (None, None))[2:4]
        return [lambda inputs=inputs: call(*inputs, plan)[0] for inputs in shape.sets]

    return {"FlashMLA": prepare}


def flash_infer_latent():
    """Calls of FlashInfer's kernels for latent vectors."""
    import flashinfer

    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=DEVICE)

    def prepare(shape, backend):
        calls = []
        rows = torch.arange(0, shape.rows + 1, dtype=torch.int32, device=DEVICE)
        used = torch.full((shape.rows,), shape.keys, dtype=torch.int32, device=DEVICE)
        for q, latent, table in shape.sets:
            wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(workspace, backend=backend)
            wrapper.plan(
                rows,
                rows * shape.row_pages,
                table.flatten(),
                used,
                shape.query_heads,
                VALUE_DIM,
                LATENT_DIM - VALUE_DIM,
                shape.page_size,
                False,
                LATENT_SCALE,
                q.dtype,
                latent.dtype,
            )
            parts = [*q.split([VALUE_DIM, LATENT_DIM - VALUE_DIM], -1)]
            parts += latent.split([VALUE_DIM, LATENT_DIM - VALUE_DIM], -1)
            parts = [part.contiguous() for part in parts]
            calls.append(lambda wrapper=wrapper, parts=parts: wrapper.run(*parts))
        return calls

    return {
        "FlashInfer fa2": lambda shape: prepare(shape, "fa2"),
        "FlashInfer fa3": lambda shape: prepare(shape, "fa3"),
    }


def captured(call):
    """A call as a graph, or as it is where a library's cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError:
        return call
    return graph.replay


def loaded(loaders):
    libraries = {}
    for load in loaders:
        try:
            libraries |= load()
        except (ImportError, OSError, AttributeError, RuntimeError) as error:
            print(f"SKIP {load.__name__}: {first_line(error)}", flush=True)
    return libraries


def compare(name, shape, libraries):
    for library, prepare in libraries.items():
        try:
            calls = prepare(shape)
            error = shape.error(calls[0]())
            # The calls are their own inputs, taken in turn; as graphs, for what Python takes is
            # longer than many of them.
            replays = [captured(call) for call in calls]
            time = median(lambda replay: replay(), [(replay,) for replay in replays])
            found = f"{time:.1f}\t{error:.1e}"
        except Exception as error:  # of others' code: whatever it is, go on
            found = f"not supported: {first_line(error)}\t"
        print(f"{name}\t{shape.page_size}\t{library}\t{found}", flush=True)


def main():
    libraries = loaded((flash_mla, flash_infer_latent))
    for name, rows, keys, query_heads in LATENT_SHAPES:
        compare(name, Latent(rows, keys, query_heads, LATENT_PAGE_SIZE), libraries)
        torch.cuda.empty_cache()
    libraries = loaded((flash_attention_3, flash_infer))
    for name, *sizes in SHAPES:
        for page_size in PAGE_SIZES.get(name, (16,)):
            compare(name, Paged(sizes, page_size), libraries)
            torch.cuda.empty_cache()


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


if __name__ == "__main__":
    main()
