"""Children of fork(), while other threads of the parent are in calls."""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from conftest import ids

import radixkv
from radixkv import Group, net

Call = Callable[[], object]
DIM = 64


def is_refused_in_a_child(calls: list[Call], reason: str = "fork") -> bool:
    """Whether a child of now is refused each call at once, for that reason."""
    with warnings.catch_warnings():
        # That other threads are there is what is tried.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    refused = 0
    signal.alarm(10)
    try:
        for call in calls:
            try:
                call()
            except radixkv.InvalidState as error:
                refused += reason in str(error)
    finally:
        os._exit(refused != len(calls))


def test_a_child_of_fork_can_close_what_it_inherited(cache: radixkv.Cache) -> None:
    with radixkv.SnapshotCache() as snapshots:
        for parts in (None, [np.zeros(4, np.uint8)]):
            snapshots.insert(ids(4), parts, parts=parts)

        def ended(one: radixkv.Cache | radixkv.SnapshotCache) -> object:
            for _ in range(2):
                one.close()
            return one.stats()

        calls: list[Call] = [lambda: ended(snapshots), lambda: ended(cache)]
        assert is_refused_in_a_child(calls, "is closed")
        # Nothing of the parent's.
        assert snapshots.probe(ids(4)) == 4
    assert cache.stats().sequence_count == 0


def fork_beside(work: Call, calls: list[Call]) -> None:
    """Forks while another thread is at work, some times: at one it may just not be in a call."""
    ended = threading.Event()

    def go_on() -> None:
        while not ended.is_set():
            work()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        for _ in range(5):
            time.sleep(0.02)
            assert is_refused_in_a_child(calls)
    finally:
        ended.set()
        thread.join()


def test_a_child_of_fork_is_refused_while_a_plan_is_computed(cache: radixkv.Cache) -> None:
    runner = radixkv.Runner(cache.table, layers=1, query_heads=8, kv_heads=8, head_dim=DIM)
    plan = radixkv.Plan(cache.table)
    count = 1024
    q, k, v, out = (np.zeros((count, 8, DIM), np.float32) for _ in range(4))
    with cache.begin(ids(count)) as sequence:
        row = (np.array([sequence.id], np.uint64), np.zeros(1, np.uint64))
        plan.set(*row, np.array([count], np.uint64))
        calls: list[Call] = [
            lambda: plan.set(*row),
            lambda: plan.reserve(rows=1, positions=1, pages=1),
            plan.sizes,
            lambda: runner.append_prefill(plan, 0, q, k, v, out),
        ]
        fork_beside(lambda: runner.append_prefill(plan, 0, q, k, v, out), calls)


def test_a_child_of_fork_is_refused_while_events_are_told(cache: radixkv.Cache) -> None:
    with cache.begin(ids(2000)) as sequence:
        sequence.publish(2000)
    with radixkv.EventEncoder(cache) as encoder:

        def tell() -> None:
            encoder.repeat()
            while encoder.encode(0.0):
                pass

        calls: list[Call] = [lambda: encoder.encode(0.0), lambda: encoder.lost_record_count]
        fork_beside(tell, calls)
        assert encoder.lost_record_count == 0
    assert encoder.lost_record_count == 0


@pytest.mark.parametrize("groups", [[], [Group.full(), Group.window(64)]])
def test_a_child_of_fork_is_refused_while_a_row_is_published(groups: list[Group]) -> None:
    count = 1 << 15
    tokens = ids(count)
    with radixkv.PageTable(1 << 15, page_size=4, groups=groups) as table:
        with radixkv.Cache(table, whole_pages=True) as cache:
            make = cache.group_row if groups else cache.growing_row
            row, other = make(tokens), make(ids(8, 1 << 20))

            def publish() -> None:
                assert row.extend(None, count, count) is not None
                row.release()
                cache.evict(count // 4)

            # Of several groups the first calls need no lock of the binding's.
            fork_beside(publish, [lambda: other.extend(None, 8, 8)])


def test_a_child_of_fork_lets_go_of_snapshots_while_others_do() -> None:
    part = np.zeros(1, np.uint8)
    count = 1 << 13
    one, other = (radixkv.SnapshotCache(entry_limit=count) for _ in range(2))
    with one, other:

        def let_go() -> object:
            with radixkv.SnapshotCache() as own:
                own.insert(ids(4), part, parts=[part])
            return one.stats()

        for _ in range(8):
            for cache in (one, other):
                for first in range(count):
                    cache.insert([first], part, parts=[part])
            threads = [threading.Thread(target=cache.clear) for cache in (one, other)]
            for thread in threads:
                thread.start()
            try:
                while any(thread.is_alive() for thread in threads):
                    assert is_refused_in_a_child([let_go])
            finally:
                for thread in threads:
                    thread.join()


def test_a_child_of_fork_closes_a_publisher_and_a_store() -> None:
    payload = bytes(1 << 24)
    publisher = net.EventPublisher("tcp://127.0.0.1:0", queue_batch_limit=1)
    stores = [net.Store("redis://127.0.0.1:1")]

    def close_one() -> None:
        stores.append(net.Store("redis://127.0.0.1:1"))
        stores[-1].close()

    def ended(one: net.EventPublisher | net.Store) -> object:
        with one:
            pass
        return one.stats() if isinstance(one, net.EventPublisher) else one.last_failure()

    calls: list[Call] = [
        lambda: publisher.publish(b""),
        lambda: ended(publisher),
        lambda: stores[-1].address,
        lambda: ended(stores[-1]),
    ]
    with stores[0], publisher:
        fork_beside(lambda: publisher.publish(payload), calls)
        fork_beside(close_one, calls)
        assert publisher.publish(b"") > 0 and stores[0].last_failure() == ""
