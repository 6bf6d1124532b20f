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

from .cache import EVICTED_LIMIT, EVICTED_SHARE, RadixkvCache
from .prefix import CachedPrefix, head


class WindowedCache(RadixkvCache):
    """Two groups: full attention, and a sliding window."""

    def __init__(self, params: CacheInitParams) -> None:
        # SGLang does not count the query's own position.
        self.sliding_window_size = params.sliding_window_size
        super().__init__(params)

    def _open_table(self, page_count: int) -> radixkv.PageTable:
        window_pages = self.token_to_kv_pool_allocator.size_swa // self.page_size + 1
        #: Of each page of the window's pool that the cache has: the page that it hangs on.
        self._hangs_on = np.zeros(window_pages, np.uint32)
        self._given_window = np.zeros(page_count, np.uint32)
        self._published_window = np.zeros(page_count, np.uint32)
        #: Marks full pages within a call.
        self._marked = np.zeros(page_count, np.bool_)
        self._evicted = np.zeros(page_count + window_pages, radixkv.dtypes.evicted_page)
        self._numbers.prepare(max(page_count, window_pages))
        groups = [radixkv.Group.full(), radixkv.Group.window(self.sliding_window_size + 1, pool=1)]
        return radixkv.PageTable(
            pools=[page_count, window_pages], groups=groups, page_size=self.page_size, external=True
        )

    def _page_count(self) -> int:
        return int(self.token_to_kv_pool_allocator.size_full) // self.page_size + 1

    # Locks.

    def _lock(self, node: CachedPrefix) -> int:
        # By the prefix, whose window it protects, and not by the node, which may be longer.
        return self._find(node, lock=True) if node.length else 0

    # What a request gives to the cache, and what it gives back.

    def insert(self, params: InsertParams) -> InsertResult:
        raise NotImplementedError("radixkv_sglang: windows are inserted from a request's row")

    def free_kv_row(self, kv: Any, ranges: list[tuple[int, int]]) -> None:
        BasePrefixCache.free_kv_row(self, kv, ranges)

    def _insert(
        self,
        tokens: Any,
        length: int,
        space: radixkv.Namespace | None,
        last: CachedPrefix,
    ) -> radixkv.InsertResult:
        first, end = last.length // self.page_size, length // self.page_size
        self._given_window[first:end] = self._windows_of(self._given[first:end])
        given = head(tokens, length)
        done = self._cache.insert(
            given,
            self._given[:end],
            published=self._published,
            space=space,
            lock=True,
            from_node=last.node,
            from_token_index=last.length,
            from_page_index=first,
            groups=[(1, self._given_window[:end], self._published_window)],
        )
        part = slice(first, done.page_count)
        self._hangs_on[self._published_window[part]] = self._published[part]
        self._hangs_on[0] = 0  # that is where there is no page
        self._cache.match(given, space=space)
        return done

    def _windows_of(self, pages: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The window's pages of full pages, 0 where there is none."""
        mapping = self.token_to_kv_pool_allocator.full_to_swa_index_mapping
        if mapping.device.type == "cpu":
            found = mapping.numpy().take(pages.astype(np.int64) * self.page_size)
        else:
            found = mapping[self._numbers.tensor(pages) * self.page_size].cpu().numpy()
        return (found // self.page_size).astype(np.uint32)

    def _share(self, kv: Any, start: int, end: int) -> None:
        """The cache has these pages: its own come into the row, and the request's are free. Where
        it lacked the window's page, it has taken over the request's, which hangs on its own now."""
        part = slice(start // self.page_size, end // self.page_size)
        given, published = self._given[part], self._published[part]
        mine, known = self._given_window[part], self._published_window[part]
        allocator = self.token_to_kv_pool_allocator
        moved = (mine != 0) & (mine == known)
        if moved.any():
            allocator.clear_full_to_swa_mapping(self._numbers.indices(given[moved]))
            allocator.set_full_to_swa_mapping(
                self._numbers.indices(published[moved]), self._numbers.indices(mine[moved])
            )
        self._free(given, ~moved & (mine != 0))
        indices = self._numbers.indices(published)
        self.req_to_token_pool.write((kv.req_pool_idx, slice(start, end)), indices)

    def _free(self, pages: NDArray[np.uint32], have: NDArray[np.bool_]) -> None:
        """Frees full pages, of which some have a page of the window's."""
        allocator = self.token_to_kv_pool_allocator
        if have.any():
            allocator.free(self._numbers.indices(pages[have]))
        if not have.all():
            allocator.free_full(self._numbers.indices(pages[~have]))

    # What the scheduler takes back when it lacks pages, and what it may count on.

    def evict(self, params: EvictParams) -> EvictResult:
        full, window = (
            -(-count // self.page_size) for count in (params.num_tokens, params.swa_num_tokens)
        )
        if self.disable or max(full, window) <= 0:
            return EvictResult()
        start_time = time.perf_counter()
        gone = self._evict_pool(0, full)
        gone += self._evict_pool(1, window - gone[1])
        tokens = gone * self.page_size
        self.update_eviction_metrics(int(tokens[0]), start_time)
        return EvictResult(
            num_tokens_evicted=int(tokens[0]), swa_num_tokens_evicted=int(tokens[1])
        )

    def _evict_pool(self, pool: int, page_count: int) -> NDArray[np.int64]:
        """How many pages left each pool."""
        if page_count <= 0:
            return np.zeros(2, np.int64)
        count, _ = self._cache.evict_pool(pool, page_count, self._evicted)
        gone = self._evicted[:count]
        full, window = (gone["page"][gone["group"] == group] for group in (0, 1))
        hung_on = self._hangs_on[window]
        self._hangs_on[window] = 0
        alone = hung_on[~self._among(hung_on, full)]
        if alone.size:
            self.token_to_kv_pool_allocator.free_swa(self._numbers.indices(alone))
        if full.size:
            self._free(full, self._among(full, hung_on))
        return np.array([full.size, window.size])

    def _among(self, pages: NDArray[np.uint32], others: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which of the full pages are among others."""
        self._marked[others] = True
        found = self._marked[pages]
        self._marked[others] = False
        return found

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

    def evictable_size(self) -> int:
        return self.full_evictable_size()

    def protected_size(self) -> int:
        return self.full_protected_size()

    def full_evictable_size(self) -> int:
        return self._table.pool_stats(0).reclaimable_page_count * self.page_size

    def full_protected_size(self) -> int:
        return self._protected(0)

    def swa_evictable_size(self) -> int:
        return self._table.pool_stats(1).reclaimable_page_count * self.page_size

    def swa_protected_size(self) -> int:
        return self._protected(1)

    def _protected(self, pool: int) -> int:
        stats = self._table.pool_stats(pool)
        return (stats.cached_page_count - stats.reclaimable_page_count) * self.page_size

    def total_size(self) -> Any:
        pools = (self._table.pool_stats(pool) for pool in (0, 1))
        return tuple(it.cached_page_count * self.page_size for it in pools)

    def supports_swa(self) -> bool:
        return True

    def all_window_indices(self) -> torch.Tensor:
        """The token indices of all cached pages of the window's pool, for checks."""
        return self._numbers.indices(np.flatnonzero(self._hangs_on).astype(np.uint32))
