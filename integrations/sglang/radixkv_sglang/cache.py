"""SGLang's radix cache, over a radixkv cache with pages that SGLang allocates."""

import time
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import radixkv
import torch
from numpy.typing import NDArray
from sglang.srt.mem_cache.base_prefix_cache import (
    BasePrefixCache,
    DecLockRefParams,
    DecLockRefResult,
    EvictParams,
    EvictResult,
    IncLockRefResult,
    InsertParams,
    InsertResult,
    MatchPrefixParams,
    MatchResult,
    TreeLock,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.common import coalesce_ranges
from sglang.srt.mem_cache.events import KVCacheEventRecorder

from . import order
from .events import EventLog
from .pages import PageNumbers, Tables
from .prefix import CachedPrefix, are_text, head
from .spaces import ExtraKeys, space_of

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req, ReqKvInfo
    from sglang.srt.mem_cache.radix_cache import RadixKey


#: What is evicted at a time, at least: this part of the pool, up to so many tokens.
EVICTED_SHARE = 64
EVICTED_LIMIT = 1024
#: What the cache raises for ids that no token has, and the second for other things, too.
NOT_TEXT = (OverflowError, radixkv.InvalidArgument)


def room(of: str, available: int, evictable: int) -> str:
    """What a pool has, as SGLang's caches of several say it."""
    return f"Available {of}: {available + evictable} ({available=} + {evictable=})\n"


def now(pages: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """Pages for a check, none while the cache is at work: the watchdog of SGLang asks from another
    thread, and what is raised there would end it, and not the server."""
    try:
        return pages()
    except (radixkv.Busy, radixkv.StaleNode):
        return np.empty(0, np.int64)


class RadixkvCache(BasePrefixCache):
    """Which tokens are in which pages, and which pages go first when room is needed.

    SGLang's allocator hands pages out and takes them back. A page is the cache's from the
    checkpoint that inserts it until `evict()` frees it.
    """

    def __init__(self, params: CacheInitParams) -> None:
        self.req_to_token_pool = params.req_to_token_pool
        self.token_to_kv_pool_allocator = params.token_to_kv_pool_allocator
        self.page_size = params.page_size
        self.disable = params.disable
        self.device = torch.device(params.token_to_kv_pool_allocator.device)
        if params.enable_metrics:
            self.init_metrics_collector()
        self.kv_events = KVCacheEventRecorder(
            enabled=params.enable_kv_cache_events and not self.disable,
            page_size=params.page_size,
            dynamo_format=params.dynamo_kv_event_format,
            lora_names=params.kv_event_lora_names,
        )
        self._events = EventLog(self.kv_events) if self.kv_events.enabled else None
        self._tables = Tables(self.req_to_token_pool, self._mapping(), self.page_size)
        self._numbers = PageNumbers(self.page_size, self.device)
        self._open()

    def reset(self) -> None:
        """Forgets everything. Who calls it resets the allocator as well."""
        self._cache.close()
        self._table.close()
        self._open()

    def _open(self) -> None:
        # Page 0 is SGLang's place for what padding writes.
        page_count = self._page_count()
        self._table = self._open_table(page_count)
        journal_bytes = self._events.journal_bytes(page_count) if self._events else 0
        self._cache = self._open_cache(journal_bytes)
        self._placed = self._tables.open(self._cache)
        #: What the cache answers.
        self._published = np.empty(page_count, np.uint32)
        if self._events is not None:
            self._events.follow(self._cache)
        self.root_node = CachedPrefix(0, 0, array("q"), None)
        self.root_node.pages = self._published[:0]
        self._nothing = MatchResult(0, self.root_node, self.root_node, self.root_node)

    def _page_count(self) -> int:
        return int(self.token_to_kv_pool_allocator.size) // self.page_size + 1

    def _open_table(self, page_count: int) -> radixkv.PageTable:
        return radixkv.PageTable(page_count, page_size=self.page_size, external=True)

    def _open_cache(self, journal_bytes: int) -> radixkv.Cache:
        return radixkv.Cache(self._table, whole_pages=True, journal_bytes=journal_bytes)

    def _mapping(self) -> torch.Tensor | None:
        """From token indices to places in the window's pool, where there is one."""
        return None

    # What the scheduler asks while a request waits.

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        key = params.key
        length = len(key)
        if self.disable or length < self.page_size:
            return self._nothing
        tokens = key.token_ids
        space = space_of(key.extra_key, key.cache_salt)
        try:
            found = self._cache.match(head(tokens, length), self._published, space=space)
        except NOT_TEXT:
            if are_text(tokens, length):
                raise
            return self._nothing
        if found.page_count == 0:
            return self._nothing
        length = found.page_count * self.page_size
        prefix = CachedPrefix(found.node, length, tokens, space)
        prefix.pages = self._published[: found.page_count].copy()
        return MatchResult(length, prefix, prefix, prefix)

    def touch_prefix(self, key: "RadixKey") -> None:
        self.match_prefix(MatchPrefixParams(key=key))

    def path_device_indices(self, node: CachedPrefix) -> torch.Tensor:
        self._node(node)
        if node.pages is None:
            self._find(node, lock=False)
        assert node.pages is not None
        return self._numbers.indices(node.pages)

    def prefix_device_indices(self, req: "Req") -> torch.Tensor:
        if req.prefix_len == req.last_node.length:
            return self.path_device_indices(req.last_node)
        return super().prefix_device_indices(req)

    def root_node_handle(self, extra_key: str | None = None) -> CachedPrefix:
        return self.root_node

    def dfs_weight_order(self, node_handles: Sequence[CachedPrefix]) -> list[int]:
        return order.by_subtree_weight(self._cache, [self._node(at) for at in node_handles])

    # Locks.

    def lock(self, node: CachedPrefix) -> TreeLock:
        return TreeLock(node, self._lock(node))

    def unlock(self, lock: TreeLock | None) -> None:
        if lock is not None and lock.receipt:
            self._cache.unlock(lock.receipt)

    def inc_lock_ref(self, node: CachedPrefix) -> IncLockRefResult:
        before = self._table.pool_stats(0).reclaimable_page_count
        lock = self._lock(node)
        if lock:
            node.locks.append(lock)
        after = self._table.pool_stats(0).reclaimable_page_count
        return IncLockRefResult(delta=(after - before) * self.page_size)

    def dec_lock_ref(
        self, node: CachedPrefix, params: DecLockRefParams | None = None
    ) -> DecLockRefResult:
        before = self._table.pool_stats(0).reclaimable_page_count
        if node.locks:
            self._cache.unlock(node.locks.pop())
        elif node.length and not self.disable:
            raise ValueError(f"{node} has no lock to undo")
        after = self._table.pool_stats(0).reclaimable_page_count
        return DecLockRefResult(delta=(after - before) * self.page_size)

    def _lock(self, node: CachedPrefix) -> int:
        if node.length == 0:
            return 0
        try:
            return self._cache.lock(node.node)
        except radixkv.StaleNode:
            return self._find(node, lock=True)

    def _node(self, prefix: CachedPrefix) -> int:
        """The id of the prefix' node, now."""
        if prefix.length:
            try:
                self._cache.node_info(prefix.node)
            except radixkv.StaleNode:
                self._find(prefix, lock=False)
        return prefix.node

    def _find(self, prefix: CachedPrefix, *, lock: bool) -> int:
        """Finds a prefix again by its tokens. Returns the lock, 0 without."""
        tokens = head(prefix.tokens, prefix.length)
        found = self._cache.match(tokens, self._published, space=prefix.space, lock=lock)
        if found.token_count != prefix.length:
            if found.lock:
                self._cache.unlock(found.lock)
            raise RuntimeError(f"{prefix} was evicted: it has to be matched again")
        prefix.node = found.node
        prefix.pages = self._published[: found.page_count].copy()
        return found.lock

    # What a request gives to the cache, and what it gives back.

    def checkpoint(self, req: "Req", *, up_to: int, **kwargs: Any) -> None:
        tokens = req.full_untruncated_fill_ids
        length = min(up_to, len(tokens)) // self.page_size * self.page_size
        # A request may keep less in the end than it has published: that stays the cache's.
        if not self.disable and length and length >= req.kv.cache_protected_len:
            self._keep(req, length)

    def _keep(self, req: "Req", length: int, state: int = 0) -> radixkv.InsertResult | None:
        """Publishes whole pages of a request, which goes on with the cache's, and with recurrent
        layers the slot of the state after them. None, and nothing done, where an id is no
        token's."""
        kv, tokens = req.kv, req.full_untruncated_fill_ids
        # What the request has locked needs no second look.
        last = req.last_node
        if req.lock is None or last.length != kv.cache_protected_len or last.length > length:
            last = self.root_node
        space = self._space(req)
        lock = req.lock.receipt if req.lock else 0
        # Events name the session that stored a block: what others stored is read before.
        log = self._events
        if log is not None and req.session_id is not None:
            log.read()
        try:
            done = self._publish(req, length, space, last, lock, state)
        except NOT_TEXT:
            if are_text(tokens, length):
                raise
            return None
        if log is not None and req.session_id is not None:
            log.read(req.session_id)
        if done.duplicate_page_count:
            known = done.page_count - done.claimed_page_count
            self._share(kv, known - done.duplicate_page_count, known)
        # Less, when memory ran out.
        length = done.page_count * self.page_size
        req.last_node = CachedPrefix(done.node, length, tokens, space)
        req.lock = TreeLock(req.last_node, done.lock)
        kv.cache_protected_len = length
        kv.cache_inserted_len = max(kv.cache_inserted_len, length)
        return done

    def insert(self, params: InsertParams) -> InsertResult:
        """Publishes token indices. Those before the result's `prefix_len` were known: where they
        are not the cache's own they stay the caller's."""
        key = params.key
        length = len(key) // self.page_size * self.page_size
        if self.disable or length == 0:
            return InsertResult(prefix_len=0, last_device_node=self.root_node)
        space = self._space(key)
        places = params.value[:length].cpu().numpy()
        done = self._placed.publish(key.token_ids, length, places=places, space=space)
        self._cache.unlock(done.lock)
        length = done.page_count * self.page_size
        known = length - done.claimed_page_count * self.page_size
        prefix = CachedPrefix(done.node, length, key.token_ids, space)
        return InsertResult(prefix_len=known, last_device_node=prefix)

    def _space(self, keys: "Req | RadixKey") -> radixkv.Namespace | None:
        """The namespace to insert into."""
        space = space_of(keys.extra_key, keys.cache_salt)
        if self._events is not None:
            self._events.name(space, ExtraKeys(keys.extra_key, keys.cache_salt))
        return space

    def _publish(
        self,
        req: "Req",
        length: int,
        space: radixkv.Namespace | None,
        last: CachedPrefix,
        lock: int,
        state: int,
    ) -> radixkv.InsertResult:
        """Publishes what comes after `last` in a request's row, and locks the whole prefix in the
        place of a lock from before."""
        row, places, window_places = req.kv.req_pool_idx, None, None
        if not self._tables.are_on_host:
            places, window_places = self._tables.copied(row, last.length, length)
            row = None
        return self._placed.publish(
            req.full_untruncated_fill_ids,
            length,
            row,
            places=places,
            window_places=window_places,
            space=space,
            from_node=last.node,
            from_token_index=last.length,
            lock=lock,
            state=state,
            recent=req.finished(),
        )

    def _share(self, kv: "ReqKvInfo", first: int, end: int) -> None:
        """Frees pages of a request that the cache has already, and puts the cache's in its row."""
        if self._tables.are_on_host:
            self._free(*self._placed.share(kv.req_pool_idx, first, end))
            return
        given, published = self._placed.pages(first, end)
        self._free(given.astype(np.int64))
        self._write(kv, first, published)

    def _write(self, kv: "ReqKvInfo", first: int, pages: NDArray[np.uint32]) -> None:
        """Puts pages into a request's row, from its page `first` on."""
        part = slice(first * self.page_size, (first + len(pages)) * self.page_size)
        self.req_to_token_pool.write((kv.req_pool_idx, part), self._numbers.indices(pages))

    def _free(
        self, pages: NDArray[np.int64], window_pages: NDArray[np.int64] | None = None
    ) -> None:
        """Gives pages back to the allocator, which has the arrays from then on."""
        if pages.size:
            self.token_to_kv_pool_allocator.free_page_ids(self._numbers.own(pages))

    def free_kv_row(self, kv: "ReqKvInfo", ranges: list[tuple[int, int]]) -> None:
        own = self._own(kv, ranges)
        if not self._tables.are_on_host:
            # Nobody needs to wait for the numbers.
            super().free_kv_row(kv, own)
            return
        for start, end in coalesce_ranges(own):
            if start < end:
                self._free(*self._placed.release(kv.req_pool_idx, start, end))

    def _own(self, kv: "ReqKvInfo", ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Without what the cache has of the row, which is not the request's to free."""
        first = kv.cache_protected_len
        return [(max(start, first), end) for start, end in ranges if end > first]

    # What the scheduler takes back when it lacks pages, and what it may count on.

    def evict(self, params: EvictParams) -> EvictResult:
        page_count = -(-params.num_tokens // self.page_size)
        if self.disable or page_count <= 0:
            return EvictResult()
        start_time = time.perf_counter()
        evicted = self._cache.evict(page_count, self._published)
        self._free(self._published[:evicted].astype(np.int64))
        token_count = evicted * self.page_size
        self.update_eviction_metrics(token_count, start_time)
        return EvictResult(num_tokens_evicted=token_count)

    def evict_for_alloc(
        self,
        params: EvictParams,
        *,
        allocation_reclaim_satisfied: Callable[[], bool] | None = None,
    ) -> EvictResult:
        """Some more than is asked for: a decoding batch would be back at the next step. SGLang's
        caches drop whole nodes for the same effect."""
        if allocation_reclaim_satisfied is not None:
            raise NotImplementedError("radixkv_sglang: there is one pool to reclaim from")
        return self.evict(EvictParams(num_tokens=self._at_least(params.num_tokens)))

    def _at_least(self, token_count: int) -> int:
        share = self.token_to_kv_pool_allocator.size // EVICTED_SHARE
        return max(token_count, min(share, EVICTED_LIMIT))

    def evictable_size(self) -> int:
        return self._table.pool_stats(0).reclaimable_page_count * self.page_size

    def protected_size(self) -> int:
        stats = self._table.pool_stats(0)
        return (stats.cached_page_count - stats.reclaimable_page_count) * self.page_size

    def full_evictable_size(self) -> int:
        return self._table.pool_stats(0).reclaimable_page_count * self.page_size

    def full_protected_size(self) -> int:
        return self.protected_size()

    def total_size(self) -> int:
        return self._table.pool_stats(0).cached_page_count * self.page_size

    def supports_prefix_sharing(self) -> bool:
        return not self.disable

    def take_events(self) -> list[Any]:
        return [] if self._events is None else self._events.take()

    # For people and for checks.

    def all_values_flatten(self) -> torch.Tensor:
        """The token indices of all cached pages."""
        return self._numbers.indices(now(lambda: order.all_pages(self._cache)))

    def sanity_check(self) -> None:
        self._table.check()
        self._cache.check()

    def pretty_print(self) -> None:
        print(self._cache.dump())
