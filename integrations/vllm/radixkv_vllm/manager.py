"""radixkv's cache with the interface of vLLM's KVCacheManager.

A block of vLLM is a page here, with the same number: both keep number 0 back. A request's pages are
the engine's own to write until they are full; then they go to the cache. vLLM's block tables only
grow, so each request is a `radixkv.GrowingRow`: where the cache has other pages with the same
tokens, its own stay private, and are free when it ends.
"""

import logging
import sys
from collections.abc import Callable
from typing import NamedTuple

import radixkv
from vllm.v1.core.kv_cache_utils import KVCacheBlock, KVCacheBlockCopy
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.request import Request, RequestStatus

from . import limits
from .blocks import PageBlocks
from .events import EventLog

_logger = logging.getLogger("vllm.radixkv")


class Layers(NamedTuple):
    """What the engine reads of the manager of a group of layers."""

    block_size: int
    kv_cache_spec: KVCacheSpec


class Coordinator(NamedTuple):
    """What the engine reads of the coordinator of all groups."""

    single_type_managers: tuple[Layers]
    enable_partial_hash_hits: bool = False


class Row:
    """The pages of a request, and when they have to change."""

    __slots__ = ("pages", "quiet_before", "unpublished_before")

    def __init__(self, pages: radixkv.GrowingRow) -> None:
        self.pages = pages
        #: A step that ends before this position neither needs nor fills a page.
        self.quiet_before = 0
        #: What is computed before this position fills no page.
        self.unpublished_before = sys.maxsize


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
        found = row.pages.match(request.num_tokens - 1)
        if not found:
            return self.empty_kv_cache_blocks, 0, 0
        if self._events is not None:
            self._events.reused(request, len(found))
        return PageBlocks(found), len(found) * self.page_size, 0

    def _row(self, request: Request) -> Row:
        """A request's row, made of its tokens when it has none yet or other tokens since."""
        row = self._row_of(request.request_id)
        if row is None or (
            row.pages.token_count != request.num_tokens and not row.pages.page_count
        ):
            limits.check_request(request)
            tokens = request.all_token_ids[:]
            row = Row(self.cache.growing_row(tokens, space=_namespace(request)))
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
        if row is None or not row.quiet_before:
            row = self._row(request)
        pages, size = row.pages, self.page_size
        if num_new_computed_tokens:
            pages.take(num_new_computed_tokens // size)
        computed = min(request.num_computed_tokens + num_new_computed_tokens, self.max_model_len)
        end = min(computed + num_new_tokens + num_lookahead_tokens, self.max_model_len)
        fits = True
        if full_sequence_must_fit or reserved_blocks or self.watermark_blocks:
            spare = 0
            if has_scheduled_reqs and request.status in (
                RequestStatus.WAITING,
                RequestStatus.PREEMPTED,
            ):
                spare = self.watermark_blocks
            held = pages.page_count
            needed = -(-end // size) - held + reserved_blocks
            if full_sequence_must_fit:
                whole = min(request.num_tokens, self.max_model_len)
                needed = max(needed, -(-whole // size) - held)
            fits = needed + spare <= self._available()
        # Tokens that may be taken back, e.g. drafts, are not published.
        known = min(computed + num_new_tokens, request.num_tokens)
        fresh = self._extend(row, request, end, known) if fits else None
        if fresh is None:
            if num_new_computed_tokens:
                pages.release()
            return None
        return PageBlocks(fresh) if fresh else self.empty_kv_cache_blocks

    def _available(self) -> int:
        """Pages that are free, or free when they are asked for."""
        stats = self.table.stats()
        return stats.free_page_count + stats.reclaimable_page_count

    # Publishing

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Lets others find the full pages among the first tokens."""
        row = self._row_of(request.request_id)
        if row is not None and num_computed_tokens >= row.unpublished_before:
            self._extend(row, request, 0, num_computed_tokens)

    def _extend(self, row: Row, request: Request, end: int, computed: int) -> list[int] | None:
        """Gives a row pages up to `end`, and publishes what is computed; the new pages, or None
        when there are too few."""
        pages, size = row.pages, self.page_size
        before = pages.published_page_count if self._events is not None else 0
        if not self.enable_caching:
            computed = 0
        known = pages.token_count
        more = request.all_token_ids[known:computed] if computed > known else None
        fresh = pages.extend(more, end, computed)
        if fresh is None:
            return None
        if self._events is not None:
            self._events.published(request, pages.pages, before, pages.published_page_count)
        if self.enable_caching:
            row.unpublished_before = (pages.published_page_count + 1) * size
        row.quiet_before = min(pages.page_count * size + 1, row.unpublished_before)
        return fresh

    # The end of a request

    def free(self, request: Request) -> None:
        """Ends or preempts a request: what it published stays in the cache."""
        row = self._rows.pop(request.request_id, None)
        if row is not None:
            row.pages.release()

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
        return PageBlocks(row.pages.pages) if row is not None else self.empty_kv_cache_blocks

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        return (self.get_blocks(request_id).pages,)

    def estimate_cached_tokens(self, request: Request) -> int:
        """Tokens of a request that others find."""
        row = self._row_of(request.request_id)
        return row.pages.published_page_count * self.page_size if row is not None else 0

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
