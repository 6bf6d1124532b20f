"""Below the pages of a cache: what was evicted comes back with its bytes, from host memory, from
the disk, in the next process."""

import mmap
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PAGE_SIZE, ids
from numpy.typing import NDArray
from tier_engine import PAGE_BYTES, PAGES, PROMPT, Engine, engine, until

import radixkv
from radixkv import dtypes


@pytest.fixture
def bench() -> Iterator[Engine]:
    with engine() as made:
        yield made


def test_t02_host_memory_then_disk_then_a_restart(tmp_path: Path) -> None:
    first, second = ids(PROMPT), ids(PROMPT, 5000)
    attached: dict[str, Any] = {
        "page_bytes": PAGE_BYTES, "host_bytes": 6 * PAGE_BYTES, "directory": tmp_path / "kv",
        "disk_bytes": 1 << 20, "commit_interval_ms": 1, "fingerprint": bytes(range(32)),
    }
    with engine() as bench:
        cache = bench.cache
        cache.attach_tiers(**attached)
        bench.compute(first)
        bench.steps_until(lambda: cache.tier_stats().host.page_count == PAGES)
        assert cache.evict(PAGES) == PAGES and cache.probe(first) == 0
        with cache.begin(first) as sequence:
            found = sequence.fetch(look_only=True)
            assert (found.is_open, found.position_count) == (0, PAGES * PAGE_SIZE)
            assert found.host_position_count == PAGES * PAGE_SIZE
            sequence.fetch(0)
            # What comes can't be computed with before all of it is there.
            with pytest.raises(radixkv.Pending):
                sequence.publish(PROMPT)
            with pytest.raises(radixkv.Pending):
                sequence.fetch()
            bench.steps_until(lambda: sequence.id in bench.ended)
            assert bench.ended[sequence.id]["position_count"] == PAGES * PAGE_SIZE
            assert bench.ended[sequence.id]["flags"] == 0
        assert cache.probe(first) == PAGES * PAGE_SIZE  # others find it on the device
        assert bench.fetch(first) == (PAGES, 0)
        # Two prompts are more than host memory has room for: the disk has both.
        bench.compute(second)
        bench.steps_until(lambda: cache.tier_stats().disk.stored_page_count == 2 * PAGES)
        cache.shrink_tiers(host_bytes=0)
        stats = cache.tier_stats()
        assert (stats.host.page_count, stats.host.used_bytes) == (0, 0)
        assert stats.host.byte_limit == 6 * PAGE_BYTES and stats.disk.byte_limit == 1 << 20
        cache.evict(2 * PAGES)
        bench.stored(first)
        bench.stored(second)
        assert bench.fetch(first) == (PAGES, PAGES)
        assert bench.fetch(second) == (PAGES, PAGES)
        stats = cache.tier_stats()
        assert stats.complete_count == 3 and stats.disk.fetched_page_count == 2 * PAGES
        assert "host=TierTotals(page_count=" in repr(stats) and "remote=Remote" in repr(stats)
        assert cache.flush_tiers()
        assert cache.detach_tiers()
        with pytest.raises(radixkv.InvalidState):
            cache.poll()
    with engine() as bench:
        bench.cache.attach_tiers(**attached)
        assert bench.cache.tier_stats().disk.page_count == 2 * PAGES
        assert bench.fetch(second) == (PAGES, PAGES)
        assert bench.fetch(ids(PROMPT, 9000)) == (0, 0)
        # A namespace is in the key.
        other = radixkv.Namespace(lora_id=3)
        assert bench.cache.prefetch(first, space=other, look_only=True).position_count == 0


def test_t18_a_prompt_that_is_expected_waits_in_host_memory(tmp_path: Path) -> None:
    with engine() as bench:
        cache = bench.cache
        cache.attach_tiers(
            PAGE_BYTES, 64 * PAGE_BYTES, directory=tmp_path, disk_bytes=1 << 20,
            commit_interval_ms=1,
        )
        bench.compute(ids(PROMPT))
        bench.steps_until(lambda: cache.tier_stats().disk.stored_page_count == PAGES)
        cache.shrink_tiers(0)
        cache.evict(PAGES)
        bench.stored(ids(PROMPT))
        assert bench.fetch(ids(PROMPT), 0) == (0, 0)  # no time: host memory alone
        begun = cache.prefetch(ids(PROMPT))
        assert begun.prefetch != 0 and begun.cached_position_count == 0
        assert (begun.position_count, begun.host_position_count) == (PAGES * PAGE_SIZE, 0)
        bench.steps_until(
            lambda: cache.prefetch(ids(PROMPT), look_only=True).host_position_count
            == PAGES * PAGE_SIZE
        )
        cache.cancel_prefetch(begun.prefetch)  # one that has ended is not missed
        with pytest.raises(radixkv.InvalidArgument):
            cache.cancel_prefetch(1 << 40)
        stats = cache.tier_stats()
        assert stats.prefetch_count >= 1 and stats.prefetched_disk_page_count == PAGES
        assert bench.fetch(ids(PROMPT), 0) == (PAGES, PAGES)


def test_t09_ranks_agree(bench: Engine) -> None:
    cache = bench.cache
    cache.attach_tiers(PAGE_BYTES, 64 * PAGE_BYTES, agree=True)
    bench.compute(ids(PROMPT))
    bench.steps_until(lambda: cache.tier_stats().host.page_count == PAGES)
    cache.evict(PAGES)
    with cache.begin(ids(PROMPT)) as sequence:
        assert sequence.fetch(10).is_open == 1
        with pytest.raises(radixkv.Pending):
            sequence.agree(0)
        bench.steps_until(lambda: sequence.id in bench.ended)
        assert bench.ended[sequence.id]["position_count"] == PAGES * PAGE_SIZE
        assert cache.probe(ids(PROMPT)) == 0
        assert sequence.agree(2 * PAGE_SIZE + 5) == 2 * PAGE_SIZE
        assert sequence.info().cached_position_count == 2 * PAGE_SIZE


@pytest.mark.parametrize("uses", [None, 1])
def test_t08_policies_say_when_a_page_is_stored(bench: Engine, uses: int | None) -> None:
    cache = bench.cache
    cache.attach_tiers(PAGE_BYTES, 64 * PAGE_BYTES, store_after_uses=uses)
    bench.compute(ids(PROMPT))
    for _ in range(50):
        bench.step()
        time.sleep(0.001)
    assert cache.tier_stats().host.page_count == 0
    if uses is None:
        # About to be evicted: when pages are short, not when the engine gives one up.
        for at in range(80):
            bench.compute(ids(PROMPT, 10_000 + 100 * at))
            bench.step()
        bench.steps_until(lambda: cache.tier_stats().host.page_count > 0)
    else:
        for _ in range(2):
            bench.fetch(ids(PROMPT))
        bench.steps_until(lambda: cache.tier_stats().host.page_count > 0)


def test_t03_an_eventfd_wakes_who_waits(bench: Engine) -> None:
    wake = os.eventfd(0)
    bench.cache.attach_tiers(PAGE_BYTES, 64 * PAGE_BYTES, event_fd=wake)
    bench.compute(ids(PROMPT))
    assert select.select([wake], [], [], 30)[0] == [wake]
    bench.steps_until(lambda: bench.cache.tier_stats().host.page_count == PAGES)
    assert bench.cache.detach_tiers()
    os.close(wake)


def test_t04_a_copy_that_failed_is_a_miss(bench: Engine) -> None:
    cache = bench.cache
    cache.attach_tiers(PAGE_BYTES, 64 * PAGE_BYTES)
    bench.compute(ids(PROMPT))
    got: list[int] = []
    while len(got) < PAGES:
        job_count, _ = cache.poll(bench.jobs)
        got += bench.jobs["job"][:job_count].tolist()
        time.sleep(0.001)
    cache.complete(np.array(got[1:], np.uint64))
    cache.complete(np.array(got[:1], np.uint64), good=False)
    until(lambda: cache.tier_stats().host.page_count == PAGES - 1)
    assert cache.tier_stats().host.failed_count == 1
    cache.evict(PAGES)
    assert bench.fetch(ids(PROMPT)) == (0, 0)  # the first of them: what follows is no use alone
    cache.check()


def test_t11_fetches_race_with_evictions(tmp_path: Path) -> None:
    """One thread steps, others begin and fetch, one evicts all the time: what comes is right."""
    with engine(64) as bench:
        cache = bench.cache
        cache.attach_tiers(
            PAGE_BYTES, 12 * PAGE_BYTES, directory=tmp_path, disk_bytes=1 << 20,
            commit_interval_ms=1, worker_count=2,
        )
        prompts = [ids(PROMPT, 1000 * at + 1) for at in range(5)]
        for prompt in prompts:
            bench.compute(prompt)
        bench.steps_until(lambda: cache.tier_stats().disk.stored_page_count == 5 * PAGES)
        over, brought, wrong = threading.Event(), [0], list[BaseException]()

        def guarded(work: Callable[[], None]) -> threading.Thread:
            def run() -> None:
                try:
                    work()
                except BaseException as reason:
                    wrong.append(reason)
                    over.set()

            return threading.Thread(target=run)

        def steps() -> None:
            while not over.is_set():
                bench.step()
                time.sleep(0)

        def evicts() -> None:
            while not over.is_set():
                cache.evict(64)
                cache.shrink_tiers(3 * PAGE_BYTES)
                cache.tier_stats()
                time.sleep(0.0005)

        def fetches(seed: int) -> None:
            for turn in count():
                if over.is_set() or brought[0] >= 300:
                    return
                prompt = prompts[(turn + seed) % 5]
                with cache.begin(prompt) as sequence:
                    # Some leave their fetch open behind them.
                    is_open = sequence.fetch([None, 0, 0.002][turn % 3]).is_open
                    if is_open and turn % 7 != 0:
                        while sequence.id not in bench.ended and not over.is_set():
                            time.sleep(0.0005)
                        end = bench.ended.pop(sequence.id, None)
                        if end is None:
                            return
                        brought[0] += int(end["brought_page_count"])
                    elif is_open:
                        continue
                    reused = sequence.info().cached_position_count // PAGE_SIZE
                    for at, page in enumerate(sequence.pages()[:reused]):
                        expected = bench.bytes_of(prompt, at)
                        np.testing.assert_array_equal(bench.kv[page], expected)

        workers = [guarded(partial(fetches, seed)) for seed in range(3)]
        others = [guarded(steps), guarded(evicts)]
        for thread in workers + others:
            thread.start()
        for thread in workers:
            thread.join(120)
            assert not thread.is_alive(), "threads wait for each other"
        over.set()
        for thread in others:
            thread.join(120)
        if wrong:
            raise wrong[0]
        assert brought[0] >= 300
        bench.steps_until(lambda: cache.tier_stats().open_job_count == 0)
        cache.check()
        stats = cache.tier_stats()
        assert (stats.open_fetch_count, stats.copied_page_count) == (0, 0)
        assert stats.host.damaged_page_count == stats.disk.damaged_page_count == 0


def test_t16_pools_of_groups(tmp_path: Path) -> None:
    """A window's pages go below and come back: those that the end needs, in its own pool."""
    groups = [radixkv.Group.full(), radixkv.Group.window(24, pool=1)]
    sizes = (PAGE_BYTES, 40)
    slab = np.zeros(16 * 40, np.uint8)
    with radixkv.PageTable(pools=[64, 64], groups=groups, page_size=PAGE_SIZE) as table:
        with radixkv.Cache(table, journal_bytes=1 << 16) as cache:
            with pytest.raises(radixkv.InvalidArgument, match="pool"):
                cache.attach_tiers(PAGE_BYTES, 16 * PAGE_BYTES)
            pools = [
                radixkv.TierPool(PAGE_BYTES, 16 * PAGE_BYTES),
                radixkv.TierPool(40, host_memory=slab),
            ]
            cache.attach_tiers(pools=pools, directory=tmp_path, disk_bytes=1 << 20)
            kv = [np.zeros((65, size), np.uint8) for size in sizes]
            jobs, ends = np.zeros(64, dtypes.copy_job), np.zeros(4, dtypes.fetch_end)
            loads: list[tuple[int, int]] = []
            ended: list[Any] = []

            def step() -> None:
                job_count, end_count = cache.poll(jobs, ends)
                for job in jobs[:job_count]:
                    group = int(job["group"])
                    host, page = radixkv.host_page(job), kv[group][job["page"]]
                    assert len(host) == sizes[group]
                    if group == 1:
                        assert 0 <= int(job["host"]) - slab.ctypes.data < slab.nbytes
                    if job["direction"] == radixkv.COPY_LOAD:
                        page[:] = host
                        loads.append((group, int(job["page"])))
                    else:
                        host[:] = page
                cache.complete(jobs[:job_count])
                ended.extend(ends[:end_count].copy())

            def stepped(is_true: Callable[[], bool]) -> bool:
                step()
                return is_true()

            with cache.begin(ids(PROMPT)) as sequence:
                for group in range(2):
                    for at, page in enumerate(sequence.pages(group=group)):
                        kv[group][page] = 10 * group + at + 1
                sequence.publish(PROMPT)
                wanted = PAGES + int(sequence.published()["claimed_page_count"].sum())
                until(lambda: stepped(lambda: cache.tier_stats().host.stored_page_count == wanted))
            for pool in range(2):
                cache.evict_pool(pool, 64)
            assert cache.probe(ids(PROMPT)) == 0
            with cache.begin(ids(PROMPT)) as sequence:
                assert sequence.fetch(20).is_open == 1
                until(lambda: stepped(lambda: len(ended) == 1))
                assert ended[0]["position_count"] == PAGES * PAGE_SIZE
                assert [sum(group == of for group, _ in loads) for of in range(2)] == [PAGES, 2]
                window = sequence.pages(group=1)
                assert [int(kv[1][window[at], 0]) for at in (2, 3)] == [13, 14]
                full = sequence.pages()
                assert [int(kv[0][full[at], 0]) for at in range(PAGES)] == [1, 2, 3, 4]


def test_t02_a_runner_copies_its_pages(cache: radixkv.Cache) -> None:
    """What attention sees after a fetch is what it saw."""
    heads, kv_heads, dim = 4, 2, 64
    memory = [
        tuple(np.zeros((257, PAGE_SIZE, kv_heads, dim), np.float32) for _ in range(2))
        for _ in range(2)
    ]
    runner = radixkv.Runner(
        cache.table, layers=2, query_heads=heads, kv_heads=kv_heads, head_dim=dim,
        kv_layers=memory,  # type: ignore[arg-type]
    )
    size = runner.stats().page_bytes
    assert size == 2 * 2 * PAGE_SIZE * kv_heads * dim * 4
    slab = np.zeros(8 * size, np.uint8)
    cache.attach_tiers(size, host_memory=slab)
    plan, rng = radixkv.Plan(cache.table), np.random.default_rng(5)
    jobs, ends = np.zeros(8, dtypes.copy_job), np.zeros(4, dtypes.fetch_end)

    def step() -> int:
        job_count, end_count = cache.poll(jobs, ends)
        runner.copy_tier_pages(jobs[:job_count])
        cache.complete(jobs[:job_count])
        return end_count

    def last_token(sequence: radixkv.Sequence) -> list[NDArray[np.float32]]:
        outs = []
        plan.set(np.array([sequence.id]), np.array([PROMPT - 1]))
        for layer in range(2):
            out = np.zeros((1, heads, dim), np.float32)
            runner.append_prefill(plan, layer, q[-1:], k[layer][-1:], v[layer][-1:], out)
            outs.append(out)
        return outs

    q = rng.standard_normal((PROMPT, heads, dim), np.float32)
    k, v = (
        [rng.standard_normal((PROMPT, kv_heads, dim), np.float32) for _ in range(2)]
        for _ in range(2)
    )
    with cache.begin(ids(PROMPT)) as sequence:
        plan.set(np.array([sequence.id]), np.array([0]), np.array([PROMPT - 1]))
        for layer in range(2):
            out = np.zeros((PROMPT - 1, heads, dim), np.float32)
            runner.append_prefill(plan, layer, q[:-1], k[layer][:-1], v[layer][:-1], out)
        sequence.publish(PROMPT - 1)
        expected = last_token(sequence)

    def stored() -> bool:
        step()
        return cache.tier_stats().host.page_count == PAGES

    until(stored)
    cache.evict(PAGES)
    for pair in memory:
        for tensor in pair:
            tensor[:] = np.nan
    with cache.begin(ids(PROMPT)) as sequence:
        assert sequence.fetch(20).is_open == 1
        until(lambda: step() == 1)
        assert sequence.info().cached_position_count == PAGES * PAGE_SIZE
        for got, was in zip(last_token(sequence), expected, strict=True):
            np.testing.assert_array_equal(got, was)
    with pytest.raises(TypeError, match=r"jobs.*copy_job"):
        runner.copy_tier_pages(np.zeros(2, np.uint64))
    wrong = np.zeros(1, dtypes.copy_job)
    with pytest.raises(radixkv.InvalidArgument, match="jobs"):
        runner.copy_tier_pages(wrong)


def test_host_memory_is_kept_as_long_as_it_is_used(bench: Engine) -> None:
    cache = bench.cache
    for ends in (lambda: cache.detach_tiers(), cache.close):
        memory = mmap.mmap(-1, 16 * PAGE_BYTES)
        cache.attach_tiers(PAGE_BYTES, host_memory=memory)
        assert cache.tier_stats().host.byte_limit == 16 * PAGE_BYTES
        if ends is not cache.close:
            bench.compute(ids(PROMPT))
            bench.steps_until(lambda: cache.tier_stats().host.page_count == PAGES)
            assert memory.read().count(bytes(bench.bytes_of(ids(PROMPT), 2))) == 1
        with pytest.raises(BufferError):
            memory.close()
        ends()
        memory.close()


def test_t14_one_owner_and_one_kind(tmp_path: Path) -> None:
    with engine() as first, engine() as second:
        first.cache.attach_tiers(PAGE_BYTES, 960, directory=tmp_path / "kv", disk_bytes=1 << 20)
        with pytest.raises(radixkv.StorageError, match="kv"):
            second.cache.attach_tiers(
                PAGE_BYTES, 960, directory=tmp_path / "kv", disk_bytes=1 << 20
            )
        assert first.cache.detach_tiers()
        with pytest.raises(radixkv.StorageError, match="fingerprint|model"):
            second.cache.attach_tiers(
                PAGE_BYTES, 960, directory=tmp_path / "kv", disk_bytes=1 << 20,
                fingerprint=bytes(31) + b"\1",
            )
        second.cache.attach_tiers(PAGE_BYTES, 960, directory=tmp_path / "kv", disk_bytes=1 << 20)
