"""radixkv's cache with the interface of vLLM's KVCacheManager.

A block of vLLM is a page here, with the same number: both keep number 0 back. A request's pages are
the engine's own to write until they are full; then they go to the cache. vLLM's block tables only
grow, so each request is a `radixkv.GrowingRow`: where the cache has other pages with the same
tokens, its own stay private, and are free when it ends.
"""

import logging
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


class KVCacheManager(radixkv.RequestRows):
    """Stands where vLLM's class of that name stands, for one group of full attention.

    The parameters are vLLM's, as far as they say something about such a model. What its scheduler
    calls for each request in each step is inherited, and compiled: `allocate_slots()`,
    `cache_blocks()`, `get_blocks()`, `estimate_cached_tokens()`, `free()`.
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
        super().__init__(
            self.cache,
            blocks=PageBlocks,
            empty=self.empty_kv_cache_blocks,
            waiting=(RequestStatus.WAITING, RequestStatus.PREEMPTED),
            max_positions=max_model_len,
            watermark=int(watermark * kv_cache_config.num_blocks),
            publishes=enable_caching,
            tells=enable_kv_cache_events,
        )

    # Lookup

    def prefix_cache_lookup_enabled(self, request: Request) -> bool:
        return self.enable_caching and not request.skip_reading_prefix_cache

    def get_computed_blocks(self, request: Request) -> tuple[PageBlocks, int, int]:
        """The longest cached prefix of a request, in whole pages, at least one token less than it
        has: how many tokens, and a third number that is for other models."""
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return self.empty_kv_cache_blocks, 0, 0
        found = self.begin_row(request).match(request.num_tokens - 1)
        if not found:
            return self.empty_kv_cache_blocks, 0, 0
        if self._events is not None:
            self._events.reused(request, len(found))
        return PageBlocks(found), len(found) * self.page_size, 0

    def begin_row(self, request: Request) -> radixkv.GrowingRow:
        """A request's row, made of its tokens when it has none yet or other tokens since."""
        row = self.rows.get(request.request_id)
        if row is None or (row.token_count != request.num_tokens and not row.page_count):
            limits.check_request(request)
            # The prompt is a list; all tokens have to be copied to be one.
            tokens = request.prompt_token_ids
            if tokens is None or len(tokens) != request.num_tokens:
                tokens = request.all_token_ids[:]
            row = self.cache.growing_row(tokens, space=_namespace(request))
            self.rows[request.request_id] = row
        return row

    def published(self, request: Request, pages: list[int], first: int, end: int) -> None:
        """A call gave the pages [first, end) of a request to the cache."""
        if self._events is not None:
            self._events.published(request, pages, first, end)

    # All requests

    def reset_prefix_cache(self) -> bool:
        """Forgets all prefixes, unless a request has pages: False then, and nothing has changed."""
        held = self.usable_pages - self.available_page_count
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
        return 1.0 - self.available_page_count / self.usable_pages

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

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        row = self.rows.get(request_id)
        return (row.pages if row is not None else [],)

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
