"""The cache of a model that has sliding windows beside full attention.

SGLang keeps what the window's layers need in a pool of its own: each page of the full pool has a
page of the window's, or none any more, by the allocator's mapping. Here these are two groups of
layers over two external pools. A page of the window's pool hangs on the page of full attention that
has the same tokens, and the mapping of a page that the cache has says what the cache has there.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import radixkv
import torch
from numpy.typing import NDArray
from sglang.srt.mem_cache.base_prefix_cache import (
    BasePrefixCache,
    EvictParams,
    EvictResult,
    InsertParams,
    InsertResult,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams

from .cache import EVICTED_LIMIT, EVICTED_SHARE, RadixkvCache, room
from .prefix import CachedPrefix


class WindowedCache(RadixkvCache):
    """Two groups: full attention, and a sliding window."""

    def __init__(self, params: CacheInitParams) -> None:
        # SGLang does not count the query's own position.
        self.sliding_window_size = params.sliding_window_size
        super().__init__(params)

    def _open_table(self, page_count: int) -> radixkv.PageTable:
        window_pages = self.token_to_kv_pool_allocator.size_swa // self.page_size + 1
        groups = [radixkv.Group.full(), radixkv.Group.window(self.sliding_window_size + 1, pool=1)]
        return radixkv.PageTable(
            pools=[page_count, window_pages], groups=groups, page_size=self.page_size, external=True
        )

    def _page_count(self) -> int:
        return int(self.token_to_kv_pool_allocator.size_full) // self.page_size + 1

    def _mapping(self) -> torch.Tensor | None:
        mapping: torch.Tensor = self.token_to_kv_pool_allocator.full_to_swa_index_mapping
        return mapping

    # Locks.

    def _lock(self, node: CachedPrefix) -> int:
        # By the prefix, whose window it protects, and not by the node, which may be longer.
        return self._find(node, lock=True) if node.length else 0

    # What a request gives to the cache, and what it gives back.

    def release_swa_prefix_lock(self, req: Any) -> None:
        """What SGLang asks, with SGLANG_OPT_RELEASE_PREFILL_SWA, once a request's window has moved
        past its prompt: nobody needs the prompt's window for it any more."""
        lock, kv = req.lock, req.kv
        if lock is None or not lock.receipt or lock.swa_released:
            return
        # The last position that there is room for may be under way.
        position = kv.kv_allocated_len - 1
        self._cache.slide_lock(lock.receipt, position)
        lock.swa_released = position - self.sliding_window_size >= kv.cache_protected_len

    def insert(self, params: InsertParams) -> InsertResult:
        raise NotImplementedError("radixkv_sglang: windows are inserted from a request's row")

    def _share(self, kv: Any, first: int, end: int) -> None:
        """The cache has these pages: its own come into the row, and the request's are free. Where
        it lacked the window's page, it has taken over the request's, which hangs on its own now."""
        if self._tables.are_on_host:
            super()._share(kv, first, end)
            return
        given, published = self._placed.pages(first, end)
        mine, known = self._placed.pages(first, end, group=1)
        allocator = self.token_to_kv_pool_allocator
        allocator.clear_full_to_swa_mapping(self._numbers.indices(given[mine != 0]))
        moved = (mine != 0) & (mine == known)
        allocator.set_full_to_swa_mapping(
            self._numbers.indices(published[moved]), self._numbers.indices(mine[moved])
        )
        self._free(given.astype(np.int64), mine[~moved & (mine != 0)].astype(np.int64))
        self._write(kv, first, published)

    def _free(
        self, pages: NDArray[np.int64], window_pages: NDArray[np.int64] | None = None
    ) -> None:
        # None of them is in the mapping any more.
        allocator = self.token_to_kv_pool_allocator
        if window_pages is not None and window_pages.size:
            freed = self._numbers.own(window_pages)
            # As the allocator does: its own groups of frees are those of full attention.
            if allocator.free_group is None:
                allocator.swa_attn_allocator.free_page_ids(freed)
            else:
                allocator.swa_page_ids_group.append(freed)
        if pages.size:
            allocator.full_attn_allocator.free_page_ids(self._numbers.own(pages))

    # What the scheduler takes back when it lacks pages, and what it may count on.

    def evict(self, params: EvictParams) -> EvictResult:
        full, window = (
            max(0, -(-count // self.page_size))
            for count in (params.num_tokens, params.swa_num_tokens)
        )
        if self.disable or max(full, window) <= 0:
            return EvictResult()
        start_time = time.perf_counter()
        pages, window_pages, bare = self._placed.evict(full, window)
        if not self._tables.are_on_host:
            cleared = self._numbers.indices(bare)
            self.token_to_kv_pool_allocator.clear_full_to_swa_mapping(cleared)
        self._free(pages, window_pages)
        tokens, window_tokens = (it.size * self.page_size for it in (pages, window_pages))
        self.update_eviction_metrics(tokens, start_time)
        return EvictResult(num_tokens_evicted=tokens, swa_num_tokens_evicted=window_tokens)

    def evict_for_alloc(
        self,
        params: EvictParams,
        *,
        allocation_reclaim_satisfied: Callable[[], bool] | None = None,
    ) -> EvictResult:
        if allocation_reclaim_satisfied is not None:
            raise NotImplementedError("radixkv_sglang: pools that lend to each other")
        allocator = self.token_to_kv_pool_allocator
        wanted = [
            max(count, min(size // EVICTED_SHARE, EVICTED_LIMIT)) if count > 0 else 0
            for count, size in (
                (params.num_tokens, allocator.size_full),
                (params.swa_num_tokens, allocator.size_swa),
            )
        ]
        return self.evict(EvictParams(num_tokens=wanted[0], swa_num_tokens=wanted[1]))

    def protected_size(self) -> int:
        return self.full_protected_size()

    def full_protected_size(self) -> int:
        return self._protected(0)

    # SGLang's watchdog asks from another thread, while the scheduler's may be in a call.

    def swa_evictable_size(self) -> int:
        reclaimable = self._table.pool_stats(1).reclaimable_page_count
        return (reclaimable + self._stray_page_counts()[0]) * self.page_size

    def swa_protected_size(self) -> int:
        return self._protected(1) + self._stray_page_counts()[1] * self.page_size

    def _stray_page_counts(self) -> tuple[int, int]:
        """What memory ran out for hangs on the cache's pages all the same. How many of these pages
        `evict()` gets for sure, since on each page that is locked there may be one; and the others.
        """
        strays = self._placed.stray_page_count
        evictable = max(0, strays - self._protected(0) // self.page_size) if strays else 0
        return evictable, strays - evictable

    def _protected(self, pool: int) -> int:
        stats = self._table.pool_stats(pool)
        return (stats.cached_page_count - stats.reclaimable_page_count) * self.page_size

    def total_size(self) -> Any:
        full, window = (self._table.pool_stats(pool).cached_page_count for pool in (0, 1))
        window += self._placed.stray_page_count
        return full * self.page_size, window * self.page_size

    def available_and_evictable_str(self) -> str:
        allocator = self.token_to_kv_pool_allocator
        full = room("full tokens", allocator.full_available_size(), self.full_evictable_size())
        return full + room("swa", allocator.swa_available_size(), self.swa_evictable_size())

    def supports_swa(self) -> bool:
        return True

    def all_window_indices(self) -> torch.Tensor:
        """The token indices of all cached pages of the window's pool, for checks."""
        return self._numbers.indices(self._placed.window_pages())
