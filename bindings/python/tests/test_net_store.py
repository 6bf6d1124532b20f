"""T13: snapshots and pages in a store that caches share, on a Redis that the test starts."""

import gc
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import ids

import radixkv
from radixkv import dtypes, net


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("no redis-server")
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        port = any_port.getsockname()[1]
    words = [server, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        yield f"redis://127.0.0.1:{port}"
        process.kill()


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def taken(cache: radixkv.SnapshotCache, tokens: list[int]) -> radixkv.Pin | None:
    fetch = cache.fetch(tokens)
    while fetch is not None:
        try:
            return fetch.take()
        except radixkv.Pending:
            time.sleep(0.002)
    return None


def test_t13_what_one_cache_inserted_another_one_fetches(url: str) -> None:
    tokens, state = list(range(100)), bytes(range(256)) * 1000
    with net.Store(url, prefix="test:") as store:
        with radixkv.SnapshotCache() as first, radixkv.SnapshotCache() as second:
            first.attach(remote=store, remote_timeout_ms=20_000)
            second.attach(remote=store, remote_timeout_ms=20_000)
            first.insert(tokens, state, parts=[state], next_token=7)
            pins: list[radixkv.Pin] = []

            def has_come() -> bool:
                # Nobody says when the first one has written it.
                pins.extend(pin for pin in [taken(second, [*tokens, 1, 2])] if pin is not None)
                return len(pins) > 0

            until(has_come)
            with pins[0] as pin:
                assert (pin.token_count, pin.next_token, pin.is_copy) == (100, 7, True)
                assert [bytes(part) for part in pin.parts()] == [state]
        assert store.last_failure() == ""
    store.close()
    with pytest.raises(ValueError, match="closed"):
        store.address  # noqa: B018


def test_t13_pages_that_one_cache_computed_another_one_fetches(url: str) -> None:
    tokens, size = ids(70), 48
    jobs, ends = np.zeros(64, dtypes.copy_job), np.zeros(4, dtypes.fetch_end)
    kv = np.zeros((65, size), np.uint8)
    ended: list[int] = []

    def stepped(cache: radixkv.Cache, is_true: Callable[[], bool]) -> bool:
        job_count, end_count = cache.poll(jobs, ends)
        for job in jobs[:job_count]:
            host, page = radixkv.host_page(job), kv[job["page"]]
            if job["direction"] == radixkv.COPY_LOAD:
                page[:] = host
            else:
                host[:] = page
        cache.complete(jobs[:job_count])
        ended.extend(ends["position_count"][:end_count].tolist())
        return is_true()

    with net.Store(url, prefix="pages:") as store:
        for turn in range(2):
            table = radixkv.PageTable(64)
            with table, radixkv.Cache(table, journal_bytes=1 << 16) as cache:
                cache.attach_tiers(size, 8 * size, remote=store, remote_timeout_ms=20_000)
                with cache.begin(tokens) as sequence:
                    if turn == 0:
                        for at, page in enumerate(sequence.pages()[:4]):
                            kv[page] = at + 1
                        sequence.publish(70)
                        until(
                            lambda: stepped(
                                cache, lambda: cache.tier_stats().remote.written_page_count == 4
                            )
                        )
                        kv[:] = 0
                        continue
                    found = sequence.fetch(20)
                    assert (found.is_open, found.position_count) == (1, 0)
                    assert found.asked_position_count == 64
                    until(lambda: stepped(cache, lambda: ended == [64]))
                    assert [int(kv[page, 7]) for page in sequence.pages()[:4]] == [1, 2, 3, 4]
                    assert cache.tier_stats().remote.fetched_page_count == 4
        assert store.last_failure() == ""


def test_t13_without_a_server_nothing_is_found() -> None:
    with net.Store("redis://127.0.0.1:1") as store, radixkv.SnapshotCache() as cache:
        cache.attach(remote=store, remote_timeout_ms=20_000)
        cache.insert(ids(10), "state", parts=[b"state"])
        until(lambda: "refused" in store.last_failure())


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="config.url"):
        net.Store("http://localhost")
    with pytest.raises(ValueError, match="connection_count"):
        net.Store("redis://127.0.0.1:1", connection_count=0)
    with pytest.raises(ValueError, match="ca_file"):
        net.Store("rediss://127.0.0.1:1", ca_file=tmp_path / "none")
    with pytest.raises(ValueError, match="ca_file"):
        net.Store("redis://127.0.0.1:1", ca_file=tmp_path / "none")
    with radixkv.SnapshotCache() as cache, pytest.raises(radixkv.InvalidArgument):
        cache.attach()


def test_t13_an_address_is_good_as_long_as_the_store_is_open() -> None:
    """Also where nobody keeps the Store, which is not closed by itself."""
    with radixkv.SnapshotCache() as cache:
        cache.attach(remote=net.Store("redis://127.0.0.1:1").address, remote_timeout_ms=100)
        cache.detach()
    with radixkv.PageTable(64) as table, radixkv.Cache(table, journal_bytes=1 << 16) as pages:
        pages.attach_tiers(48, 8 * 48, remote=net.Store("redis://127.0.0.1:1").address)
        pages.detach_tiers()


def test_t13_a_store_is_kept_while_a_cache_has_it() -> None:
    """Whichever of them is to end first."""
    with radixkv.PageTable(64) as table, radixkv.Cache(table, journal_bytes=1 << 16) as pages:
        with net.Store("redis://127.0.0.1:1") as store, radixkv.SnapshotCache() as snapshots:
            # What is refused keeps nothing.
            with pytest.raises(radixkv.InvalidArgument, match="page_bytes"):
                pages.attach_tiers(0, 8 * 48, remote=store)
            store_again = net.Store("redis://127.0.0.1:1")
            store_again.close()
            with pytest.raises(ValueError, match="closed"):
                pages.attach_tiers(48, 8 * 48, remote=store_again)
            for _ in range(2):
                pages.attach_tiers(48, 8 * 48, remote=store, remote_timeout_ms=100)
                snapshots.attach(remote=store, remote_timeout_ms=100)
                with pytest.raises(radixkv.InvalidState, match="attached"):
                    store.close()
                pages.detach_tiers()
                with pytest.raises(radixkv.InvalidState, match="attached"):
                    store.close()
                snapshots.detach()
            assert store.last_failure() == ""
            snapshots.attach(remote=store, remote_timeout_ms=100)
        # The store's `with` ended after that of the one cache.
        with pytest.raises(radixkv.InvalidState, match="attached"):
            with net.Store("redis://127.0.0.1:1") as other:
                pages.attach_tiers(48, 8 * 48, remote=other, remote_timeout_ms=100)
        with pytest.raises(KeyError):
            with other:
                raise KeyError
        pages.begin(ids(40)).fetch()
    # Leaving the cache let go of it.
    other.close()


def test_t13_a_cache_keeps_a_store_that_nobody_else_has() -> None:
    with radixkv.PageTable(64) as table, radixkv.Cache(table, journal_bytes=1 << 16) as cache:
        cache.attach_tiers(48, 8 * 48, remote=net.Store("redis://127.0.0.1:1"))
        [store] = [it for it in gc.get_objects() if isinstance(it, net.Store) and it._leases]
        cache.begin(ids(40)).fetch()
        with pytest.raises(TypeError, match="remote: a radixkv.net.Store"):
            cache.attach_tiers(48, 8 * 48, remote="redis://")  # type: ignore[arg-type]
    store.close()


#: A process without room for the stack of a thread.
FULL = """
import resource
from radixkv import net

net._load(None)
with open("/proc/self/statm") as file:
    taken = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (3 << 19), resource.RLIM_INFINITY))
try:
    net.Store("redis://127.0.0.1:1")
except net.NetworkError as error:
    print(error)
"""


def test_t13_a_store_without_threads_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("a thread:"), done.stdout + done.stderr
