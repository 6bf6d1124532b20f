"""Runners and plans by group of layers, against attention written with NumPy."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from conftest import PAGE_SIZE, ids
from numpy.typing import NDArray

import radixkv
from radixkv import Group

HEADS, KV_HEADS, DIM = 4, 2, 64
F32 = NDArray[np.float32]


@dataclass
class Kind:
    """What the queries of a group see, and the form of its layers."""

    group: Group
    v_dim: int
    layers: int = 1
    window: int = 1 << 30
    sinks: int = 0
    chunk: int = 1 << 30

    def seen(self, query: int) -> NDArray[np.bool_]:
        """Which of the positions up to a query it sees."""
        key = np.arange(query + 1)
        near = (query - key < self.window) & (key >= query // self.chunk * self.chunk)
        return near | (key < self.sinks)

    def attention(self, q: F32, k: F32, v: F32, start: int) -> F32:
        out = np.zeros((len(q), HEADS, self.v_dim), np.float32)
        for at in range(len(q)):
            seen = self.seen(start + at)
            for head in range(HEADS):
                kv = head // (HEADS // KV_HEADS)
                scores = k[: len(seen), kv] @ q[at, head] / math.sqrt(DIM)
                weights = np.exp(scores - scores.max()) * seen
                out[at, head] = weights @ v[: len(seen), kv] / weights.sum()
        return out


KINDS = [
    Kind(Group.full(), v_dim=64, layers=2),
    Kind(Group.window(20, sinks=3, pool=1), v_dim=96, window=20, sinks=3),
    Kind(Group.chunk(32, pool=2), v_dim=128, layers=2, chunk=32),
]
POOLS = [64, 48, 40]
STATE = len(KINDS)


def new_table(*more: Group) -> radixkv.PageTable:
    pools = [*POOLS, *(20 for _ in more)]
    return radixkv.PageTable(
        pools=pools, groups=[*(kind.group for kind in KINDS), *more], page_size=PAGE_SIZE
    )


def memory_of(kind: Kind, pages: int, layout: str, how: str) -> list[tuple[F32, F32]] | None:
    """The engine's memory: K and V apart, or the heads of V behind those of K."""
    if how == "own":
        return None
    inner = (PAGE_SIZE, KV_HEADS) if layout == "nhd" else (KV_HEADS, PAGE_SIZE)
    if how == "apart":
        dims = (DIM, kind.v_dim)
        made = [[np.zeros((pages, *inner, d), np.float32) for d in dims] for _ in range(9)]
        return [(k, v) for k, v in made[: kind.layers]]
    both = [np.zeros((pages, *inner, DIM + kind.v_dim), np.float32) for _ in range(kind.layers)]
    return [(it[..., :DIM], it[..., DIM:]) for it in both]


class Model:
    """Layers of all groups over one table, and their K and V of each position of a prompt."""

    def __init__(self, cache: radixkv.Cache, layout: str = "nhd", how: str = "own") -> None:
        self.rng, self.plan = np.random.default_rng(5), radixkv.Plan(cache.table)
        self.runners = [
            radixkv.Runner(
                cache.table, layers=kind.layers, query_heads=HEADS, kv_heads=KV_HEADS,
                head_dim=DIM, kv_layout=layout, threads=2, group=group, v_head_dim=kind.v_dim,
                kv_layers=memory_of(kind, POOLS[group], layout, how),
            )
            for group, kind in enumerate(KINDS)
        ]
        self.k = [self.random(200, KV_HEADS, DIM) for _ in KINDS]
        self.v = [self.random(200, KV_HEADS, kind.v_dim) for kind in KINDS]

    def random(self, *shape: int) -> F32:
        return self.rng.standard_normal(shape, np.float32)

    def set(self, sequence: radixkv.Sequence, start: int, count: int) -> None:
        self.plan.set(np.array([sequence.id]), np.array([start]), np.array([count]))

    def compute(self, start: int, count: int) -> None:
        """The step that was set, in all layers of all groups."""
        new = slice(start, start + count)
        for kind, runner, k, v in zip(KINDS, self.runners, self.k, self.v, strict=True):
            for layer in range(kind.layers):
                q, out = self.random(count, HEADS, DIM), self.random(count, HEADS, kind.v_dim)
                runner.append_prefill(self.plan, layer, q, k[new], v[new], out)
                expected = kind.attention(q, k, v, start)
                np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["nhd", "hnd"])
@pytest.mark.parametrize("how", ["own", "apart", "side by side"])
def test_g14_runners_of_groups_compute_one_plan(layout: str, how: str) -> None:
    with new_table() as table, radixkv.Cache(table) as cache:
        model, prompt = Model(cache, layout, how), ids(120)
        with cache.begin(prompt) as first:
            for start, end in ((0, 50), (50, 51), (51, 120)):
                model.set(first, start, end - start)
                model.compute(start, end - start)
                first.publish(end)  # what a window has passed is the cache's from now on
            for at in range(120, 124):
                first.append([4000 + at])
                model.set(first, at, 1)
                model.compute(at, 1)
            rows = [first.pages(group=group) for group in range(len(KINDS))]
            assert (rows[0] != 0).all() and not rows[1][1:5].any() and not rows[2][:4].any()
        for group, (kind, runner) in enumerate(zip(KINDS, model.runners, strict=True)):
            page = int(rows[group][6])  # of positions 96 to 111
            for tensor, dim, data in zip(
                runner.kv_memory(kind.layers - 1), (DIM, kind.v_dim), (model.k, model.v),
                strict=True,
            ):
                inner = (PAGE_SIZE, KV_HEADS) if layout == "nhd" else (KV_HEADS, PAGE_SIZE)
                assert tensor.shape == (POOLS[group], *inner, dim)
                seen = np.from_dlpack(tensor)[page]
                seen = seen if layout == "nhd" else seen.transpose(1, 0, 2)
                np.testing.assert_array_equal(seen, data[group][96:112])

        # Left inside a page: a copy in each group, carried out by its runner.
        other = prompt.copy()
        other[104:] = 5
        with cache.begin(other) as second:
            info = second.info()
            assert (info.cached_position_count, info.copy_count) == (104, 3)
            for k, v in zip(model.k, model.v, strict=True):
                k[104:], v[104:] = model.random(96, *k.shape[1:]), model.random(96, *v.shape[1:])
            model.set(second, 104, 16)
            with pytest.raises(radixkv.InvalidState, match="group [12]"):
                model.compute(104, 16)
            for runner in model.runners[:-1]:
                runner.prepare_plan(model.plan, keep_copies_open=True)
            assert model.plan.arrays()["copies"]["group"].tolist() == [0, 1, 2]
            model.runners[-1].prepare_plan(model.plan)
            assert second.copies().size == 0
            model.compute(104, 16)
        cache.check()


def test_g14_memory_is_that_of_the_pool_and_both_dims() -> None:
    with new_table() as table:
        for group, kind in enumerate(KINDS):
            shape: dict[str, Any] = {
                "layers": kind.layers, "query_heads": HEADS, "kv_heads": KV_HEADS,
                "head_dim": DIM, "v_head_dim": kind.v_dim,
            }
            with radixkv.Runner(table, group=group, **shape) as runner:
                stats = runner.stats()
                elements = PAGE_SIZE * KV_HEADS * (DIM + kind.v_dim)
                assert stats.page_bytes == kind.layers * elements * 4
                assert stats.page_bytes == radixkv.runner_supports(PAGE_SIZE, **shape)
                assert stats.kv_bytes == POOLS[group] * stats.page_bytes
            for none in (0, None):
                shape["v_head_dim"] = none
                assert radixkv.runner_supports(PAGE_SIZE, **shape) == (
                    kind.layers * PAGE_SIZE * KV_HEADS * 2 * DIM * 4
                )
                with radixkv.Runner(table, group=group, **shape) as runner:
                    k, v = runner.kv_memory(0)
                    assert k.shape == v.shape == (POOLS[group], PAGE_SIZE, KV_HEADS, DIM)


def test_g14_states_are_merged_with_heads_of_v() -> None:
    with new_table() as table, radixkv.Cache(table) as cache:
        kind, model = KINDS[1], Model(cache)
        outs = [model.random(3, HEADS, kind.v_dim) for _ in range(2)]
        lses = [model.random(3, HEADS) for _ in range(2)]
        out = np.zeros_like(outs[0])
        model.runners[1].merge_states(outs, lses, out)
        weights = np.exp(np.stack(lses))[..., None]
        np.testing.assert_allclose(
            out, (np.stack(outs) * weights).sum(0) / weights.sum(0), rtol=1e-4, atol=1e-5
        )
        with pytest.raises(ValueError, match=r"outs\[0\]: a shape of \(positions, 4, 96\)"):
            model.runners[1].merge_states([outs[0][..., :64].copy()], lses[:1], out)


def test_g14_arrays_of_groups() -> None:
    """Random steps of several rows: each page of a row is where the arrays say, none too many."""
    rng = np.random.default_rng(11)
    with new_table(Group.state(pool=STATE)) as table, radixkv.Cache(table) as cache:
        plan = radixkv.Plan(table)
        for _ in range(60):
            count = int(rng.integers(1, 4))
            ends = rng.integers(1, 120, count)
            starts = (ends * rng.random(count)).astype(np.int64)
            rows = [
                cache.begin(ids(int(end), 1000 * at + 1)) for at, end in enumerate(ends)
            ]
            for row, start in zip(rows, starts, strict=True):
                row.slide(int(start))
            plan.set(np.array([row.id for row in rows]), starts, ends - starts)
            for group, kind in enumerate(KINDS):
                pages = [row.pages(group=group) for row in rows]
                for compact in (False, True):
                    arrays = plan.arrays(group=group, compact=compact)
                    sizes = plan.sizes(group=group, compact=compact)
                    assert sizes == (count, (ends - starts).sum(), len(arrays["indices"]), 0)
                    first = arrays.get("first_position", np.zeros(count, np.int64))
                    sinks = arrays.get("sink_page_count", np.zeros(count, np.int32))
                    assert ("first_position" in arrays) == ("sink_page_count" in arrays) == compact
                    for at in range(count):
                        mine = arrays["indices"][arrays["indptr"][at] : arrays["indptr"][at + 1]]
                        tail = len(mine) - sinks[at]
                        places = [*range(sinks[at])]
                        places += [int(first[at]) // PAGE_SIZE + it for it in range(tail)]
                        assert mine.tolist() == pages[at][places].tolist()
                        needed = {
                            int(key) // PAGE_SIZE
                            for query in range(starts[at], ends[at])
                            for key in np.flatnonzero(kind.seen(query))
                        }
                        whole = set(range(-(-int(ends[at]) // PAGE_SIZE)))
                        assert set(places) == (needed if compact else whole)
                        assert len(places) == len(set(places))
                        assert all(pages[at][place] for place in needed)
                    assert arrays["last_page_len"].tolist() == ((ends - 1) % PAGE_SIZE + 1).tolist()
                    mapping = [
                        int(row[at // PAGE_SIZE]) * PAGE_SIZE + at % PAGE_SIZE
                        for row, start, end in zip(pages, starts, ends, strict=True)
                        for at in range(start, end)
                    ]
                    assert arrays["slot_mapping"].tolist() == mapping
            states = plan.arrays(group=STATE, compact=True)
            assert "slot_mapping" not in states
            assert states["indices"].tolist() == [int(row.pages(group=STATE)[0]) for row in rows]
            assert states["last_page_len"].tolist() == [1] * count
            assert not states["first_position"].any()
            for row in rows:
                row.release()
        cache.check()


def test_g14_arrays_of_groups_go_into_the_caller_s() -> None:
    with new_table(Group.state(pool=STATE)) as table, radixkv.Cache(table) as cache:
        plan = radixkv.Plan(table)
        for group in range(STATE + 1):
            assert plan.sizes(group=group, compact=True) == (0, 0, 0, 0)
        with cache.begin(ids(120)) as sequence:
            sequence.slide(100)
            plan.set(np.array([sequence.id]), np.array([100]), np.array([20]))
            row = sequence.pages(group=1)
            first, sinks = np.full(3, 9, np.int64), np.full(3, 9, np.int32)
            indices = np.full(9, 9, np.int32)
            into: dict[str, Any] = {"first_position": first, "sink_page_count": sinks}
            sizes = plan.read(indices=indices, group=1, compact=True, **into)
            assert sizes == (1, 20, 4, 0)
            # The sinks' page, then from position 81 on.
            assert indices.tolist() == [int(row[0]), *row[5:8].tolist(), 9, 9, 9, 9, 9]
            assert (first.tolist(), sinks.tolist()) == ([80, 9, 9], [1, 9, 9])
            assert plan.read(indices=indices, group=1, **into) == (1, 20, 8, 0)
            assert indices.tolist() == [int(row[0]), 0, 0, 0, 0, *row[5:8].tolist(), 9]
            assert (first.tolist(), sinks.tolist()) == ([0, 9, 9], [0, 9, 9])

            mapping = np.full(20, 9, np.int64)
            wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
                ({"first_position": first[:0]}, ValueError, "first_position: room for 1"),
                ({"sink_page_count": first}, TypeError, "sink_page_count: an array of 32-bit"),
                ({"group": STATE + 1}, radixkv.InvalidArgument, "group 4"),
                ({"group": STATE, "slot_mapping": mapping}, ValueError, "slot_mapping: group 3"),
                ({"group": 1, "indices": indices[:7]}, ValueError, "indices: room for 8"),
            ]
            before = indices.copy()
            for arguments, kind, message in wrong:
                with pytest.raises(kind, match=message):
                    plan.read(**{"indices": indices, **arguments})
            assert (indices == before).all() and (mapping == 9).all()
        slot = table.allocate_slot()
        table.reserve(slot, 40)
        plan.set(None, np.array([39]), slots=np.array([slot], np.uint32))
        assert plan.arrays()["indices"].tolist() == table.row(slot).tolist()
        for look in (plan.sizes, plan.arrays):
            with pytest.raises(radixkv.InvalidState, match=r"rows\[0\]"):
                look(group=1)
        table.free_slot(slot)


def test_g14_what_runners_of_groups_refuse() -> None:
    with new_table(Group.state(pool=STATE)) as table, radixkv.Cache(table) as cache:
        shape: dict[str, Any] = {
            "layers": 1, "query_heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM
        }
        k = np.zeros((48, PAGE_SIZE, KV_HEADS, DIM), np.float32)
        v = np.zeros((48, PAGE_SIZE, KV_HEADS, 96), np.float32)
        in_window: dict[str, Any] = {"group": 1, "v_head_dim": 96}
        made: list[tuple[dict[str, Any], type[Exception], str]] = [
            ({"group": STATE + 1}, radixkv.InvalidArgument, "config.group 4"),
            ({"group": 4, "kv_layers": [(k, k)]}, radixkv.InvalidArgument, "config.group 4"),
            ({"group": STATE}, radixkv.InvalidArgument, "config.group 3 is a STATE group"),
            ({"v_head_dim": 88}, radixkv.Unsupported, "v_head_dim 88"),
            ({**in_window, "kv_layers": [(k, k)]}, ValueError, r"v: a shape of \(48, 16, 2, 96\)"),
            ({**in_window, "kv_layers": [(k[1:], v)]}, ValueError, r"k: a shape of \(48, 16, 2, 6"),
            ({"kv_layers": [(k, k)]}, ValueError, r"k: a shape of \(64, 16, 2, 64\)"),
        ]
        for arguments, kind, message in made:
            with pytest.raises(kind, match=message):
                radixkv.Runner(table, **shape, **arguments)
        with pytest.raises(radixkv.Unsupported, match="v_head_dim 88"):
            radixkv.runner_supports(PAGE_SIZE, **shape, v_head_dim=88)

        runner = radixkv.Runner(table, **shape, **in_window, kv_layers=[(k, v)])
        plan, wide = radixkv.Plan(table), np.zeros((5, HEADS, 96), np.float32)
        q, new = wide[..., :DIM].copy(), wide[:, :KV_HEADS].copy()
        with cache.begin(ids(5)) as sequence:
            plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([5]))
            key = new[..., :DIM].copy()
            with pytest.raises(ValueError, match=r"v: a shape of \(positions, 2, 96\)"):
                runner.append_prefill(plan, 0, q, key, key, wide)
            with pytest.raises(ValueError, match=r"out: a shape of \(positions, 4, 96\)"):
                runner.append_prefill(plan, 0, q, key, new, q.copy())
            with pytest.raises(radixkv.InvalidArgument, match="window 21 is more than the 20"):
                runner.append_prefill(plan, 0, q, key, new, wide, window=21)
            runner.append_prefill(plan, 0, q, key, new, wide, window=20)
        copy = np.zeros(1, radixkv.dtypes.page_copy)
        with pytest.raises(radixkv.InvalidArgument, match=r"copies\[0\].group"):
            runner.copy_pages(copy)
