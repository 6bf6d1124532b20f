"""radixkv's cache with the interface of vLLM's KVCacheManager, for several groups of layers.

Full attention beside sliding windows and recurrent layers. All groups draw from one pool, as vLLM's
do: a page of any of them has the same size. What a prefix needs in each group is the cache's to
know; each request is a `radixkv.GroupRow`.

A recurrent layer's state is in the block where a step ends. vLLM's scheduler ends steps where
blocks end (`mamba_cache_mode` "align"): such a state is published with the block's tokens, and who
goes on from it copies it into a block of its own first. Its worker does, before each step.
"""

import radixkv
from vllm.v1.kv_cache_interface import KVCacheSpec, MambaSpec, SlidingWindowSpec
from vllm.v1.request import Request

from .blocks import FoundBlocks, GroupBlocks
from .common import Manager, Shape


def _group(spec: KVCacheSpec) -> radixkv.Group:
    if isinstance(spec, SlidingWindowSpec):
        return radixkv.Group.window(spec.sliding_window)
    return radixkv.Group.state() if isinstance(spec, MambaSpec) else radixkv.Group.full()


class HybridManager(Manager):
    """For groups of full attention, of windows and of states."""

    def shape_of(
        self, specs: list[KVCacheSpec], block_count: int, tokens: tuple[int, int]
    ) -> Shape:
        # The cache's group 0 is one of full attention, which need not be the engine's first.
        order = sorted(
            range(len(specs)), key=lambda at: isinstance(specs[at], SlidingWindowSpec | MambaSpec)
        )
        self._numbers = [order.index(at) for at in range(len(specs))]
        self._has_states = any(isinstance(spec, MambaSpec) for spec in specs)
        # What a window holds of a request at most, as vLLM counts when it lets one in.
        most = [
            spec.max_admission_blocks_per_request(*tokens)
            if isinstance(spec, SlidingWindowSpec)
            else block_count
            for spec in specs
        ]
        empty = GroupBlocks([[] for _ in specs])
        return Shape([_group(specs[at]) for at in order], order, GroupBlocks, empty, most)

    def get_computed_blocks(self, request: Request) -> tuple[GroupBlocks, int, int]:
        """The longest prefix of a request that every group can reuse, in whole pages, at least one
        token less than it has: how many tokens, and where a step should end, as others have
        these tokens and no state after them."""
        if not self.prefix_cache_lookup_enabled(request):
            return self.empty_kv_cache_blocks, 0, 0
        row: radixkv.GroupRow = self.begin_row(request)
        junction = 0
        if self._has_states:
            count, known = self.depths(row, request.num_tokens - 1)
            if known > count:
                junction = known * self.page_size
        else:
            count = row.probe(request.num_tokens - 1)
        if not count:
            return self.empty_kv_cache_blocks, 0, junction
        if self._events is not None:
            self._events.reused(request, count)
        return FoundBlocks(lambda: row.look(count)), count * self.page_size, junction

    def make_row(
        self, tokens: list[int], space: radixkv.Namespace | None, late: bool
    ) -> radixkv.GroupRow:
        return self.cache.group_row(tokens, order=self._numbers, space=space, late=late)

    def published(self, request: Request, pages: list[list[int]], first: int, end: int) -> None:
        """A call gave the pages [first, end) of a request to the cache."""
        if self._events is not None:
            self._events.published(request, [pages[at] for at in self.order], first, end)

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        return tuple(self.get_blocks(request_id).lists)
