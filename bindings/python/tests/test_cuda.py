"""A runner on CUDA takes tensors by DLPack where they lie, on the caller's stream: on the emulated
device of the library's own tests; with torch and a GPU, one test on those."""

import gc
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import ids
from cuda_device import CudaTensor, DescribedTensor, Device, device
from numpy.typing import NDArray
from test_runner import DIM, HEADS, KV_HEADS, attention

import radixkv

# Before any test asks for CUDA, since the library looks for a driver once.
DEVICE = device()
LAYERS = 2

SHAPE: dict[str, Any] = {
    "layers": LAYERS, "query_heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM, "dtype": "f16",
    "backend": "cuda",
}


@pytest.fixture
def gpu() -> Iterator[Device]:
    if DEVICE is None:
        pytest.skip("RADIXKV_EMULATED_CUDA names no emulated device")
    yield DEVICE
    assert DEVICE.fault() == ""


def half(rng: np.random.Generator, count: int, heads: int) -> NDArray[np.float16]:
    return rng.standard_normal((count, heads, DIM), np.float32).astype(np.float16)


def wide(array: NDArray[np.float16]) -> NDArray[np.float32]:
    return array.astype(np.float32)


@pytest.mark.parametrize("own", [True, False])
def test_p02_prefill_reuse_and_decode_on_cuda(cache: radixkv.Cache, gpu: Device, own: bool) -> None:
    rng = np.random.default_rng(7)
    memory = None
    if not own:
        memory = [
            (gpu.zeros(256, 16, KV_HEADS, DIM), gpu.zeros(256, 16, KV_HEADS, DIM))
            for _ in range(LAYERS)
        ]
    before = gpu.allocations()
    runner = radixkv.Runner(cache.table, kv_layers=memory, **SHAPE)
    plan, stream = radixkv.Plan(cache.table), gpu.stream()
    k, v = (half(rng, 60, KV_HEADS) for _ in range(2))

    def step(sequence: radixkv.Sequence, start: int, count: int) -> None:
        plan.set(np.array([sequence.id]), np.array([start]), np.array([count]))
        q, new = half(rng, count, HEADS), slice(start, start + count)
        for layer in range(LAYERS):
            given = (gpu.tensor(q), gpu.tensor(k[new].copy()), gpu.tensor(v[new].copy()))
            out, lse = gpu.zeros(count, HEADS, DIM), gpu.zeros(count, HEADS, dtype=np.float32)
            runner.append_prefill(plan, layer, *given, out, lse, stream=stream)
            assert not out.now().any(), "it was done elsewhere than on the stream"
            gpu.synchronize(stream)
            expected = attention(wide(q), wide(k), wide(v), start)
            np.testing.assert_allclose(wide(out.now()), expected[0], rtol=0.01, atol=0.01)
            np.testing.assert_allclose(lse.now(), expected[1], rtol=0.01, atol=0.01)
            # Nothing was to wait for another stream, and nothing is kept.
            assert [it.streams for it in (*given, out, lse)] == [[-1]] * 5
            assert [it.lent for it in (*given, out, lse)] == [0] * 5

    prompt = ids(50)
    with cache.begin(prompt) as first:
        step(first, 0, 20)
        step(first, 20, 30)
        first.publish(50)
        first.append([4000])
        step(first, 50, 1)
        page = int(first.pages()[1])
    other = prompt.copy()
    other[40:] = 5
    with cache.begin(other) as second:  # cut inside a page: the step carries out the copy
        assert second.info().copy_count == 1
        k[40:], v[40:] = half(rng, 20, KV_HEADS), half(rng, 20, KV_HEADS)
        step(second, 40, 10)
        assert second.copies().size == 0

    lent = runner.kv_memory(1)[0]
    assert lent.__dlpack_device__() == (2, 0) and lent.shape == (256, 16, KV_HEADS, DIM)
    assert gpu.holds(lent.data_ptr)
    if memory is not None:
        assert lent.data_ptr == memory[1][0].address and memory[1][0].lent == 1
        np.testing.assert_array_equal(memory[1][0].now()[page], k[16:32])
        # Of each layer K and V.
        host = np.zeros((LAYERS, 2, 16, KV_HEADS, DIM), k.dtype)
        assert host.nbytes == runner.stats().page_bytes
        jobs = np.zeros(1, radixkv.dtypes.copy_job)
        jobs["host"], jobs["byte_count"] = host.ctypes.data, host.nbytes
        jobs["page"], jobs["direction"] = page, radixkv.COPY_STORE
        runner.copy_tier_pages(jobs)
        np.testing.assert_array_equal(host[1, 0], k[16:32])
        np.testing.assert_array_equal(host[1, 1], v[16:32])
        jobs["group"] = 1
        with pytest.raises(radixkv.InvalidArgument, match=r"jobs\[0\].group"):
            runner.copy_tier_pages(jobs)
    runner.close()
    plan.close()
    del lent, runner
    gc.collect()
    if memory is not None:
        assert [k.lent for k, _ in memory] == [0, 0]
    # Four steps with five tensors for each layer: the test's own.
    assert gpu.allocations() == before + 4 * LAYERS * 5


def test_strides_on_cuda(cache: radixkv.Cache, gpu: Device) -> None:
    """q, k and v side by side in one tensor, as a fused projection writes them."""
    rng = np.random.default_rng(1)
    fused = half(rng, 20, HEADS + 2 * KV_HEADS)
    placed = gpu.tensor(fused)

    def part(first: int, count: int) -> CudaTensor:
        view = fused[:, first : first + count]
        address = placed.address + first * DIM * 2
        return CudaTensor(gpu, address, view)

    runner, plan = radixkv.Runner(cache.table, **SHAPE), radixkv.Plan(cache.table)
    out, stream = gpu.zeros(20, HEADS, DIM), gpu.stream()
    with cache.begin(ids(20)) as sequence:
        plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([20]))
        given = (part(0, HEADS), part(HEADS, KV_HEADS), part(HEADS + KV_HEADS, KV_HEADS))
        runner.append_prefill(plan, 0, *given, out, stream=stream)
        gpu.synchronize(stream)
    q, k, v = (wide(it) for it in np.split(fused, [HEADS, HEADS + KV_HEADS], axis=1))
    expected, _ = attention(q, k, v, 0)
    np.testing.assert_allclose(wide(out.now()), expected, rtol=0.01, atol=0.01)


def test_torchs_current_stream_is_worked_on(
    cache: radixkv.Cache, gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a stand-in for torch: what matters is which stream the library is given."""
    asked: list[int] = []
    stream = gpu.stream()

    def current_stream(number: int) -> Any:
        asked.append(number)
        return types.SimpleNamespace(cuda_stream=stream)

    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        current_stream=current_stream, is_initialized=lambda: True
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    runner, plan = radixkv.Runner(cache.table, **SHAPE), radixkv.Plan(cache.table)
    rng = np.random.default_rng(2)
    q, k = gpu.tensor(half(rng, 9, HEADS)), gpu.tensor(half(rng, 9, KV_HEADS))
    out, other = gpu.zeros(9, HEADS, DIM), gpu.stream()
    with cache.begin(ids(9)) as sequence:
        plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([9]))
        runner.prepare_plan(plan)
        runner.append_prefill(plan, 0, q, k, k, out)
        assert asked == [0, 0]
        gpu.synchronize(other)
        assert not out.now().any()
        gpu.synchronize(stream)
        assert out.now().any()
    states = [gpu.tensor(half(rng, 3, HEADS)) for _ in range(2)]
    logs = [gpu.tensor(np.full((3, HEADS), at, np.float32)) for at in (1, 2)]
    merged = gpu.zeros(3, HEADS, DIM)
    runner.merge_states(states, logs, merged)
    gpu.synchronize(stream)
    share = 1 / (1 + np.e)
    expected = share * wide(states[0].now()) + (1 - share) * wide(states[1].now())
    np.testing.assert_allclose(wide(merged.now()), expected, rtol=0.01, atol=0.01)


def test_a_torch_without_cuda_has_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    from radixkv.streams import current

    def current_stream(number: int) -> Any:
        raise AssertionError("Torch not compiled with CUDA enabled")

    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        current_stream=current_stream, is_initialized=lambda: False
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert current(0) == 0


def test_memory_that_has_no_dlpack(cache: radixkv.Cache, gpu: Device) -> None:
    runner, plan = radixkv.Runner(cache.table, **SHAPE), radixkv.Plan(cache.table)
    rng = np.random.default_rng(5)
    q, k, v = (gpu.tensor(half(rng, 9, heads)) for heads in (HEADS, KV_HEADS, KV_HEADS))
    outs = [gpu.zeros(9, HEADS, DIM) for _ in range(2)]
    with cache.begin(ids(9)) as sequence:
        plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([9]))
        runner.append_prefill(plan, 0, q, k, v, outs[0])
        described = [DescribedTensor(it) for it in (q, k, v, outs[1])]
        runner.append_prefill(plan, 0, *described)
        gpu.synchronize(0)
        assert np.abs(outs[0].now()).max() > 0
        np.testing.assert_array_equal(outs[0].now(), outs[1].now())
        # Without strides the elements lie one after another.
        described[0].__cuda_array_interface__["strides"] = None
        runner.append_prefill(plan, 0, *described)
        described[3] = DescribedTensor(outs[1], read_only=True)
        with pytest.raises(ValueError, match="out: must be writable"):
            runner.append_prefill(plan, 0, *described)
        described[3] = DescribedTensor(outs[1])
        changes: dict[str, tuple[Any, str]] = {
            "typestr": (">f2", "q: elements of no such kind"),
            "strides": ((3, 2, 1), "q: strides that are no elements"),
        }
        for entry, (value, message) in changes.items():
            described[0] = DescribedTensor(q)
            described[0].__cuda_array_interface__[entry] = value
            with pytest.raises(ValueError, match=message):
                runner.append_prefill(plan, 0, *described)
        del described[0].__cuda_array_interface__["shape"]
        with pytest.raises(ValueError, match="has no shape"):
            runner.append_prefill(plan, 0, *described)
    with pytest.raises(ValueError, match="tokens: must be in the host's memory"):
        cache.match(DescribedTensor(gpu.tensor(np.arange(4, dtype=np.uint32))))


def test_torch_lends_one_head_with_a_stride_of_one(cache: radixkv.Cache, gpu: Device) -> None:
    memory = [(gpu.zeros(256, 16, 1, DIM), gpu.zeros(256, 16, 1, DIM)) for _ in range(LAYERS)]
    for tensor in sum(memory, ()):
        tensor.strides[2] = 1
    runner = radixkv.Runner(cache.table, kv_layers=memory, **{**SHAPE, "kv_heads": 1})
    assert runner.kv_memory(0)[0].strides == (16 * DIM, DIM, DIM, 1)
    runner.close()


def test_tensors_elsewhere_are_named(cache: radixkv.Cache, gpu: Device) -> None:
    runner, plan = radixkv.Runner(cache.table, **SHAPE), radixkv.Plan(cache.table)
    on_cpu = radixkv.Runner(cache.table, **{**SHAPE, "backend": "cpu"})
    rng = np.random.default_rng(3)
    host_q, host_k = half(rng, 5, HEADS), half(rng, 5, KV_HEADS)
    q, k, out = gpu.tensor(host_q), gpu.tensor(host_k), gpu.zeros(5, HEADS, DIM)
    far = gpu.tensor(host_k, number=1)
    lse = np.zeros((5, HEADS), np.float32)
    with cache.begin(ids(5)) as sequence:
        plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([5]))
        wrong: list[tuple[tuple[Any, ...], type[Exception], str]] = [
            ((host_q, k, k, out), ValueError, "q: must be in CUDA device 0"),
            ((q, host_k, k, out), ValueError, "k: must be in CUDA device 0"),
            ((q, k, far, out), ValueError, "v: must be in CUDA device 0"),
            ((q, k, k, np.zeros_like(host_q)), ValueError, "out: must be in CUDA device 0"),
            ((q, k, k, out, lse), ValueError, "lse: must be in CUDA device 0"),
            ((q, gpu.zeros(5, KV_HEADS, DIM, dtype=np.float32), k, out), TypeError, "k: elements"),
            ((q, gpu.tensor(host_k[:, :, ::2]), k, out), ValueError, r"k: a shape of .*2, 64"),
            ((q, gpu.tensor(host_k[::-1].copy()[::-1]), k, out), ValueError, "k: positions"),
            ((q, gpu.zeros(4, KV_HEADS, DIM), k, out), ValueError, "k: the plan has 5"),
        ]
        for arguments, kind, message in wrong:
            with pytest.raises(kind, match=message):
                runner.append_prefill(plan, 0, *arguments)
        with pytest.raises(ValueError, match="q: must be in the host's memory"):
            on_cpu.append_prefill(plan, 0, q, host_k, host_k, np.zeros_like(host_q))
        # Nothing of that has changed the step.
        on_cpu.append_prefill(plan, 0, host_q, host_k, host_k, np.zeros_like(host_q))
    with pytest.raises(ValueError, match="tokens: must be in the host's memory"):
        cache.match(gpu.tensor(np.arange(4, dtype=np.uint32)))
    with pytest.raises(ValueError, match=r"kv_layers\[0\]: k: must be in CUDA device 0"):
        memory = np.zeros((256, 16, KV_HEADS, DIM), np.float16)
        radixkv.Runner(cache.table, kv_layers=[(memory, memory)] * LAYERS, **SHAPE)
    with pytest.raises(ValueError, match=r"host_memory: must be in the host's memory"):
        cache.attach_tiers(8, host_memory=gpu.tensor(np.zeros(64, np.uint8)))
    assert [it.lent for it in (q, k, out, far)] == [0] * 4


def test_torch_tensors_on_cuda(cache: radixkv.Cache) -> None:
    """Runs where torch and a GPU are, and a library with CUDA kernels."""
    torch = pytest.importorskip("torch")
    if not (torch.cuda.is_available() and radixkv.features() & radixkv.FEATURE_CUDA):
        pytest.skip("there is no GPU, or the library has no kernels")
    runner, plan = radixkv.Runner(cache.table, **SHAPE), radixkv.Plan(cache.table)
    q = torch.randn(50, HEADS, DIM, dtype=torch.float16, device="cuda")
    k, v = (torch.randn(50, KV_HEADS, DIM, dtype=torch.float16, device="cuda") for _ in range(2))
    out = torch.zeros_like(q)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with cache.begin(ids(50)) as sequence, torch.cuda.stream(side):
        plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([50]))
        runner.append_prefill(plan, 0, q, k, v, out)
        page = int(sequence.pages()[0])
        side.synchronize()
    on_host = [it.float().cpu().numpy() for it in (q, k, v)]
    expected, _ = attention(on_host[0], on_host[1], on_host[2], 0)
    np.testing.assert_allclose(out.float().cpu().numpy(), expected, rtol=0.02, atol=0.02)
    assert torch.equal(torch.from_dlpack(runner.kv_memory(0)[0])[page], k[:16])
