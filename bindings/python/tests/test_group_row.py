"""Rows that only grow, of several groups of layers that draw from one pool."""

import gc
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import PAGE_SIZE, ids

import radixkv
from radixkv import Group

#: The window of 32 positions needs two pages behind a page that begins.
WINDOW = 32


def opened(*groups: Group, page_count: int = 200) -> Iterator[radixkv.Cache]:
    with radixkv.PageTable(page_count, page_size=PAGE_SIZE, groups=groups) as table:
        with radixkv.Cache(table, whole_pages=True) as cache:
            yield cache
            cache.check()
        table.check()


@pytest.fixture
def windowed() -> Iterator[radixkv.Cache]:
    yield from opened(Group.full(), Group.window(WINDOW))


@pytest.fixture
def recurrent() -> Iterator[radixkv.Cache]:
    yield from opened(Group.full(), Group.state())


def computed(cache: radixkv.Cache, tokens: list[int]) -> radixkv.GroupRow:
    row = cache.group_row(tokens)
    assert row.extend(None, len(tokens), len(tokens)) is not None
    return row


def taken(cache: radixkv.Cache) -> set[int]:
    """Every page that can be had."""
    stats = cache.table.pool_stats(0)
    pages = np.zeros(stats.free_page_count + stats.reclaimable_page_count, np.uint32)
    cache.table.allocate_pages(pages)
    cache.table.free_pages(pages)
    return set(pages.tolist())


def test_p02_a_row_of_groups_finds_what_another_published(windowed: radixkv.Cache) -> None:
    tokens = ids(100).tolist()
    first = computed(windowed, tokens)
    assert (first.page_count, first.published_page_count, first.token_count) == (7, 6, 100)
    full, window = first.pages
    second = windowed.group_row([*tokens, 7, 8])
    assert second.probe(101) == 6
    # A window of 32 at position 96 reaches back to 65.
    expected = [full[:6], [0, 0, 0, 0, *window[4:6]]]
    assert second.look(6) == expected
    assert (second.pages, windowed.stats().lock_count) == ([[], []], 1)
    second.take(6)
    assert second.pages == expected
    fresh = second.extend([], 102, 102)
    assert fresh == [pages[6:] for pages in second.pages]
    assert second.private_pages == fresh


def test_groups_come_in_the_order_of_the_engine(windowed: radixkv.Cache) -> None:
    tokens = ids(100).tolist()
    full, window = computed(windowed, tokens).pages
    row = windowed.group_row(tokens, order=[1, 0])
    assert row.look(6) == [[0, 0, 0, 0, *window[4:6]], full[:6]]
    for order in ([0], [0, 0], [0, 2], [0, 1, 2]):
        with pytest.raises(radixkv.InvalidArgument, match="order"):
            windowed.group_row(tokens, order=order)


def test_pages_of_its_own_stay_where_the_cache_has_others(windowed: radixkv.Cache) -> None:
    tokens = ids(40).tolist()
    first, second = computed(windowed, tokens), computed(windowed, tokens)
    assert set(sum(first.pages, [])).isdisjoint(sum(second.pages, []))
    assert [len(pages) for pages in second.private_pages] == [3, 3]
    assert [len(pages) for pages in first.private_pages] == [1, 1]
    first.release()
    second.release()
    assert windowed.table.pool_stats(0).private_page_count == 0


def test_a_window_lets_go_of_what_is_behind_it(windowed: radixkv.Cache) -> None:
    row = windowed.group_row(ids(200).tolist())
    assert row.extend(None, 200, 0) is not None
    full, window = row.pages
    row.slide(100)
    # Position 100 attends to 69 and up, which begins in page 4.
    assert row.pages == [full, [0, 0, 0, 0, *window[4:]]]
    assert set(window[:4]) <= taken(windowed)
    assert not (set(window[4:]) | set(full)) & taken(windowed)
    row.slide(50)
    row.slide(10_000)
    assert row.pages[1] == [0] * 13
    row.release()


def test_what_is_locked_is_there_until_it_is_computed(windowed: radixkv.Cache) -> None:
    """Parts of a row are published before they are computed: an earlier part's pages, which a step
    under way reads, stay locked until a later part is computed that protects all that is needed."""
    row = windowed.group_row(ids(160).tolist())
    windows = set[int]()
    for end in range(PAGE_SIZE, 161, PAGE_SIZE):
        assert row.extend(None, end, end) is not None
        # The step that computes this page is under way, and so is the one before it.
        processed = max(0, end - 2 * PAGE_SIZE)
        row.slide(processed)
        needed = max(0, processed - WINDOW + 1) // PAGE_SIZE
        full, window = row.pages
        assert all(window[needed:]) and not any(window[:needed])
        windows.update(window)
        held = {*full, *window[needed:]}
        assert not held & taken(windowed), f"a page of {end} positions was given away"
    row.slide(160)
    assert len(row.pages[1]) == 10 and row.pages[1].count(0) == 8
    # Behind the window the cache's pages can be had, and those are what it gave away.
    behind = windows - {0} - set(row.pages[1])
    assert len(behind) == 8 and windowed.stats().lock_count == 1
    row.release()
    assert windowed.stats().lock_count == 0


def test_states_are_where_steps_end(recurrent: radixkv.Cache) -> None:
    tokens = ids(100).tolist()
    row = recurrent.group_row(tokens)
    # Of three pages the last one gets the state.
    assert row.extend(None, 48, 48) == [row.pages[0], [0, 0, row.pages[1][2]]]
    assert row.extend(None, 100, 100) is not None
    state = row.pages[1]
    assert [bool(page) for page in state] == [False, False, True, False, False, False, True]
    other = recurrent.group_row(tokens)
    # All pages are known, and a state after the third alone.
    assert (other.probe(100), other.depths(100)) == (3, (3, 6))
    assert other.look(3) == [row.pages[0][:3], state[:3]]
    # A state is needed until the step that copies it is computed.
    row.slide(48)
    assert row.pages[1] == state
    row.slide(49)
    assert row.pages[1] == [0] * 6 + state[6:]


def test_a_state_inside_a_page_is_not_published(recurrent: radixkv.Cache) -> None:
    row = recurrent.group_row(ids(48).tolist())
    # A step ends inside the second page, the next one behind it.
    assert row.extend(None, 20, 20) is not None
    assert row.extend(None, 48, 48) is not None
    assert [bool(page) for page in row.pages[1]] == [False, True, True]
    for limit, found in ((48, 3), (47, 0)):
        assert recurrent.group_row(ids(48).tolist()).probe(limit) == found
    # It is the row's until the row is released.
    assert row.private_pages[1] == [row.pages[1][1]]
    row.release()
    assert recurrent.table.pool_stats(0).private_page_count == 0


def test_each_state_that_was_published_is_found(recurrent: radixkv.Cache) -> None:
    """Also of several that one call publishes, as an asynchronous scheduler does."""
    row = recurrent.group_row(ids(16).tolist())
    for end in (16, 32, 48):
        assert row.extend(None, end, 0) is not None
    assert row.extend(ids(32, 17).tolist(), 0, 48) == [[], []]
    assert row.published_page_count == 3
    tokens = ids(48).tolist()
    for limit in (16, 32, 48):
        assert recurrent.group_row(tokens).probe(limit) == limit // PAGE_SIZE
    row.slide(32)
    assert not {page for pages in row.pages for page in pages} & taken(recurrent)


def test_a_step_that_was_refused_leaves_no_state(recurrent: radixkv.Cache) -> None:
    row = recurrent.group_row(ids(15).tolist())
    assert row.extend(None, 15, 0) is not None
    # It would have ended with the first page.
    with pytest.raises(radixkv.InvalidArgument, match="ids"):
        row.extend(np.array([1 << 31], np.uint32), 16, 16)
    assert (row.page_count, row.token_count, row.published_page_count) == (1, 15, 0)
    # The one that is made goes past that, and its state is the one after 15 tokens still.
    assert row.extend([16, 17, 18], 18, 18) is not None
    assert row.published_page_count == 1
    assert recurrent.group_row(ids(17).tolist()).probe(16) == 0
    row.release()
    assert recurrent.table.pool_stats(0).private_page_count == 0


def test_a_step_that_is_made_after_all_leaves_its_state(recurrent: radixkv.Cache) -> None:
    row = recurrent.group_row(ids(15).tolist())
    assert row.extend(None, 15, 0) is not None
    with pytest.raises(radixkv.InvalidArgument, match="ids"):
        row.extend(np.array([1 << 31], np.uint32), 16, 16)
    assert row.extend([16], 16, 16) is not None
    # That refusals follow takes nothing away from it.
    with pytest.raises(radixkv.InvalidArgument, match="ids"):
        row.extend(np.full(16, 1 << 31, np.uint32), 32, 32)
    assert recurrent.group_row(ids(17).tolist()).probe(16) == 1


def test_rows_are_refused_pages_and_change_nothing(windowed: radixkv.Cache) -> None:
    held = computed(windowed, ids(90 * PAGE_SIZE).tolist())
    row = windowed.group_row(ids(10, 9000).tolist())
    assert row.extend(None, 10, 0) is not None
    free = windowed.table.pool_stats(0).free_page_count
    # The last ones are more than memory has room for, and more together than a number has.
    for positions in (30 * PAGE_SIZE, 1 << 34, 1 << 50, (1 << 64) - 1):
        assert row.extend([1, 2], positions, 12) is None
    assert (row.page_count, row.token_count) == (1, 10)
    assert windowed.table.pool_stats(0).free_page_count == free
    held.release()
    assert row.extend([1, 2], 30 * PAGE_SIZE, 12) is not None


def test_a_released_row_can_begin_again(recurrent: radixkv.Cache) -> None:
    row = computed(recurrent, ids(32).tolist())
    pages = row.pages
    row.release()
    row.release()
    assert recurrent.stats().lock_count == 0
    assert (row.pages, row.published_page_count, row.token_count) == ([[], []], 0, 32)
    row.take(row.probe(32))
    assert row.pages == pages
    with pytest.raises(radixkv.InvalidState):
        row.take(1)
    del row
    gc.collect()
    assert recurrent.stats().lock_count == 0


def test_what_is_evicted_after_a_lookup_is_not_taken(recurrent: radixkv.Cache) -> None:
    computed(recurrent, ids(32).tolist()).release()
    row = recurrent.group_row(ids(32).tolist())
    assert row.probe(32) == 2
    recurrent.evict_pool(0, 1)
    with pytest.raises(radixkv.StaleNode):
        row.take(2)
    assert (row.pages, recurrent.stats().lock_count) == ([[], []], 0)


def test_rows_of_a_cleared_namespace_are_told(windowed: radixkv.Cache) -> None:
    space = radixkv.namespace_of("tenant")
    row = windowed.group_row(ids(40).tolist(), space=space)
    assert row.extend(None, 40, 40) is not None
    windowed.clear(space)
    private = windowed.table.pool_stats(0).private_page_count
    with pytest.raises(radixkv.StaleNode, match="cleared"):
        row.extend(ids(24, 900).tolist(), 64, 64)
    assert (row.page_count, row.token_count) == (3, 40)
    assert windowed.table.pool_stats(0).private_page_count == private
    row.release()


def test_a_row_of_groups_from_before_a_clear_publishes_nothing(windowed: radixkv.Cache) -> None:
    space = radixkv.namespace_of("tenant")
    row = windowed.group_row(ids(40).tolist(), space=space)
    assert row.extend(None, 40, 0) is not None
    windowed.clear(space)
    with pytest.raises(radixkv.StaleNode, match="cleared"):
        row.extend(None, 64, 40)
    assert (row.page_count, windowed.probe(ids(40), space=space)) == (3, 0)
    row.release()
    assert row.extend(None, 40, 40) is not None
    assert windowed.probe(ids(40), space=space) == 32


def test_what_is_not_covered_is_refused() -> None:
    for group in (Group.chunk(64), Group.window(32, sinks=4), Group.state(draft_state_count=2)):
        with pytest.raises(radixkv.Unsupported, match="group_row"):
            for cache in opened(Group.full(), group):
                cache.group_row([1])
    groups = [Group.full(), Group.window(32, pool=1)]
    with (
        radixkv.PageTable(pools=[64, 64], groups=groups) as table,
        radixkv.Cache(table) as cache,
        pytest.raises(radixkv.Unsupported, match="pool 0"),
    ):
        cache.group_row([1, 2, 3])


def test_bad_arguments_are_named(windowed: radixkv.Cache) -> None:
    row = computed(windowed, ids(20).tolist())
    with pytest.raises(radixkv.InvalidArgument, match="computed"):
        row.extend(None, 64, 21)
    with pytest.raises(radixkv.InvalidArgument, match="page_count"):
        windowed.group_row([1]).take(1)


def test_a_row_of_groups_outlives_its_cache() -> None:
    groups = [Group.full(), Group.window(WINDOW)]
    with radixkv.PageTable(64, page_size=PAGE_SIZE, groups=groups) as table:
        with radixkv.Cache(table, whole_pages=True) as cache:
            row = cache.group_row(ids(40).tolist())
            assert row.extend(None, 40, 16) is not None
        with pytest.raises(radixkv.InvalidState):
            row.release()
        assert table.pool_stats(0).private_page_count == 0
