"""What the scheduler has in the place of a tree node."""

from array import array

import numpy as np
from numpy.typing import NDArray
from radixkv import Namespace


class CachedPrefix:
    """A prefix that was in the cache when it was matched or inserted.

    The scheduler hands it back to have it locked or its pages read, and looks at nothing in it. The
    node's id is good while the prefix is locked. Unlocked nodes may be merged, which ends an id but
    not the prefix: the tokens find it again.
    """

    __slots__ = ("length", "locks", "node", "pages", "space", "tokens")

    def __init__(
        self, node: int, length: int, tokens: "array[int]", space: Namespace | None
    ) -> None:
        self.node = node
        #: A copy of the pages, once somebody asked: as long as the node's id is good they are.
        self.pages: NDArray[np.uint32] | None = None
        #: Tokens, whole pages of them. `tokens` may have more.
        self.length = length
        self.tokens = tokens
        self.space = space
        #: Ids of locks that were taken without a receipt.
        self.locks: list[int] = []

    def __repr__(self) -> str:
        return f"CachedPrefix({self.length} tokens, node {self.node:#x})"


def head(tokens: "array[int]", length: int) -> "array[int] | memoryview":
    """The first tokens, without a copy. Not to be kept: while it lives the array can't grow."""
    return tokens if len(tokens) == length else memoryview(tokens)[:length]


def are_text(tokens: "array[int]", length: int) -> bool:
    """Whether the first ids are ids of tokens. SGLang takes any number of 64 bits from a client,
    and with tensor parallelism computes it: nobody finds that."""
    bits = int(np.bitwise_or.reduce(np.frombuffer(tokens, np.int64, length)))
    return 0 <= bits < 1 << 31
