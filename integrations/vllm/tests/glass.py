"""Managers that show what vLLM's own tests look at: blocks as objects, a pool of them.

Nothing is kept for it but the hash of each page: the answers are worked out from the cache and the
requests' rows when a test asks.
"""

from typing import Any

from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id
from vllm.v1.request import Request

from radixkv_vllm import HybridManager, KVCacheManager, NotCovered
from radixkv_vllm.blocks import GroupBlocks
from radixkv_vllm.common import Coordinator

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

    def __init__(self, manager: "Glass", page: int) -> None:
        self._manager, self.block_id = manager, page

    def __repr__(self) -> str:
        return f"Block({self.block_id})"

    @property
    def is_null(self) -> bool:
        return self.block_id == 0

    @property
    def ref_cnt(self) -> int:
        rows = self._manager.rows_by_group().values()
        return sum(self.block_id in pages for lists in rows for pages in lists)

    @property
    def block_hash(self) -> Any:
        manager = self._manager
        cached = self.block_id and manager.is_cached(self.block_id)
        return manager.hashes.get(self.block_id) if cached else None


class Blocks(GroupBlocks):
    """Pages that show themselves as the manager's blocks."""

    def __init__(self, manager: "Glass", lists: list[list[int]]) -> None:
        super().__init__(lists)
        self._manager = manager

    @property
    def blocks(self) -> Any:
        every = self._manager.block_pool.blocks
        return tuple([every[page] for page in pages] for pages in self.lists)


class Cached:
    """The blocks that a lookup may find, of which tests take the number."""

    def __init__(self, manager: "Glass") -> None:
        self._manager = manager

    def __len__(self) -> int:
        return int(self._manager.table.pool_stats(0).cached_page_count)


class FreeQueue:
    """The blocks that nobody uses. Their order is the cache's own."""

    def __init__(self, manager: "Glass") -> None:
        self._manager = manager

    @property
    def num_free_blocks(self) -> int:
        return self._manager.available_page_count


class Pool:
    """vLLM's BlockPool, as far as tests read it."""

    def __init__(self, manager: "Glass") -> None:
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
    """The manager of a group."""

    def __init__(self, manager: "Glass", group: int) -> None:
        self._manager, self._group = manager, group
        self.block_size, self.kv_cache_spec = manager.coordinator.single_type_managers[group]

    @property
    def req_to_blocks(self) -> dict[str, list[Block]]:
        blocks = self._manager.block_pool.blocks
        return {
            name: [blocks[page] for page in lists[self._group]]
            for name, lists in self._manager.rows_by_group().items()
            if lists[self._group]
        }

    @property
    def num_cached_block(self) -> dict[str, int]:
        rows = self._manager.rows
        return {name: self._manager.published_of(row) for name, row in rows.items()}


class Glass:
    """What shows, of either manager."""

    cache: Any
    table: Any
    rows: dict[str, Any]
    coordinator: Any
    kv_cache_config: Any
    available_page_count: int
    usage: float
    _events: Any
    hashes: dict[int, Any]
    block_pool: Pool

    def open(self) -> None:
        self.hashes = {}
        self.block_pool = Pool(self)
        count = len(self.coordinator.single_type_managers)
        layers: Any = tuple(Layers(self, at) for at in range(count))
        self.coordinator = Coordinator(layers)
        self.empty_kv_cache_blocks = Blocks(self, [[] for _ in range(count)])

    def rows_by_group(self) -> dict[str, list[list[int]]]:
        raise NotImplementedError

    def published_of(self, row: Any) -> int:
        raise NotImplementedError

    def is_cached(self, page: int) -> bool:
        return bool(self.cache.contains_page(page))

    def shown(self, blocks: Any) -> Any:
        lists = blocks.lists if isinstance(blocks, GroupBlocks) else [blocks.pages]
        return Blocks(self, lists)

    def look(self, request: Request) -> None:
        """Keeps vLLM's hashes of the pages that are published."""
        if (row := self.rows.get(request.request_id)) is None:
            return
        for group, pages in enumerate(self.rows_by_group()[request.request_id]):
            published = pages[: self.published_of(row)]
            hashes = zip(published, request.block_hashes, strict=False)
            self.hashes.update(
                (page, make_block_hash_with_group_id(it, group)) for page, it in hashes if page
            )


def _glass(base: Any) -> Any:
    class Made(Glass, base):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            base.__init__(self, *args, **kwargs)
            self.open()

        def get_computed_blocks(self, request: Request) -> Any:
            blocks, count, boundary = base.get_computed_blocks(self, request)
            return self.shown(blocks), count, boundary

        def allocate_slots(self, request: Request, *args: Any, **kwargs: Any) -> Any:
            blocks = base.allocate_slots(self, request, *args, **kwargs)
            self.look(request)
            return blocks and self.shown(blocks)

        def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
            base.cache_blocks(self, request, num_computed_tokens)
            self.look(request)

        def get_blocks(self, request_id: str) -> Any:
            return self.shown(base.get_blocks(self, request_id))

    return Made


class OneGroup(_glass(KVCacheManager)):  # type: ignore[misc]
    def rows_by_group(self) -> dict[str, list[list[int]]]:
        return {name: [row.pages] for name, row in self.rows.items()}

    def published_of(self, row: Any) -> int:
        return int(row.published_page_count)


class SeveralGroups(_glass(HybridManager)):  # type: ignore[misc]
    def rows_by_group(self) -> dict[str, list[list[int]]]:
        return {name: row.pages for name, row in self.rows.items()}

    def published_of(self, row: Any) -> int:
        return int(row.published_page_count)

    def is_cached(self, page: int) -> bool:
        # The cache tells of pages of group 0 alone: the rest is what no row has as its own.
        rows = self.rows.values()
        return not any(page in pages for row in rows for pages in row.private_pages)


class GlassManager:
    """Ours, with windows to look through."""

    def __new__(
        cls,
        kv_cache_config: Any,
        max_model_len: int,
        scheduler_block_size: int,
        hash_block_size: int,
        **others: Any,
    ) -> Any:
        global made
        made += 1
        if asked := [name for name, off in OFF.items() if others.pop(name, off[0]) not in off]:
            raise NotCovered("KVCacheManager(" + ", ".join(asked) + ")")
        several = len(kv_cache_config.kv_cache_groups) > 1
        return (SeveralGroups if several else OneGroup)(
            kv_cache_config, max_model_len, scheduler_block_size, hash_block_size, **others
        )
