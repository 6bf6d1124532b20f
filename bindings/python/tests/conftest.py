"""What the tests share: small caches, and prompts that cannot be mistaken for each other."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

import radixkv

PAGE_SIZE = 16


def ids(count: int, first: int = 1) -> NDArray[np.uint32]:
    """A prompt: ascending ids, so that no two positions are equal."""
    return np.arange(first, first + count, dtype=np.uint32)


def pages(*numbers: int) -> NDArray[np.uint32]:
    return np.array(numbers, np.uint32)


@pytest.fixture
def table() -> Iterator[radixkv.PageTable]:
    with radixkv.PageTable(256, page_size=PAGE_SIZE, slot_count=64) as table:
        yield table
        table.check()


@pytest.fixture
def cache(table: radixkv.PageTable) -> Iterator[radixkv.Cache]:
    with radixkv.Cache(table, journal_bytes=1 << 20) as cache:
        yield cache
        if not cache.closed:
            cache.check()


@pytest.fixture
def external() -> Iterator[radixkv.Cache]:
    """A cache over an engine's own allocator: 1024 pages of one position."""
    with radixkv.PageTable(1024, page_size=1, external=True) as table:
        with radixkv.Cache(table) as cache:
            yield cache
            cache.check()
