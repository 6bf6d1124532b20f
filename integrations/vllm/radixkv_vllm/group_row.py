"""The pages of a request in a model with several groups of layers.

What `radixkv.GrowingRow` is for one group. A block of a sliding window that no token to come
attends to is given up at the request's next step, not before: a step that is under way still reads
and writes it. So a row keeps a lock for each part that it publishes, and lets go of it when a later
one, of what is computed, protects all that is needed.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import radixkv
from numpy.typing import NDArray
from vllm.v1.kv_cache_interface import KVCacheConfig, SlidingWindowSpec


@dataclass(frozen=True)
class Groups:
    """The engine's groups of layers, all of which have blocks of one size from one pool."""

    page_size: int
    #: The sliding window of each; 0 is full attention.
    windows: tuple[int, ...]
    #: The number of each in the cache, whose group 0 is one of full attention.
    numbers: tuple[int, ...]
    #: Pages that one lock protects in every window: so many are published at a time.
    span: int

    @classmethod
    def of(cls, config: KVCacheConfig, page_size: int) -> "Groups":
        specs = [group.kv_cache_spec for group in config.kv_cache_groups]
        windows = [it.sliding_window if isinstance(it, SlidingWindowSpec) else 0 for it in specs]
        first = windows.index(0)
        numbers = [0 if at == first else at + (at < first) for at in range(len(windows))]
        span = min((max(1, -(-(it - 1) // page_size)) for it in windows if it), default=1 << 30)
        return cls(page_size, tuple(windows), tuple(numbers), span)

    @property
    def first(self) -> int:
        """The engine's number of the cache's group 0."""
        return self.numbers.index(0)

    def engines(self, number: int) -> int:
        """The engine's number of a group of the cache."""
        return self.numbers.index(number)

    def kinds(self) -> list[radixkv.Group]:
        """As the page table wants them."""
        kinds = [radixkv.Group.full()] * len(self.windows)
        for window, number in zip(self.windows, self.numbers, strict=True):
            if window:
                kinds[number] = radixkv.Group.window(window)
        return kinds

    def first_needed(self, window: int, position: int) -> int:
        """The first page that a token at a position, or one behind it, attends to."""
        return max(0, position - window + 1) // self.page_size if window else 0


class GroupRow:
    """A request's pages in each group, and its tokens. It has no pages yet."""

    def __init__(
        self,
        cache: radixkv.Cache,
        groups: Groups,
        tokens: list[int],
        space: radixkv.Namespace | None,
    ) -> None:
        self.cache, self.table, self.groups, self.space = cache, cache.table, groups, space
        self._tokens = np.array(tokens, np.uint32)
        self.token_count = len(tokens)
        room = len(tokens) // groups.page_size + 8
        #: By the engine's number of the group; 0 where a window has passed.
        self._pages = np.zeros((len(groups.windows), room), np.uint32)
        #: Which of them are the row's alone.
        self._own = np.zeros(self._pages.shape, np.bool_)
        self._slid = [0] * len(groups.windows)
        self._node = 0
        #: Where what each lock protects ends, in pages, and the lock.
        self._locks: list[tuple[int, int]] = []
        self.page_count = 0
        #: Leading pages that were given to the cache.
        self.published = 0

    @property
    def pages(self) -> list[list[int]]:
        """Of each group, by the engine's numbers."""
        pages: list[list[int]] = self._pages[:, : self.page_count].tolist()
        return pages

    def probe(self, limit: int) -> int:
        """How many whole pages of the first `limit` tokens all groups can reuse."""
        tokens = self._tokens[: min(limit, self.token_count)]
        return self.cache.probe(tokens, space=self.space) // self.groups.page_size

    def look(self, page_count: int) -> list[list[int]]:
        """The pages that `take` would take, which the row does not hold."""
        self.take(page_count)
        pages = self.pages
        self.release()
        return pages

    def take(self, page_count: int) -> None:
        """Begins the row with so many pages that were found."""
        size, groups = self.groups.page_size, self.groups
        self._make_room(page_count)
        first = np.zeros(page_count, np.uint32)
        tokens = self._tokens[: page_count * size]
        found = self.cache.match(tokens, first, space=self.space, lock=True)
        if found.page_count != page_count:
            if found.lock:
                self.cache.unlock(found.lock)
            raise RuntimeError("the pages were evicted since they were found")
        for at, number in enumerate(groups.numbers):
            if number == 0:
                self._pages[at, :page_count] = first
                continue
            held = self.cache.locked_pages(found.lock, number)
            self._pages[at, held["page_index"]] = held["page"]
            self._slid[at] = groups.first_needed(groups.windows[at], page_count * size)
        self.page_count = self.published = page_count
        self._node, self._locks = found.node, [(page_count, found.lock)]

    def slide(self, processed: int) -> None:
        """Lets go of what no token from position `processed` on attends to."""
        size, passed = self.groups.page_size, []
        for at, window in enumerate(self.groups.windows):
            before, end = self._slid[at], self.groups.first_needed(window, processed)
            end = min(end, self.page_count)
            if end <= before:
                continue
            part = slice(before, end)
            passed.append(self._pages[at, part][self._own[at, part]])
            self._pages[at, part], self._own[at, part] = 0, False
            self._slid[at] = end
        if passed and (gone := np.concatenate(passed)).size:
            self.table.free_pages(gone)
        # The last lock that ends before `processed` protects all that the ones before it do.
        while len(self._locks) > 1 and self._locks[1][0] * size <= processed:
            self.cache.unlock(self._locks.pop(0)[1])

    def extend(self, positions: int) -> list[list[int]] | None:
        """Pages for so many positions: the new ones of each group; None when there are too few."""
        before, end = self.page_count, -(-positions // self.groups.page_size)
        if end <= before:
            return [[] for _ in self.groups.windows]
        self._make_room(end)
        fresh = np.zeros((len(self.groups.windows), end - before), np.uint32)
        try:
            self.table.allocate_pages(fresh.reshape(-1))
        except radixkv.OutOfPages:
            return None
        self._pages[:, before:end], self._own[:, before:end] = fresh, True
        self.page_count = end
        return fresh.tolist()

    def append(self, tokens: list[int]) -> None:
        """Tokens behind those that are known."""
        end = self.token_count + len(tokens)
        if end > len(self._tokens):
            self._tokens = np.resize(self._tokens, 2 * end)
        self._tokens[self.token_count : end] = tokens
        self.token_count = end

    def publish(self, end: int) -> None:
        """Gives the first `end` pages to the cache, whose tokens are known."""
        while self.published < end:
            self._publish(min(end, self.published + self.groups.span))

    def _publish(self, end: int) -> None:
        size, first, base = self.groups.page_size, self.published, self.groups.first
        known = np.zeros((len(self._pages), end), np.uint32)
        done = self.cache.insert(
            self._tokens[: end * size],
            self._pages[base, :end],
            published=known[base],
            space=self.space,
            lock=True,
            from_node=self._node,
            from_token_index=first * size,
            from_page_index=first,
            groups=[
                (number, self._pages[at, :end], known[at])
                for at, number in enumerate(self.groups.numbers)
                if number
            ],
        )
        part = slice(first, done.page_count)
        # Where the cache has another page with the same tokens, the row's own stays private.
        self._own[:, part] &= known[:, part] != self._pages[:, part]
        self._node, self.published = done.node, done.page_count
        self._locks.append((done.page_count, done.lock))
        if done.page_count < end:
            raise radixkv.OutOfMemory("a part of a request was not published")

    def release(self) -> None:
        """Gives everything back but the tokens; what was published stays in the cache."""
        own = self._pages[:, : self.page_count][self._own[:, : self.page_count]]
        for _, lock in self._locks:
            self.cache.unlock(lock)
        if own.size:
            self.table.free_pages(own)
        self._pages[:], self._own[:] = 0, False
        self._slid = [0] * len(self._slid)
        self._locks, self._node, self.page_count, self.published = [], 0, 0, 0

    def _make_room(self, page_count: int) -> None:
        if page_count > self._pages.shape[1]:
            more = ((0, 0), (0, page_count))
            self._pages, self._own = np.pad(self._pages, more), np.pad(self._own, more)


