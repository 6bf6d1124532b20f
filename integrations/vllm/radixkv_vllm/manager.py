"""radixkv's cache with the interface of vLLM's KVCacheManager, for one group of full attention.

A block of vLLM is a page here, with the same number: both keep number 0 back. A request's pages are
the engine's own to write until they are full; then they go to the cache. vLLM's block tables only
grow, so each request is a `radixkv.GrowingRow`: where the cache has other pages with the same
tokens, its own stay private, and are free when it ends.
"""

import radixkv
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.request import Request

from .blocks import PageBlocks
from .common import Manager


class KVCacheManager(Manager):
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
        super().__init__(
            kv_cache_config,
            max_model_len,
            scheduler_block_size,
            hash_block_size,
            enable_caching,
            log_stats,
            enable_kv_cache_events,
            watermark,
            groups=[],
            order=[0],
            blocks=PageBlocks,
            empty=PageBlocks([]),
            most=[],
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
