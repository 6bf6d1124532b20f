"""A manager that shows what vLLM's own tests look at: blocks as objects, a pool of them.

Nothing is kept for it but the hash of each page: the answers are worked out from the cache and the
requests' rows when a test asks.
"""

from typing import Any

from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id
from vllm.v1.request import Request

from radixkv_vllm import KVCacheManager, NotCovered
from radixkv_vllm.blocks import PageBlocks
from radixkv_vllm.manager import Coordinator

#: Parameters of vLLM's manager, and values with which they ask for nothing.
OFF: dict[str, tuple[Any, ...]] = {
    "use_eagle": (False,),
    "num_prefill_lookahead": (0,),
    "dcp_world_size": (1,),
    "pcp_world_size": (1,),
    "metrics_collector": (None,),
    "enable_mamba_shared_prefix_checkpoint": (False,),
}

#: How many managers were made: whether a test has to do with ours at all.
made = 0


class Block:
    """A page as vLLM's KVCacheBlock."""

    def __init__(self, manager: "GlassManager", page: int) -> None:
        self._manager, self.block_id = manager, page

    def __repr__(self) -> str:
        return f"Block({self.block_id})"

    @property
    def is_null(self) -> bool:
        return self.block_id == 0

    @property
    def ref_cnt(self) -> int:
        return sum(self.block_id in row.pages for row in self._manager.rows.values())

    @property
    def block_hash(self) -> Any:
        manager = self._manager
        cached = self.block_id and manager.cache.contains_page(self.block_id)
        return manager.hashes.get(self.block_id) if cached else None


class Blocks(PageBlocks):
    """Pages that show themselves as the manager's blocks."""

    def __init__(self, manager: "GlassManager", pages: list[int]) -> None:
        super().__init__(pages)
        self._manager = manager

    @property
    def blocks(self) -> Any:
        return ([self._manager.block_pool.blocks[page] for page in self.pages],)


class Cached:
    """The blocks that a lookup may find, of which tests take the number."""

    def __init__(self, manager: "GlassManager") -> None:
        self._manager = manager

    def __len__(self) -> int:
        return int(self._manager.cache.stats().cached_page_count)


class FreeQueue:
    """The blocks that nobody uses. Their order is the cache's own."""

    def __init__(self, manager: "GlassManager") -> None:
        self._manager = manager

    @property
    def num_free_blocks(self) -> int:
        return self._manager.available_page_count


class Pool:
    """vLLM's BlockPool, as far as tests read it."""

    def __init__(self, manager: "GlassManager") -> None:
        self._manager = manager
        self.num_gpu_blocks: int = manager.kv_cache_config.num_blocks
        self.blocks = [Block(manager, page) for page in range(self.num_gpu_blocks)]
        self.null_block = self.blocks[0]
        self.free_block_queue = FreeQueue(manager)
        self.cached_block_hash_to_block = Cached(manager)

    @property
    def kv_event_queue(self) -> list[Any]:
        events = self._manager._events
        return events._queue if events is not None else []

    def get_num_free_blocks(self) -> int:
        return self._manager.available_page_count

    def get_usage(self) -> float:
        return self._manager.usage


class Layers:
    """The manager of the one group."""

    def __init__(self, manager: "GlassManager") -> None:
        self._manager = manager
        (layers,) = manager.coordinator.single_type_managers
        self.block_size, self.kv_cache_spec = layers

    @property
    def req_to_blocks(self) -> dict[str, list[Block]]:
        blocks = self._manager.block_pool.blocks
        return {
            name: [blocks[page] for page in row.pages]
            for name, row in self._manager.rows.items()
            if row.page_count
        }

    @property
    def num_cached_block(self) -> dict[str, int]:
        return {name: row.published_page_count for name, row in self._manager.rows.items()}


class GlassManager(KVCacheManager):
    """Ours, with windows."""

    def __init__(
        self,
        kv_cache_config: Any,
        max_model_len: int,
        scheduler_block_size: int,
        hash_block_size: int,
        enable_caching: bool = True,
        log_stats: bool = False,
        enable_kv_cache_events: bool = False,
        watermark: float = 0.0,
        **others: Any,
    ) -> None:
        global made
        made += 1
        others.pop("max_in_flight_tokens", None)  # bounds what windows hold
        if asked := [name for name, value in others.items() if value not in OFF.get(name, ())]:
            raise NotCovered("KVCacheManager(" + ", ".join(asked) + ")")
        self.hashes: dict[int, Any] = {}
        super().__init__(
            kv_cache_config,
            max_model_len,
            scheduler_block_size,
            hash_block_size,
            enable_caching,
            log_stats,
            enable_kv_cache_events,
            watermark,
        )
        self.block_pool = Pool(self)
        self.coordinator = Coordinator((Layers(self),))  # type: ignore[arg-type]
        self.empty_kv_cache_blocks = Blocks(self, [])

    def get_computed_blocks(self, request: Request) -> tuple[PageBlocks, int, int]:
        blocks, count, boundary = super().get_computed_blocks(request)
        return Blocks(self, blocks.pages), count, boundary

    def allocate_slots(self, request: Request, *args: Any, **kwargs: Any) -> PageBlocks | None:
        blocks = super().allocate_slots(request, *args, **kwargs)
        self._look(request)
        return blocks and Blocks(self, blocks.pages)

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        super().cache_blocks(request, num_computed_tokens)
        self._look(request)

    def get_blocks(self, request_id: str) -> PageBlocks:
        return Blocks(self, super().get_blocks(request_id).pages)

    def _look(self, request: Request) -> None:
        """Keeps vLLM's hashes of the pages that are published."""
        if (row := self.rows.get(request.request_id)) is not None:
            published = row.pages[: row.published_page_count]
            hashes = zip(published, request.block_hashes, strict=False)
            self.hashes.update((page, make_block_hash_with_group_id(it, 0)) for page, it in hashes)
