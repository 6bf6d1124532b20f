"""radixkv's cache with the interface of vLLM's KVCacheManager, for several groups of layers.

Full attention beside sliding windows. All groups draw from one pool, as vLLM's do: a page of any of
them has the same size. What a prefix needs in each group is the cache's to know; here is what
vLLM's scheduler asks of a request in a step.
"""

from collections.abc import Callable

import radixkv
from vllm.v1.kv_cache_interface import KVCacheConfig, SlidingWindowSpec
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.request import Request, RequestStatus

from . import limits
from .blocks import FoundBlocks, GroupBlocks
from .common import Coordinator, Layers, Manager, journal_bytes
from .events import EventLog
from .group_row import GroupRow, Groups

_WAITING = (RequestStatus.WAITING, RequestStatus.PREEMPTED)


class HybridManager(Manager):
    """Stands where vLLM's KVCacheManager stands, for groups of full attention and of windows."""

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
        max_in_flight_tokens: int | None = None,
    ) -> None:
        limits.check_layers(kv_cache_config, scheduler_block_size, hash_block_size)
        specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
        size, count = scheduler_block_size, kv_cache_config.num_blocks
        self.kv_cache_config = kv_cache_config
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.log_stats = log_stats
        self.prefix_cache_stats = PrefixCacheStats() if log_stats else None
        self.coordinator = Coordinator(tuple(Layers(size, spec) for spec in specs))
        self.page_size = size
        self.groups = Groups.of(kv_cache_config, size)
        self.empty_kv_cache_blocks = GroupBlocks([[] for _ in specs])
        self.rows: dict[str, GroupRow] = {}
        self.table = radixkv.PageTable(
            count, page_size=size, slot_count=1, groups=self.groups.kinds()
        )
        self.usable_pages = self.table.pool_stats(0).total_page_count
        ring = len(specs) * journal_bytes(count, max_model_len)
        self.cache = radixkv.Cache(
            self.table, whole_pages=True, journal_bytes=ring if enable_kv_cache_events else 0
        )
        order = [(at, specs[at]) for at in map(self.groups.engines, range(len(specs)))]
        self._events = EventLog(self.cache, size, order) if enable_kv_cache_events else None
        self._watermark = int(watermark * count)
        # What a window holds of a request at most, as vLLM counts when it lets one in.
        in_flight = max_model_len if max_in_flight_tokens is None else max_in_flight_tokens
        self._most = [
            spec.max_admission_blocks_per_request(in_flight, max_model_len)
            if isinstance(spec, SlidingWindowSpec)
            else count
            for spec in specs
        ]

    # Lookup

    def get_computed_blocks(self, request: Request) -> tuple[GroupBlocks, int, int]:
        """The longest prefix of a request that every group can reuse, in whole pages, at least one
        token less than it has: how many tokens, and a third number that is for other models."""
        if not self.prefix_cache_lookup_enabled(request):
            return self.empty_kv_cache_blocks, 0, 0
        row: GroupRow = self.begin_row(request)
        count = row.probe(request.num_tokens - 1)
        if not count:
            return self.empty_kv_cache_blocks, 0, 0
        if self._events is not None:
            self._events.reused(request, count)
        look: Callable[[], list[list[int]]] = lambda: row.look(count)  # noqa: E731
        return FoundBlocks(look), count * self.page_size, 0

    def make_row(self, tokens: list[int], space: radixkv.Namespace | None) -> GroupRow:
        return GroupRow(self.cache, self.groups, tokens, space)

    # A request in a step

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: GroupBlocks | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
        skip_zeroing_group_ids: tuple[int, ...] = (),
    ) -> GroupBlocks | None:
        """Pages for the tokens that a step computes: the new ones, or None when there are too few.
        Publishes the whole pages among them.

        Raises NotImplementedError for tokens that were computed elsewhere, ValueError for none.
        """
        before, row = request.num_computed_tokens, self.rows.get(request.request_id)
        most = self.max_model_len
        computed = min(before + num_new_computed_tokens, most)
        end = min(computed + num_new_tokens + num_lookahead_tokens, most)
        # Tokens that may be taken back, e.g. drafts, are not published.
        known = min(computed + num_new_tokens, request.num_tokens)
        if row is not None and row.page_count and end < self._quiet_before(row):
            return self.empty_kv_cache_blocks
        if num_external_computed_tokens or delay_cache_blocks or num_encoder_tokens:
            raise NotImplementedError("tokens that were computed elsewhere, or by an encoder")
        if num_new_tokens == 0 and num_new_computed_tokens == 0:
            raise ValueError("num_new_tokens: 0, with no computed tokens to take over")
        if row is None or not row.page_count:
            row = self.begin_row(request)
        if num_new_computed_tokens > 0:
            row.take(num_new_computed_tokens // self.page_size)
        # Steps that are under way still read what is behind their windows.
        row.slide(max(0, computed - request.num_in_flight_tokens))
        waits = has_scheduled_reqs and request.status in _WAITING
        kept = reserved_blocks + (self._watermark if waits else 0)
        whole = min(request.num_tokens, most) if full_sequence_must_fit else 0
        fresh = row.extend(end) if self._fits(row, end, whole, kept) else None
        if fresh is None:
            if num_new_computed_tokens > 0:
                row.release()
            return None
        self._publish(request, row, known)
        return GroupBlocks(fresh) if fresh[0] else self.empty_kv_cache_blocks

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Lets others find the full pages among the first tokens."""
        if (row := self.rows.get(request.request_id)) is not None:
            self._publish(request, row, num_computed_tokens)

    def free(self, request: Request) -> None:
        """Ends or preempts a request: what it published stays in the cache."""
        if (row := self.rows.pop(request.request_id, None)) is not None:
            row.release()

    def get_blocks(self, request_id: str) -> GroupBlocks:
        """All pages of a request."""
        row = self.rows.get(request_id)
        return GroupBlocks(row.pages) if row is not None else self.empty_kv_cache_blocks

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        return tuple(self.get_blocks(request_id).lists)

    def estimate_cached_tokens(self, request: Request) -> int:
        """Tokens of a request that others find."""
        row = self.rows.get(request.request_id)
        return row.published * self.page_size if row is not None else 0

    @property
    def available_page_count(self) -> int:
        """Pages that are free, or free when they are asked for."""
        stats = self.table.pool_stats(0)
        return stats.free_page_count + stats.reclaimable_page_count

    def _quiet_before(self, row: GroupRow) -> int:
        """A step that ends before this position neither needs nor fills a page."""
        has = row.page_count * self.page_size + 1
        return min(has, (row.published + 1) * self.page_size) if self.enable_caching else has

    def _fits(self, row: GroupRow, end: int, whole: int, kept: int) -> bool:
        """Whether there are pages for `end` positions, and for `whole` as far as windows hold them,
        with some left over."""
        has, wanted = row.page_count, -(-end // self.page_size)
        needed = len(self._most) * max(0, wanted - has)
        if whole:
            pages = -(-whole // self.page_size)
            needed = max(needed, sum(max(0, min(pages, most) - has) for most in self._most))
        return needed + kept <= self.available_page_count

    def _publish(self, request: Request, row: GroupRow, computed: int) -> None:
        end = computed // self.page_size
        if not self.enable_caching or end <= row.published:
            return
        first = row.published
        if row.token_count < computed:
            row.append(request.all_token_ids[row.token_count : computed])
        row.publish(end)
        if self._events is not None:
            pages = row.pages
            self._events.published(
                request, [pages[self.groups.engines(at)] for at in range(len(pages))], first, end
            )
