"""What the scheduler is given as blocks: page numbers."""

from collections.abc import Callable, Sequence

from vllm.v1.core.kv_cache_utils import KVCacheBlock


class PageBlocks:
    """The pages of a lookup or an allocation, with the methods of vLLM's KVCacheBlocks that its
    scheduler calls. There is one group of layers."""

    __slots__ = ("pages",)

    def __init__(self, pages: list[int]) -> None:
        self.pages = pages

    @property
    def blocks(self) -> tuple[Sequence[KVCacheBlock], ...]:
        """The pages as vLLM's objects, made when they are asked for: the scheduler does not."""
        return ([KVCacheBlock(page) for page in self.pages],)

    def get_block_ids(
        self, allow_none: bool = False, *, group_ids: Sequence[int] | None = None
    ) -> tuple[list[int], ...] | None:
        if group_ids is not None:
            return tuple(list((self.pages,)[group]) for group in group_ids)
        if allow_none and not self.pages:
            return None
        return (self.pages,)

    def new_empty(self) -> "PageBlocks":
        return PageBlocks([])


class GroupBlocks:
    """The same with several groups of layers: a list of pages for each, 0 where a window needs
    none."""

    def __init__(self, lists: list[list[int]]) -> None:
        self._lists = lists

    @property
    def lists(self) -> list[list[int]]:
        return self._lists

    @property
    def blocks(self) -> tuple[Sequence[KVCacheBlock], ...]:
        return tuple([KVCacheBlock(page) for page in pages] for pages in self.lists)

    def get_block_ids(
        self, allow_none: bool = False, *, group_ids: Sequence[int] | None = None
    ) -> tuple[list[int], ...] | None:
        lists = self.lists
        if group_ids is not None:
            lists = [lists[group] for group in group_ids]
        if allow_none and not any(lists):
            return None
        return tuple(lists)

    def new_empty(self) -> "GroupBlocks":
        return GroupBlocks([[] for _ in self.lists])


class FoundBlocks(GroupBlocks):
    """Pages that a lookup found, read when they are asked for: the scheduler hands them on."""

    def __init__(self, look: Callable[[], list[list[int]]]) -> None:
        self._look = look

    @property
    def lists(self) -> list[list[int]]:
        return self._look()
