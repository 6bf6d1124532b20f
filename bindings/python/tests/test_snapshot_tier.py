"""Snapshots on disk: what comes back, also after a restart, what is given up, what is refused."""

import contextlib
import gc
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from conftest import ids
from numpy.typing import NDArray

import radixkv


class State:
    """An object that can be watched, made of two arrays."""

    def __init__(self, name: int) -> None:
        self.head = np.full(3, name, np.uint8)
        self.body = np.arange(name, name + 20000, dtype=np.float32).reshape(100, 200)

    def parts(self) -> list[bytes | NDArray[np.uint8] | NDArray[np.float32]]:
        return [self.head, b"", self.body]


BYTES = 3 + 80000


def opened(path: Path, **limits: int) -> radixkv.SnapshotCache:
    cache = radixkv.SnapshotCache(**limits)
    cache.attach(path / "states", 64 << 20, worker_count=2, commit_interval_ms=1)
    return cache


def put(
    cache: radixkv.SnapshotCache, tokens: NDArray[np.uint32], name: int, trimmable: bool = False
) -> State:
    state = State(name)
    done = cache.insert(tokens, state, trimmable=trimmable, parts=state.parts(), next_token=name)
    assert done.stored == 1
    return state


def take(fetch: radixkv.Fetch | None) -> radixkv.Pin | None:
    assert fetch is not None
    while True:
        try:
            return fetch.take()
        except radixkv.Pending:
            time.sleep(0.001)


def test_t01_all_comes_back_after_a_restart(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    state = put(cache, ids(4), 7)
    with cache.match(ids(4)) or pytest.fail("a miss") as pin:
        assert pin.data is state and not pin.is_copy and pin.size_bytes == BYTES
        views = pin.parts()
        assert [view.nbytes for view in views] == [3, 0, 80000]
        assert np.frombuffer(views[2], np.float32).ctypes.data == state.body.ctypes.data
        del views
    assert cache.flush()
    cache.close()
    with opened(tmp_path) as cache:
        assert cache.match(ids(6)) is None and cache.tier_stats().entry_count == 1
        fetch = cache.fetch(ids(6))
        assert fetch is not None
        assert (fetch.token_count, fetch.common_token_count, fetch.size_bytes) == (4, 4, BYTES)
        pin = take(fetch) or pytest.fail("it is lost")
        assert pin.data is None and pin.is_copy and pin.next_token == 7 and pin.token_count == 4
        head, nothing, body = pin.parts()
        assert head.readonly and bytes(head) == bytes([7] * 3) and len(nothing) == 0
        assert (np.frombuffer(body, np.float32) == state.body.ravel()).all()
        with pytest.raises(radixkv.StaleTicket):
            fetch.take()
        # Memory that somebody looks at is not given back.
        with pytest.raises(BufferError, match="in use"):
            pin.release()
        del head, nothing
        body.release()
        gc.collect()
        pin.release()
        with pytest.raises(radixkv.StalePin):
            pin.parts()
        assert cache.fetch(ids(6)) is None
        stats = cache.tier_stats()
        assert (stats.loaded_count, stats.read_bytes, stats.ticket_count) == (1, BYTES, 0)
        assert stats.byte_limit == 64 << 20
        cache.check()


def test_t01_branches_fetch_what_can_be_trimmed(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        put(cache, ids(9), 1, trimmable=True)
        assert cache.detach()
        cache.clear()
        cache.attach(tmp_path / "states", 64 << 20)
        assert cache.fetch(ids(4)) is None
        fetch = cache.fetch(ids(4), trimmable=True)
        assert fetch is not None and fetch.token_count == 9 and fetch.common_token_count == 4
        pin = take(fetch) or pytest.fail("it is lost")
        assert pin.common_token_count == 4


def test_t11_a_fetch_ends_with_its_object(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        # One each: of a state whose read has ended by then there is nothing to fetch.
        first, second, third = (ids(4) + 10 * number for number in range(3))
        for number, tokens in enumerate((first, second, third)):
            put(cache, tokens, number)
        assert cache.detach()
        cache.clear()
        cache.attach(tmp_path / "states", 64 << 20)
        with cache.fetch(first) or pytest.fail("nothing to fetch") as fetch:
            assert cache.tier_stats().ticket_count == 1
        with pytest.raises(radixkv.StaleTicket):
            fetch.cancel()
        forgotten = cache.fetch(second)
        assert forgotten is not None
        del forgotten
        gc.collect()
        assert cache.tier_stats().ticket_count == 0
        late = cache.fetch(third)
        assert late is not None
        assert cache.detach()
        with pytest.raises(radixkv.StaleTicket):
            late.take()


def test_t03_an_eventfd_wakes_who_waits(tmp_path: Path) -> None:
    with radixkv.SnapshotCache() as cache:
        wake = os.eventfd(0)
        cache.attach(tmp_path / "states", 64 << 20, commit_interval_ms=1, event_fd=wake)
        put(cache, ids(4), 1)
        assert select.select([wake], [], [], 60)[0] == [wake]
        os.close(wake) if cache.detach() else pytest.fail("not written")


def test_t08_nothing_is_written_before_it_leaves_memory(tmp_path: Path) -> None:
    with radixkv.SnapshotCache(entry_limit=1) as cache:
        cache.attach(tmp_path / "states", 64 << 20, write_after_matches=None)
        put(cache, ids(4), 1)
        assert cache.flush() and cache.tier_stats().write_count == 0
        put(cache, ids(4, 50), 2)
        assert cache.flush() and cache.tier_stats().write_count == 1
        assert cache.fetch(ids(4)) is not None


def test_t14_one_owner_and_one_kind(tmp_path: Path) -> None:
    with opened(tmp_path) as cache, radixkv.SnapshotCache() as other:
        with pytest.raises(radixkv.InvalidState):
            cache.attach(tmp_path / "states", 1 << 20)
        with pytest.raises(radixkv.StorageError, match="states"):
            other.attach(tmp_path / "states", 1 << 20)
        assert cache.detach()
        with pytest.raises(radixkv.StorageError, match="fingerprint|model"):
            other.attach(tmp_path / "states", 1 << 20, fingerprint=bytes(31) + b"\1")
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(OSError):
            other.attach(tmp_path / "file", 1 << 20)
        with pytest.raises(radixkv.InvalidState):
            other.flush()
        with pytest.raises(radixkv.InvalidState):
            other.detach(0)


def test_what_is_refused(tmp_path: Path) -> None:
    with radixkv.SnapshotCache() as cache:
        state = State(1)
        watch = weakref.ref(state)
        with pytest.raises(ValueError, match="parts: there is none"):
            cache.insert(ids(4), state, parts=[])
        with pytest.raises(TypeError, match=r"parts\[1\]"):
            cache.insert(ids(4), state, parts=[b"", 3])  # type: ignore[list-item]
        with pytest.raises(ValueError, match=r"parts\[0\]"):
            cache.insert(ids(4), state, parts=[state.body.T])
        with pytest.raises(radixkv.InvalidArgument, match="ids"):
            cache.insert(np.array([1 << 31], np.uint32), state, parts=[state.body])
        with pytest.raises(ValueError, match="timeout"):
            cache.flush(-1)
        with pytest.raises(ValueError, match="NUL"):
            cache.attach("a\0b", 1)
        with pytest.raises(radixkv.InvalidArgument, match="byte_limit"):
            cache.attach(tmp_path, 0)
        with pytest.raises(ValueError):
            cache.attach(tmp_path, 1, fingerprint=b"short")
        assert cache.tier_stats().entry_count == 0
        del state
        gc.collect()
        assert watch() is None


def test_a_path_may_be_bytes(tmp_path: Path) -> None:
    with radixkv.SnapshotCache() as cache:
        cache.attach(os.fsencode(tmp_path / "states"), 64 << 20)
    assert (tmp_path / "states").is_dir()


def test_an_error_is_that_of_the_call(tmp_path: Path) -> None:
    """What is let go of on the way may run code, in which calls fail as well."""
    cache = radixkv.SnapshotCache()
    gone: list[bool] = []

    class Failing:
        def __del__(self) -> None:
            with contextlib.suppress(radixkv.InvalidArgument):
                cache.insert(np.array([1 << 31], np.uint32), 1)
            gone.append(True)

    other = opened(tmp_path / "other")
    count, deadline = 0, time.monotonic() + 60
    while len(gone) == count:
        assert time.monotonic() < deadline
        for _ in range(50):
            other.insert(ids(4), Failing(), parts=[bytes(1 << 16)])
        # What was replaced while it was written waits for the next call, whichever that is; on a
        # busy machine all may have been written by now.
        count = len(gone)
        time.sleep(0.01)
        with pytest.raises(radixkv.InvalidArgument, match="byte_limit"):
            cache.attach(tmp_path, 0)
    other.close()


def test_an_object_goes_when_it_is_written_and_replaced(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        watches = [weakref.ref(put(cache, ids(4), name)) for name in range(50)]
        assert cache.flush()
        cache.clear()
        gc.collect()
        assert [watch() for watch in watches] == [None] * 50
    # And of those that are being written when the cache goes.
    cache = opened(tmp_path)
    watches = [weakref.ref(put(cache, ids(4, 10 * name), name)) for name in range(50)]
    cache.close()
    gc.collect()
    assert [watch() for watch in watches] == [None] * 50


def test_what_nobody_closed_keeps_nothing() -> None:
    cache = radixkv.SnapshotCache()
    watches = [weakref.ref(put(cache, ids(4, first), 7)) for first in (1, 50)]
    pin = cache.match(ids(4))
    assert pin is not None
    del cache
    gc.collect()
    assert watches[0]() is pin.data and watches[1]() is None
    del pin
    gc.collect()
    assert watches[0]() is None


def test_t12_threads_share_what_is_fetched(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        for name in range(4):
            put(cache, ids(4, 10 * name), name)
        assert cache.detach()
        cache.clear()
        cache.attach(tmp_path / "states", 64 << 20)
        wrong: list[str] = []

        def work(seed: int) -> None:
            for turn in range(40):
                name = (turn + seed) % 4
                fetch = cache.fetch(ids(4, 10 * name))
                if fetch is None:
                    if turn % 10 == 9:
                        cache.remove(ids(4, 10 * name))
                        put(cache, ids(4, 10 * name), name)
                    continue
                pin = take(fetch)
                if pin is not None and bytes(pin.parts()[0]) != bytes([name] * 3):
                    wrong.append(f"{name}")

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        cache.check()


def test_an_interpreter_ends_while_states_are_written(tmp_path: Path) -> None:
    program = """
import sys, numpy as np, radixkv
cache = radixkv.SnapshotCache(entry_limit=1)
cache.attach(sys.argv[1], 1 << 30, worker_count=2)
for turn in range(100):
    body = np.full(1 << 20, turn, np.uint8)
    cache.insert(np.array([turn], np.uint32), body, parts=[body])
print("done")
"""
    command = [sys.executable, "-c", program, str(tmp_path / "states")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
