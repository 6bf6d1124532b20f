"""radixkv's cache with the interface of vLLM's KVCacheManager, for one group of full attention.

A block of vLLM is a page here, with the same number: both keep number 0 back. A request's pages are
the engine's own to write until they are full; then they go to the cache. vLLM's block tables only
grow, so each request is a `radixkv.GrowingRow`: where the cache has other pages with the same
tokens, its own stay private, and are free when it ends.
"""

import radixkv
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.request import Request, RequestStatus

from . import limits
from .blocks import PageBlocks
from .common import Coordinator, Layers, Manager, journal_bytes
from .events import EventLog


class KVCacheManager(Manager, radixkv.RequestRows):
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
        ring = journal_bytes(kv_cache_config.num_blocks, max_model_len)
        self.cache = radixkv.Cache(
            self.table, whole_pages=True, journal_bytes=ring if enable_kv_cache_events else 0
        )
        self._events = EventLog(self.cache, size, [(0, spec)]) if enable_kv_cache_events else None
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

    def make_row(
        self, tokens: list[int], space: radixkv.Namespace | None
    ) -> radixkv.GrowingRow:
        return self.cache.growing_row(tokens, space=space)

    def published(self, request: Request, pages: list[int], first: int, end: int) -> None:
        """A call gave the pages [first, end) of a request to the cache."""
        if self._events is not None:
            self._events.published(request, [pages], first, end)

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        row = self.rows.get(request_id)
        return (row.pages if row is not None else [],)
