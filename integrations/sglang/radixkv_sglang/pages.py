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


class Rows:
    """The token indices of the requests, as they are in SGLang's pool of rows."""

    def __init__(self, pool: "ReqToTokenPool") -> None:
        self._pool = pool
        self._table: torch.Tensor | None = None
        self._array: NDArray[np.int32] | None = None

    def read(self, row: int, start: int, end: int) -> NDArray[np.int32]:
        """Those of a request. On the CPU they are not copied; elsewhere this waits until what was
        written on the current stream is there."""
        table = self._pool.req_to_token
        if table is not self._table:
            self._table = table
            self._array = table.numpy() if table.device.type == "cpu" else None
        if self._array is None:
            return table[row, start:end].cpu().numpy()
        return self._array[row, start:end]


class PageNumbers:
    """The two ways between page numbers and token indices."""

    def __init__(self, page_size: int, device: torch.device) -> None:
        self.page_size = page_size
        self.device = device
        self.prepare(0)

    def prepare(self, page_count: int) -> None:
        """For pages below a number."""
        # The indices of each page's tokens: 8 bytes each, and one call of NumPy instead of four.
        token_count = page_count * self.page_size if self.page_size > 1 else 0
        self._indices = np.arange(token_count).reshape(-1, self.page_size)

    def tensor(self, pages: NDArray[np.uint32]) -> torch.Tensor:
        """The page numbers, as a new tensor on the device."""
        return self._on_device(pages.astype(np.int64))

    def indices(self, pages: NDArray[np.uint32]) -> torch.Tensor:
        """The token indices of whole pages, as a new tensor on the device."""
        if self.page_size == 1:
            return self.tensor(pages)
        return self._on_device(self._indices.take(pages, 0).reshape(-1))

    def _on_device(self, numbers: NDArray[np.int64]) -> torch.Tensor:
        tensor = torch.from_numpy(numbers)
        return tensor if self.device.type == "cpu" else tensor.to(self.device)

    def read(self, indices: NDArray[np.signedinteger], pages: NDArray[np.uint32]) -> None:
        """The pages of token indices which are whole pages."""
        radixkv.page_numbers(indices, self.page_size, pages)
