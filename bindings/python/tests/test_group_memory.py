"""Rows of several groups, when the library finds no memory in the middle of a long publish."""

import ctypes
import sys
from pathlib import Path

from conftest import ids
from test_placed_memory import library_code, run_lacking_memory

import radixkv
from radixkv import Group

#: More pages than the library publishes at once.
PAGE, COUNT = 4, 2048
LENGTH = COUNT * PAGE
PAGES = 3 * COUNT


def serve(failing: ctypes.CDLL, after: int, once: bool, known: int) -> tuple[int, bool]:
    """One request that lacks memory, beside another one whose first `known` pages are the same, and
    the end of both. Returns how many requests for memory failed, and whether the cache took the
    pages of full attention without those of the window."""
    tokens = ids(LENGTH)
    with radixkv.PageTable(
        PAGES, page_size=PAGE, groups=[Group.full(), Group.window(10)]
    ) as table, radixkv.Cache(table, whole_pages=True) as cache:
        other = cache.group_row(tokens[: known * PAGE])
        if known:
            assert other.extend(None, known * PAGE, known * PAGE) is not None
        row = cache.group_row(tokens)
        failing.failing_begin(after, once)
        try:
            row.extend(None, LENGTH, LENGTH)
        except radixkv.OutOfMemory:
            pass
        failed = failing.failing_end()
        cache.check()
        table.check()
        private = [len(pages) for pages in row.private_pages]
        # Nobody else has private pages but what the other one gave twice.
        assert table.pool_stats(0).private_page_count == sum(private)
        is_bare = row.published_page_count == COUNT and private[1] > known
        row.release()
        other.release()
        assert cache.stats().lock_count == 0
        cache.evict_pool(0, PAGES)
        stats = table.pool_stats(0)
        assert (stats.private_page_count, stats.free_page_count) == (0, stats.total_page_count)
        cache.check()
        table.check()
    return failed, is_bare


def leave_no_state(failing: ctypes.CDLL) -> None:
    """A step that lacks memory, and one that goes past where it would have ended."""
    after = 0
    while True:
        with radixkv.PageTable(64, page_size=16, groups=[Group.full(), Group.state()]) as table:
            with radixkv.Cache(table, whole_pages=True) as cache:
                row = cache.group_row(ids(15))
                assert row.extend(None, 15, 0) is not None
                failing.failing_begin(after, True)
                refused = False
                try:
                    row.extend([16], 16, 16)
                except radixkv.OutOfMemory:
                    refused = True
                failed = failing.failing_end()
                if refused:
                    assert (row.token_count, row.published_page_count) == (15, 0)
                    assert row.extend([16, 17, 18], 18, 18) is not None
                    assert cache.group_row(ids(17)).probe(16) == 0
                row.release()
        if not failed:
            break
        after += 1
    print(f"{after} requests for memory of a step")
    assert after > 0


def leave_no_state_behind_a_part(failing: ctypes.CDLL) -> None:
    """A step of which the first page is published when memory lacks, and one that goes past where
    it would have ended."""
    after = parts = 0
    while True:
        with radixkv.PageTable(64, page_size=16, groups=[Group.full(), Group.state()]) as table:
            with radixkv.Cache(table, whole_pages=True) as cache:
                row = cache.group_row(ids(32))
                failing.failing_begin(after, True)
                try:
                    row.extend(None, 32, 32)
                except radixkv.OutOfMemory:
                    pass
                failed = failing.failing_end()
                if (row.page_count, row.published_page_count) == (2, 1):
                    parts += 1
                    assert row.extend([33, 34], 34, 34) is not None
                    assert row.published_page_count == 2
                    assert cache.group_row(ids(33)).probe(32) == 0
                row.release()
                cache.check()
                assert table.pool_stats(0).private_page_count == 0
        if not failed:
            break
        after += 1
    print(f"{after} requests for memory of a step, {parts} behind its first page")
    assert parts > 0


def lack_memory(library: str) -> None:
    """In a process of its own, whose allocator is in that library."""
    failing = ctypes.CDLL(library)
    failing.failing_code.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    failing.failing_code(*library_code())
    leave_no_state(failing)
    leave_no_state_behind_a_part(failing)
    for once in (False, True):
        for known in (0, COUNT // 4):
            # How much memory hash tables ask for depends on their seeds, and so whether some
            # request is the one that leaves the window's pages behind.
            bare = 0
            for _ in range(10):
                after = 0
                while (done := serve(failing, after, once, known))[0]:
                    after, bare = after + 1, bare + done[1]
                if once or bare:
                    break
            print(f"{after} requests for memory, {bare} without the window's pages")
            assert after > 10 and (once or bare > 0)


def test_no_page_of_a_group_is_lost_when_memory_runs_out(tmp_path: Path) -> None:
    run_lacking_memory(__file__, tmp_path)


if __name__ == "__main__":
    lack_memory(sys.argv[1])
