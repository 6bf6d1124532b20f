"""Below the pages of a cache: what `Cache.attach_tiers()` takes, and what copies work on."""

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class TierPool(NamedTuple):
    """The pages of a pool, and the host memory that they have."""

    page_bytes: int
    """Bytes of a page in all layers of a group together: what a copy moves."""
    host_bytes: int = 0
    """Bytes of host memory, at most; 0 for all of `host_memory`."""
    host_memory: Any = None
    """Where that is, a dense array on the host that can be written; None for memory of the
    library's own."""


def host_page(job: Any) -> NDArray[np.uint8]:
    """The host memory of a copy, an element of an array of `dtypes.copy_job` that `Cache.poll()`
    filled: an array of uint8 without a copy, of the bytes of a page. A load reads it, a store
    writes it, and nobody looks at it after `Cache.complete()`."""
    memory = (ctypes.c_uint8 * int(job["byte_count"])).from_address(int(job["host"]))
    return np.ctypeslib.as_array(memory)
