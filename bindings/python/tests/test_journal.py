"""The journal tells what changed; applied in order it gives what the cache holds."""

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import ids

import radixkv


def test_p02_events_in_order(cache: radixkv.Cache) -> None:
    journal = radixkv.Journal(cache)
    space = radixkv.Namespace(lora_id=3, epoch=7, salt=bytes(range(32)))
    with cache.begin(ids(40), space=space) as sequence:
        sequence.publish(40)
        row = sequence.pages()
    [stored] = journal.events()
    assert stored.kind == radixkv.JOURNAL_STORED
    np.testing.assert_array_equal(stored.pages, row[:2])
    np.testing.assert_array_equal(stored.tokens, ids(32))
    assert (stored.parent_page, stored.first_position) == (0, 0)
    assert stored.namespace == space
    assert list(journal.events()) == []

    cache.evict(1)
    [removed] = journal.events()
    assert (removed.kind, removed.reason) == (radixkv.JOURNAL_REMOVED, radixkv.REASON_CALLER)
    assert removed.pages.tolist() == [row[1]]
    assert removed.namespace is None
    cache.clear(space)
    kinds = [event.kind for event in journal.events()]
    assert radixkv.JOURNAL_CLEARED in kinds

    late = radixkv.Journal(cache.table, after=journal.number)
    with cache.begin(ids(32)) as sequence:
        sequence.publish(32)
    cache.close()
    last = list(late.events())[-1]
    assert (last.kind, last.reason) == (radixkv.JOURNAL_REMOVED, radixkv.REASON_DESTROYED)


def test_who_stops_goes_on_behind_what_was_taken(cache: radixkv.Cache) -> None:
    journal = radixkv.Journal(cache)
    for at in range(5):
        with cache.begin(ids(16, 100 * (at + 1))) as sequence:
            sequence.publish(16)
    taken: list[int] = []
    for event in journal.events():
        taken.append(event.number)
        if len(taken) == 2:
            break
    assert journal.number == taken[-1]
    taken += [event.number for event in journal.events()]
    assert taken == list(range(taken[0], taken[0] + 5))
    assert list(journal.events()) == [] and journal.lost_count == 0


def test_contents_go_on_beside_events(cache: radixkv.Cache) -> None:
    def publish(*numbers: int) -> None:
        for number in numbers:
            with cache.begin(ids(16, 100 * number)) as sequence:
                sequence.publish(16)

    publish(1, 2)
    journal = radixkv.Journal(cache)
    contents = journal.contents()
    first = next(contents)
    publish(3, 4)
    assert [int(event.tokens[0]) for event in journal.events()] == [300, 400]
    told = sorted(int(event.tokens[0]) for event in (first, *contents))
    assert told == [100, 200]


def apply(event: radixkv.Event, known: set[int]) -> None:
    """Which pages are known after an event."""
    if event.kind == radixkv.JOURNAL_STORED:
        known.update(event.pages.tolist())
    else:
        known.difference_update(event.pages.tolist())


def test_contents_beside_events_end_as_what_is_cached(cache: radixkv.Cache) -> None:
    for number in (1, 2):
        with cache.begin(ids(16, 100 * number)) as sequence:
            sequence.publish(16)
    journal = radixkv.Journal(cache)
    known: set[int] = set()
    contents = journal.contents()
    apply(next(contents), known)
    assert cache.evict(2) == 2
    # That both are gone is read before it is told that the second one is there.
    for event in journal.events():
        apply(event, known)
    for event in contents:
        apply(event, known)
    for event in journal.events():
        apply(event, known)
    assert known == set() and journal.lost_count == 0


def test_events_that_stand_still_beside_contents_are_told_again(cache: radixkv.Cache) -> None:
    for number in (1, 2):
        with cache.begin(ids(16, 100 * number)) as sequence:
            sequence.publish(16)
    journal = radixkv.Journal(cache)
    known: set[int] = set()
    contents = journal.contents()
    apply(next(contents), known)
    assert cache.evict(2) == 2
    count = len(list(radixkv.Journal(cache, after=journal.number).events()))
    events = journal.events()
    # All of them, and yet not the end.
    for _ in range(count):
        apply(next(events), known)
    for event in contents:
        apply(event, known)
    for event in events:
        apply(event, known)
    for event in journal.events():
        apply(event, known)
    assert known == set() and journal.lost_count == 0


def test_events_applied_are_what_is_cached(cache: radixkv.Cache) -> None:
    """Also from the middle, with the contents, and with arrays that have to grow."""
    rng = np.random.default_rng(3)
    journal = radixkv.Journal(cache, pages=1, tokens=1)
    late: radixkv.Journal | None = None
    known: dict[int, tuple[int, ...]] = {}
    known_late: dict[int, tuple[int, ...]] = {}

    def apply(known: dict[int, tuple[int, ...]], event: radixkv.Event) -> None:
        size = 16
        for at, page in enumerate(event.pages.tolist()):
            if event.kind == radixkv.JOURNAL_STORED:
                known[page] = tuple(event.tokens[at * size : (at + 1) * size].tolist())
            elif event.kind == radixkv.JOURNAL_REMOVED:
                known.pop(page, None)

    for step in range(200):
        prompt = rng.integers(1, 3, int(rng.integers(16, 300)), dtype=np.uint32)
        with cache.begin(prompt) as sequence:
            if sequence.copies().size:
                sequence.confirm_copies()
            sequence.publish(len(prompt))
        if step % 7 == 0:
            cache.evict(int(rng.integers(1, 20)))
        if step == 100:
            late = radixkv.Journal(cache)
            for event in late.contents():
                apply(known_late, event)
    for event in journal.events():
        apply(known, event)
    assert late is not None
    for event in late.events():
        apply(known_late, event)
    assert known == known_late
    assert len(known) == cache.stats().cached_page_count > 50
    assert all(cache.contains_page(page) for page in known)
    assert journal.lost_count == 0


def test_a_reader_that_is_too_slow_is_told(table: radixkv.PageTable) -> None:
    with radixkv.Cache(table, journal_bytes=1024 + 256 * 16) as cache:
        journal = radixkv.Journal(cache)
        for at in range(200):
            with cache.begin(ids(16, 100 * (at + 1))) as sequence:
                sequence.publish(16)
        assert len(list(journal.events())) < 200
        assert journal.lost_count > 0


def test_without_a_journal(table: radixkv.PageTable) -> None:
    with radixkv.Cache(table) as cache:
        with pytest.raises(radixkv.InvalidState, match="journal"):
            radixkv.Journal(cache).read()
    with pytest.raises(TypeError, match="source"):
        list(radixkv.Journal(table).contents())


def test_every_reason_of_the_header_has_a_name() -> None:
    header = (Path(radixkv.get_include()) / "radixkv.h").read_text()
    found = re.findall(r"#define RKV_(REASON_\w+|JOURNAL_\w+) (\d+)", header)
    assert len(found) >= 10
    assert [(name, getattr(radixkv, name, None)) for name, _ in found] == [
        (name, int(value)) for name, value in found
    ]
