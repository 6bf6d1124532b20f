"""radixkv's cache with the interface of vLLM's KVCacheManager, for one group of full attention.

A block of vLLM is a page here, with the same number: both keep number 0 back. A request's pages are
the engine's own to write until they are full; then they go to the cache. vLLM's block tables only
grow, so each request is a `radixkv.GrowingRow`: where the cache has other pages with the same
tokens, its own stay private, and are free when it ends.
"""

import radixkv
from vllm.v1.kv_cache_interface import KVCacheSpec
from vllm.v1.request import Request

from .blocks import PageBlocks
from .common import Manager, Shape


class KVCacheManager(Manager):
    """For one group of full attention."""

    def shape_of(
        self, specs: list[KVCacheSpec], block_count: int, tokens: tuple[int, int]
    ) -> Shape:
        return Shape([], [0], PageBlocks, PageBlocks([]), [])

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
        self, tokens: list[int], space: radixkv.Namespace | None, late: bool
    ) -> radixkv.GrowingRow:
        return self.cache.growing_row(tokens, space=space, late=late)

    def published(self, request: Request, pages: list[int], first: int, end: int) -> None:
        """A call gave the pages [first, end) of a request to the cache."""
        if self._events is not None:
            self._events.published(request, [pages], first, end)

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        row = self.rows.get(request_id)
        return (row.pages if row is not None else [],)
