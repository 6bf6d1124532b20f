"""What the managers for one and for several groups of layers answer alike."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import radixkv
from vllm.v1.core.kv_cache_utils import KVCacheBlock, KVCacheBlockCopy
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.request import Request, RequestStatus

from . import limits
from .events import EventLog

_logger = logging.getLogger("vllm.radixkv")


class Layers(NamedTuple):
    """What the engine reads of the manager of a group of layers."""

    block_size: int
    kv_cache_spec: KVCacheSpec


class Coordinator(NamedTuple):
    """What the engine reads of the coordinator of all groups."""

    single_type_managers: tuple[Layers, ...]
    enable_partial_hash_hits: bool = False


class Shape(NamedTuple):
    """What is different in the manager for one and for several groups of layers."""

    groups: list[radixkv.Group]
    """As the cache numbers them; none for one of full attention."""
    order: Sequence[int]
    """Of each of them the engine's number."""
    blocks: type
    """What makes the engine's object of a list of pages."""
    empty: Any
    """That of none."""
    most: list[int]
    """How many pages of each of the engine's groups a request holds at most; none: any number."""


class Manager(radixkv.RequestRows):
    """Stands where vLLM's KVCacheManager stands. The parameters are vLLM's, as far as they say
    something about the models that are covered.

    The calls that the scheduler makes for each request in each step are inherited, and compiled:
    `allocate_slots()`, `cache_blocks()`, `get_blocks()`, `estimate_cached_tokens()`, `free()`, and
    those without a request, `new_step_starts()` and `take_new_block_ids()`."""

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
        ahead: bool = True,
    ) -> None:
        limits.check_layers(kv_cache_config, scheduler_block_size, hash_block_size)
        specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
        size, count = scheduler_block_size, kv_cache_config.num_blocks
        if max_in_flight_tokens is None:
            max_in_flight_tokens = max_model_len
        shape = self.shape_of(specs, count, (max_in_flight_tokens, max_model_len))
        self.kv_cache_config = kv_cache_config
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.log_stats = log_stats
        self.prefix_cache_stats = PrefixCacheStats() if log_stats else None
        self.coordinator = Coordinator(tuple(Layers(size, spec) for spec in specs))
        self.empty_kv_cache_blocks = shape.empty
        self.page_size = size
        self.order = shape.order
        self.table = radixkv.PageTable(count, page_size=size, slot_count=1, groups=shape.groups)
        self.usable_pages = self.table.pool_stats(0).total_page_count
        ring = len(specs) * _journal_bytes(count, max_model_len)
        self.cache = radixkv.Cache(
            self.table, whole_pages=True, journal_bytes=ring if enable_kv_cache_events else 0
        )
        named = [(at, specs[at]) for at in shape.order]
        self._events = EventLog(self.cache, size, named) if enable_kv_cache_events else None
        super().__init__(
            self.cache,
            blocks=shape.blocks,
            empty=shape.empty,
            waiting=(RequestStatus.WAITING, RequestStatus.PREEMPTED),
            max_positions=max_model_len,
            watermark=int(watermark * count),
            most=shape.most,
            publishes=enable_caching,
            ahead=ahead,
            tells=enable_kv_cache_events,
            zeroes=kv_cache_config.needs_kv_cache_zeroing,
        )

    def shape_of(
        self, specs: list[KVCacheSpec], block_count: int, tokens: tuple[int, int]
    ) -> Shape:
        """`tokens`: that are under way at once, and of a request, at most."""
        raise NotImplementedError

    # Rows

    def begin_row(self, request: Request) -> Any:
        """A request's row, made of its tokens when it has none yet or other tokens since."""
        row = self.rows.get(request.request_id)
        if row is None or (row.token_count != request.num_tokens and not row.page_count):
            limits.check_request(request)
            # The prompt is a list; all tokens have to be copied to be one.
            tokens = request.prompt_token_ids
            if tokens is None or len(tokens) != request.num_tokens:
                tokens = request.all_token_ids[:]
            space = namespace_of(request)
            row = self.make_row(tokens, space, self._is_late(request, tokens, space))
            self.rows[request.request_id] = row
        return row

    def _is_late(
        self, request: Request, tokens: list[int], space: radixkv.Namespace | None
    ) -> bool:
        """Who may not read the cache may hold copies of all that it has: not both at once, where
        there may be no room for both. Else it gives its pages away as it goes: windows and states
        that it lets go of meanwhile would be lost for others."""
        if not request.skip_reading_prefix_cache:
            return False
        known = self.cache.probe_groups(tokens, space=space)[0].known_position_count
        end = min(request.num_tokens + request.max_tokens, self.max_model_len)
        page_count = known // self.page_size - (-end // self.page_size)
        return bool(len(self.order) * page_count > self.usable_pages)

    def make_row(self, tokens: list[int], space: radixkv.Namespace | None, late: bool) -> Any:
        """A row without pages, which gives them to the cache `late` or as they are computed."""
        raise NotImplementedError

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

    def prefix_cache_lookup_enabled(self, request: Request) -> bool:
        return self.enable_caching and not request.skip_reading_prefix_cache

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

    def take_events(self) -> list["EventLog.Event"]:
        return self._events.take() if self._events is not None else []

    # What other models have to do in a step

    def take_kv_cache_block_copies(self) -> tuple[list[KVCacheBlockCopy], list[KVCacheBlock]]:
        """None: prefixes are reused by whole pages."""
        return [], []

    def take_boundary_state_offloads(self) -> dict[str, list[tuple[int, int, int]]]:
        """None: no connector takes states."""
        return {}


def namespace_of(request: Request) -> radixkv.Namespace | None:
    """What else than tokens decides whether KV may be shared; the keys of vLLM's block hashes."""
    keys: list[str] = []
    if request.lora_request is not None:
        # An adapter that is loaded in place keeps its name, and comes from another path.
        keys += ("lora", request.lora_request.name, request.lora_request.path)
    if request.cache_salt:
        keys += ("salt", request.cache_salt)
    return radixkv.namespace_of(*keys) if keys else None


def _journal_bytes(page_count: int, max_model_len: int) -> int:
    """A ring that no single call fills: a prompt's tokens, and every page evicted one by one, or
    cleared with a namespace of its own."""
    return (1 << 20) + 128 * page_count + 64 * max_model_len
