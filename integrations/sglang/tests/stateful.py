"""SGLang's pools and requests with recurrent layers, and what is in each state.

A state is a number that stands for all tokens it is of. Each step reads what the request's own has
and writes it anew; what is copied is copied by SGLang's pool.
"""

from collections.abc import Sequence
from typing import Any

import conftest
import torch
from radixkv_sglang.cache import RadixkvCache
from radixkv_sglang.states import StatesCache
from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateDType, Mamba2StateShape
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.runtime_context import mamba_checkpoint_grid, mamba_track_grid


def row_pool(states: int, *, buffered: bool) -> HybridReqToTokenPool:
    shape = Mamba2StateShape.create(
        tp_world_size=1,
        intermediate_size=1,
        n_groups=1,
        num_heads=1,
        head_dim=1,
        state_size=0,
        conv_kernel=2,
    )
    dtype = Mamba2StateDType(conv=torch.float32, temporal=torch.float32)
    return HybridReqToTokenPool(
        size=conftest.ROWS - 1,
        mamba_size=states,
        mamba_spec_state_size=0,
        max_context_len=conftest.ROW,
        device="cpu",
        enable_memory_saver=False,
        cache_params=Mamba2CacheParams(shape=shape, layers=[0], dtype=dtype),
        mamba_layer_ids=[0],
        enable_mamba_extra_buffer=buffered,
    )


class StateScheduler(conftest.Scheduler):
    """Does what SGLang's scheduler does for a model with recurrent layers."""

    has_states = True

    def __init__(
        self, kind: str, page_size: int, size: int, states: int, *, buffered: bool
    ) -> None:
        pool: Any = row_pool(states, buffered=buffered)
        make = TokenToKVPoolAllocator if page_size == 1 else PagedTokenToKVPoolAllocator
        paged = () if page_size == 1 else (page_size,)
        self.allocator: Any = make(size, *paged, torch.float32, "cpu", None, False)
        params = CacheInitParams(
            False, pool, self.allocator, page_size, enable_mamba_extra_buffer=buffered
        )
        params.tree_components = (ComponentType.FULL, ComponentType.MAMBA)
        self.pool, self.page_size, self.size = pool, page_size, size
        self.state_count, self.buffered = states, buffered
        self.cache: Any = {"ours": StatesCache, "theirs": UnifiedRadixCache}[kind](params)
        self.running: list[conftest.Request] = []
        #: By slot.
        self.states = pool.mamba_pool.mamba_cache.conv[0].view(-1)
        self.names: dict[int, int] = {}
        self.read = 0

    def decode(self, request: conftest.Request, tokens: Sequence[int]) -> bool:
        for token in tokens:
            if not self._has_room(1):
                return False
            request.full_untruncated_fill_ids.append(token)
            start = request.kv.kv_allocated_len
            end = len(request.full_untruncated_fill_ids) - 1
            super()._allocate(request, end)
            if start < end:
                self._compute(request, start, end)
                if self.buffered and end % mamba_track_grid(self.page_size) == 0:
                    kv = request.kv
                    kv.mamba_prev_track_seqlen = kv.mamba_last_track_seqlen
                    self._track(request, end)
        return True

    def check(self) -> None:
        """And no state is lost: each is free, cached, or of one running request."""
        super().check()
        cache, slots = self.cache, self.pool.mamba_allocator
        cached = cache.all_mamba_values_flatten().tolist()
        assert len(cached) == cache.mamba_evictable_size() + cache.mamba_protected_size()
        owned = [slot for request in self.running for slot in self._slots_of(request)]
        everywhere = slots.free_slots.tolist() + cached + owned
        assert sorted(everywhere) == list(range(1, self.state_count + 1))
        if isinstance(cache, RadixkvCache):
            assert cache.supports_mamba() and not cache.supports_swa()

    def _slots_of(self, request: conftest.Request) -> list[int]:
        buffer = request.kv.mamba_ping_pong_track_buffer
        return [int(request.kv.mamba_pool_idx)] + ([] if buffer is None else buffer.tolist())

    def _give_up(self, request: conftest.Request) -> None:
        super()._give_up(request)
        if request.kv.holds_mamba:
            self.pool.mamba_allocator.free(request.kv.mamba_pool_idx.unsqueeze(-1))

    def _take_row(self, request: conftest.Request) -> bool:
        kv, slots = request.kv, self.pool.mamba_allocator
        needed = (not kv.holds_mamba) + self.pool.mamba_initial_tracking_slots
        if slots.available_size() < needed:
            missing = needed - slots.available_size()
            self.cache.evict_for_alloc(EvictParams(num_tokens=0, mamba_num=missing))
        if slots.available_size() < needed or not self.pool.free_slots:
            return False
        self.pool.alloc([request])
        own = kv.mamba_pool_idx.unsqueeze(0)
        if kv.mamba_cow_src_index is not None:
            self.pool.copy_mamba_state(kv.mamba_cow_src_index, own)
            kv.mamba_cow_src_index = None
        else:
            assert request.prefix_len == 0 and kv.mamba_needs_clear
            self.states[own] = 0
        return True

    def _free_row(self, request: conftest.Request) -> None:
        self.pool.free(request)

    def _allocate(self, request: conftest.Request, end: int) -> None:
        start = request.kv.kv_allocated_len
        super()._allocate(request, end)
        self._compute(request, start, end)
        grid = mamba_checkpoint_grid(self.page_size)
        if self.buffered and end - start >= grid:
            branch = request.mamba_branching_seqlen
            if branch is None or not start < branch < end or (branch - start) % grid:
                branch = start + (end - start) // grid * grid
            self._track(request, branch)

    def _compute(self, request: conftest.Request, start: int, end: int) -> None:
        own = request.kv.mamba_pool_idx
        assert self.states[own] == self._name(request, start), (start, end)
        self.states[own] = self._name(request, end)
        self.read += 1

    def _track(self, request: conftest.Request, at: int) -> None:
        """A step leaves a state in the request's next slot, too."""
        kv = request.kv
        which = kv.mamba_next_track_idx
        self.states[kv.mamba_ping_pong_track_buffer[which]] = self._name(request, at)
        kv.mamba_last_track_idx, kv.mamba_last_track_seqlen = which, at
        kv.mamba_next_track_idx = self.pool.get_mamba_ping_pong_other_idx(which)

    def _name(self, request: conftest.Request, end: int) -> int:
        if end == 0:
            return 0
        tokens = tuple(request.full_untruncated_fill_ids[:end])
        key = hash((request.extra_key, request.cache_salt, tokens))
        return self.names.setdefault(key, len(self.names) + 1)
