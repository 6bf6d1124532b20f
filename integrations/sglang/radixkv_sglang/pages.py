"""Between SGLang's token indices, one for each token, and the page numbers of the cache.

The token at an offset of a page has the index page * page_size + offset. SGLang's are tensors of
torch; the arrays of the cache are NumPy's, whose calls take less of the scheduler's time.
"""

from typing import TYPE_CHECKING

import numpy as np
import radixkv
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sglang.srt.mem_cache.memory_pool import ReqToTokenPool


class Tables:
    """SGLang's token indices of the requests, a row for each, and with windows its mapping from
    token indices to places in the window's pool. They are tensors: on the CPU the cache reads them
    where they lie, from another device what it needs is copied."""

    def __init__(
        self, pool: "ReqToTokenPool | None", mapping: torch.Tensor | None, page_size: int
    ) -> None:
        # Without an engine, as in SGLang's tests, there are no rows.
        self._rows = None if pool is None else pool.req_to_token
        self._mapping = mapping
        self._page_size = page_size
        self.are_on_host = self._rows is not None and self._rows.device.type == "cpu"

    def open(self, cache: radixkv.Cache) -> radixkv.PlacedRows:
        """What a new cache reads them by."""
        if self._rows is None or not self.are_on_host:
            return radixkv.PlacedRows(cache)
        mapping = None if self._mapping is None else self._mapping.numpy()
        return radixkv.PlacedRows(cache, rows=self._rows.numpy(), mapping=mapping)

    def copied(
        self, row: int, start: int, end: int
    ) -> "tuple[NDArray[np.integer], NDArray[np.integer] | None]":
        """Copies of a part of a row, and with windows of the places in their pool, as
        `PlacedRows.publish()` takes them. Waits until what was written on the current stream is
        there."""
        assert self._rows is not None
        places = self._rows[row, start:end]
        if self._mapping is None:
            return places.cpu().numpy(), None
        firsts = places[:: self._page_size].long()
        return places.cpu().numpy(), self._mapping[firsts].cpu().numpy()


class PageNumbers:
    """From page numbers to what SGLang takes."""

    def __init__(self, page_size: int, device: torch.device) -> None:
        self.page_size = page_size
        self.device = device
        self._is_host = device.type == "cpu"

    def own(self, numbers: NDArray[np.int64]) -> torch.Tensor:
        """Page numbers of an array that nobody else has, as a tensor on the device: on the CPU it
        is just that array."""
        tensor = torch.from_numpy(numbers)
        return tensor if self._is_host else tensor.to(self.device)

    def indices(self, pages: NDArray[np.integer]) -> torch.Tensor:
        """The token indices of whole pages, as a new tensor on the device."""
        indices = np.empty(len(pages) * self.page_size, np.int64)
        radixkv.page_places(pages, self.page_size, indices)
        return self.own(indices)
