"""The cache of a model that has recurrent layers beside full attention.

What a recurrent layer keeps of a prefix is one state, of all its tokens. SGLang has a pool of slots
for them, each for the states of all layers: a request has one, which its steps overwrite, and the
tree has one wherever a request may go on. Here these are two groups of layers over two external
pools: a slot of the cache is a page of the second that hangs on the page of full attention where
the state is.

Without an "extra buffer" a state is known at the end of what was computed alone: a running request
gives a copy of its own, and a finished one its own. With it each step leaves the state of its last
round position in one of two more slots, which is given away.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import radixkv
import torch
from sglang.srt.environ import envs
from sglang.srt.mem_cache.base_prefix_cache import (
    EvictParams,
    EvictResult,
    InsertParams,
    InsertResult,
    MatchPrefixParams,
    MatchResult,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool
from sglang.srt.runtime_context import get_exec, mamba_checkpoint_grid

from .cache import NOT_TEXT, RadixkvCache, now, room
from .prefix import CachedPrefix, are_text, head
from .spaces import space_of

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req


class StatesCache(RadixkvCache):
    """Two groups: full attention, and states."""

    def __init__(self, params: CacheInitParams) -> None:
        assert isinstance(params.req_to_token_pool, HybridReqToTokenPool)
        self._pool = params.req_to_token_pool
        self._slots = self._pool.mamba_allocator
        self._has_buffer = params.enable_mamba_extra_buffer
        # How far apart the places are at which a step leaves a state.
        self._grid = mamba_checkpoint_grid(params.page_size)
        # Asked once: reading it takes longer than what it decides.
        self._gives_locks_back = envs.SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK.get()
        super().__init__(params)

    def _open_table(self, page_count: int) -> radixkv.PageTable:
        return radixkv.PageTable(
            pools=[page_count, self._slots.size + 1],
            groups=[radixkv.Group.full(), radixkv.Group.state(pool=1)],
            page_size=self.page_size,
            external=True,
        )

    def _open_cache(self, journal_bytes: int) -> radixkv.Cache:
        limit = 0 if self.disable else get_exec().mamba.mamba_max_states_per_path
        return radixkv.Cache(
            self._table,
            whole_pages=True,
            journal_bytes=journal_bytes,
            checkpoint_limit=max(limit, 0),
        )

    # What the scheduler asks while a request waits.

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        key = params.key
        length = len(key)
        if self.disable or length < self.page_size:
            return self._nothing
        tokens, space = key.token_ids, space_of(key.extra_key, key.cache_salt)
        copies = params.cow_mamba
        try:
            part = head(tokens, length)
            found = self._cache.match(part, self._published, space=space, lock=copies)
        except NOT_TEXT:
            if are_text(tokens, length):
                raise
            # Nothing is found.
            found = self._cache.match(np.empty(0, np.uint32), self._published, space=space)
        # Where others have these tokens and no state, the request should leave one.
        known = found.known_position_count
        branch = known // self._grid * self._grid
        length, prefix = 0, self.root_node
        if found.page_count:
            length = found.page_count * self.page_size
            prefix = CachedPrefix(found.node, length, tokens, space)
            prefix.pages = self._published[: found.page_count].copy()
            if copies:
                # In one step with the copy's slot, for which something may have to be evicted.
                self._copy(params.req, found.lock)
                self._cache.unlock(found.lock)
        elif copies and params.req.kv.holds_mamba:
            # A request of a session that had to wait keeps the slot of a match from before, whose
            # copy was called off: what it has is somebody else's.
            params.req.kv.mamba_needs_clear = True
        return MatchResult(
            length,
            prefix,
            prefix,
            prefix,
            mamba_branching_seqlen=branch if branch > length else None,
            full_kv_hit_length=known,
        )

    def _copy(self, req: "Req", lock: int) -> None:
        """The next step begins with a copy of the state at the end of a locked prefix."""
        kv = req.kv
        if not kv.holds_mamba:
            kv.mamba_pool_idx = self._new_slot()[0]
        kv.mamba_cow_src_index = self._numbers.own(self._placed.locked_state(lock))
        kv.mamba_needs_clear = False

    def _new_slot(self) -> torch.Tensor:
        slot = self._slots.alloc(1)
        if slot is None:
            self.evict_for_alloc(EvictParams(num_tokens=0, mamba_num=1))
            slot = self._slots.alloc(1)
            assert slot is not None, "every state is in use"
        return slot

    # Locks.

    def _lock(self, node: CachedPrefix) -> int:
        # By the prefix, whose state it protects, and not by the node, which may be longer.
        return self._find(node, lock=True) if node.length else 0

    # What a request gives to the cache, and what it gives back.

    def insert(self, params: InsertParams) -> InsertResult:
        raise NotImplementedError("radixkv_sglang: states are inserted from a request's row")

    def checkpoint(self, req: "Req", *, up_to: int, **kwargs: Any) -> None:
        is_finished = req.finished()
        length = 0 if self.disable else min(up_to, len(req.full_untruncated_fill_ids))
        at, which = self._state_of(req, length, is_finished)
        length = min(length, at) // self.page_size * self.page_size
        is_taken = False
        # A request may keep less in the end than it has published: that stays the cache's.
        if length and length >= req.kv.cache_protected_len:
            state = self._given(req, which, is_finished)
            done = self._keep(req, length, state=int(state))
            if done is not None:
                is_taken = done.claimed_group_page_count > 0
                if self._gives_locks_back:
                    self._cache.slide_lock(done.lock, length + 1)
            if not is_finished:
                self._settle(req, state, is_taken)
        if not is_finished:
            req.kv.mamba_last_track_seqlen = req.kv.mamba_prev_track_seqlen = None
        elif self._has_buffer:
            keep = which if is_taken else None
            self._pool.free_mamba_cache(req, mamba_ping_pong_track_buffer_to_keep=keep)
        elif not is_taken:
            self._pool.free_mamba_cache(req)

    def _state_of(self, req: "Req", length: int, finished: bool) -> tuple[int, int]:
        """After how many of `length` tokens there is a state to give away, 0 for none, and with a
        buffer which of its slots has it."""
        if not self._has_buffer:
            # The request's own is of all that was computed: no state of fewer tokens.
            is_whole = not finished or length == req.kv.kv_allocated_len
            return (length if is_whole else 0), 0
        kv, pool = req.kv, self._pool
        which = pool.get_mamba_ping_pong_keep_idx(req)
        at = kv.mamba_last_track_seqlen or 0
        if not finished or at <= length:
            return at, which
        # It is of more than the tokens: the one before it, if that is not.
        before = kv.mamba_prev_track_seqlen
        if pool.mamba_ping_pong_track_buffer_size != 2 or before is None or before > length:
            return 0, which
        return before, pool.get_mamba_ping_pong_other_idx(which)

    def _given(self, req: "Req", which: int, finished: bool) -> torch.Tensor:
        """The slot of the state that a request gives away."""
        kv = req.kv
        if finished:
            return kv.mamba_ping_pong_track_buffer[which] if self._has_buffer else kv.mamba_pool_idx
        new = self._new_slot()
        if self._has_buffer:
            new = self._pool.donate_mamba_ping_pong_slot(req, new)
        return new

    def _settle(self, req: "Req", state: torch.Tensor, taken: bool) -> None:
        """What becomes of the slot that a running request gave: the cache has it or, since it had
        such a state, nobody."""
        if not taken:
            self._slots.free(state)
        elif not self._has_buffer:
            # Nobody reads it before the next step.
            self._pool.mamba_pool.copy_from(req.kv.mamba_pool_idx.unsqueeze(0), state)

    def on_release(self, req: "Req", *, checkpointed: bool) -> None:
        if not checkpointed:
            self._pool.free_mamba_cache(req)

    # What the scheduler takes back when it lacks pages or slots, and what it may count on.

    def evict(self, params: EvictParams) -> EvictResult:
        page_count, state_count = -(-params.num_tokens // self.page_size), params.mamba_num
        if self.disable or max(page_count, state_count) <= 0:
            return EvictResult()
        start_time = time.perf_counter()
        pages, states, _ = self._placed.evict(max(0, page_count), max(0, state_count))
        self._free(pages)
        if states.size:
            self._slots.free(self._numbers.own(states))
        token_count = pages.size * self.page_size
        self.update_eviction_metrics(token_count, start_time)
        return EvictResult(num_tokens_evicted=token_count, mamba_num_evicted=states.size)

    def evict_for_alloc(
        self,
        params: EvictParams,
        *,
        allocation_reclaim_satisfied: Callable[[], bool] | None = None,
    ) -> EvictResult:
        if allocation_reclaim_satisfied is not None:
            raise NotImplementedError("radixkv_sglang: pools that lend to each other")
        tokens = self._at_least(params.num_tokens) if params.num_tokens > 0 else 0
        return self.evict(EvictParams(num_tokens=tokens, mamba_num=params.mamba_num))

    def mamba_evictable_size(self) -> int:
        return self._table.pool_stats(1).reclaimable_page_count

    def mamba_protected_size(self) -> int:
        stats = self._table.pool_stats(1)
        return stats.cached_page_count - stats.reclaimable_page_count

    def available_and_evictable_str(self) -> str:
        available = self.token_to_kv_pool_allocator.available_size()
        full = room("full tokens", available, self.full_evictable_size())
        return full + room("mamba", self._slots.available_size(), self.mamba_evictable_size())

    def supports_mamba(self) -> bool:
        return True

    def all_mamba_values_flatten(self) -> torch.Tensor:
        """The slots of all cached states, for checks."""
        return self._numbers.own(now(self._placed.window_pages))
