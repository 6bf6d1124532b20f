"""Rows of places, when the library finds no memory in the middle of a long publish."""

import ctypes
import itertools
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ids
from test_placed_rows import PAGE, Engine

import radixkv

HERE = Path(__file__).parent
#: More pages than the library publishes at once.
COUNT = 2048
LENGTH = COUNT * PAGE


def library_code(name: str = "libradixkv.so") -> tuple[int, int]:
    """Where a library's code lies."""
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    parts = [it[0].split("-") for it in maps if f"/{name}" in it[-1] and "x" in it[1]]
    return int(parts[0][0], 16), int(parts[-1][1], 16)


def serve(
    failing: ctypes.CDLL, after: int, once: bool, copies: bool, again: bool
) -> tuple[int, bool]:
    """One request that lacks memory, `again` another one with the same tokens beside it, and the
    end of both. Returns how many requests for memory failed, and whether pages of the window
    strayed."""
    pages = 2 * COUNT + 1
    engine = Engine([pages, pages], copies=copies, width=LENGTH)
    tokens = ids(LENGTH)
    engine.allocate(0, 0, LENGTH)
    failing.failing_begin(after, once)
    try:
        first = engine.publish(0, tokens, LENGTH)
    except radixkv.OutOfMemory:
        first = None
    failed = failing.failing_end()
    kept = first.page_count if first else 0
    own = engine.rows[0, kept * PAGE :: PAGE] // PAGE
    owned = [set(own.tolist()), set((engine.mapping[own * PAGE] // PAGE).tolist())]
    engine.check(owned)
    strays = engine.placed.stray_pages().size
    assert engine.placed.stray_page_count == strays
    # The request goes on: what it attends to is where it was.
    assert (engine.mapping[engine.rows[0]] > 0).all()
    # Another one gives the cache what it lacks.
    if strays and again:
        engine.allocate(1, 0, LENGTH)
        second = engine.publish(1, tokens, LENGTH)
        engine.check(owned)
        assert (engine.mapping[engine.rows[:2]] > 0).all()
        assert engine.cache.probe(tokens) == LENGTH
        engine.cache.unlock(second.lock)
    engine.release(0, kept * PAGE, LENGTH)
    if first is not None:
        engine.cache.unlock(first.lock)
    # All of the window's pages are to be had, whatever they hang on.
    engine.evict(0, pages)
    assert len(engine.free[1]) == pages - 1 and engine.placed.stray_page_count == 0
    engine.evict(pages, pages)
    assert [len(free) for free in engine.free] == [pages - 1] * 2
    engine.check([set(), set()])
    assert not engine.mapping.any()
    return failed, strays > 0


def told_again(failing: ctypes.CDLL, after: int) -> bool:
    """Whether a request that lacks memory left pages that hang nowhere when another one came. An
    eviction that fails does not forget them."""
    engine = Engine([2 * COUNT + 1] * 2, width=LENGTH)
    tokens = ids(LENGTH)
    engine.allocate(0, 0, LENGTH)
    failing.failing_begin(after, False)
    try:
        engine.publish(0, tokens, LENGTH)
    except radixkv.OutOfMemory:
        pass
    failing.failing_end()
    if not engine.placed.stray_pages().size:
        return False
    engine.allocate(1, 0, LENGTH)
    engine.publish(1, tokens, LENGTH)
    strays = engine.placed.stray_pages().tolist()
    assert strays
    engine.cache.close()
    for _ in range(2):
        try:
            engine.placed.evict(0, 1)
            raise AssertionError("of a cache that is closed")
        except radixkv.InvalidState:
            pass
        assert engine.placed.stray_pages().tolist() == strays
        assert engine.placed.stray_page_count == len(strays)
    return True


def told_no_more(failing: ctypes.CDLL, after: int) -> bool:
    """Whether a request that lacks memory left pages of the window where those from before went in
    an eviction that failed. The next one does not tell that there is none."""
    engine = Engine([2 * COUNT + 1] * 2, copies=True, width=LENGTH)
    tokens = ids(LENGTH)
    engine.allocate(0, 0, LENGTH)
    engine.cache.unlock(engine.publish(0, tokens, LENGTH).lock)
    engine.mapping[:] = 0
    # For the arrays of what went.
    failing.failing_code(*library_code("_multiarray_umath."))
    failing.failing_begin(0, False)
    try:
        engine.placed.evict(0, COUNT)
        raise AssertionError("NumPy had memory")
    except MemoryError:
        pass
    failing.failing_end()
    failing.failing_code(*library_code())
    engine.allocate(1, 0, LENGTH)
    failing.failing_begin(after, False)
    try:
        engine.publish(1, tokens, LENGTH)
    except radixkv.OutOfMemory:
        pass
    failing.failing_end()
    strays = engine.placed.stray_pages().tolist()
    windows = (engine.mapping[::PAGE] // PAGE).tolist()
    bare = engine.placed.evict(0, 0)[2].tolist()
    assert not set(strays) & {windows[page] for page in bare}
    assert not set(engine.placed.window_pages().tolist()) & {windows[page] for page in bare}
    return bool(strays)


def lack_memory(library: str) -> None:
    """In a process of its own, whose allocator is in that library."""
    failing = ctypes.CDLL(library)
    failing.failing_code.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    failing.failing_code(*library_code())
    for copies, once, again in itertools.product((False, True), repeat=3):
        after = strayed = 0
        while (done := serve(failing, after, once, copies, again))[0]:
            after, strayed = after + 1, strayed + done[1]
        print(f"{after} requests for memory, {strayed} with strays")
        assert after > 10 and (once or strayed > 0)
    assert any(told_again(failing, after) for after in range(100))
    assert any(told_no_more(failing, after) for after in range(100))


def run_lacking_memory(program: str, tmp_path: Path) -> None:
    """Runs a file of tests as a program whose allocator fails as it is told to."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("its allocator is replaced")
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler")
    library = tmp_path / "libfailing.so"
    compiler = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", str(library)]
    subprocess.run([*compiler, str(HERE / "failing.c")], check=True)
    done = subprocess.run(
        [sys.executable, program, str(library)],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_p02_g01_j07_no_page_is_lost_when_memory_runs_out(tmp_path: Path) -> None:
    run_lacking_memory(__file__, tmp_path)


if __name__ == "__main__":
    lack_memory(sys.argv[1])
