"""The rows of an engine's requests with several groups of layers, behind its scheduler's calls."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import PAGE_SIZE
from test_group_row import WINDOW, opened, taken
from test_request_rows import asked, decoded

import radixkv
from radixkv import Group


class Engine(radixkv.RequestRows):
    """Blocks are lists of page numbers, one for each group."""

    def __init__(self, cache: radixkv.Cache, **options: Any) -> None:
        self.cache = cache
        self.told: list[tuple[str, int, int]] = []
        super().__init__(
            cache, blocks=list, empty=[], waiting=("waiting",), max_positions=4000, **options
        )

    def begin_row(self, request: Any) -> radixkv.GroupRow:
        row = self.rows.get(request.request_id)
        if row is None:
            row = self.cache.group_row(request.all_token_ids)
            self.rows[request.request_id] = row
        assert isinstance(row, radixkv.GroupRow)
        return row

    def published(self, request: Any, pages: list[list[int]], first: int, end: int) -> None:
        assert pages == self.get_blocks(request.request_id)
        self.told.append((request.request_id, first, end))


def began(name: str, count: int, first: int = 1, in_flight: int = 0) -> Any:
    request = asked(name, count, first)
    request.num_in_flight_tokens = in_flight
    return request


@pytest.fixture
def windowed() -> Iterator[radixkv.Cache]:
    yield from opened(Group.full(), Group.window(WINDOW))


@pytest.fixture
def recurrent() -> Iterator[radixkv.Cache]:
    yield from opened(Group.full(), Group.state())


def test_p02_prefixes_are_taken_over_in_each_group(windowed: radixkv.Cache) -> None:
    engine = Engine(windowed, tells=True)
    first, second = began("a", 100), began("b", 120)
    assert [len(pages) for pages in engine.allocate_slots(first, 100)] == [7, 7]
    assert engine.told == [("a", 0, 6)]
    row = engine.begin_row(second)
    assert row.probe(119) == 6
    assert [len(pages) for pages in engine.allocate_slots(second, 24, 96)] == [2, 2]
    full, window = engine.get_blocks("a")
    assert [pages[:6] for pages in engine.get_blocks("b")] == [full[:6], [0] * 4 + window[4:6]]
    assert engine.estimate_cached_tokens(second) == 7 * PAGE_SIZE
    decoded(first, 900)
    assert engine.allocate_slots(first, 1) == []
    engine.free(first)
    engine.free(second)
    assert (engine.rows, engine.get_blocks("a")) == ({}, [])
    assert windowed.table.pool_stats(0).private_page_count == 0


def test_steps_under_way_keep_what_they_read(windowed: radixkv.Cache) -> None:
    """Pages slide by what is computed and known of, not by what is scheduled."""
    engine = Engine(windowed)
    request = began("a", 160)
    assert engine.allocate_slots(request, 64) is not None
    full, window = engine.get_blocks("a")
    # That step is under way when the next one is scheduled.
    request.num_computed_tokens = request.num_in_flight_tokens = 64
    assert engine.allocate_slots(request, 64) is not None
    assert engine.get_blocks("a")[1][:4] == window
    assert not set(window) & taken(windowed)
    # Now 64 are there, and 64 more are under way: position 64 attends to 33 and up.
    request.num_computed_tokens = 128
    assert engine.allocate_slots(request, 32) is not None
    assert engine.get_blocks("a")[1][:4] == [0, 0, *window[2:]]
    assert not set(full + window[2:]) & taken(windowed)
    engine.free(request)


def test_windows_of_chunks_are_published_before_they_pass(windowed: radixkv.Cache) -> None:
    """Also where nothing is published before it is computed, with steps that are waited for."""
    engine = Engine(windowed, ahead=False)
    request = began("a", 160)
    for computed, new in ((0, 64), (64, 64), (128, 32)):
        request.num_computed_tokens = computed
        assert engine.allocate_slots(request, new) is not None
    assert engine.begin_row(began("b", 40)).probe(39) == 2
    engine.free(request)


def test_a_window_that_has_passed_can_be_had_at_once(windowed: radixkv.Cache) -> None:
    """It is not held until more is published: the part that comes next has a lock of its own."""
    engine = Engine(windowed)
    request = began("a", 160)
    assert engine.allocate_slots(request, 160) is not None
    _, window = engine.get_blocks("a")
    decoded(request, 900)
    # The token after 160 positions fills a page, as pages 8 and 9 are all that it attends to.
    for token in range(901, 917):
        assert engine.allocate_slots(request, 1) is not None
        decoded(request, token)
    assert set(window[:8]) <= taken(windowed)
    assert not set(window[9:]) & taken(windowed)
    engine.free(request)


def test_all_of_a_request_fits_as_far_as_windows_hold_it(windowed: radixkv.Cache) -> None:
    engine = Engine(windowed, most=[200, 4])
    others = began("b", 93 * PAGE_SIZE, 9000)
    assert engine.allocate_slots(others, 93 * PAGE_SIZE) is not None
    free = engine.available_page_count
    # A step of one page for each group; nine of full attention and four of the window to come.
    request = began("a", 9 * PAGE_SIZE)
    assert free == 13
    assert engine.allocate_slots(request, 16, full_sequence_must_fit=True) is not None
    engine.free(request)
    longer = began("c", 10 * PAGE_SIZE, 30_000)
    assert engine.allocate_slots(longer, 16, full_sequence_must_fit=True) is None
    assert engine.available_page_count == free


def test_nobody_goes_on_from_a_state_before_it_is_computed(recurrent: radixkv.Cache) -> None:
    """States are copied when a step begins, and one that it leaves is not there yet."""
    engine = Engine(recurrent)
    first, second = began("a", 50), began("b", 60)
    assert engine.allocate_slots(first, 48) is not None
    free = engine.available_page_count
    assert engine.begin_row(second).probe(59) == 3
    assert engine.allocate_slots(second, 12, 48) is None
    assert engine.available_page_count == free
    engine.new_step_starts()
    assert engine.begin_row(second).probe(59) == 3
    assert engine.allocate_slots(second, 12, 48) is not None
    state = engine.get_blocks("a")[1][2]
    assert engine.get_blocks("b")[1][:3] == [0, 0, state]
    engine.free(first)
    engine.free(second)


def test_a_state_that_is_to_come_is_waited_for_once(recurrent: radixkv.Cache) -> None:
    """Whose prompt begins as one in prefill finds a newer state in each step."""
    engine = Engine(recurrent)
    first, second = began("a", 200), began("b", 200)
    found = []
    for start in 0, 48, 96:
        engine.new_step_starts()
        first.num_computed_tokens = start
        assert engine.allocate_slots(first, 48) is not None
        row = engine.begin_row(second)
        count, known = engine.depths(row, 199)
        found.append((count, known))
        if start == 48:
            assert engine.allocate_slots(second, 16, count * PAGE_SIZE) is None
    # The last of them is one that the step before has left, and no more than that is missing.
    assert found == [(3, 3), (6, 6), (6, 6)]
    assert engine.allocate_slots(second, 16, 96) is not None
    assert engine.begin_row(began("c", 200)).depths(199) == (9, 9)
    engine.free(first)
    engine.free(second)


def test_a_state_is_waited_for_once_whatever_comes_between(recurrent: radixkv.Cache) -> None:
    """The scheduler does not come to those that wait in each step."""
    engine = Engine(recurrent)
    first, second = began("a", 200), began("b", 200)
    found = []
    for start in 0, 48, 96, 144:
        engine.new_step_starts()
        first.num_computed_tokens = start
        assert engine.allocate_slots(first, 48) is not None
        if start != 96:
            found.append(engine.depths(engine.begin_row(second), 199)[0])
        if start == 48:
            assert engine.allocate_slots(second, 16, 96) is None
    # The step that begins at 144 leaves a state behind twelve pages.
    assert found == [3, 6, 9]
    assert engine.allocate_slots(second, 16, 144) is not None
    engine.free(first)
    engine.free(second)


@pytest.mark.parametrize(("step", "expected"), [(32, 3), (48, 3), (64, 7)])
def test_who_would_lose_more_than_half_waits(
    recurrent: radixkv.Cache, step: int, expected: int
) -> None:
    """In a step after one in which somebody else did."""
    engine = Engine(recurrent)
    first, second, third = began("a", 200), began("b", 200), began("c", 200)
    engine.new_step_starts()
    assert engine.allocate_slots(first, 48) is not None
    engine.begin_row(second)
    assert engine.allocate_slots(second, 16, 48) is None
    engine.new_step_starts()
    first.num_computed_tokens = 48
    assert engine.allocate_slots(first, step) is not None
    row = engine.begin_row(third)
    assert row.depths(199)[0] == (48 + step) // PAGE_SIZE
    assert engine.depths(row, 199)[0] == expected
    engine.free(first)


def test_states_are_told_apart_from_what_is_zeroed(recurrent: radixkv.Cache) -> None:
    engine = Engine(recurrent, zeroes=True)
    request = began("a", 50)
    attention, _ = engine.allocate_slots(request, 48)
    assert engine.take_new_block_ids() == attention
    assert engine.take_new_block_ids() == []
    request.num_computed_tokens = 48
    attention, _ = engine.allocate_slots(request, 2)
    assert engine.take_new_block_ids() == attention
    engine.free(request)
    assert Engine(recurrent).take_new_block_ids() == []


def test_a_step_that_fills_a_page_leaves_a_state(recurrent: radixkv.Cache) -> None:
    """Also where its last token is still to come, as an asynchronous scheduler has it."""
    engine = Engine(recurrent)
    request = began("a", 15)
    engine.allocate_slots(request, 15)
    request.num_computed_tokens = 15
    assert engine.allocate_slots(request, 1) == []
    request.all_token_ids.append(77)
    request.num_tokens = 16
    engine.cache_blocks(request, 16)
    assert recurrent.probe(np.array([*request.all_token_ids, 5], np.uint32)) == 16
    engine.free(request)
