"""Every mistake is an exception that names the argument, and changes nothing."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import ids, pages
from numpy.typing import NDArray

import radixkv

Call = Callable[[radixkv.Cache], object]

# What is done wrong, what is raised, and a part of the message.
TABLE: dict[str, tuple[Call, type[Exception], str]] = {
    "tokens of floats": (lambda c: c.match(np.zeros(4)), TypeError, "tokens"),
    "tokens of 16 bits": (lambda c: c.match(np.zeros(4, np.uint16)), TypeError, "tokens"),
    "tokens that are not aligned": (
        lambda c: c.match(np.frombuffer(bytes(33), np.int64, offset=1)),
        ValueError, "tokens.*aligned"),
    "ids that are not aligned": (
        lambda c: c.release_many(np.frombuffer(bytes(17), np.uint64, offset=1)),
        ValueError, "sequences.*aligned"),
    "tokens of bytes": (lambda c: c.match(b"abcd"), TypeError, "tokens"),
    "tokens of nothing": (lambda c: c.match(None), TypeError, "tokens"),  # type: ignore[arg-type]
    "a list of text": (lambda c: c.match(["a"]), TypeError, "tokens"),  # type: ignore[list-item]
    "a negative token": (lambda c: c.match(np.array([-1])), OverflowError, "tokens: -1"),
    "a negative token in a list": (lambda c: c.match([-1]), OverflowError, "tokens"),
    "tokens with gaps": (lambda c: c.match(ids(8)[::2]), ValueError, "tokens.*contiguous"),
    "a padded batch": (
        lambda c: c.begin(ids(8).reshape(2, 4)), ValueError, r"tokens: a shape of \(tokens,\)"),
    "a column of 64 bits": (
        lambda c: c.match(np.zeros((4, 1), np.int64)), ValueError, r"tokens.*not \[4, 1\]"),
    "a padded batch among many": (
        lambda c: c.probe_many(
            [ids(4), ids(8).reshape(2, 4)], np.zeros(2, radixkv.dtypes.probe)),
        ValueError, r"prompts\[1\]: a shape"),
    "a reserve below zero": (
        lambda c: c.begin_many([ids(4)], np.zeros(1, radixkv.dtypes.sequence_info), reserve=-1),
        OverflowError, "reserve: "),
    "an allocate too far": (
        lambda c: c.begin_many(
            [ids(4)], np.zeros(1, radixkv.dtypes.sequence_info), allocate=1 << 64),
        OverflowError, "allocate: "),
    "a reserve that is no number": (
        lambda c: c.begin_many(
            [ids(4)], np.zeros(1, radixkv.dtypes.sequence_info),
            reserve="1"),  # type: ignore[arg-type]
        TypeError, "reserve: an array is needed"),
    "a negative token of 32 bits": (
        lambda c: c.begin(np.array([-1], np.int32)), radixkv.InvalidArgument, "ids"),
    "a place within a page": (
        lambda c: radixkv.page_numbers(np.arange(17, 33), 16, pages(0)),
        ValueError, "places: 17 begins no page"),
    "no tokens": (lambda c: c.begin([]), radixkv.InvalidArgument, "tokens"),
    "an id that is no text": (
        lambda c: c.begin(np.array([1 << 31], np.uint32)), radixkv.InvalidArgument, "ids"),
    "pages read-only": (
        lambda c: c.match(ids(4), np.zeros(4, np.uint32).tobytes()), ValueError, "pages"),
    "pages of 64 bits": (
        lambda c: c.match(ids(4), np.zeros(4, np.int64)), TypeError, "pages.*32-bit"),
    "too little room for pages": (
        lambda c: c.match(ids(64), pages(0, 0)), radixkv.BufferTooSmall, "page"),
    "a prompt longer than a row": (
        lambda c: c.begin(ids(100_000)), radixkv.InvalidArgument, "tokens"),
    "too few pages": (lambda c: c.insert(ids(64), pages(1)), radixkv.InvalidArgument, "page"),
    "a page that is not private": (
        lambda c: c.insert(ids(16, 900), pages(250)), radixkv.InvalidArgument, "pages"),
    "too little room for published": (
        lambda c: c.insert(ids(16), pages(1, 2), published=pages(0)), ValueError, "published"),
    "a node of nobody": (lambda c: c.lock(12345), radixkv.StaleNode, "node"),
    "a lock of nobody": (lambda c: c.unlock(12345), radixkv.StaleLock, "lock"),
    "a sequence of nobody": (lambda c: c.sequence(12345), radixkv.StaleSequence, "sequence"),
    "a namespace that is none": (
        lambda c: c.match(ids(4), space="a"), TypeError, "space"),  # type: ignore[arg-type]
    "half a salt": (lambda c: radixkv.Namespace(salt=b"abc"), ValueError, "salt: 32 bytes"),
    "half a digest": (
        lambda c: radixkv.Namespace(image_digest=b"abc"), ValueError, "image_digest: 16"),
    "a key that is none": (
        lambda c: radixkv.namespace_of(1.5), TypeError, "keys"),  # type: ignore[arg-type]
    "a second cache": (lambda c: radixkv.Cache(c.table), radixkv.Busy, "cache"),
    "an index that there is not": (
        lambda c: radixkv.Cache(c.table, index="btree"), ValueError, "index: 'radix'"),
    "a table without pages": (
        lambda c: radixkv.PageTable(0), radixkv.InvalidArgument, "page_count"),
    "a page of nothing": (
        lambda c: radixkv.PageTable(8, page_size=0), radixkv.InvalidArgument, "page_size"),
    "a slot that is free": (lambda c: c.table.free_slot(3), radixkv.InvalidArgument, "slot"),
    "a slot below zero": (
        lambda c: c.table.free_slot(-1), OverflowError, "slot"),
    "a page that is free": (
        lambda c: c.table.free_pages(pages(9)), radixkv.InvalidArgument, "pages"),
    "another pool": (lambda c: c.table.pool_stats(5), radixkv.InvalidArgument, "pool"),
    "a mapping of another length": (
        lambda c: c.table.read_slot_mapping(0, np.zeros(3, np.uint64), np.zeros(2, np.int64)),
        ValueError, "mapping: 3"),
    "ids of 32 bits": (
        lambda c: c.release_many(np.zeros(3, np.uint32)), TypeError, "sequences.*64-bit"),
    "a token too few": (
        lambda c: c.append_many(np.zeros(3, np.uint64), ids(2)), ValueError, "tokens: 3"),
    "counts of another length": (
        lambda c: c.append_many(np.zeros(3, np.uint64), ids(2), counts=pages(1, 1)),
        ValueError, "counts: 3"),
    "a status too few": (
        lambda c: c.release_many(np.zeros(3, np.uint64), statuses=np.zeros(2, np.int32)),
        ValueError, "statuses: 3"),
    "infos of another layout": (
        lambda c: c.begin_many([ids(4)], np.zeros(4, radixkv.dtypes.match)),
        TypeError, "infos.*sequence_info"),
    "too little room for infos": (
        lambda c: c.begin_many([ids(4)] * 2, np.zeros(1, radixkv.dtypes.sequence_info)),
        ValueError, "infos"),
    "a prompt among many": (
        lambda c: c.begin_many([ids(4), 7], np.zeros(2, radixkv.dtypes.sequence_info)),
        TypeError, r"prompts\[1\]"),
    "spaces of another length": (
        lambda c: c.probe_many([ids(4)], np.zeros(1, radixkv.dtypes.probe), spaces=[None, None]),
        ValueError, "spaces: 1"),
    "a plan without rows": (
        lambda c: radixkv.Plan(c.table).check(), radixkv.InvalidState, "row"),
    "a plan of no sequence": (
        lambda c: radixkv.Plan(c.table).set(np.zeros(1, np.uint64), np.zeros(1, np.uint64)),
        ValueError, r"sequences\[0\]"),
    "a plan of sequences and slots": (
        lambda c: radixkv.Plan(c.table).set(None, np.zeros(1, np.uint64)),
        TypeError, "sequences, slots"),
    "a runner without heads": (
        lambda c: radixkv.Runner(c.table, layers=1, query_heads=0, kv_heads=1),
        radixkv.InvalidArgument, "query_head_count"),
    "a dtype that there is not": (
        lambda c: radixkv.Runner(c.table, layers=1, query_heads=1, kv_heads=1, dtype="int8"),
        ValueError, "dtype"),
    "an item out of order": (
        lambda c: c.match(radixkv.Tokens(ids(4), [radixkv.TokenItem.coord(9, 1)])),
        radixkv.InvalidArgument, "item"),
    "places of floats": (
        lambda c: radixkv.page_numbers(np.zeros(16), 16, pages(0)), TypeError, "places"),
    "pages of no size": (
        lambda c: radixkv.page_numbers(np.zeros(16, np.int32), 0, pages(0)),
        ValueError, "page_size"),
    "pages larger than there are": (
        lambda c: radixkv.page_numbers(np.array([-1 << 63]), (1 << 64) - 1, pages(0)),
        ValueError, "page_size"),
    "places of no size": (
        lambda c: radixkv.page_places(pages(1), 0, np.zeros(9, np.int64)),
        ValueError, "page_size"),
    "places of pages larger than there are": (
        lambda c: radixkv.page_places(pages(), 1 << 17, np.zeros(9, np.int64)),
        ValueError, "page_size"),
    "a page below zero": (
        lambda c: radixkv.page_places(np.array([3, -1]), 4, np.zeros(9, np.int64)),
        ValueError, "pages: -1"),
    "a page too far": (
        lambda c: radixkv.page_places(np.array([1 << 62]), 4, np.zeros(9, np.int64)),
        ValueError, "pages"),
    "a place below zero": (
        lambda c: radixkv.page_numbers(np.full(16, -16), 16, pages(0)), ValueError, "places: -16"),
    "a place too far": (
        lambda c: radixkv.page_numbers(np.full(16, 1 << 40), 16, pages(0)), ValueError, "places"),
    "too little room for page numbers": (
        lambda c: radixkv.page_numbers(np.zeros(32, np.int32), 16, pages(0)), ValueError, "pages"),
    "a format of no dump": (lambda c: c.dump("xml"), ValueError, "format: 'json'"),
    "more children than slots": (
        lambda c: c.fork(c.begin(ids(4)).detach(), 1 << 40), radixkv.OutOfSlots, "slot"),
}


@pytest.mark.parametrize("name", TABLE)
def test_p01_misuse(cache: radixkv.Cache, name: str) -> None:
    with cache.begin(ids(64)) as sequence:
        sequence.publish(64)
    call, kind, message = TABLE[name]
    before = cache.stats().cached_page_count
    with pytest.raises(kind, match=message) as caught:
        call(cache)
    if isinstance(caught.value, radixkv.Error):
        assert radixkv.Status(caught.value.status) != radixkv.Status.OK
    assert cache.stats().cached_page_count == before
    cache.check()


def test_the_readme_names_what_is_raised() -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text()
    errors = text.partition("\n## Errors\n")[2].partition("\n## ")[0]
    for _, kind, _ in TABLE.values():
        assert f"`{kind.__name__}`" in errors


def test_out_of_pages_says_what_is_lacking(cache: radixkv.Cache) -> None:
    first = cache.begin(ids(3200))
    with pytest.raises(radixkv.OutOfPages) as caught:
        cache.begin(ids(1600, 10_000))
    shortage = caught.value.shortage
    assert (shortage.needed_page_count, shortage.free_page_count) == (100, 55)
    assert shortage.private_page_count == 200
    first.release()
    cache.begin(ids(1600, 10_000)).release()


def test_room_that_is_lacking_is_named(cache: radixkv.Cache) -> None:
    with cache.begin(ids(64)) as sequence:
        sequence.publish(64)
        with pytest.raises(radixkv.BufferTooSmall) as caught:
            cache.table.read_row(sequence.slot, pages(0))
        assert caught.value.needed == 4
        with pytest.raises(radixkv.BufferTooSmall) as caught:
            cache.match(ids(64), pages(0))
        assert caught.value.needed == 4


def test_s05_a_released_sequence_is_an_error(cache: radixkv.Cache) -> None:
    sequence = cache.begin(ids(64))
    number = sequence.id
    sequence.release()
    for call in (sequence.release, sequence.info, sequence.copies, sequence.detach):
        with pytest.raises(radixkv.StaleSequence):
            call()
    with pytest.raises(radixkv.StaleSequence):
        sequence.append([1])
    with pytest.raises(radixkv.StaleSequence):
        cache.sequence(number)
    with sequence:  # as a file that was closed: leaving is no second release
        pass


def test_s05_a_lock_is_undone_once(cache: radixkv.Cache) -> None:
    with cache.begin(ids(64)) as sequence:
        sequence.publish(64)
    lock = cache.match(ids(64), lock=True).lock
    cache.unlock(lock)
    with pytest.raises(radixkv.StaleLock):
        cache.unlock(lock)
    with pytest.raises(radixkv.StaleLock):
        cache.hold(lock).unlock()


def test_s05_a_block_hides_no_exception() -> None:
    with radixkv.PageTable(64, page_size=16) as table:
        cache = radixkv.Cache(table)
        with cache.begin(ids(64)) as sequence:
            sequence.publish(64)
        with cache.hold(cache.match(ids(64), lock=True).lock) as lock:
            lock.unlock()
        with pytest.raises(KeyError), cache.hold(cache.match(ids(64), lock=True).lock):
            cache.close()
            raise KeyError
    snapshots = radixkv.SnapshotCache()
    snapshots.insert(ids(4), None, parts=[np.arange(9)])
    pin = snapshots.match(ids(4))
    assert pin is not None
    with pytest.raises(KeyError), pin:
        parts = pin.parts()
        raise KeyError
    del parts
    gc.collect()
    pin.release()


def test_a_sequence_ends_with_its_object(cache: radixkv.Cache) -> None:
    sequence = cache.begin(ids(64))
    kept = cache.begin(ids(64)).detach()
    assert cache.stats().sequence_count == 2
    del sequence
    gc.collect()
    assert cache.stats().sequence_count == 1
    cache.sequence(kept).release()
    assert cache.stats().sequence_count == 0


def test_a_cache_closes_under_its_sequences(cache: radixkv.Cache) -> None:
    sequence = cache.begin(ids(64))
    sequence.publish(64)
    lock = cache.hold(cache.match(ids(64), lock=True).lock)
    cache.close()
    cache.close()
    assert cache.closed
    for call in (sequence.release, sequence.info, lock.unlock, cache.stats):
        with pytest.raises(radixkv.InvalidState, match="Cache is closed"):
            call()
    table = cache.table
    assert table.stats().free_page_count == table.stats().total_page_count
    del sequence, lock
    with radixkv.Cache(table) as other:  # the table has room for another one
        assert other.probe(ids(64)) == 0


def test_an_exception_outlives_the_objects_that_it_ends(cache: radixkv.Cache) -> None:
    def prompts() -> Iterator[NDArray[np.uint32]]:
        yield ids(9)
        cache.close()
        yield ids(9)

    with pytest.raises(radixkv.InvalidState, match="Cache is closed"):
        # What the list has so far goes with the exception under way.
        [cache.begin(prompt) for prompt in prompts()]


def test_an_exception_outlives_a_row_of_a_closed_cache(cache: radixkv.Cache) -> None:
    rows = [cache.growing_row(ids(32))]
    assert rows[0].extend(None, 32, 32) is not None
    cache.close()
    with pytest.raises(TypeError, match="int"):
        int(rows.pop())  # type: ignore[call-overload]


def test_a_table_closes_under_its_cache() -> None:
    table = radixkv.PageTable(64)
    cache = radixkv.Cache(table)
    table.close()
    with pytest.raises(radixkv.InvalidState, match="PageTable is closed"):
        table.stats()
    with cache.begin(ids(64)) as sequence:
        sequence.publish(64)
    assert cache.probe(ids(64)) == 64
    cache.close()
