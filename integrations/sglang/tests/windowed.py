"""SGLang's pools and requests with a sliding window, and what is in each place of them.

Each position that is computed is written to its place in both pools, and then what it attends to is
read: all positions before it in the one, those of the window in the other.
"""

from collections.abc import Sequence
from typing import Any

import conftest
import numpy as np
import torch
from radixkv_sglang.windows import WindowedCache
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache


class Memory(BaseSWAKVPool):
    """The pools that the allocator hands out places of."""

    def __init__(self) -> None:
        pass

    def register_mapping(self, full_to_swa_index_mapping: torch.Tensor) -> None:
        self.full_to_swa_index_mapping = full_to_swa_index_mapping

    def translate_loc_from_full_to_swa(self, kv_indices: torch.Tensor) -> torch.Tensor:
        return self.full_to_swa_index_mapping[kv_indices]


# What copies to and from the pools is called by nobody here.
Memory.__abstractmethods__ = frozenset()


class WindowScheduler(conftest.Scheduler):
    """Does what SGLang's scheduler does for a model with sliding windows."""

    def __init__(self, kind: str, page_size: int, sizes: tuple[int, int], window: int) -> None:
        pool = ReqToTokenPool(conftest.ROWS, conftest.ROW, "cpu", enable_memory_saver=False)
        self.allocator: Any = SWATokenToKVPoolAllocator(
            *sizes, page_size, torch.float32, "cpu", Memory(), False
        )
        params = CacheInitParams(False, pool, self.allocator, page_size)
        params.tree_components = (ComponentType.FULL, ComponentType.SWA)
        params.sliding_window_size = window
        self.pool, self.page_size, self.sizes, self.window = pool, page_size, sizes, window
        self.cache: Any = {"ours": WindowedCache, "theirs": UnifiedRadixCache}[kind](params)
        self.free_rows = list(range(1, conftest.ROWS))
        self.running: list[conftest.Request] = []
        #: What was written to each place of the two pools.
        self.written = [np.zeros(size + page_size, np.int64) for size in sizes]
        self.read = 0

    def decode(self, request: conftest.Request, tokens: Sequence[int]) -> bool:
        for token in tokens:
            if not self._has_room(1):
                return False
            before = request.kv.kv_allocated_len
            self.cache.evict_sliding_windows(request, before)
            request.full_untruncated_fill_ids.append(token)
            self._allocate(request, len(request.full_untruncated_fill_ids) - 1)
        return True

    def places(self, request: conftest.Request, first: int, end: int) -> list[Any]:
        """The places of positions in the two pools."""
        row = self.pool.req_to_token[request.kv.req_pool_idx, first:end].long()
        mapped = self.allocator.full_to_swa_index_mapping[row]
        return [row.numpy(), mapped.numpy()]

    def check(self) -> None:
        """Nothing is lost in either pool, and each page has the page that the cache says."""
        cache, size = self.cache, self.page_size
        owned: list[set[int]] = [set(), set()]
        for request in self.running:
            kv = request.kv
            rows = self.places(request, kv.cache_protected_len, kv.kv_allocated_len)
            for pages, row in zip(owned, rows, strict=True):
                pages |= {place // size for place in row.tolist() if place}
        cached = (
            cache.full_evictable_size() + cache.full_protected_size(),
            cache.swa_evictable_size() + cache.swa_protected_size(),
        )
        free = (self.allocator.full_available_size(), self.allocator.swa_available_size())
        for pool in (0, 1):
            assert free[pool] + cached[pool] + len(owned[pool]) * size == self.sizes[pool], pool
        if isinstance(cache, WindowedCache):
            cache.sanity_check()
            assert cache.total_size() == cached
            full = cache.all_values_flatten()
            mapped = self.allocator.full_to_swa_index_mapping[full]
            window = cache.all_window_indices()
            assert sorted(mapped[mapped > 0].tolist()) == sorted(window.tolist())
            assert len(full) == cached[0] and len(window) == cached[1]

    def _has_room(self, tokens: int) -> bool:
        wanted = tokens + self.page_size
        free = (self.allocator.full_available_size, self.allocator.swa_available_size)
        short = [max(0, wanted - it()) for it in free]
        if any(short):
            self.cache.evict_for_alloc(EvictParams(num_tokens=short[0], swa_num_tokens=short[1]))
        return all(it() >= wanted for it in free)

    def _allocate(self, request: conftest.Request, end: int) -> None:
        start, size = request.kv.kv_allocated_len, self.page_size
        if end <= start:
            return
        table = self.pool.req_to_token[request.kv.req_pool_idx]
        within = min(-start % size, end - start)
        if within:
            table[start : start + within] = table[start - 1] + 1 + torch.arange(within)
        missing = -(-(end - start - within) // size) * size
        if missing:
            indices = self.allocator.full_attn_allocator.alloc(missing)
            window = self.allocator.swa_attn_allocator.alloc(missing)
            self.allocator.set_full_to_swa_mapping(indices, window)
            table[start + within : end] = indices[: end - start - within]
        request.kv.kv_allocated_len = end
        self._compute(request, start, end)

    def _compute(self, request: conftest.Request, start: int, end: int) -> None:
        """Writes the positions [start, end), and reads what they attend to."""
        key, keys = hash((request.extra_key, request.cache_salt)), []
        for token in request.full_untruncated_fill_ids[:end]:
            key = hash((key, token))
            keys.append(key)
        for memory, places in zip(self.written, self.places(request, start, end), strict=True):
            assert (places > 0).all(), "a position has no place"
            memory[places] = keys[start:end]
        for pool, first in ((0, 0), (1, max(0, start - self.window))):
            places = self.places(request, first, end)[pool]
            assert (self.written[pool][places] == keys[first:end]).all(), (pool, start, end)
            self.read += len(places)
