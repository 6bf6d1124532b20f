"""Plans and attention on the CPU, against attention written with NumPy."""

import math
from typing import Any

import numpy as np
import pytest
from conftest import ids
from numpy.typing import NDArray

import radixkv

HEADS, KV_HEADS, DIM, LAYERS = 4, 2, 64, 2
F32 = NDArray[np.float32]


def attention(q: F32, k: F32, v: F32, start: int) -> tuple[F32, F32]:
    """Causal attention of positions `start` on over all of k and v, and the lse."""
    out, lse = np.zeros_like(q), np.zeros(q.shape[:2], np.float32)
    for at in range(q.shape[0]):
        for head in range(HEADS):
            kv = head // (HEADS // KV_HEADS)
            scores = k[: start + at + 1, kv] @ q[at, head] / math.sqrt(DIM)
            top = scores.max()
            weights = np.exp(scores - top)
            out[at, head] = weights @ v[: start + at + 1, kv] / weights.sum()
            lse[at, head] = top + math.log(weights.sum())
    return out, lse


def random(rng: np.random.Generator, count: int, heads: int) -> F32:
    return rng.standard_normal((count, heads, DIM), np.float32)


@pytest.mark.parametrize("layout", ["nhd", "hnd"])
@pytest.mark.parametrize("own", [True, False])
def test_p02_prefill_reuse_and_decode(cache: radixkv.Cache, layout: str, own: bool) -> None:
    rng = np.random.default_rng(7)
    memory = None
    if not own:
        inner = (16, KV_HEADS, DIM) if layout == "nhd" else (KV_HEADS, 16, DIM)
        memory = [
            (np.zeros((256, *inner), np.float32), np.zeros((256, *inner), np.float32))
            for _ in range(LAYERS)
        ]
    runner = radixkv.Runner(
        cache.table,
        layers=LAYERS,
        query_heads=HEADS,
        kv_heads=KV_HEADS,
        head_dim=DIM,
        kv_layout=layout,
        kv_layers=memory,
        threads=2,
    )
    plan = radixkv.Plan(cache.table)
    k, v = (random(rng, 60, KV_HEADS) for _ in range(2))

    def step(sequence: radixkv.Sequence, start: int, count: int) -> None:
        """Positions from `start` on of a sequence whose K and V are the first of k and v."""
        plan.set(
            np.array([sequence.id], np.uint64),
            np.array([start], np.uint64),
            np.array([count], np.uint64),
        )
        q = random(rng, count, HEADS)
        for layer in range(LAYERS):
            out, lse = np.zeros_like(q), np.zeros((count, HEADS), np.float32)
            new = slice(start, start + count)
            runner.append_prefill(plan, layer, q, k[new], v[new], out, lse)
            expected = attention(q, k, v, start)
            np.testing.assert_allclose(out, expected[0], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(lse, expected[1], rtol=1e-4, atol=1e-5)

    prompt = ids(50)
    with cache.begin(prompt) as first:
        step(first, 0, 20)
        step(first, 20, 30)
        first.publish(50)
        first.append([4000])
        step(first, 50, 1)
        page = int(first.pages()[1])
    lent, _ = runner.kv_memory(1)
    look = np.from_dlpack(lent)
    seen = look[page] if layout == "nhd" else look[page].transpose(1, 0, 2)
    np.testing.assert_array_equal(seen, k[16:32])
    if memory is not None:
        np.testing.assert_array_equal(look, memory[1][0])

    # The same beginning again, cut inside a page: the step carries out the copy.
    other = prompt.copy()
    other[40:] = 5
    with cache.begin(other) as second:
        info = second.info()
        assert (info.cached_position_count, info.copy_count) == (40, 1)
        k[40:], v[40:] = random(rng, 20, KV_HEADS), random(rng, 20, KV_HEADS)
        step(second, 40, 10)
        assert second.copies().size == 0
    runner.close()
    assert look.shape[0] == 256  # lent memory outlives the runner
    with pytest.raises(radixkv.InvalidState, match="Runner is closed"):
        runner.stats()


def test_strides_of_tensors_are_respected(cache: radixkv.Cache) -> None:
    """q, k and v side by side in one tensor, as a fused projection writes them."""
    rng = np.random.default_rng(1)
    runner = radixkv.Runner(
        cache.table, layers=1, query_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM
    )
    fused = rng.standard_normal((20, HEADS + 2 * KV_HEADS, DIM), np.float32)
    q, k, v = np.split(fused, [HEADS, HEADS + KV_HEADS], axis=1)
    v = np.ascontiguousarray(v.transpose(1, 0, 2)).transpose(1, 0, 2)  # heads before positions
    wide = np.zeros((20, 2 * HEADS, DIM), np.float32)
    plan = radixkv.Plan(cache.table)
    with cache.begin(ids(20)) as sequence:
        plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([20]))
        runner.append_prefill(plan, 0, q, k, v, wide[:, :HEADS])
    expected, _ = attention(q, k, v, 0)
    np.testing.assert_allclose(wide[:, :HEADS], expected, rtol=1e-4, atol=1e-5)
    assert not wide[:, HEADS:].any()


def test_merged_states_are_attention_over_both(table: radixkv.PageTable) -> None:
    rng = np.random.default_rng(2)
    runner = radixkv.Runner(table, layers=1, query_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM)
    q, k, v = random(rng, 1, HEADS), random(rng, 30, KV_HEADS), random(rng, 30, KV_HEADS)
    first, second = attention(q, k[:11], v[:11], 10), attention(q, k[11:], v[11:], 18)
    out, lse = np.zeros_like(q), np.zeros((1, HEADS), np.float32)
    runner.merge_states([first[0], second[0]], [first[1], second[1]], out, lse)
    expected = attention(q, k, v, 29)
    np.testing.assert_allclose(out, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lse, expected[1], rtol=1e-5, atol=1e-6)


def test_tensors_that_do_not_fit_are_named(cache: radixkv.Cache) -> None:
    shape = {"layers": 1, "query_heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM}
    runner = radixkv.Runner(cache.table, **shape)  # type: ignore[arg-type]
    plan = radixkv.Plan(cache.table)
    q, k = np.zeros((5, HEADS, DIM), np.float32), np.zeros((5, KV_HEADS, DIM), np.float32)
    with cache.begin(ids(5)) as sequence:
        plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([5]))
        wrong: list[tuple[tuple[Any, ...], type[Exception], str]] = [
            ((q[:4], k, k, q.copy()), ValueError, "q: the plan has 5 positions, 4"),
            ((q, k[:4], k, q.copy()), ValueError, "k: the plan has 5 positions, 4"),
            ((q, k, k, q[:4].copy()), ValueError, "out: the plan has 5 positions, 4"),
            ((q[:, :2], k, k, q.copy()), ValueError, r"q: a shape of \(positions, 4, 64\)"),
            ((q, q, k, q.copy()), ValueError, r"k: a shape of \(positions, 2, 64\)"),
            ((q.astype(np.float64), k, k, q.copy()), TypeError, "q: elements"),
            ((q, k, k.astype(np.int32), q.copy()), TypeError, "v: elements"),
            ((q[:, :, ::2], k, k, q.copy()), ValueError, "q: a shape"),
            ((q, k, k, q), radixkv.InvalidArgument, "out"),
            ((q, np.broadcast_to(k[:1], k.shape), k, q.copy()), ValueError, "k: positions"),
            ((q[::-1], k, k, q.copy()), ValueError, "q: positions and heads"),
            ((q, k[:, ::-1], k, q.copy()), ValueError, "k: positions and heads"),
            ((q[:, :, ::-1], k, k, q.copy()), ValueError, "q: the elements"),
        ]
        for arguments, kind, message in wrong:
            with pytest.raises(kind, match=message):
                runner.append_prefill(plan, 0, *arguments)
        out = q.copy()
        with pytest.raises(ValueError, match="lse: the plan has 5"):
            runner.append_prefill(plan, 0, q, k, k, out, np.zeros((4, HEADS), np.float32))
        with pytest.raises(radixkv.InvalidArgument, match="layer"):
            runner.append_prefill(plan, 1, q, k, k, out)
    with pytest.raises(radixkv.StaleSequence):
        runner.append_prefill(plan, 0, q, k, k, q.copy())
    with pytest.raises(ValueError, match=r"kv_layers\[0\]: k: a shape of \(256, 16, 2, 64\)"):
        small = np.zeros((255, 16, KV_HEADS, DIM), np.float32)
        radixkv.Runner(cache.table, kv_layers=[(small, small)], **shape)  # type: ignore[arg-type]


def test_types_are_named_as_numpy_names_them(table: radixkv.PageTable) -> None:
    heads = {"layers": 1, "query_heads": 2, "kv_heads": 2, "head_dim": 64}
    given: object
    for given in ("f32", "float32", np.float32, np.dtype("float32"), np.float16, np.dtype("f2")):
        radixkv.Runner(table, dtype=given, **heads).close()  # type: ignore[arg-type]
        assert radixkv.runner_supports(16, dtype=given, **heads) > 0  # type: ignore[arg-type]
    for given in (np.float64, float, "fp8", np.dtype("i4"), 4):
        with pytest.raises(ValueError, match="^dtype: 'float32', .* not ") as refused:
            radixkv.Runner(table, dtype=given, **heads)  # type: ignore[arg-type]
        assert "fp8_e4m3" not in str(refused.value)
        with pytest.raises(ValueError, match="^kv_dtype: 'float32', .*'fp8_e4m3'.* not "):
            radixkv.Runner(table, kv_dtype=given, **heads)  # type: ignore[arg-type]


def test_shapes_of_numbers_beside_the_tensors_are_exact(cache: radixkv.Cache) -> None:
    """A few too many would be taken in the wrong places, in silence."""
    shape = {"layers": 1, "query_heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM}
    runner = radixkv.Runner(cache.table, kv_dtype="fp8_e4m3", **shape)  # type: ignore[arg-type]
    plan, rng = radixkv.Plan(cache.table), np.random.default_rng(8)
    q, k = random(rng, 5, HEADS), random(rng, 5, KV_HEADS)
    out = np.zeros_like(q)

    def zeros(*shape: int) -> F32:
        return np.zeros(shape, np.float32)

    with cache.begin(ids(5)) as sequence:
        plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([5]))
        wrong: list[tuple[str, F32, str]] = [
            ("lse", zeros(HEADS, 5), r"\(positions, 4\) is needed, not \[4, 5\]"),
            ("lse", zeros(5, 2 * HEADS), "shape"),
            ("lse", zeros(1, 5, HEADS), "shape"),
            ("sinks", zeros(HEADS, 5), r"\(4,\) is needed, not \[4, 5\]"),
            ("sinks", zeros(2 * HEADS), "shape"),
            ("sinks", zeros(HEADS - 1), "shape"),
            ("k_scales", zeros(3, KV_HEADS) + 1, r"\(2,\) is needed, not \[3, 2\]"),
            ("v_scales", zeros(HEADS) + 1, r"\(2,\) is needed, not \[4\]"),
        ]
        for name, given, message in wrong:
            with pytest.raises(ValueError, match=f"^{name}: .*{message}"):
                runner.append_prefill(
                    plan, 0, q, k, k, out, **{name: given}  # type: ignore[arg-type]
                )
        with pytest.raises(ValueError, match=r"^lses\[1\]: .* not \[4, 5\]"):
            runner.merge_states([q, q], [zeros(5, HEADS), zeros(HEADS, 5)], out)
        with pytest.raises(ValueError, match=r"^lse: .* not \[4, 5\]"):
            runner.merge_states([q, q], [zeros(5, HEADS)] * 2, out, zeros(HEADS, 5))
        assert not out.any()
        # In the order of the positions flat ones are the same, and there may be more of them.
        wide, flat = zeros(7, HEADS), zeros(5 * HEADS)
        for lse in (wide, flat):
            scales, sinks = zeros(KV_HEADS) + 1, zeros(HEADS)
            runner.append_prefill(
                plan, 0, q, k, k, out, lse, sinks=sinks, k_scales=scales, v_scales=scales
            )
        np.testing.assert_array_equal(wide[:5].ravel(), flat)
        assert flat.all() and not wide[5:].any()


def test_fields_of_packed_records_are_refused(cache: radixkv.Cache) -> None:
    """They do not lie a whole number of elements apart."""
    shape = {"layers": 1, "query_heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM}
    runner = radixkv.Runner(cache.table, **shape)  # type: ignore[arg-type]
    plan = radixkv.Plan(cache.table)
    q, k = np.zeros((5, HEADS, DIM), np.float32), np.zeros((5, KV_HEADS, DIM), np.float32)
    packed = np.zeros(q.shape, [("x", "<f4"), ("more", "u1")])
    with cache.begin(ids(5)) as sequence:
        plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([5]))
        with pytest.raises(ValueError, match="q: the elements"):
            runner.append_prefill(plan, 0, packed["x"], k, k, q)
        with pytest.raises(ValueError, match="out: the elements"):
            runner.append_prefill(plan, 0, q, k, k, packed["x"])
    assert not packed["more"].any()
    inner = (16, KV_HEADS, DIM)
    pages = np.zeros(256, [("k", "<f4", inner), ("v", "<f4", inner), ("used", "u1")])
    with pytest.raises(ValueError, match=r"kv_layers\[0\]: k: pages, positions and heads"):
        radixkv.Runner(
            cache.table, kv_layers=[(pages["k"], pages["v"])], **shape  # type: ignore[arg-type]
        )


def test_tables_of_pointers_are_refused(cache: radixkv.Cache) -> None:
    """A buffer whose rows lie anywhere has strides, too: those of the pointers to them."""
    buffers = pytest.importorskip("_testbuffer")
    rng = np.random.default_rng(3)
    q, k = random(rng, 20, HEADS), random(rng, 20, KV_HEADS)
    flags = buffers.ND_PIL | buffers.ND_WRITABLE
    rows = buffers.ndarray(q.ravel().tolist(), shape=list(q.shape), format="f", flags=flags)
    assert memoryview(rows).suboffsets == (0, -1, -1)
    runner = radixkv.Runner(
        cache.table, layers=1, query_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM
    )
    plan = radixkv.Plan(cache.table)
    with cache.begin(ids(20)) as sequence:
        plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([20]))
        with pytest.raises(ValueError, match="q: .*pointers"):
            runner.append_prefill(plan, 0, rows, k, k, np.zeros_like(q))
        with pytest.raises(ValueError, match="out: .*pointers"):
            runner.append_prefill(plan, 0, q, k, k, rows)


def test_bf16_by_its_bits(cache: radixkv.Cache) -> None:
    rng = np.random.default_rng(3)
    runner = radixkv.Runner(
        cache.table, layers=1, query_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype="bf16"
    )
    assert runner.stats().page_bytes == radixkv.runner_supports(
        16, layers=1, query_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype="bf16"
    )

    def bits(floats: F32) -> NDArray[np.uint16]:
        return (floats.view(np.uint32) >> 16).astype(np.uint16)

    def floats(bits: NDArray[np.uint16]) -> F32:
        return (bits.astype(np.uint32) << 16).view(np.float32)

    q, k, v = (bits(random(rng, 9, heads)) for heads in (HEADS, KV_HEADS, KV_HEADS))
    out = np.zeros_like(q)
    plan = radixkv.Plan(cache.table)
    with cache.begin(ids(9)) as sequence:
        plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([9]))
        runner.append_prefill(plan, 0, q, k, v, out)
        page = int(sequence.pages()[0])
    expected, _ = attention(floats(q), floats(k), floats(v), 0)
    np.testing.assert_allclose(floats(out), expected, rtol=0.02, atol=0.02)
    look = np.from_dlpack(runner.kv_memory(0, as_bits=True)[0])
    np.testing.assert_array_equal(look[page, :9], k)


def test_a_plan_gives_the_arrays_of_kernels(cache: radixkv.Cache) -> None:
    plan = radixkv.Plan(cache.table)
    plan.reserve(rows=8, positions=64, pages=64)
    with cache.begin(ids(40)) as first, cache.begin(ids(20, 500)) as second:
        sequences = np.array([first.id, second.id], np.uint64)
        starts, counts = np.array([32, 0], np.uint64), np.array([8, 20], np.uint64)
        plan.set(sequences, starts, counts)
        assert plan.sizes() == (2, 28, 5, 0)
        plan.check()
        arrays = plan.arrays()
        assert arrays["query_indptr"].tolist() == [0, 8, 28]
        assert arrays["indptr"].tolist() == [0, 3, 5]
        assert arrays["last_page_len"].tolist() == [8, 4]
        rows = np.concatenate([first.pages(), second.pages()])
        np.testing.assert_array_equal(arrays["indices"], rows)
        page = int(first.pages()[2])
        assert arrays["slot_mapping"][:8].tolist() == [page * 16 + at for at in range(8)]
        into = np.zeros(100, np.int64)
        assert plan.read(slot_mapping=into) == (2, 28, 5, 0)
        np.testing.assert_array_equal(into[:28], arrays["slot_mapping"])
        with pytest.raises(ValueError, match="indices: room for 5"):
            plan.read(slot_mapping=into, indices=np.zeros(4, np.int32))
        with pytest.raises(radixkv.InvalidArgument):  # more than was reserved
            plan.set(sequences, np.zeros(2, np.uint64), np.array([40, 40], np.uint64))
        regions: list[Any] = [None, np.array([[2, 6]], np.uint64)]
        radixkv.Plan(cache.table).set(sequences, starts, counts, regions=regions)
        # As `Tokens.regions()` has them, of text and of images, and as NumPy makes arrays of those.
        same: list[list[Any]] = [
            [[], [(2, 6)]], [np.array([]), ((2, 6),)], [(), np.array([[2, 6]])]
        ]
        for regions in same:
            radixkv.Plan(cache.table).set(sequences, starts, counts, regions=regions)
        unlike: list[tuple[Any, type[Exception]]] = [
            ([(2, 6, 7)], TypeError), ([2, 6], TypeError), ([(-2, 6)], OverflowError),
            (np.array([2, 6]), ValueError), (np.array([[2.0, 6.0]]), TypeError), ("ab", TypeError),
        ]
        for wrong, kind in unlike:
            with pytest.raises(kind, match=r"regions\[1\]: "):
                plan.set(sequences, starts, counts, regions=[None, wrong])
        cut = [None, [(10, 30)]]
        other = radixkv.Plan(cache.table)
        with pytest.raises(radixkv.InvalidArgument, match="region"):
            other.set(sequences, starts, np.array([8, 20], np.uint64), regions=cut)
        masks = np.array([0, 1, 1, 5, 5, 0, 32, 32], np.uint64)
        other.set(sequences, starts, counts, tree_masks=[masks, None])
        masks[1] = 4
        with pytest.raises(radixkv.InvalidArgument, match=r"tree_masks\[1\] has bit 2"):
            other.set(sequences, starts, counts, tree_masks=[masks, None])
        with pytest.raises(ValueError, match=r"tree_masks\[0\]: one for each of 8"):
            other.set(sequences, starts, counts, tree_masks=[masks[:7], None])
        with pytest.raises(radixkv.InvalidArgument, match="tree_masks were not reserved"):
            plan.set(sequences, starts, counts, tree_masks=[np.zeros(8, np.uint64), None])
        masks = np.array([1, 2], np.uint32)
        other.set(sequences, np.array([0, 20], np.uint64), counts, masks=masks)
        assert other.arrays()["slot_mapping"][int(counts[0]):].tolist() == [-1] * int(counts[1])
        with pytest.raises(radixkv.InvalidArgument, match="mask 3"):
            other.set(sequences, starts, counts, masks=np.array([0, 3], np.uint32))
        slot = cache.table.allocate_slot()
        cache.table.reserve(slot, 40)
        plan.set(None, np.array([39]), slots=np.array([slot], np.uint32))
        assert plan.arrays()["indices"].tolist() == cache.table.row(slot).tolist()
        with pytest.raises(radixkv.InvalidState, match="belongs to a sequence"):
            plan.set(None, np.array([39]), slots=np.array([first.slot], np.uint32))
        cache.table.free_slot(slot)
    with cache.begin(ids(48)) as third:
        third.publish(48)
    with cache.begin(ids(48)) as fourth:  # one position is left to compute, in a copied page
        plan.set(np.array([fourth.id]), np.array([fourth.info().cached_position_count]))
        copies = plan.arrays()["copies"]
        np.testing.assert_array_equal(copies, fourth.copies())
        assert plan.arrays()["copy_sequences"].tolist() == [fourth.id] * len(copies)
        assert len(copies) == 1


def test_torch_tensors_are_taken_where_they_lie(cache: radixkv.Cache) -> None:
    """Runs where torch is installed."""
    torch = pytest.importorskip("torch")
    prompt = torch.arange(1, 51, dtype=torch.int32)
    runner = radixkv.Runner(
        cache.table, layers=1, query_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM,
        dtype=torch.bfloat16,
    )
    plan = radixkv.Plan(cache.table)
    q = torch.randn(50, HEADS, DIM, dtype=torch.bfloat16)
    k, v = (torch.randn(50, KV_HEADS, DIM, dtype=torch.bfloat16) for _ in range(2))
    out = torch.zeros_like(q)
    with cache.begin(prompt) as sequence:
        # torch has no number as large as an id.
        ids = np.array([sequence.id], np.uint64)
        plan.set(ids, torch.tensor([0]), torch.tensor([50]))
        runner.append_prefill(plan, 0, q, k, v, out)
        page = int(sequence.pages()[0])
        sequence.publish(50)
    assert cache.probe(prompt.long()) == 48
    heads = [it.transpose(0, 1).float() for it in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(
        *heads, is_causal=True, enable_gqa=True
    ).transpose(0, 1)
    torch.testing.assert_close(out.float(), expected, rtol=0.02, atol=0.02)
    look = torch.from_dlpack(runner.kv_memory(0)[0])
    assert look.dtype == torch.bfloat16
    assert torch.equal(look[page], k[:16])
    del runner, plan
    assert torch.equal(look[page], k[:16])


def test_latent_values_are_the_beginnings_of_keys() -> None:
    """Multi-head latent attention: the same bits as with V apart, in memory of K alone."""
    shape: dict[str, Any] = {
        "layers": 1, "query_heads": 4, "kv_heads": 1, "head_dim": 576, "v_head_dim": 512,
    }
    assert radixkv.runner_supports(16, **shape, latent=True) == 16 * 576 * 4
    with radixkv.PageTable(8, page_size=16) as table, radixkv.Cache(table) as cache:
        latent = radixkv.Runner(table, **shape, latent=True)
        memory = np.zeros((9, 16, 1, 576), np.float32)
        lent = radixkv.Runner(table, **shape, latent=True, kv_layers=[(memory, None)])
        apart = radixkv.Runner(table, **shape)
        random = np.random.default_rng(1)
        q = random.standard_normal((20, 4, 576), np.float32)
        k = random.standard_normal((20, 1, 576), np.float32)
        plan = radixkv.Plan(table)
        with cache.begin(ids(20)) as sequence:
            plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([20]))
            outs = [np.zeros((20, 4, 512), np.float32) for _ in range(3)]
            latent.append_prefill(plan, 0, q, k, None, outs[0])
            lent.append_prefill(plan, 0, q, k, None, outs[1])
            apart.append_prefill(plan, 0, q, k, k[:, :, :512], outs[2])
            assert outs[0].any() and (outs[0] == outs[1]).all() and (outs[0] == outs[2]).all()
            assert memory.any()
            with pytest.raises(radixkv.InvalidArgument, match="args.v"):
                latent.append_prefill(plan, 0, q, k, k[:, :, :512], outs[0])
        with pytest.raises(ValueError, match="v: None of a latent runner"):
            radixkv.Runner(table, **shape, latent=True, kv_layers=[(memory, memory)])


def test_the_stride_of_one_head_says_nothing() -> None:
    with radixkv.PageTable(8, page_size=16) as table:
        memory = np.zeros((8, 2, 16, 64), np.float32)  # K and V of a page side by side
        k, v = memory[:, 0, :, None], memory[:, 1, :, None]
        assert k.shape == (8, 16, 1, 64) and k.strides[2] == 0
        runner = radixkv.Runner(
            table, layers=1, query_heads=4, kv_heads=1, head_dim=64, kv_layers=[(k, v)]
        )
        for lent in runner.kv_memory(0):
            assert lent.strides == (2 * 16 * 64, 64, 64, 1)
        runner.close()
