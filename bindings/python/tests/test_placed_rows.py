"""Rows of places, for engines that allocate their pages themselves."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from conftest import ids

import radixkv
from radixkv import Group

PAGE, WINDOW = 4, 10
ROWS, WIDTH = 8, 256


class Engine:
    """An allocator of two pools, rows of places, and a mapping from one pool to the other. On a
    GPU it would pass copies."""

    def __init__(
        self, pages: Sequence[int], *, copies: bool = False, width: int = WIDTH
    ) -> None:
        groups = [Group.full(), Group.window(WINDOW, pool=1)][: len(pages)]
        self.table = radixkv.PageTable(
            pools=list(pages), groups=groups, page_size=PAGE, external=True
        )
        self.cache = radixkv.Cache(self.table, whole_pages=True)
        self.rows = np.zeros((ROWS, width), np.int32)
        self.mapping = np.zeros(pages[0] * PAGE + 1, np.int64)
        self.copies = copies
        tables: dict[str, Any] = {} if copies else {"rows": self.rows, "mapping": self.mapping}
        self.placed = radixkv.PlacedRows(self.cache, **tables)
        self.pages = pages
        self.free = [list(range(1, count)) for count in pages]

    def allocate(self, row: int, start: int, end: int) -> None:
        """Places for the positions of a row, from the beginning of a page on."""
        for at in range(start, end, PAGE):
            page = self.free[0].pop()
            for offset in range(min(PAGE, end - at)):
                self.rows[row, at + offset] = page * PAGE + offset
            if len(self.free) > 1:
                window = self.free[1].pop() * PAGE
                self.mapping[page * PAGE : (page + 1) * PAGE] = window + np.arange(PAGE)

    def publish(
        self, row: int, tokens: Any, length: int, last: radixkv.InsertResult | None = None
    ) -> radixkv.InsertResult:
        """And shares what the cache had already."""
        start = last.page_count * PAGE if last else 0
        more: Any = {"row": row}
        if self.copies:
            places = self.rows[row, start:length].astype(np.int64)
            more = {"places": places}
            if len(self.free) > 1:
                more["window_places"] = self.mapping[places[::PAGE]]
        if last is not None:
            more |= {"from_node": last.node, "from_token_index": start, "lock": last.lock}
        done = self.placed.publish(tokens, length, **more)
        known = done.page_count - done.claimed_page_count
        first = known - done.duplicate_page_count
        given, published = self.placed.pages(first, known)
        assert (given != published).all()
        if not self.copies:
            pages, windows = (it.tolist() for it in self.placed.share(row, first, known))
            assert pages == given.tolist()
            self.free[0] += pages
            if windows:
                self.free[1] += windows
            return done
        if len(self.free) > 1:
            mine, theirs = self.placed.pages(first, known, group=1)
            for page, window in zip(given, mine, strict=True):
                self.mapping[page * PAGE : (page + 1) * PAGE] = 0
            for page, window, taken in zip(published, mine, mine == theirs, strict=True):
                if taken and window:
                    part = slice(page * PAGE, (page + 1) * PAGE)
                    self.mapping[part] = window * PAGE + np.arange(PAGE)
                elif window:
                    self.free[1].append(int(window))
        self.free[0] += given.tolist()
        places = np.empty(len(published) * PAGE, np.int64)
        radixkv.page_places(published, PAGE, places)
        self.rows[row, first * PAGE : known * PAGE] = places
        return done

    def release(self, row: int, start: int, end: int) -> None:
        if self.copies:
            pages = np.empty(-(-(end - start) // PAGE), np.uint32)
            radixkv.page_numbers(self.rows[row, start:end], PAGE, pages)
            windows = self.mapping[pages * PAGE] // PAGE
            for page in pages:
                self.mapping[page * PAGE : (page + 1) * PAGE] = 0
            mine, theirs = pages.tolist(), windows[windows > 0].tolist()
        else:
            mine, theirs = (it.tolist() for it in self.placed.release(row, start, end))
        self.free[0] += mine
        if theirs:
            self.free[1] += theirs

    def evict(self, *page_counts: int) -> tuple[int, int]:
        strays = self.placed.stray_pages().size
        pages, windows, bare = self.placed.evict(*page_counts)
        if self.copies:
            for page in bare:
                self.mapping[page * PAGE : (page + 1) * PAGE] = 0
        self.free[0] += pages.tolist()
        self.free[1] += windows.tolist()
        assert 0 <= len(windows) - len(bare) <= strays
        return len(pages), len(windows)

    def check(self, owned: Sequence[set[int]]) -> None:
        """Each page is free, cached, in one request's row, or hangs on a cached one for want of
        memory; and the mapping says where."""
        self.cache.check()
        self.table.check()
        strays = self.placed.stray_pages().tolist()
        for pool, (free, mine) in enumerate(zip(self.free, owned, strict=True)):
            cached = self.table.pool_stats(pool).cached_page_count
            assert len(free) == len(set(free)) and not set(free) & mine
            others = len(strays) if pool == 1 else 0
            assert len(free) + len(mine) + cached + others == self.pages[pool] - 1
        if len(self.free) > 1:
            assert self.table.pool_stats(1).cached_page_count == len(self.placed.window_pages())
            mapped = [it for it in (self.mapping[PAGE:-1:PAGE] // PAGE).tolist() if it > 0]
            # Those in whose place the cache took others hang nowhere.
            hanging = set(strays).intersection(mapped)
            known = {*self.placed.window_pages().tolist(), *owned[1], *hanging}
            assert sorted(mapped) == sorted(known)


@pytest.mark.parametrize("copies", [False, True])
def test_p02_j07_a_row_is_published_as_it_grows(copies: bool) -> None:
    engine = Engine([40], copies=copies)
    tokens = ids(30).astype(np.int64)
    engine.allocate(0, 0, 30)
    first = engine.publish(0, tokens, 12)
    assert (first.page_count, first.claimed_page_count) == (3, 3)
    more = engine.publish(0, tokens, 28, first)
    assert (more.page_count, more.claimed_page_count) == (7, 4)
    # The lock from before is undone, the new one is on all of it.
    with pytest.raises(radixkv.StaleLock):
        engine.cache.unlock(first.lock)
    assert engine.cache.stats().reclaimable_page_count == 0
    engine.release(0, 28, 30)
    engine.check([set()])
    # Another request with the same tokens shares the pages, and its own are free.
    engine.allocate(1, 0, 28)
    second = engine.publish(1, tokens, 28)
    assert (second.duplicate_page_count, second.claimed_page_count) == (7, 0)
    assert (engine.rows[1, :28] == engine.rows[0, :28]).all()
    engine.check([set()])
    engine.cache.unlock(more.lock)
    engine.cache.unlock(second.lock)
    assert engine.cache.stats().reclaimable_page_count == 7


@pytest.mark.parametrize("copies", [False, True])
def test_p02_g01_pages_of_a_window_go_and_come_back(copies: bool) -> None:
    engine = Engine([40, 40], copies=copies)
    tokens = ids(32)
    engine.allocate(0, 0, 32)
    first = engine.publish(0, tokens, 32)
    engine.cache.unlock(first.lock)
    assert engine.evict(0, 8) == (0, 8)
    assert not engine.mapping[:-1].any() and engine.cache.probe(tokens) == 0
    engine.check([set(), set()])
    # Who computes them anew hands the window's pages on: they hang on the pages from before.
    engine.allocate(1, 0, 32)
    second = engine.publish(1, tokens, 32)
    assert second.duplicate_page_count == 8
    assert (engine.rows[1, :32] == engine.rows[0, :32]).all()
    engine.check([set(), set()])
    assert engine.cache.probe(tokens) == 32
    engine.cache.unlock(second.lock)
    # A page of full attention takes along what hangs on it.
    assert engine.evict(5, 0) == (5, 5)
    assert engine.evict(100, 100) == (3, 3)
    engine.check([set(), set()])


def test_p02_g01_a_state_is_where_a_row_ends() -> None:
    groups = [Group.full(), Group.state(pool=1)]
    table = radixkv.PageTable(pools=[40, 5], groups=groups, page_size=PAGE, external=True)
    cache = radixkv.Cache(table, whole_pages=True)
    placed, tokens = radixkv.PlacedRows(cache), ids(32)
    places = np.arange(PAGE, 36)
    first = placed.publish(tokens, 16, places=places[:16], state=3)
    assert (first.claimed_page_count, first.claimed_group_page_count) == (4, 1)
    done = placed.publish(tokens, 32, places=places[16:], state=2, from_node=first.node,
                          from_token_index=16, lock=first.lock)
    # The prefix without its last page is known, and has no state.
    found = cache.match(tokens[:31], np.empty(8, np.uint32))
    assert (found.token_count, found.known_position_count) == (16, 28)
    # A state that is there stays; one of a shorter row comes to the pages that are there.
    again = placed.publish(tokens, 32, places=np.arange(64, 96), state=4, lock=done.lock)
    assert (again.duplicate_page_count, again.claimed_group_page_count) == (8, 0)
    given, published = placed.pages(7, 8, group=1)
    assert (given.tolist(), published.tolist()) == ([4], [2])
    short = placed.publish(tokens, 28, places=np.arange(64, 92), state=4)
    assert (short.duplicate_page_count, short.claimed_group_page_count) == (7, 1)
    none = placed.publish(tokens, 28, places=np.arange(64, 92), lock=short.lock)
    assert none.claimed_group_page_count == 0
    assert placed.window_pages().tolist() == [2, 3, 4]
    # Whoever goes on from a prefix is told where its state lies.
    ahead = cache.match(tokens, np.empty(8, np.uint32), lock=True)
    assert placed.locked_state(ahead.lock).tolist() == [2]
    cache.unlock(ahead.lock)
    with pytest.raises(radixkv.StaleLock):
        placed.locked_state(ahead.lock)
    # Those that rows end at are locked.
    assert [it.tolist() for it in placed.evict(0, 5)] == [[], [3], [4]]
    for lock in (again.lock, none.lock):
        cache.unlock(lock)
    pages, states, bare = placed.evict(1, 0)
    assert (pages.tolist(), states.tolist(), bare.tolist()) == ([8], [2], [8])
    cache.check()
    table.check()


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("pools", [1, 2])
def test_no_page_is_lost(pools: int, copies: bool) -> None:
    """Requests that begin, grow, end and are dropped, in pools that are too small for all."""
    source = random.Random(10 * pools + copies)
    engine = Engine([60, 44][:pools], copies=copies)
    running: dict[int, tuple[list[int], radixkv.InsertResult | None, int]] = {}
    for _ in range(600):
        short = [max(0, 12 - len(free)) for free in engine.free]
        if any(short) and pools == 2:
            engine.evict(*short)
        elif any(short):
            gone = np.empty(short[0], np.uint32)
            engine.free[0] += gone[: engine.cache.evict(short[0], gone)].tolist()
        row = source.choice(range(3))
        tokens, last, held = running.pop(row, ([], None, 0))
        published = last.page_count * PAGE if last else 0
        if tokens and source.random() < 0.4 or any(len(free) < 12 for free in engine.free):
            if held > published:
                engine.release(row, published, held)
            if last is not None:
                engine.cache.unlock(last.lock)
        else:
            # From a page on, so that rows end within one; what is there already is computed anew.
            engine.release(row, published, held)
            tokens = tokens[:published] or [source.randrange(2)] * source.randrange(20)
            tokens += [source.randrange(2) for _ in range(source.randrange(1, 20))]
            engine.allocate(row, published, len(tokens))
            if whole := len(tokens) // PAGE * PAGE:
                last = engine.publish(row, np.array(tokens), whole, last)
            running[row] = (tokens, last, len(tokens))
        owned: list[set[int]] = [set() for _ in range(pools)]
        for at, (_, done, count) in running.items():
            for place in engine.rows[at, (done.page_count * PAGE if done else 0) : count]:
                owned[0].add(int(place) // PAGE)
                if pools == 2 and engine.mapping[place]:
                    owned[1].add(int(engine.mapping[place]) // PAGE)
        engine.check(owned)


def test_what_is_refused_changes_nothing() -> None:
    engine = Engine([40, 40])
    placed, tokens = engine.placed, ids(32)
    engine.allocate(0, 0, 32)
    before = engine.mapping.copy()
    with pytest.raises(ValueError, match="whole pages"):
        placed.publish(tokens, 30, 0)
    with pytest.raises(ValueError, match="tokens: 32 are needed, 31"):
        placed.publish(tokens[:31], 32, 0)
    with pytest.raises(TypeError, match="tokens: text"):
        items = [radixkv.TokenItem.coord(0, 1)]
        placed.publish(radixkv.Tokens(tokens, items), 32, 0)
    with pytest.raises(ValueError, match="row 8"):
        placed.publish(tokens, 32, ROWS)
    with pytest.raises(TypeError, match="row, places"):
        placed.publish(tokens, 32)
    with pytest.raises(ValueError, match="window_places: 8"):
        placed.publish(tokens, 32, 0, window_places=np.zeros(7, np.int64))
    with pytest.raises(ValueError, match="places: 32"):
        placed.publish(tokens, 32, places=engine.rows[0, :31])
    with pytest.raises(radixkv.InvalidArgument, match="page"):
        placed.publish(tokens, 32, places=np.full(32, 4))
    # A refused publish has left nothing to be shared.
    with pytest.raises(ValueError, match="first, end: 0 to 8 of pages 0 to 0"):
        placed.share(0, 0, 8)
    with pytest.raises(ValueError, match="first, end"):
        placed.pages(3, 1000)
    with pytest.raises(ValueError, match="first, end"):
        placed.share(0, 3, 1000)
    with pytest.raises(ValueError, match="row"):
        placed.release(0, 0, WIDTH + 1)
    engine.rows[1, :4] = 40 * PAGE + np.arange(PAGE)
    with pytest.raises(ValueError, match="mapping: page 40"):
        placed.release(1, 0, 4)
    assert (engine.mapping == before).all() and engine.cache.stats().cached_page_count == 0
    done = placed.publish(tokens, 32, 0)
    assert done.claimed_page_count == 8
    mapped, rows = engine.mapping.copy(), engine.rows.copy()
    with pytest.raises(ValueError, match="row 8"):
        placed.share(ROWS, 0, 8)
    # What is the cache's own is nobody's to free.
    assert [it.size for it in placed.share(0, 0, 8)] == [0, 0]
    assert (engine.mapping == mapped).all() and (engine.rows == rows).all()
    with pytest.raises(radixkv.StaleLock):
        placed.publish(tokens, 32, 0, from_node=done.node, from_token_index=32, lock=1 << 40)
    engine.cache.unlock(done.lock)


def test_p02_j07_another_thread_gets_busy() -> None:
    """Whoever comes while a publish is under way: here from what it reads, in the same thread."""
    engine = Engine([40, 40])
    placed, tokens, refused = engine.placed, ids(8), []
    engine.allocate(0, 0, 8)
    places, mapping = engine.rows[0, :8].copy(), engine.mapping.copy()
    calls = (
        lambda: placed.publish(tokens, 8, 0), lambda: placed.evict(1, 1),
        lambda: placed.pages(0, 0), lambda: placed.share(0, 0, 0),
        lambda: placed.release(0, 0, 8), lambda: placed.locked_state(5),
        placed.window_pages,
    )

    class Meddling:
        def __dlpack__(self, **options: Any) -> Any:
            for call in calls:
                with pytest.raises(radixkv.Busy, match="another thread uses the row"):
                    call()
                refused.append(call)
            # Of this alone whoever watches the one at work gets an answer.
            assert placed.stray_page_count == 0
            return places.__dlpack__()

        def __dlpack_device__(self) -> Any:
            return 1, 0

    done = placed.publish(tokens, 8, places=Meddling())
    assert len(refused) == len(calls) and done.claimed_page_count == 2
    assert (engine.mapping == mapping).all()
    engine.check([set(), set()])


def test_pages_are_of_the_last_publish_alone() -> None:
    engine = Engine([40])
    placed, tokens = engine.placed, ids(32)
    engine.allocate(0, 0, 32)
    engine.publish(0, tokens, 32)
    engine.allocate(1, 0, 32)
    placed.publish(tokens, 32, 1)
    pages, _ = placed.share(1, 0, 8)
    assert len(pages) == 8
    engine.allocate(2, 0, 16)
    # Of a shorter prompt those behind it are another request's.
    done = placed.publish(tokens[:16] + 100, 16, 2)
    rows = engine.rows.copy()
    with pytest.raises(ValueError, match="first, end: 0 to 8 of pages 0 to 4"):
        placed.share(2, 0, 8)
    # Nor are those before where it went on.
    engine.allocate(2, 16, 32)
    placed.publish(tokens + 100, 32, 2, from_node=done.node, from_token_index=16)
    with pytest.raises(ValueError, match="first, end: 3 to 8 of pages 4 to 8"):
        placed.pages(3, 8)
    assert (engine.rows[:2] == rows[:2]).all() and (engine.rows[2, :16] == rows[2, :16]).all()


def test_what_it_is_made_for() -> None:
    engine = Engine([40])
    with pytest.raises(radixkv.Unsupported, match=r"Cache\.evict"):
        engine.placed.evict(1, 0)
    with pytest.raises(TypeError, match="two dimensions"):
        radixkv.PlacedRows(engine.cache, rows=engine.mapping)
    with pytest.raises(TypeError, match="rows"):
        radixkv.PlacedRows(engine.cache, rows=np.zeros((2, 2)))
    with pytest.raises(TypeError, match="mapping: an array of 64-bit"):
        radixkv.PlacedRows(engine.cache, mapping=engine.rows)
    fixed = engine.rows.copy()
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="rows"):
        radixkv.PlacedRows(engine.cache, rows=fixed)
    without = radixkv.PlacedRows(engine.cache)
    with pytest.raises(ValueError, match="no table of rows"):
        without.publish(ids(4), 4, 0)
    with pytest.raises(ValueError, match="no table of rows"):
        without.share(0, 0, 0)
    groups = [Group.full(), Group.state(), Group.state(pool=1)]
    with radixkv.PageTable(pools=[9, 9], groups=groups, external=True) as table:
        with radixkv.Cache(table) as cache:
            with pytest.raises(radixkv.Unsupported, match="PlacedRows"):
                radixkv.PlacedRows(cache)
    two = Engine([9, 9], copies=True)
    with pytest.raises(ValueError, match="window_places"):
        two.placed.publish(ids(4), 4, places=np.arange(4, 8))
    unmapped = radixkv.PlacedRows(two.cache, rows=two.rows)
    with pytest.raises(ValueError, match="mapping"):
        unmapped.share(0, 0, 0)


def test_p02_j07_places_of_the_cache_fit_into_the_rows() -> None:
    """What was published by 64-bit places may lie beyond those that a row of 32 bits can have."""
    page_count = (1 << 31) // PAGE + 2
    table = radixkv.PageTable(pools=[page_count], page_size=PAGE, external=True)
    cache = radixkv.Cache(table, whole_pages=True)
    rows = np.zeros((1, 8), np.int32)
    placed, tokens = radixkv.PlacedRows(cache, rows=rows), ids(4)
    far = (1 << 31) + np.arange(PAGE)
    cache.unlock(placed.publish(tokens, PAGE, places=far).lock)
    rows[0, :PAGE] = PAGE + np.arange(PAGE)
    done = placed.publish(tokens, PAGE, 0)
    assert done.duplicate_page_count == 1
    with pytest.raises(ValueError, match="32 bits"):
        placed.share(0, 0, 1)
    assert rows[0, 0] == PAGE


def test_p02_j07_a_prefix_becomes_recent_when_its_request_ends() -> None:
    """A request that goes on spares the look at its whole prefix, which nobody can evict."""
    for recent in (False, True):
        table = radixkv.PageTable(pools=[40], page_size=PAGE, external=True)
        cache = radixkv.Cache(table, whole_pages=True)
        placed = radixkv.PlacedRows(cache)
        shared, other = ids(8), ids(8, 100)
        first = placed.publish(shared, 8, places=np.arange(PAGE, 12))
        held = placed.publish(other, 8, places=np.arange(12, 20))
        more = np.concatenate([shared, ids(4, 200)])
        done = placed.publish(
            more, 12, places=np.arange(20, 24), from_node=first.node, from_token_index=8,
            lock=first.lock, recent=recent,
        )
        cache.unlock(done.lock)
        gone = np.empty(1, np.uint32)
        assert cache.evict(1, gone) == 1 and gone[0] == 5
        cache.unlock(held.lock)
        assert cache.evict(1, gone) == 1 and gone[0] == (4 if recent else 2)
        cache.check()


def test_places_of_pages() -> None:
    for kind in (np.uint32, np.int64):
        into = np.full(9, -1, np.int64)
        radixkv.page_places(np.array([3, 1], kind), 4, into)
        assert into.tolist() == [12, 13, 14, 15, 4, 5, 6, 7, -1]
    radixkv.page_places(np.array([], np.uint32), 4, into)
    with pytest.raises(ValueError, match="places"):
        radixkv.page_places(np.array([3, 1, 2], np.uint32), 4, into)
    with pytest.raises(TypeError, match="pages"):
        radixkv.page_places(np.zeros(2), 4, into)


def test_p02_j07_a_stale_lock_leaves_no_other_behind() -> None:
    table = radixkv.PageTable(pools=[40], groups=[Group.full()], page_size=PAGE, external=True)
    cache = radixkv.Cache(table, whole_pages=True)
    placed, tokens = radixkv.PlacedRows(cache), ids(16)
    first = placed.publish(tokens, 16, places=np.arange(PAGE, 20))
    cache.unlock(first.lock)
    with pytest.raises(radixkv.StaleLock):
        placed.publish(tokens, 16, places=np.arange(20, 36), lock=first.lock)
    # Nobody could undo it.
    assert cache.evict(4, np.empty(4, np.uint32)) == 4
    cache.check()
    table.check()


def test_what_goes_on_in_a_namespace_is_recent_there() -> None:
    table = radixkv.PageTable(pools=[40], page_size=PAGE, external=True)
    cache = radixkv.Cache(table, whole_pages=True)
    placed, tokens, space = radixkv.PlacedRows(cache), ids(12), radixkv.namespace_of("tenant")
    first = placed.publish(tokens, 8, places=np.arange(4, 12), space=space)
    cache.unlock(placed.publish(tokens, 8, places=np.arange(12, 20)).lock)
    on: Any = {"from_node": first.node, "from_token_index": 8, "lock": first.lock}
    done = placed.publish(tokens, 12, places=np.arange(20, 24), space=space, **on)
    cache.unlock(done.lock)
    assert cache.evict(2, np.empty(2, np.uint32)) == 2
    assert (cache.probe(tokens), cache.probe(tokens, space=space)) == (0, 12)


def test_p02_j07_more_pages_than_there_are_can_be_asked_for() -> None:
    pages = [40, 40]
    engine = Engine(pages)
    tokens = ids(32)
    engine.allocate(0, 0, 32)
    engine.cache.unlock(engine.publish(0, tokens, 32).lock)
    assert len(engine.placed.evict(10**12, 10**18)[0]) == 8
    engine.cache.check()


def test_places_that_are_not_there_are_refused() -> None:
    engine = Engine([64])
    for start, end in [(0, WIDTH + 1), (0, 1 << 62), (8, 4)]:
        with pytest.raises(ValueError, match="row"):
            engine.placed.release(0, start, end)
    # Who has the front of a page has the page.
    with pytest.raises(ValueError, match="start: 6"):
        engine.placed.release(0, 6, 12)
