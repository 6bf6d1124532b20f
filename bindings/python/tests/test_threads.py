"""Objects are used from several threads, and closed under them."""

import gc
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from conftest import ids

import radixkv


def run(jobs: Sequence[Callable[[], None]]) -> None:
    """All at once; the first exception is this thread's."""
    failed: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as reason:
            failed.append(reason)

    threads = [threading.Thread(target=guarded, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "threads wait for each other"
    if failed:
        raise failed[0]


def test_p02_threads_share_a_cache() -> None:
    with radixkv.PageTable(2048, page_size=4, slot_count=64) as table:
        with radixkv.Cache(table) as cache:

            def engine(seed: int) -> None:
                rng = np.random.default_rng(seed)
                for _ in range(400):
                    prompt = rng.integers(1, 4, int(rng.integers(1, 200)), dtype=np.uint32)
                    try:
                        with cache.begin(prompt) as sequence:
                            if sequence.copies().size:
                                sequence.confirm_copies()
                            sequence.publish(len(prompt))
                            sequence.append(prompt[:3])
                    except radixkv.OutOfPages:
                        cache.evict(100)

            def router() -> None:
                for length in range(1, 400):
                    assert cache.probe(ids(length)) <= length
                    cache.stats()

            run([*(partial(engine, seed) for seed in range(6)), router, router])
            cache.check()
            assert cache.stats().sequence_count == 0


def test_a_cache_is_closed_while_threads_use_it() -> None:
    for seed in range(20):
        table = radixkv.PageTable(512, page_size=4)
        cache = radixkv.Cache(table)
        closing = threading.Barrier(5)

        def engine(cache: radixkv.Cache = cache, closing: threading.Barrier = closing) -> None:
            closing.wait()
            for at in range(2000):
                try:
                    with cache.begin(ids(40, at)) as sequence:
                        sequence.publish(40)
                except radixkv.InvalidState:
                    return

        def closer(cache: radixkv.Cache = cache, closing: threading.Barrier = closing) -> None:
            closing.wait()
            for _ in range(seed * 10):
                cache.probe(ids(4))
            cache.close()

        run([engine, engine, engine, engine, closer])
        table.check()
        assert table.stats().cached_page_count == 0


def test_s05_one_of_many_releases() -> None:
    with radixkv.PageTable(512) as table, radixkv.Cache(table) as cache:
        for _ in range(50):
            sequence = cache.begin(ids(40))
            won: list[int] = []

            def race(sequence: radixkv.Sequence = sequence, won: list[int] = won) -> None:
                try:
                    sequence.release()
                    won.append(1)
                except radixkv.StaleSequence:
                    pass

            run([race] * 4)
            assert len(won) == 1


def others_run_during(
    call: Callable[[], object], prepare: Callable[[], object], times: int = 50
) -> bool:
    """Whether another thread runs while one makes a call, each time after what prepares it. A short
    one is made more often: the other thread has to get a processor meanwhile."""
    counted, during = [0], [0]
    over = threading.Event()

    def calls() -> None:
        try:
            for _ in range(times):
                prepare()
                before = counted[0]
                call()
                during[0] += counted[0] - before
                if during[0] > 0:
                    break
        finally:
            over.set()

    def count() -> None:
        while not over.is_set():
            counted[0] += 1
            time.sleep(0)  # gives the interpreter's lock to whoever waits

    # Nobody is made to give it up: another thread runs while a call let go of it, or never.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        run([count, calls])
    finally:
        sys.setswitchinterval(interval)
    return during[0] > 0


def test_p02_a_long_call_lets_others_run() -> None:
    """One that walks a large index."""
    with radixkv.PageTable(1 << 18, page_size=1) as table, radixkv.Cache(table) as cache:
        rng = np.random.default_rng(1)
        for _ in range(200):
            prompt = rng.integers(1, 1 << 30, 1000, dtype=np.uint32)
            with cache.begin(prompt) as sequence:
                sequence.publish(1000)
        assert others_run_during(cache.check, lambda: None)


def test_p02_what_gives_many_pages_back_lets_others_run() -> None:
    """One that retains what has many pages, of which nothing is computed."""
    count_of_tokens = 200_000
    with radixkv.PageTable(1 << 18, page_size=1) as table, radixkv.Cache(table) as cache:
        prompt = np.arange(1, count_of_tokens + 1, dtype=np.uint32)
        begun: list[radixkv.Sequence] = []

        def retain() -> None:
            retained = begun.pop().retain()
            if retained is not None:
                cache.drop(retained)

        assert others_run_during(retain, lambda: begun.append(cache.begin(prompt)))
        table.check()


@pytest.mark.parametrize("name", ["row", "read_row", "mapping", "pages", "dropped", "freed", "map"])
def test_p02_what_looks_at_a_long_row_lets_others_run(name: str) -> None:
    """One whose time grows with what it is given."""
    count = 200_000
    with radixkv.PageTable(1 << 18, page_size=1) as table, radixkv.Cache(table) as cache:
        prompt = np.arange(1, count + 1, dtype=np.uint32)
        positions, mapping = np.arange(count, dtype=np.uint64), np.zeros(count, np.int64)
        into, kept = np.zeros(count, np.uint32), list[object]()
        sequence = None if name in ("freed", "dropped", "map") else cache.begin(prompt)
        if sequence is not None:
            table.row(sequence.slot)  # what is imported the first time lets others run, too

        def prepare() -> None:
            if name == "dropped":
                kept.append(cache.begin(prompt))
            elif name == "freed":
                row = cache.growing_row(prompt)
                row.extend(None, count, 0)
                kept.append(row)
            elif name == "map":
                if kept:
                    table.free_slot(kept.pop())  # type: ignore[arg-type]
                kept.append(table.allocate_slot())
                table.allocate_pages(into)

        def release() -> None:
            row = kept.pop()
            assert isinstance(row, radixkv.GrowingRow)
            row.release()

        calls: dict[str, Callable[[], object]] = {
            "row": lambda: table.row(sequence.slot),  # type: ignore[union-attr]
            "read_row": lambda: table.read_row(sequence.slot, into),  # type: ignore[union-attr]
            "mapping": lambda: table.read_slot_mapping(
                sequence.slot, positions, mapping  # type: ignore[union-attr]
            ),
            "pages": lambda: sequence.pages(),  # type: ignore[union-attr]
            "dropped": kept.clear,
            "freed": release,
            "map": lambda: table.map(kept[-1], 0, into),  # type: ignore[arg-type]
        }
        is_short = name in ("row", "read_row", "mapping", "pages")
        assert others_run_during(calls[name], prepare, 5000 if is_short else 50)
        table.check()


def test_p02_what_removes_a_long_snapshot_lets_others_run() -> None:
    prompt = np.arange(1, 1_000_001, dtype=np.uint32)
    with radixkv.SnapshotCache() as snapshots:
        assert others_run_during(
            lambda: snapshots.remove(prompt), lambda: snapshots.insert(prompt, None, 8)
        )


def test_snapshots_go_on_any_thread() -> None:
    gone: list[int] = []

    class State:
        def __init__(self, number: int) -> None:
            self.number = number

        def __del__(self) -> None:
            gone.append(self.number)

    cache = radixkv.SnapshotCache(entry_limit=8)

    def engine(first: int) -> None:
        for at in range(300):
            tokens = ids(1 + at % 20, first)
            cache.insert(tokens, State(first + at))
            pin = cache.match(tokens)
            if pin is not None:
                with pin:
                    assert isinstance(pin.data, State)

    run([partial(engine, first) for first in (1000, 2000, 3000, 4000)])
    cache.check()
    cache.close()
    assert len(gone) == 1200


def test_the_package_leaves_a_free_threaded_interpreter_as_it_is() -> None:
    """Importing an extension that needs the interpreter's lock would switch that on."""
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("the interpreter has a lock")
    code = "import sys, radixkv; sys.exit(sys._is_gil_enabled())"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_list_is_written_while_calls_read_it(cache: radixkv.Cache) -> None:
    """Which tokens a call sees is nobody's business; it must see integers that are alive."""
    listed = list(range(100_000, 100_800))
    over = threading.Event()

    def writer() -> None:
        for turn in range(300):
            del listed[400:]
            listed.extend(range(200_000 + turn, 200_400 + turn))
            listed[0] = 300_000 + turn  # the last reference to the one before
        over.set()

    def reader() -> None:
        while not over.is_set():
            assert cache.probe(listed) == 0
            with cache.begin(listed) as sequence:
                assert 400 <= sequence.info().position_count <= 800

    run([writer, reader, reader])


def test_errors_and_the_garbage_collector(table: radixkv.PageTable) -> None:
    """The collector stops all threads of a free-threaded interpreter: none may wait for a lock of
    this package that another one holds while it runs Python code."""
    over = threading.Event()

    def collects() -> None:
        for _ in range(30):
            gc.collect()
        over.set()

    def fails(cache: radixkv.Cache) -> None:
        while not over.is_set():
            with pytest.raises(radixkv.InvalidState):
                cache.probe([1, 2])

    with radixkv.Cache(table) as cache:
        pass
    snapshots = radixkv.SnapshotCache()
    snapshots.insert([1, 2], "state")
    pin = snapshots.match([1, 2])
    assert pin is not None
    pin.release()

    def looks() -> None:
        while not over.is_set():
            with pytest.raises(radixkv.StalePin):
                _ = pin.data

    run([collects, *[partial(fails, cache) for _ in range(3)], looks, looks])


def test_one_of_many_uses_a_growing_row(cache: radixkv.Cache) -> None:
    """The others are told so, and the row is one request's all the same."""
    row = cache.growing_row(ids(64))
    counts: list[int] = []

    def counted() -> None:
        done = 0
        for _ in range(200):
            try:
                row.extend(ids(3), 64, 0)
                done += 1
            except radixkv.Busy:
                pass
        counts.append(done)

    run([counted] * 4)
    assert row.token_count == 64 + 3 * sum(counts)
    assert row.page_count == 4
    row.release()


def test_tables_plans_and_batches_in_many_threads() -> None:
    """Each thread has sequences of its own; one plan is set and read by all of them."""
    with radixkv.PageTable(4096, page_size=4, slot_count=256) as table:
        with radixkv.Cache(table) as cache, radixkv.Plan(table) as plan:

            def engine(seed: int) -> None:
                infos = np.zeros(16, radixkv.dtypes.sequence_info)
                prompts = [ids(20 + at, 1000 * (seed % 2) + 100 * at) for at in range(16)]
                mapping = np.zeros(4096, np.int64)
                for turn in range(60):
                    cache.begin_many(prompts, infos)
                    names = infos["sequence"].copy()
                    for name in names:
                        sequence = cache.sequence(int(name))
                        if sequence.copies().size:
                            sequence.confirm_copies()
                    lengths = infos["position_count"].copy()
                    cache.publish_many(names, lengths)
                    cache.append_many(names, ids(16, 5 + turn))
                    plan.set(names, lengths)
                    try:
                        rows, positions, *_ = plan.read(slot_mapping=mapping)
                    except (radixkv.InvalidState, radixkv.StaleSequence):
                        pass  # another thread's rows, which have ended
                    else:
                        assert rows == positions == 16
                    cache.release_many(names)

            run([partial(engine, seed) for seed in range(4)])
            cache.check()
            table.check()
            assert cache.stats().sequence_count == 0


#: A remote store in Python whose writes take a while.
REMOTE = """
import ctypes, threading, time
import numpy as np
import radixkv

class Item(ctypes.Structure):
    _fields_ = [("key", ctypes.c_uint8 * 32), ("bytes", ctypes.c_void_p),
                ("byte_count", ctypes.c_uint64), ("answer", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32)]

Call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Item), ctypes.c_size_t,
                        ctypes.c_size_t, ctypes.c_uint64)

class Remote(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
                ("user_data", ctypes.c_void_p), ("has", Call), ("get", Call), ("put", Call),
                ("remove", Call)]

writes = threading.Event()

def answer(number, items, count):
    for at in range(count):
        items[at].answer = number

def missing(_data, items, _size, count, _timeout):
    answer(2, items, count)

def put(_data, items, _size, count, _timeout):
    writes.set()
    time.sleep(0.3)
    answer(1, items, count)

remote = Remote(ctypes.sizeof(Remote), 0, None, Call(missing), Call(missing), Call(put), Call())
address = ctypes.addressof(remote)
tokens = np.arange(1, 41, dtype=np.uint32)
"""

SNAPSHOTS = """
cache = radixkv.SnapshotCache()
cache.attach(remote=address)
cache.insert(tokens, "state", parts=[np.arange(1000)])
assert writes.wait(30)
del cache
"""

PAGES = """
table = radixkv.PageTable(64, page_size=4)
cache = radixkv.Cache(table, journal_bytes=1 << 16)
cache.attach_tiers(1024, 1 << 16, remote=address)
with cache.begin(tokens) as sequence:
    sequence.publish(40)
del sequence
jobs = np.zeros(64, radixkv.dtypes.copy_job)
while not writes.wait(0.01):
    count, _ = cache.poll(jobs)
    if count:
        cache.complete(jobs[:count])
del cache
"""


@pytest.mark.parametrize("kind", [SNAPSHOTS, PAGES])
def test_an_object_that_goes_lets_a_remote_store_in_python_end(kind: str) -> None:
    subprocess.run([sys.executable, "-c", REMOTE + kind], timeout=60, check=True)


#: A remote store that wants to end the tiers which it belongs to.
DETACHES = """
begins = threading.Event()
refused = []

def put_and_detach(_data, items, _size, count, _timeout):
    writes.set()
    begins.wait(30)
    time.sleep(0.3)
    try:
        cache.detach_tiers(0)
    except radixkv.InvalidState:
        refused.append(True)
    answer(1, items, count)

remote.put = Call(put_and_detach)
"""


def test_a_remote_store_in_python_that_detaches_is_refused() -> None:
    code = PAGES.removesuffix("del cache\n")
    code += "begins.set()\ncache.detach_tiers(1)\nassert refused\n"
    subprocess.run([sys.executable, "-c", REMOTE + DETACHES + code], timeout=60, check=True)


def test_closing_does_not_wait_for_calls_in_other_threads() -> None:
    """The last of them ends the cache: Python code that runs in one may close it as well."""
    table = radixkv.PageTable(64, page_size=4)
    cache = radixkv.Cache(table)

    class Tokens:
        """Read in the middle of a call."""

        def __dlpack__(self) -> object:
            cache.close()
            with pytest.raises(radixkv.Busy):
                radixkv.Cache(table)
            return ids(4).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    assert cache.probe(Tokens()) == 0
    radixkv.Cache(table).close()
