"""Pools and requests as SGLang's scheduler has them, without a model."""

from array import array
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from sglang.srt.managers.schedule_batch import ReqKvInfo
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from radixkv_sglang.cache import RadixkvCache
from radixkv_sglang.pages import Tables

ROWS = 16
ROW = 512


class Request:
    """What caches read of SGLang's Req."""

    def __init__(self, tokens: Sequence[int], extra_key: str | None, cache_salt: str | None):
        self.rid = "a request"
        self.origin_input_ids = array("q", tokens)
        self.full_untruncated_fill_ids = array("q", tokens)
        self.extra_key, self.cache_salt = extra_key, cache_salt
        self.kv = ReqKvInfo()
        self.lock: Any = None
        self.last_node: Any = None
        self.prefix_len = 0
        self.swa_branching_seqlen: int | None = None
        self.mamba_branching_seqlen: int | None = None
        self.priority = self.session = self.kv_rotation_base = None
        self.session_id: str | None = None
        self.is_finished = False

    def get_fill_ids(self) -> "array[int]":
        return self.full_untruncated_fill_ids[: self.kv.kv_allocated_len]

    def finished(self) -> bool:
        return self.is_finished


class Scheduler:
    """Does with a cache what SGLang's does for a request, in the same order."""

    has_states = False

    def __init__(self, kind: str, page_size: int, size: int, **options: Any) -> None:
        pool = ReqToTokenPool(ROWS, ROW, "cpu", enable_memory_saver=False)
        if page_size == 1:
            self.allocator = TokenToKVPoolAllocator(size, torch.float32, "cpu", None, False)
        else:
            self.allocator = PagedTokenToKVPoolAllocator(
                size, page_size, torch.float32, "cpu", None, False
            )
        params = CacheInitParams(False, pool, self.allocator, page_size, **options)
        params.tree_components = (ComponentType.FULL,)
        self.pool, self.page_size, self.size = pool, page_size, size
        self.cache: Any = {"ours": RadixkvCache, "theirs": UnifiedRadixCache}[kind](params)
        self.free_rows = list(range(1, ROWS))
        self.running: list[Request] = []

    def start(
        self,
        tokens: Sequence[int],
        extra_key: str | None = None,
        cache_salt: str | None = None,
        chunk: int = ROW,
    ) -> Request | None:
        """Matches, locks, allocates and checkpoints, chunk by chunk; None without room."""
        request = Request(tokens, extra_key, cache_salt)
        key = RadixKey(request.full_untruncated_fill_ids, extra_key, limit=len(tokens) - 1,
                       cache_salt=cache_salt)
        params = MatchPrefixParams(key=key, cow_mamba=self.has_states, req=request)
        found = self.cache.match_prefix(params)
        request.prefix_len = request.kv.cache_protected_len = found.device_prefix_len
        request.last_node = found.last_device_node
        request.swa_branching_seqlen = found.swa_branching_seqlen
        request.mamba_branching_seqlen = found.mamba_branching_seqlen
        request.lock = self.cache.lock(request.last_node)
        prefix = self.cache.prefix_device_indices(request)
        if not self._has_room(len(tokens) - request.prefix_len) or not self._take_row(request):
            self._give_up(request)
            return None
        self.pool.write((request.kv.req_pool_idx, slice(0, len(prefix))), prefix)
        request.kv.kv_allocated_len = len(prefix)
        self.running.append(request)
        for end in [*range(request.prefix_len + chunk, len(tokens), chunk), len(tokens)]:
            self._allocate(request, end)
            self.cache.checkpoint(request, up_to=end)
        return request

    def decode(self, request: Request, tokens: Sequence[int]) -> bool:
        """Appends what was said; all but the last has its KV."""
        if not self._has_room(len(tokens)):
            return False
        request.full_untruncated_fill_ids.extend(tokens)
        self._allocate(request, len(request.full_untruncated_fill_ids) - 1)
        return True

    def finish(
        self, request: Request, *, checkpoint: bool = True, released: bool = False
    ) -> None:
        """The end of a request; without a checkpoint, of one that was aborted or retracted, or that
        has `released` what it had already."""
        request.is_finished = True
        owned = request.kv.kv_allocated_len
        if checkpoint:
            self.cache.checkpoint(request, up_to=owned)
        self.cache.free_kv_row(request.kv, [(request.kv.cache_protected_len, owned)])
        self.cache.unlock(request.lock)
        self.cache.on_release(request, checkpointed=checkpoint or released)
        self._free_row(request)
        self.running.remove(request)

    def run(
        self,
        tokens: Sequence[int],
        said: Sequence[int] = (7, 8, 9),
        *,
        extra_key: str | None = None,
        cache_salt: str | None = None,
    ) -> int:
        """One request from its beginning to its end. Returns how much it found."""
        request = self.start(tokens, extra_key, cache_salt)
        assert request is not None
        assert self.decode(request, said)
        self.finish(request)
        self.check()
        return request.prefix_len

    def row(self, request: Request) -> torch.Tensor:
        kv = request.kv
        return self.pool.req_to_token[kv.req_pool_idx, : kv.kv_allocated_len].clone()

    def check(self) -> None:
        """Nothing is lost: every page is free, cached, or in one running request's row."""
        cache, size = self.cache, self.page_size
        cached = cache.evictable_size() + cache.protected_size()
        owned = {
            index // size
            for request in self.running
            for index in self.row(request)[request.kv.cache_protected_len :].tolist()
        }
        free = self.allocator.available_size()
        assert free + cached + len(owned) * size == self.size
        if isinstance(cache, RadixkvCache):
            cache.sanity_check()
            assert cached == cache.full_evictable_size() + cache.full_protected_size()
            pages = {index // size for index in cache.all_values_flatten().tolist()}
            assert len(pages) * size == cached == cache.total_size()
            assert not pages & owned and not pages & set(self.allocator.free_pages.tolist())

    def _give_up(self, request: Request) -> None:
        self.cache.unlock(request.lock)

    def _take_row(self, request: Request) -> bool:
        if not self.free_rows:
            return False
        request.kv.req_pool_idx = self.free_rows.pop()
        return True

    def _free_row(self, request: Request) -> None:
        self.free_rows.append(request.kv.req_pool_idx)

    def _has_room(self, tokens: int) -> bool:
        wanted = tokens + self.page_size
        short = wanted - self.allocator.available_size()
        if short > 0:
            self.cache.evict_for_alloc(EvictParams(num_tokens=short))
        return bool(self.allocator.available_size() >= wanted)

    def _allocate(self, request: Request, end: int) -> None:
        start, size = request.kv.kv_allocated_len, self.page_size
        if end <= start:
            return
        table = self.pool.req_to_token[request.kv.req_pool_idx]
        # What is left of the last page, then new ones.
        within = min(-start % size, end - start)
        if within:
            table[start : start + within] = table[start - 1] + 1 + torch.arange(within)
        missing = -(-(end - start - within) // size) * size
        if missing:
            indices = self.allocator.alloc(missing)
            table[start + within : end] = indices[: end - start - within]
        request.kv.kv_allocated_len = end


@pytest.fixture(params=[1, 4])
def page_size(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches copy from SGLang's tensors, as from another device than the CPU."""
    init = Tables.__init__

    def copying(self: Tables, *args: Any) -> None:
        init(self, *args)
        self.are_on_host = False

    monkeypatch.setattr(Tables, "__init__", copying)
