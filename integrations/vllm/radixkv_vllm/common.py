"""What the managers for one and for several groups of layers answer alike."""

import logging
from typing import Any, NamedTuple

import radixkv
from vllm.v1.core.kv_cache_utils import KVCacheBlock, KVCacheBlockCopy
from vllm.v1.kv_cache_interface import KVCacheSpec
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.request import Request

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


class Manager:
    """Who inherits makes `cache` and `table`, and has `rows` and `available_page_count`."""

    cache: radixkv.Cache
    table: radixkv.PageTable
    usable_pages: int
    page_size: int
    enable_caching: bool
    prefix_cache_stats: PrefixCacheStats | None
    _events: EventLog | None

    # Rows

    def begin_row(self, request: Request) -> Any:
        """A request's row, made of its tokens when it has none yet or other tokens since."""
        rows: dict[str, Any] = self.rows  # type: ignore[attr-defined]
        row = rows.get(request.request_id)
        if row is None or (row.token_count != request.num_tokens and not row.page_count):
            limits.check_request(request)
            # The prompt is a list; all tokens have to be copied to be one.
            tokens = request.prompt_token_ids
            if tokens is None or len(tokens) != request.num_tokens:
                tokens = request.all_token_ids[:]
            row = self.make_row(tokens, namespace_of(request))
            rows[request.request_id] = row
        return row

    def make_row(self, tokens: list[int], space: radixkv.Namespace | None) -> Any:
        """A row without pages."""
        raise NotImplementedError

    # All requests

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

    def _available(self) -> int:
        return int(self.available_page_count)  # type: ignore[attr-defined]

    # What the scheduler asks

    def prefix_cache_lookup_enabled(self, request: Request) -> bool:
        return self.enable_caching and not request.skip_reading_prefix_cache

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


def namespace_of(request: Request) -> radixkv.Namespace | None:
    """What else than tokens decides whether KV may be shared; the keys of vLLM's block hashes."""
    keys: list[str] = []
    if request.lora_request is not None:
        keys += ("lora", request.lora_request.name)
    if request.cache_salt:
        keys += ("salt", request.cache_salt)
    return radixkv.namespace_of(*keys) if keys else None


def journal_bytes(page_count: int, max_model_len: int) -> int:
    """A ring that no single call fills: a prompt's tokens, and every page evicted one by one."""
    return 1 << 20 | 64 * page_count + 64 * max_model_len
