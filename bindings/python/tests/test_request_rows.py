"""The rows of an engine's requests, behind the calls that its scheduler makes in each step."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import PAGE_SIZE, ids

import radixkv


class Engine(radixkv.RequestRows):
    """Blocks are lists of page numbers."""

    def __init__(self, cache: radixkv.Cache, **options: Any) -> None:
        self.cache = cache
        self.began: list[str] = []
        self.told: list[tuple[str, int, int]] = []
        super().__init__(
            cache, blocks=list, empty=[], waiting=("waiting",), max_positions=4000, **options
        )

    def begin_row(self, request: Any) -> radixkv.GrowingRow:
        row = self.rows.get(request.request_id)
        if row is None:
            self.began.append(request.request_id)
            row = self.cache.growing_row(request.all_token_ids)
            self.rows[request.request_id] = row
        return row

    def published(self, request: Any, pages: list[int], first: int, end: int) -> None:
        assert pages == self.get_blocks(request.request_id)
        self.told.append((request.request_id, first, end))


def asked(name: str, count: int, first: int = 1, status: str = "waiting") -> SimpleNamespace:
    tokens = ids(count, first).tolist()
    return SimpleNamespace(
        request_id=name,
        all_token_ids=tokens,
        num_tokens=count,
        num_computed_tokens=0,
        num_output_placeholders=0,
        status=status,
    )


def decoded(request: SimpleNamespace, token: int) -> None:
    request.num_computed_tokens = request.num_tokens
    request.all_token_ids.append(token)
    request.num_tokens += 1


def test_p02_a_step_that_needs_no_page_changes_nothing(cache: radixkv.Cache) -> None:
    engine = Engine(cache)
    request = asked("a", 20)
    assert len(engine.allocate_slots(request, 20)) == 2
    assert engine.began == ["a"]
    decoded(request, 900)
    before = cache.table.stats()
    assert engine.allocate_slots(request, 1) == []
    assert cache.table.stats().free_page_count == before.free_page_count
    assert engine.estimate_cached_tokens(request) == PAGE_SIZE
    for token in range(901, 913):  # 33 tokens: the last one needs a third page
        decoded(request, token)
        fresh = engine.allocate_slots(request, 1)
        assert len(fresh) == (request.num_tokens == 33)
    assert engine.get_blocks("a")[-1:] == fresh
    assert engine.estimate_cached_tokens(request) == 2 * PAGE_SIZE
    assert cache.probe(np.array(request.all_token_ids, np.uint32)) == 2 * PAGE_SIZE
    engine.free(request)
    assert engine.rows == {}
    assert engine.get_blocks("a") == []
    assert cache.table.stats().private_page_count == 0


def test_what_is_not_covered_is_refused_of_a_step_that_needs_no_page(
    cache: radixkv.Cache,
) -> None:
    engine = Engine(cache)
    request = asked("a", 20)
    assert len(engine.allocate_slots(request, 20)) == 2
    decoded(request, 900)
    with pytest.raises(ValueError, match="num_new_tokens"):
        engine.allocate_slots(request, 0)
    for refused in (
        {"delay_cache_blocks": True},
        {"num_encoder_tokens": 5},
        {"num_external_computed_tokens": 5},
    ):
        with pytest.raises(NotImplementedError, match="computed elsewhere"):
            engine.allocate_slots(request, 1, **refused)
    assert engine.allocate_slots(request, 1) == []


def test_a_page_is_published_when_its_last_token_is_there(cache: radixkv.Cache) -> None:
    engine = Engine(cache, tells=True)
    request = asked("a", 15)
    engine.allocate_slots(request, 15)
    # Scheduled before the token of the step before is known.
    request.num_computed_tokens = 15
    assert engine.allocate_slots(request, 1) == []
    assert engine.told == []
    request.all_token_ids.append(77)
    request.num_tokens = 16
    engine.cache_blocks(request, 15)
    assert engine.told == []
    engine.cache_blocks(request, 16)
    assert engine.told == [("a", 0, 1)]
    engine.free(request)


def test_prefixes_are_taken_over_and_refusals_change_nothing(cache: radixkv.Cache) -> None:
    engine = Engine(cache)
    first = asked("a", 50)
    engine.allocate_slots(first, 50)
    second = asked("b", 60)
    assert engine.begin_row(second).match(59) == engine.get_blocks("a")[:3]
    free = engine.available_page_count
    # The whole of it has to fit beside what others reserve.
    gone = engine.allocate_slots(second, 12, 48, reserved_blocks=free)
    assert gone is None
    assert engine.available_page_count == free
    engine.begin_row(second).match(59)
    assert len(engine.allocate_slots(second, 12, 48)) == 1
    assert engine.get_blocks("b")[:3] == engine.get_blocks("a")[:3]
    assert engine.allocate_slots(asked("c", 4000, 5000), 4000) is not None
    engine.free(second)
    engine.free(first)


def test_what_is_reserved_limits_the_step_and_not_the_request(cache: radixkv.Cache) -> None:
    engine = Engine(cache)
    free = engine.available_page_count
    long = asked("a", (free - 2) * PAGE_SIZE)
    for reserved, fits in ((free, False), (free - 1, True)):
        fresh = engine.allocate_slots(
            long, PAGE_SIZE, full_sequence_must_fit=True, reserved_blocks=reserved
        )
        assert (fresh is not None) is fits
    engine.free(long)


def test_who_waits_leaves_pages_to_those_who_run(cache: radixkv.Cache) -> None:
    pages = cache.table.stats().total_page_count
    engine = Engine(cache, watermark=10)
    long = (pages - 9) * PAGE_SIZE
    assert engine.allocate_slots(asked("a", long), long) is None
    assert engine.available_page_count == pages
    alone = engine.allocate_slots(asked("a", long), long, has_scheduled_reqs=False)
    assert len(alone) == pages - 9
    running = asked("b", 9 * PAGE_SIZE, 9000, status="running")
    assert len(engine.allocate_slots(running, 9 * PAGE_SIZE)) == 9
    assert engine.allocate_slots(asked("c", 1, 20000, status="running"), 1) is None


def test_without_publishing_nothing_is_found(cache: radixkv.Cache) -> None:
    engine = Engine(cache, publishes=False)
    request = asked("a", 40)
    engine.allocate_slots(request, 40)
    engine.cache_blocks(request, 40)
    assert cache.probe(ids(40)) == 0
    engine.free(request)
    assert cache.stats().cached_page_count == 0


def test_what_it_does_not_do_is_said(cache: radixkv.Cache) -> None:
    engine = Engine(cache)
    with pytest.raises(NotImplementedError, match="computed elsewhere"):
        engine.allocate_slots(asked("a", 5), 5, num_external_computed_tokens=3)
    with pytest.raises(ValueError, match="num_new_tokens: 0"):
        engine.allocate_slots(asked("a", 5), 0)
    with pytest.raises(radixkv.InvalidState, match="was called before"):
        engine.__init__(cache)  # type: ignore[misc]
    bare = radixkv.RequestRows.__new__(radixkv.RequestRows)
    with pytest.raises(radixkv.InvalidState, match="was not called"):
        bare.free(asked("a", 5))


def test_what_a_step_has_computed_counts_when_it_is_asked_for(cache: radixkv.Cache) -> None:
    """Also where the pages of a step are given to the cache by the next call."""
    engine = Engine(cache, ahead=False)
    request = asked("a", 2 * PAGE_SIZE + 3)
    engine.allocate_slots(request, 2 * PAGE_SIZE + 3)
    assert engine.estimate_cached_tokens(request) == 0, "the step may be taken back"
    request.num_computed_tokens = 2 * PAGE_SIZE + 3
    assert engine.estimate_cached_tokens(request) == 2 * PAGE_SIZE
    assert cache.probe(np.array(request.all_token_ids, np.uint32)) == 2 * PAGE_SIZE
    engine.free(request)
    assert cache.table.stats().private_page_count == 0


def test_a_token_that_may_be_taken_back_is_not_published(cache: radixkv.Cache) -> None:
    """A step that computes its KV is under way, but its request may go on with another one."""
    engine = Engine(cache, ahead=False)
    request = asked("a", PAGE_SIZE - 1)
    assert engine.allocate_slots(request, PAGE_SIZE - 1) is not None
    request.num_computed_tokens = PAGE_SIZE - 1
    assert engine.allocate_slots(request, 1) == []
    request.num_computed_tokens, request.num_output_placeholders = PAGE_SIZE, 1
    request.all_token_ids.append(7)
    request.num_tokens = PAGE_SIZE
    assert engine.estimate_cached_tokens(request) == 0
    assert cache.probe(np.array(request.all_token_ids, np.uint32)) == 0
    request.num_output_placeholders = 0
    assert engine.estimate_cached_tokens(request) == PAGE_SIZE
    engine.free(request)


@pytest.mark.parametrize("publishes", [False, True])
def test_late_rows_count_as_far_as_they_will_be_found(
    cache: radixkv.Cache, publishes: bool
) -> None:
    engine = Engine(cache, publishes=publishes)
    request = asked("a", 2 * PAGE_SIZE + 3)
    engine.rows["a"] = cache.growing_row(request.all_token_ids, late=True)
    engine.allocate_slots(request, 2 * PAGE_SIZE + 3)
    request.num_computed_tokens = 2 * PAGE_SIZE + 3
    engine.cache_blocks(request, 2 * PAGE_SIZE + 3)
    tokens = np.array(request.all_token_ids, np.uint32)
    assert cache.probe(tokens) == 0
    found = 2 * PAGE_SIZE if publishes else 0
    assert engine.estimate_cached_tokens(request) == found
    engine.free(request)
    assert cache.probe(tokens) == found
    assert cache.table.stats().private_page_count == 0


@pytest.mark.parametrize("late", [False, True])
def test_a_step_that_fills_a_page_leaves_its_state(late: bool) -> None:
    """Also where the page was there before, and is given to the cache at the end."""
    groups = [radixkv.Group.full(), radixkv.Group.state()]
    table = radixkv.PageTable(64, page_size=PAGE_SIZE, slot_count=1, groups=groups)
    cache = radixkv.Cache(table, whole_pages=True)
    engine = Engine(cache)
    request = asked("a", PAGE_SIZE)
    request.num_in_flight_tokens = 0
    engine.rows["a"] = cache.group_row(request.all_token_ids, late=late)
    for start in (0, PAGE_SIZE // 2):
        request.num_computed_tokens = start
        assert engine.allocate_slots(request, PAGE_SIZE // 2) is not None
    request.num_computed_tokens = PAGE_SIZE
    engine.free(request)
    assert cache.probe(np.array(request.all_token_ids, np.uint32)) == PAGE_SIZE
    assert table.stats().private_page_count == 0
