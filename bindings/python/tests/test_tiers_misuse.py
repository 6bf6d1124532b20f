"""What caches refuse of tiers, by the name of the argument."""

from collections.abc import Callable

import numpy as np
import pytest
from conftest import ids

import radixkv
from radixkv import dtypes

Call = Callable[[radixkv.Cache], object]
READ_ONLY = np.zeros(64, np.uint8).tobytes()

# What is done wrong with a cache that has no tiers, what is raised, and a part of the message.
WITHOUT: dict[str, tuple[Call, type[Exception], str]] = {
    "no page": (lambda c: c.attach_tiers(), radixkv.InvalidArgument, "page_bytes"),
    "no host memory": (lambda c: c.attach_tiers(96), radixkv.InvalidArgument, "host_bytes"),
    "a page of less than none": (
        lambda c: c.attach_tiers(-1, 960), OverflowError, "page_bytes"),
    "memory that is too small": (
        lambda c: c.attach_tiers(96, 960, host_memory=np.zeros(95, np.uint8)),
        ValueError, "host_memory: 960 bytes are needed, 95"),
    "memory that can't be written": (
        lambda c: c.attach_tiers(8, host_memory=READ_ONLY), ValueError, "host_memory"),
    "memory with gaps": (
        lambda c: c.attach_tiers(8, host_memory=np.zeros(64, np.uint8)[::2]),
        ValueError, "host_memory: must be C-contiguous"),
    "memory that is none": (
        lambda c: c.attach_tiers(8, host_memory=7),  # type: ignore[arg-type]
        TypeError, "host_memory"),
    "memory of a pool": (
        lambda c: c.attach_tiers(pools=[(8, 80, np.zeros(9, np.uint8))]),
        ValueError, r"pools\[0\]: host_memory: 80 bytes"),
    "half a pool": (
        lambda c: c.attach_tiers(pools=[(8,)]),  # type: ignore[list-item]
        ValueError, "pools"),
    "too many pools": (
        lambda c: c.attach_tiers(pools=[(8, 80, None)] * 2), radixkv.InvalidArgument, "pool"),
    "pools, and one besides": (
        lambda c: c.attach_tiers(8, 80, pools=[(8, 80, None)]),
        radixkv.InvalidArgument, "page_bytes|host_bytes"),
    "a path with a NUL": (
        lambda c: c.attach_tiers(96, 960, directory="a\0b"), ValueError, "directory: has a NUL"),
    "a directory of no size": (
        lambda c: c.attach_tiers(96, 960, directory="kv"), radixkv.InvalidArgument, "disk_bytes"),
    "half a fingerprint": (
        lambda c: c.attach_tiers(96, 960, fingerprint=b"abc"), ValueError, "fingerprint|32"),
    "nobody works": (
        lambda c: c.attach_tiers(96, 960, worker_count=0),
        radixkv.InvalidArgument, "worker_count"),
    "too many uses": (
        lambda c: c.attach_tiers(96, 960, store_after_uses=256),
        radixkv.InvalidArgument, "store_after_uses"),
    "detached before": (lambda c: c.detach_tiers(), radixkv.InvalidState, "tiers"),
    "flushed before": (lambda c: c.flush_tiers(), radixkv.InvalidState, "tiers"),
    "shrunk before": (lambda c: c.shrink_tiers(0), radixkv.InvalidState, "tiers"),
    "polled before": (lambda c: c.poll(), radixkv.InvalidState, "tiers"),
    "completed before": (
        lambda c: c.complete(np.zeros(1, np.uint64)), radixkv.InvalidState, "tiers"),
    "fetched before": (lambda c: c.begin(ids(9)).fetch(), radixkv.InvalidState, "tiers"),
    "agreed before": (lambda c: c.begin(ids(9)).agree(0), radixkv.InvalidState, "tiers"),
    "prefetched before": (lambda c: c.prefetch(ids(9)), radixkv.InvalidState, "tiers"),
    "cancelled before": (lambda c: c.cancel_prefetch(1), radixkv.InvalidState, "tiers"),
}

# The same with tiers.
WITH: dict[str, tuple[Call, type[Exception], str]] = {
    "attached twice": (lambda c: c.attach_tiers(96, 960), radixkv.InvalidState, "tiers"),
    "jobs of another layout": (
        lambda c: c.poll(np.zeros(4, dtypes.fetch_end)), TypeError, "jobs.*copy_job"),
    "ends of another layout": (
        lambda c: c.poll(None, np.zeros(4, dtypes.copy_job)), TypeError, "ends.*fetch_end"),
    "jobs of 32 bits": (
        lambda c: c.complete(np.zeros(1, np.uint32)), TypeError, "jobs.*64-bit"),
    "jobs of others": (
        lambda c: c.complete(np.array([77], np.uint64)), radixkv.InvalidArgument, "jobs"),
    "jobs with gaps": (
        lambda c: c.complete(np.zeros(4, dtypes.copy_job)["job"]), ValueError, "jobs: must be C"),
    "a deadline in the past": (lambda c: c.begin(ids(9)).fetch(-1), ValueError, "deadline"),
    "a deadline that is none": (
        lambda c: c.prefetch(ids(9), deadline=float("nan")), ValueError, "deadline"),
    "a timeout in the past": (lambda c: c.detach_tiers(-0.5), ValueError, "timeout"),
    "a flush in the past": (lambda c: c.flush_tiers(-1), ValueError, "timeout"),
    "a prompt of floats": (lambda c: c.prefetch(np.zeros(4)), TypeError, "tokens"),
}


@pytest.mark.parametrize("name", [*WITHOUT, *WITH])
def test_p01_misuse_of_tiers(cache: radixkv.Cache, name: str) -> None:
    call, kind, message = (WITHOUT | WITH)[name]
    if name in WITH:
        cache.attach_tiers(96, 960)
    with pytest.raises(kind, match=message):
        call(cache)
    stats = cache.tier_stats()
    assert stats.host.byte_limit == (960 if name in WITH else 0)
    assert stats.open_fetch_count == stats.open_job_count == 0


def test_p01_caches_that_can_have_no_tiers(table: radixkv.PageTable) -> None:
    external = radixkv.PageTable(64, page_size=1, external=True)
    with external, radixkv.Cache(external, journal_bytes=1 << 16) as cache:
        with pytest.raises(radixkv.Unsupported, match="external"):
            cache.attach_tiers(96, 960)
    with radixkv.Cache(table) as cache, pytest.raises(radixkv.InvalidState, match="journal"):
        cache.attach_tiers(96, 960)
