"""radixkv's cache with the interface of vLLM's KVCacheManager.

A block of vLLM is a page here, with the same number: both keep number 0 back. A request's pages are
the engine's own to write until they are full; then they go to the cache, and the request holds one
lock on the prefix that they end. vLLM's block tables only grow, so a request keeps the pages that
it has: where the cache has other ones with the same tokens, its own stay private, and are free when
it ends.
"""

import logging
from array import array
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import radixkv
from vllm.v1.core.kv_cache_utils import KVCacheBlock, KVCacheBlockCopy
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.request import Request, RequestStatus

from . import limits
from .blocks import PageBlocks
from .events import EventLog

_logger = logging.getLogger("vllm.radixkv")
_PAGE_BYTES = array("I").itemsize


class Layers(NamedTuple):
    """What the engine reads of the manager of a group of layers."""

    block_size: int
    kv_cache_spec: KVCacheSpec


class Coordinator(NamedTuple):
    """What the engine reads of the coordinator of all groups."""

    single_type_managers: tuple[Layers]
    enable_partial_hash_hits: bool = False


class Row:
    """The pages of a request, and which of them the cache has."""

    __slots__ = (
        "duplicates", "hit_node", "lock", "node", "pages", "published", "quiet_before",
        "space", "tokens",
    )  # fmt: skip

    def __init__(self, tokens: "array[int]", space: radixkv.Namespace | None) -> None:
        #: At least those that are published.
        self.tokens = tokens
        self.space = space
        self.pages = array("I")
        #: Leading pages that are full and were given to the cache.
        self.published = 0
        #: Of those, the ones that it did not take, since it had others.
        self.duplicates = array("I")
        #: The prefix that the published pages end, and the lock on it; 0 for none.
        self.node = self.lock = 0
        #: Where the last lookup ended.
        self.hit_node = 0
        #: As long as a step ends before this position, it neither needs nor fills a page.
        self.quiet_before = 0


class KVCacheManager:
    """Stands where vLLM's class of that name stands, for one group of full attention.

    The parameters are vLLM's, as far as they say something about such a model.
    """

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        scheduler_block_size: int,
        hash_block_size: int,
        enable_caching: bool = True,
        log_stats: bool = False,
        enable_kv_cache_events: bool = False,
        watermark: float = 0.0,
    ) -> None:
        limits.check_layers(kv_cache_config, scheduler_block_size, hash_block_size)
        (group,) = kv_cache_config.kv_cache_groups
        spec, size = group.kv_cache_spec, scheduler_block_size
        self.kv_cache_config = kv_cache_config
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.log_stats = log_stats
        self.watermark_blocks = int(watermark * kv_cache_config.num_blocks)
        self.prefix_cache_stats = PrefixCacheStats() if log_stats else None
        self.coordinator = Coordinator((Layers(size, spec),))
        self.empty_kv_cache_blocks = PageBlocks([])
        self.page_size = size
        self.table = radixkv.PageTable(
            kv_cache_config.num_blocks, page_size=size, slot_count=1
        )
        self.usable_pages = self.table.stats().total_page_count
        # A ring that no single call fills: a prompt's tokens, and every page evicted one by one.
        ring = 1 << 20 | 64 * kv_cache_config.num_blocks + 64 * max_model_len
        self.cache = radixkv.Cache(
            self.table, whole_pages=True, journal_bytes=ring if enable_kv_cache_events else 0
        )
        self._events = EventLog(self.cache, size, spec) if enable_kv_cache_events else None
        self._rows: dict[str, Row] = {}
        self._found = np.empty(-(-max_model_len // size) + 1, np.uint32)
        # Looked up once: a step calls these for each request.
        self._row_of: Callable[[str], Row | None] = self._rows.get

    # Lookup

    def prefix_cache_lookup_enabled(self, request: Request) -> bool:
        return self.enable_caching and not request.skip_reading_prefix_cache

    def get_computed_blocks(self, request: Request) -> tuple[PageBlocks, int, int]:
        """The longest cached prefix of a request, in whole pages, at least one token less than it
        has: how many tokens, and a third number that is for other models."""
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return self.empty_kv_cache_blocks, 0, 0
        row = self._row(request)
        tokens: array[int] | memoryview = row.tokens
        if len(tokens) % self.page_size == 0:
            tokens = memoryview(tokens)[:-1]
        found = self.cache.match(tokens, self._found, space=row.space)
        row.hit_node = found.node
        count = found.page_count
        if count == 0:
            return self.empty_kv_cache_blocks, 0, 0
        pages = self._found[:count].tolist()
        if self._events is not None:
            self._events.reused(request, count)
        return PageBlocks(pages), count * self.page_size, 0

    def _row(self, request: Request) -> Row:
        """A request's row, made of its tokens when it has none yet or other tokens since."""
        row = self._row_of(request.request_id)
        if row is None or (not row.pages and len(row.tokens) != request.num_tokens):
            limits.check_request(request)
            row = Row(array("I", request.all_token_ids[:]), _namespace(request))
            self._rows[request.request_id] = row
        return row

    # Allocation

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: PageBlocks | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
        skip_zeroing_group_ids: tuple[int, ...] = (),
    ) -> PageBlocks | None:
        """Pages for the tokens that a step computes: the new ones, or None when there are too few,
        and then nothing has changed."""
        row = self._row_of(request.request_id)
        if row is not None and (
            request.num_computed_tokens + num_new_tokens + num_lookahead_tokens < row.quiet_before
        ):
            return self.empty_kv_cache_blocks
        if num_external_computed_tokens or delay_cache_blocks or num_encoder_tokens:
            raise NotImplementedError("tokens that were computed elsewhere, or by an encoder")
        if num_new_tokens == 0 and num_new_computed_tokens == 0:
            raise ValueError("num_new_tokens: 0, with no computed tokens to take over")
        if row is None or not row.pages:
            row = self._row(request)
        size = self.page_size
        hit = num_new_computed_tokens // size
        lock = 0
        if hit:
            assert new_computed_blocks is not None and not row.pages
            lock = self._lock(row, hit)
        computed = min(request.num_computed_tokens + num_new_computed_tokens, self.max_model_len)
        end = min(computed + num_new_tokens + num_lookahead_tokens, self.max_model_len)
        held = len(row.pages) + hit
        needed = max(-(-end // size) - held, 0)
        if full_sequence_must_fit or reserved_blocks or self.watermark_blocks:
            spare = 0
            if has_scheduled_reqs and request.status in (
                RequestStatus.WAITING,
                RequestStatus.PREEMPTED,
            ):
                spare = self.watermark_blocks
            whole = needed
            if full_sequence_must_fit:
                whole = -(-min(request.num_tokens, self.max_model_len) // size) - held
            if max(whole, needed + reserved_blocks) + spare > self._available():
                return self._refused(lock)
        pages = self.empty_kv_cache_blocks
        fresh = array("I", bytes(_PAGE_BYTES * needed))
        if needed:
            try:
                self.table.allocate_pages(fresh)
            except radixkv.OutOfPages:
                return self._refused(lock)
            pages = PageBlocks(fresh.tolist())
        if hit:
            assert new_computed_blocks is not None
            row.pages.extend(new_computed_blocks.pages)
            row.published, row.node, row.lock = hit, row.hit_node, lock
        row.pages.extend(fresh)
        # Tokens that may be taken back, e.g. drafts, are not published.
        self._publish(row, request, min(computed + num_new_tokens, request.num_tokens))
        return pages

    def _lock(self, row: Row, count: int) -> int:
        """Locks what the last lookup found, the first pages of a row."""
        if len(row.tokens) >= count * self.page_size:
            try:
                return self.cache.lock(row.hit_node)
            except radixkv.StaleNode:
                pass  # Pages came or went since: look again.
        tokens = memoryview(row.tokens)[: count * self.page_size]
        found = self.cache.match(tokens, self._found, space=row.space, lock=True)
        if found.page_count == count:
            row.hit_node = found.node
            return found.lock
        if found.lock:
            self.cache.unlock(found.lock)
        raise RuntimeError("new_computed_blocks: evicted since get_computed_blocks()")

    def _refused(self, lock: int) -> None:
        if lock:
            self.cache.unlock(lock)

    def _available(self) -> int:
        """Pages that are free, or free when they are asked for."""
        stats = self.table.stats()
        return stats.free_page_count + stats.reclaimable_page_count

    # Publishing

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Lets others find the full pages among the first tokens."""
        row = self._row_of(request.request_id)
        if row is not None and num_computed_tokens >= (row.published + 1) * self.page_size:
            self._publish(row, request, num_computed_tokens)

    def _publish(self, row: Row, request: Request, end: int) -> None:
        size, before = self.page_size, row.published
        full = end // size
        if full > before and self.enable_caching:
            count = full * size
            tokens, known = row.tokens, len(row.tokens)
            if known < count:
                tokens.extend(request.all_token_ids[known:count])
            done = self.cache.insert(
                tokens if known < count + size else memoryview(tokens)[:count],
                row.pages,
                space=row.space,
                lock=True,
                from_node=row.node,
                from_token_index=before * size,
                from_page_index=before,
            )
            if row.lock:
                self.cache.unlock(row.lock)
            row.published, row.node, row.lock = full, done.node, done.lock
            # The cache knows a prefix: what it has already comes first.
            if done.duplicate_page_count:
                row.duplicates.extend(row.pages[before : before + done.duplicate_page_count])
            if self._events is not None:
                self._events.published(request, row.pages, before, full)
        row.quiet_before = len(row.pages) * size + 1
        if self.enable_caching:
            row.quiet_before = min(row.quiet_before, (row.published + 1) * size)

    # The end of a request

    def free(self, request: Request) -> None:
        """Ends or preempts a request: what it published stays in the cache."""
        row = self._rows.pop(request.request_id, None)
        if row is None:
            return
        if row.lock:
            self.cache.unlock(row.lock)
        private = row.pages[row.published :]
        if row.duplicates:
            private.extend(row.duplicates)
        if private:
            self.table.free_pages(private)

    def reset_prefix_cache(self) -> bool:
        """Forgets all prefixes, unless a request has pages: False then, and nothing has changed."""
        held = self.usable_pages - self._available()
        if held:
            _logger.warning("The prefix cache is not reset: requests have %d pages", held)
            return False
        self.cache.clear(everything=True)
        if self._events is not None:
            self._events.cleared()
        if self.prefix_cache_stats is not None:
            self.prefix_cache_stats.reset = True
        return True

    # What the scheduler asks

    @property
    def usage(self) -> float:
        """The part of the pages that requests have."""
        return 1.0 - self._available() / self.usable_pages

    def make_prefix_cache_stats(self) -> PrefixCacheStats | None:
        """What was recorded since the last call; None without statistics."""
        stats = self.prefix_cache_stats
        if stats is not None:
            self.prefix_cache_stats = PrefixCacheStats()
        return stats

    def record_prefix_cache_stats(self, request: Request, num_hits: int) -> None:
        if self.prefix_cache_stats is None or not self.prefix_cache_lookup_enabled(request):
            return
        self.prefix_cache_stats.record(
            num_tokens=request.num_tokens,
            num_hits=num_hits,
            preempted=request.num_preemptions > 0,
        )

    def get_blocks(self, request_id: str) -> PageBlocks:
        """All pages of a request."""
        row = self._row_of(request_id)
        return PageBlocks(row.pages.tolist()) if row is not None else self.empty_kv_cache_blocks

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        return (self.get_blocks(request_id).pages,)

    def estimate_cached_tokens(self, request: Request) -> int:
        """Tokens of a request that others find."""
        row = self._row_of(request.request_id)
        return row.published * self.page_size if row is not None else 0

    def take_events(self) -> list["EventLog.Event"]:
        return self._events.take() if self._events is not None else []

    # What other models have to do in a step

    def new_step_starts(self) -> None:
        """Nothing: no page is kept for the next step."""

    def take_new_block_ids(self) -> list[int]:
        """None: pages are not zeroed before they are written."""
        return []

    def take_kv_cache_block_copies(self) -> tuple[list[KVCacheBlockCopy], list[KVCacheBlock]]:
        """None: prefixes are reused by whole pages."""
        return [], []

    def take_boundary_state_offloads(self) -> dict[str, list[tuple[int, int, int]]]:
        """None: there are no recurrent states."""
        return {}


def _namespace(request: Request) -> radixkv.Namespace | None:
    """What else than tokens decides whether KV may be shared; the keys of vLLM's block hashes."""
    keys: list[str] = []
    if request.lora_request is not None:
        keys += ("lora", request.lora_request.name)
    if request.cache_salt:
        keys += ("salt", request.cache_salt)
    return radixkv.namespace_of(*keys) if keys else None
