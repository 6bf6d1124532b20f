"""Between SGLang's token indices, one for each token, and the page numbers of the cache.

The token at an offset of a page has the index page * page_size + offset.
"""

import numpy as np
import torch
from numpy.typing import NDArray


class PageBuffer:
    """Room for the page numbers of the whole pool, made once, and the ways in and out of it."""

    def __init__(self, page_count: int, page_size: int, device: torch.device) -> None:
        self.page_size = page_size
        self.device = device
        #: What the cache reads and writes.
        self.pages: NDArray[np.uint32] = np.empty(page_count, np.uint32)
        # The same memory. torch computes with signed integers alone; page numbers are below 2**31.
        self._tensor = torch.from_numpy(self.pages.view(np.int32))
        self._offsets = torch.arange(page_size)
        self._none = torch.empty(0, dtype=torch.int64, device=device)

    def page_ids(self, count: int) -> torch.Tensor:
        """The first page numbers, as a new tensor on the device."""
        return self._tensor[:count].to(self.device, torch.int64)

    def indices(self, first: int, end: int) -> torch.Tensor:
        """The token indices of the pages [first, end), as a new tensor on the device."""
        if first == end:
            return self._none
        pages = self._tensor[first:end].to(torch.int64)
        if self.page_size > 1:
            pages = torch.add(self._offsets, pages.unsqueeze(1), alpha=self.page_size).view(-1)
        return pages.to(self.device)

    def put(self, indices: torch.Tensor, first: int) -> None:
        """Takes in the pages of token indices which are whole pages, as those from `first` on. On
        another device than the CPU this waits for what was written there."""
        firsts = indices[:: self.page_size] if self.page_size > 1 else indices
        # The division must not touch the engine's tensor, and the copy need not.
        page_ids = firsts // self.page_size if self.page_size > 1 else firsts
        self._tensor[first : first + len(page_ids)].copy_(page_ids)
