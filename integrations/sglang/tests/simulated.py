"""A cache without an engine, as SGLang's tests of its radix cache make one."""

from array import array
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from radixkv_sglang.cache import RadixkvCache
from radixkv_sglang.prefix import CachedPrefix
from sglang.srt.mem_cache.base_prefix_cache import InsertParams, InsertResult
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixKey

POOL = 1 << 16


class Root(CachedPrefix):
    """The tests look at the root's key."""

    __slots__ = ("key",)

    key: RadixKey


class SimulatedCache(RadixkvCache):
    """Takes made-up token indices: SGLang's caches keep whatever they are given, this one keeps
    page numbers. Each page's worth of indices gets a number here, and is given out in its place."""

    @classmethod
    def create_simulated(
        cls,
        disable: bool = False,
        mock_allocator: Any = None,
        page_size: int = 1,
        **options: Any,
    ) -> "SimulatedCache":
        allocator = mock_allocator or mock.Mock(device=torch.device("cpu"))
        if not isinstance(allocator.size, int):
            allocator.size = POOL
        return cls(CacheInitParams(disable, None, allocator, page_size, **options))

    def _open(self) -> None:
        super()._open()
        root = Root(0, 0, array("q"), None)
        root.pages = self._published[:0]
        root.key = RadixKey(array("q"))
        self.root_node = root
        self._page_of: dict[tuple[int, ...], int] = {}
        self._unused = list(range(self._page_count() - 1, 0, -1))
        self._indices_of: dict[int, tuple[int, ...]] = {}

    def insert(self, params: InsertParams) -> InsertResult:
        size = self.page_size
        length = len(params.key) // size * size
        made_up = params.value
        if made_up is None:
            made_up = torch.arange(length) - POOL * (1 + len(self._page_of))
        given = made_up[:length].tolist()
        pages = [self._number(tuple(given[at : at + size])) for at in range(0, length, size)]
        real = torch.tensor(pages, dtype=torch.int64)[:, None] * size + torch.arange(size)
        return super().insert(InsertParams(key=params.key, value=real.reshape(-1)))

    def path_device_indices(self, node: CachedPrefix) -> torch.Tensor:
        real = super().path_device_indices(node)[:: self.page_size] // self.page_size
        made_up = [index for page in real.tolist() for index in self._indices_of[page]]
        return torch.tensor(made_up, dtype=torch.int64)

    def _free(
        self, pages: NDArray[np.int64], window_pages: NDArray[np.int64] | None = None
    ) -> None:
        """What was made up goes back, by the call that SGLang's caches make."""
        for page in pages.tolist():
            made_up = self._indices_of.pop(page)
            self._unused.append(self._page_of.pop(made_up))
            indices = torch.tensor(made_up, dtype=torch.int64)
            self.token_to_kv_pool_allocator.free_segment(indices, start_pos=0)

    def _number(self, indices: tuple[int, ...]) -> int:
        if indices not in self._page_of:
            self._page_of[indices] = page = self._unused.pop()
            self._indices_of[page] = indices
        return self._page_of[indices]
