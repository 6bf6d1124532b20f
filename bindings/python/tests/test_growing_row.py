"""Rows that only grow, for engines whose block tables are append-only."""

import gc
import threading

import numpy as np
import pytest
from conftest import PAGE_SIZE, ids

import radixkv


def computed(
    cache: radixkv.Cache, tokens: list[int], space: radixkv.Namespace | None = None
) -> radixkv.GrowingRow:
    """A row whose tokens are all published as far as they fill pages."""
    row = cache.growing_row(tokens, space=space)
    assert row.extend(None, len(tokens), len(tokens)) is not None
    return row


def test_p02_a_row_finds_what_another_published(cache: radixkv.Cache) -> None:
    tokens = ids(50).tolist()
    first = computed(cache, tokens)
    assert (first.page_count, first.published_page_count, first.token_count) == (4, 3, 50)
    second = cache.growing_row([*tokens, 7, 8])
    assert second.match(51) == first.pages[:3]
    assert second.pages == []
    second.take(3)
    assert second.extend([], 52, 52) == second.pages[3:]
    assert second.pages[:3] == first.pages[:3]


def test_tokens_and_pages_come_as_it_grows(cache: radixkv.Cache) -> None:
    row = cache.growing_row(ids(10).tolist())
    assert row.match(10) == []
    assert len(row.extend(None, 10, 10) or []) == 1
    assert row.extend(None, 16, 10) == []
    assert row.published_page_count == 0
    more = ids(8, 100).tolist()
    assert len(row.extend(more, 18, 18) or []) == 1
    assert (row.token_count, row.published_page_count) == (18, 1)
    assert cache.probe(np.array([*ids(10), *more], np.uint32)) == 16


def test_a_page_of_its_own_stays_where_the_cache_has_another(cache: radixkv.Cache) -> None:
    tokens = ids(32).tolist()
    first, second = computed(cache, tokens), computed(cache, tokens)
    assert set(first.pages).isdisjoint(second.pages)
    longer = ids(48).tolist()
    # What comes after the duplicates is the cache's, below the first row's pages.
    assert second.extend(longer[32:], 48, 48) is not None
    assert cache.stats().cached_page_count == 3
    third = cache.growing_row(longer)
    assert third.match(48) == [*first.pages, second.pages[2]]
    first.release()
    second.release()
    assert cache.table.stats().private_page_count == 0
    assert third.match(48) != []


def test_rows_are_refused_pages_and_change_nothing(cache: radixkv.Cache) -> None:
    held = computed(cache, ids(200 * PAGE_SIZE).tolist())
    row = cache.growing_row(ids(10, 9000).tolist())
    assert row.extend(None, 10, 0) is not None
    free = cache.table.stats().free_page_count
    # The last ones are more than memory has room for: no number of a page is asked for there.
    for positions in (300 * PAGE_SIZE, 1 << 34, 1 << 50, (1 << 64) - 1):
        assert row.extend([1, 2], positions, 12) is None
    assert (row.page_count, row.token_count) == (1, 10)
    assert cache.table.stats().free_page_count == free
    held.release()
    assert row.extend([1, 2], 200 * PAGE_SIZE, 12) is not None


def test_a_released_row_can_begin_again(cache: radixkv.Cache) -> None:
    row = computed(cache, ids(40).tolist())
    pages = row.pages
    row.release()
    assert cache.stats().lock_count == 0
    assert (row.pages, row.published_page_count, row.token_count) == ([], 0, 40)
    assert row.match(40) == pages[:2]
    row.take(1)
    assert row.pages == pages[:1]
    row.release()
    row.release()


def test_a_row_gives_its_pages_back_when_it_goes(cache: radixkv.Cache) -> None:
    computed(cache, ids(40).tolist())
    gc.collect()
    stats = cache.table.stats()
    assert (stats.private_page_count, stats.reclaimable_page_count) == (0, 2)


def test_a_row_outlives_its_cache(table: radixkv.PageTable) -> None:
    with radixkv.Cache(table) as cache:
        # The second has duplicates, and both a page that is not whole.
        rows = [computed(cache, ids(40).tolist()) for _ in range(2)]
    with pytest.raises(radixkv.InvalidState):
        rows[0].release()
    del rows
    gc.collect()
    stats = table.stats()
    assert (stats.private_page_count, stats.free_page_count) == (0, stats.total_page_count)


def test_a_row_outlives_its_table() -> None:
    table = radixkv.PageTable(8, page_size=PAGE_SIZE)
    with radixkv.Cache(table) as cache:
        row = cache.growing_row(ids(40).tolist())
        assert row.extend(None, 40, 16) is not None
        table.close()
        row.release()
        # All seven pages are there for a sequence of the cache.
        cache.begin(ids(7 * PAGE_SIZE, 9000)).release()


def test_what_is_evicted_after_a_match_is_not_taken(cache: radixkv.Cache) -> None:
    computed(cache, ids(40).tolist()).release()
    row = cache.growing_row(ids(40).tolist())
    assert len(row.match(40)) == 2
    cache.evict(1)
    with pytest.raises(radixkv.StaleNode):
        row.take(2)
    assert (row.pages, cache.stats().lock_count) == ([], 0)
    assert len(row.match(40)) == 1
    row.take(1)


def test_rows_of_a_cleared_namespace_are_told(cache: radixkv.Cache) -> None:
    space = radixkv.namespace_of("tenant")
    row = computed(cache, ids(40).tolist(), space)
    cache.clear(space)
    private = cache.table.stats().private_page_count
    with pytest.raises(radixkv.StaleNode, match="cleared"):
        row.extend(ids(24, 900).tolist(), 64, 64)
    assert (row.page_count, row.token_count) == (3, 40)
    assert cache.table.stats().private_page_count == private
    row.release()


@pytest.mark.parametrize("known", [10, 40])
def test_a_row_from_before_a_clear_publishes_nothing(cache: radixkv.Cache, known: int) -> None:
    space, other = radixkv.namespace_of("tenant"), radixkv.namespace_of("another")
    tokens = ids(40).tolist()
    row = cache.growing_row(tokens[:known], space=space)
    beside = cache.growing_row(tokens, space=other)
    assert row.extend(None, known, 0) is not None  # Pages, computed with the weights of before.
    assert beside.extend(None, 40, 0) is not None
    cache.clear(space)
    later = cache.growing_row(tokens, space=space)
    assert later.extend(None, 40, 0) is not None
    with pytest.raises(radixkv.StaleNode, match="cleared"):
        row.extend(tokens[known:], 40, 40)
    assert (row.token_count, cache.probe(ids(40), space=space)) == (known, 0)
    # Other namespaces were not cleared, and who began after the clear publishes.
    assert beside.extend(None, 40, 40) is not None
    assert cache.probe(ids(40), space=other) == 32
    assert later.extend(None, 32, 32) is not None
    assert cache.probe(ids(40), space=space) == 32
    # It can begin again, as after a preemption.
    row.release()
    assert row.extend(tokens[known:], 40, 40) is not None
    assert row.published_page_count == 2


@pytest.mark.parametrize(
    ("fields", "is_cleared"),
    [
        ({}, [True, False, False]),
        ({"lora": True}, [True, True, False]),
        ({"epoch": True}, [True, False, True]),
        ({"lora": True, "epoch": True}, [True, False, False]),
        ({"image": True, "salt": True}, [True, True, True]),
        ({"everything": True}, [True, True, True]),
    ],
)
def test_a_clear_concerns_the_rows_of_its_fields(
    cache: radixkv.Cache, fields: dict[str, bool], is_cleared: list[bool]
) -> None:
    spaces = [
        radixkv.Namespace(lora_id=1),
        radixkv.Namespace(lora_id=1, epoch=2),
        radixkv.Namespace(),
    ]
    rows = [cache.growing_row(ids(20).tolist(), space=space) for space in spaces]
    for row in rows:
        assert row.extend(None, 20, 0) is not None
    with pytest.raises(radixkv.InvalidArgument):
        cache.clear(spaces[0], everything=True)
    cache.clear(None if "everything" in fields else spaces[0], **fields)
    for row, cleared in zip(rows, is_cleared, strict=True):
        if cleared:
            with pytest.raises(radixkv.StaleNode):
                row.extend(None, 20, 20)
        else:
            assert row.extend(None, 20, 20) is not None
    # The default namespace is that without fields.
    assert cache.probe(ids(20)) == (0 if is_cleared[2] else 16)


def test_what_is_cleared_after_a_match_is_not_taken(cache: radixkv.Cache) -> None:
    space = radixkv.namespace_of("tenant")
    holder = computed(cache, ids(40).tolist(), space)
    row = cache.growing_row(ids(40).tolist(), space=space)
    assert row.match(40) == holder.pages[:2]
    cache.clear(space)
    with pytest.raises(radixkv.StaleNode):
        row.take(2)
    assert (row.pages, cache.stats().lock_count) == ([], 1)
    holder.release()


def test_bad_arguments_are_named(cache: radixkv.Cache) -> None:
    row = computed(cache, ids(20).tolist())
    with pytest.raises(radixkv.InvalidArgument, match="computed"):
        row.extend(None, 64, 21)
    with pytest.raises(radixkv.InvalidState):
        row.take(0)
    fresh = cache.growing_row([1])
    with pytest.raises(radixkv.InvalidArgument, match="page_count"):
        fresh.take(1)
    items = radixkv.Tokens([1], [radixkv.TokenItem.coord(0, 5)])
    with pytest.raises(radixkv.Unsupported, match="tokens"):
        cache.growing_row(items)
    with pytest.raises(OverflowError, match="tokens"):
        cache.growing_row([1, -1])
    with pytest.raises(TypeError, match="tokens"):
        cache.growing_row([1, "a"])  # type: ignore[list-item]


def test_several_groups_are_refused() -> None:
    groups = [radixkv.Group.full(), radixkv.Group.window(32, pool=1)]
    with (
        radixkv.PageTable(pools=[64, 64], groups=groups) as table,
        radixkv.Cache(table) as cache,
        pytest.raises(radixkv.Unsupported, match="group"),
    ):
        cache.growing_row([1, 2, 3])


def test_rows_of_many_threads_share_a_cache(cache: radixkv.Cache) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(100):
                row = cache.growing_row(ids(3000, turn % 3 * 1000).tolist()[: 40 + number])
                row.take(len(row.match(39)))
                if row.extend(None, 60, row.token_count) is not None:
                    row.release()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    cache.check()


def test_rows_that_overtake_each_other_give_all_pages_back() -> None:
    """A long insert comes in portions: what another thread publishes in between lies behind what
    was taken, not before it."""
    count = 4096
    failed: list[BaseException] = []

    def work(row: radixkv.GrowingRow, start: threading.Barrier, end: int) -> None:
        try:
            start.wait()
            assert row.extend(None, end, end) is not None
        except BaseException as error:
            failed.append(error)

    with (
        radixkv.PageTable(3 * count, page_size=PAGE_SIZE, slot_count=1) as table,
        radixkv.Cache(table) as cache,
    ):
        for turn in range(100):
            tokens = ids(count * PAGE_SIZE, 1 + turn * count * PAGE_SIZE).tolist()
            # Both go on from a node: what begins at the root is one after the other.
            computed(cache, tokens[:PAGE_SIZE]).release()
            rows = [cache.growing_row(tokens) for _ in range(2)]
            for row in rows:
                assert len(row.match(PAGE_SIZE)) == 1
                row.take(1)
            start = threading.Barrier(2)
            threads = [
                threading.Thread(target=work, args=(row, start, len(tokens))) for row in rows
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failed
            for row in rows:
                row.release()
            assert table.stats().private_page_count == 0
        cache.check()
