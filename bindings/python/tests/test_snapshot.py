"""Snapshots: any object, found by the longest prefix, kept while somebody reads it."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
from conftest import ids

import radixkv


class State:
    """An object that can be watched."""


def test_p02_the_longest_prefix_is_found() -> None:
    with radixkv.SnapshotCache() as cache:
        short, long = State(), State()
        cache.insert(ids(10), short, 100)
        cache.insert(ids(20), long, 200, next_token=5)
        assert cache.probe(ids(30)) == 20
        with cache.match(ids(15)) or pytest.fail("a miss") as pin:
            assert pin.data is short
            assert (pin.token_count, pin.size_bytes, pin.full_hit, pin.next_token) == (
                10, 100, False, None)
        with cache.match(ids(20)) or pytest.fail("a miss") as pin:
            assert pin.data is long and pin.full_hit and pin.next_token == 5
        assert cache.match(ids(10, 500)) is None
        assert cache.match(ids(10), space=radixkv.Namespace(lora_id=1)) is None
        stats = cache.stats()
        assert (stats.entry_count, stats.entry_bytes, stats.pin_count) == (2, 300, 0)
        cache.check()


def test_s01_what_can_be_trimmed_is_found_by_its_beginning() -> None:
    with radixkv.SnapshotCache() as cache:
        state = State()
        cache.insert(ids(20), state, trimmable=True)
        assert cache.match(ids(7)) is None
        with cache.match(ids(7), trimmable=True) or pytest.fail("a miss") as pin:
            assert pin.data is state and not pin.full_hit
            assert (pin.token_count, pin.common_token_count) == (20, 7)
        cache.check()


def test_s05_a_pin_keeps_its_snapshot() -> None:
    cache = radixkv.SnapshotCache(entry_limit=1)
    state = State()
    watch = weakref.ref(state)
    cache.insert(ids(4), state)
    pin = cache.match(ids(4))
    assert pin is not None
    del state
    done = cache.insert(ids(5, 50), State())
    assert done.stored == 1
    assert cache.remove(ids(4)) and not cache.remove(ids(4))
    gc.collect()
    assert watch() is not None and pin.data is watch()
    pin.release()
    gc.collect()
    assert watch() is None
    with pytest.raises(radixkv.StalePin):
        pin.release()
    with pytest.raises(radixkv.StalePin):
        _ = pin.data
    assert pin.token_count == 4


def test_a_pin_ends_with_its_object_and_outlives_the_cache() -> None:
    cache = radixkv.SnapshotCache()
    cache.insert(ids(4), State())
    pin = cache.match(ids(4))
    assert pin is not None
    watch = weakref.ref(pin.data)
    cache.close()
    assert watch() is not None
    with pytest.raises(radixkv.InvalidState):
        cache.match(ids(4))
    del pin
    gc.collect()
    assert watch() is None


def test_closing_lets_go_of_what_nobody_has_pinned() -> None:
    cache = radixkv.SnapshotCache()
    watches = []
    for first in (1, 50):
        state = State()
        watches.append(weakref.ref(state))
        cache.insert(ids(4, first), state)
        del state
    pin = cache.match(ids(4))
    assert pin is not None
    cache.close()
    gc.collect()
    assert watches[0]() is pin.data and watches[1]() is None
    cache.close()
    pin.release()
    gc.collect()
    assert watches[0]() is None


def test_what_is_refused_is_not_kept() -> None:
    cache = radixkv.SnapshotCache(byte_limit=100)
    for tokens, size in ((ids(4), 1000), (np.zeros(0, np.uint32), 1)):
        state = State()
        watch = weakref.ref(state)
        assert cache.insert(tokens, state, size).stored == 0
        del state
        assert watch() is None
    state = State()
    watch = weakref.ref(state)
    with pytest.raises(radixkv.InvalidArgument, match="ids"):
        cache.insert(np.array([1 << 31], np.uint32), state, 1)
    del state
    assert watch() is None


def test_a_byte_limit_counts_what_has_bytes() -> None:
    """And takes nothing whose bytes nobody knows: it would bound nothing."""
    with radixkv.SnapshotCache(byte_limit=1_000_000) as cache:
        for at in range(100):
            cache.insert([at, at + 1], (bytes, bytearray, np.zeros)[at % 3](100_000 // 8 * 8))
        stats = cache.stats()
        assert stats.entry_count <= 10 and stats.entry_bytes <= 1_000_000
        assert cache.insert(ids(2), np.zeros((300, 300))[:, ::2], trimmable=True).stored == 1
        assert cache.stats().entry_bytes <= 1_000_000
        with pytest.raises(ValueError, match="^size_bytes: .* byte_limit"):
            cache.insert(ids(4, 500), State())
        assert cache.probe(ids(4, 500)) == 0
        assert cache.insert(ids(4), State(), 0).stored == 1  # said: it counts for nothing
        assert cache.insert(ids(5), State(), parts=[bytes(500)]).stored == 1
        with cache.match(ids(5)) or pytest.fail("a miss") as pin:
            assert pin.size_bytes == 500
    with radixkv.SnapshotCache() as cache:
        cache.insert(ids(4), State())
        cache.insert(ids(5), bytes(100))
        assert cache.stats().entry_bytes == 100


def test_a_snapshot_may_use_the_cache_when_it_goes() -> None:
    cache = radixkv.SnapshotCache(entry_limit=1)
    seen: list[int] = []

    class Curious:
        def __del__(self) -> None:
            seen.append(cache.stats().entry_count)

    cache.insert(ids(4), Curious())
    cache.insert(ids(4, 9), 1)
    assert seen == [1]
    cache.clear()


C_PROGRAM = """
#include <radixkv.h>

int insert(rkv_snapshot_cache *cache, uint32_t id, void *data) {
    rkv_tokens tokens = {0};
    rkv_snapshot_cache_insert_args args = {0};
    rkv_snapshot_cache_insert_result done = {0};
    tokens.struct_size = sizeof tokens;
    tokens.ids = &id;
    tokens.count = 1;
    args.struct_size = sizeof args;
    args.tokens = &tokens;
    args.data = data;
    done.struct_size = sizeof done;
    return rkv_snapshot_cache_insert(cache, &args, &done);
}
"""
#: Beside two of C's states, none and one of its own making, stands one of Python's.
OF_C_CODE = """
import ctypes, radixkv
insert = ctypes.CDLL("./ext.so").insert
insert.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p]
state, own = ctypes.create_string_buffer(b"x" * 64), object()
with radixkv.SnapshotCache() as cache:
    assert insert(cache.handle, 1, None) == 0
    assert insert(cache.handle, 2, ctypes.addressof(state)) == 0
    cache.insert([3], own)
    for token, data in (1, None), (2, None), (3, own):
        with cache.match([token]) as pin:
            assert pin.data is data and not pin.is_copy and pin.parts() == []
            assert (pin.token_count, pin.full_hit) == (1, True)
    assert state.raw == b"x" * 64 + bytes(1)
    cache.check()
"""


def test_what_c_code_inserted_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "ext.c").write_text(C_PROGRAM)
    command = [
        os.environ.get("CC", "cc"), "-shared", "-fPIC", "-Wall", "-Werror", "ext.c", "-I",
        radixkv.get_include(), radixkv.get_library(), "-o", "ext.so",
    ]
    try:
        subprocess.run(command, cwd=tmp_path, check=True)
    except FileNotFoundError:
        pytest.skip("there is no C compiler")
    # In a process of its own: it would crash.
    done = subprocess.run(
        [sys.executable, "-c", OF_C_CODE], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


#: Where an exception is made, a collection lets go of another view of the same pin: CPython 3.11.
COLLECTS = """
import gc, io, signal
import radixkv

signal.alarm(20)
cache = radixkv.SnapshotCache()
part = bytearray(64)
cache.insert([1, 2, 3], "state", parts=[part])
pin = cache.match([1, 2, 3])
[view] = pin.parts()
part, refused = view.obj, 0
write = io.BytesIO(b"abc").readinto
gc.set_threshold(1)
for _ in range(200):
    # Nothing is collected before the exception is made.
    gc.disable()
    cycle = pin.parts()
    cycle.append(cycle)
    del cycle
    gc.enable()
    try:
        write(part)
    except (BufferError, TypeError):
        refused += 1
gc.collect()
try:
    pin.release()
except BufferError:
    refused += 1
assert refused == 201
view.release()
pin.release()
"""


def test_a_view_that_is_refused_waits_for_no_lock() -> None:
    subprocess.run([sys.executable, "-c", COLLECTS], timeout=60, check=True)
