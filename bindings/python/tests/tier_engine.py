"""An engine over tiers whose pages hold what their tokens say."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from conftest import PAGE_SIZE
from numpy.typing import NDArray

import radixkv
from radixkv import dtypes

PAGE_BYTES = 96
PAGES = 4
PROMPT = PAGES * PAGE_SIZE + 1

Prompt = NDArray[np.uint32]
Bytes = NDArray[np.uint8]


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Engine:
    """Pages of KV as bytes: a page holds what its tokens say."""

    def __init__(self, cache: radixkv.Cache, pages: int = 257) -> None:
        self.cache = cache
        self.kv = np.zeros((pages, PAGE_BYTES), np.uint8)
        self.jobs = np.zeros(64, dtypes.copy_job)
        self.ends = np.zeros(16, dtypes.fetch_end)
        self.ended: dict[int, Any] = {}

    def bytes_of(self, prompt: Prompt, page: int) -> Bytes:
        tokens = prompt[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]
        return np.resize((tokens % 251).astype(np.uint8), PAGE_BYTES)

    def step(self) -> None:
        """Carries out what there is to copy."""
        job_count, end_count = self.cache.poll(self.jobs, self.ends)
        for job in self.jobs[:job_count]:
            host, page = radixkv.host_page(job), self.kv[job["page"]]
            if job["direction"] == radixkv.COPY_LOAD:
                page[:] = host
            else:
                host[:] = page
        self.cache.complete(self.jobs[:job_count])
        for end in self.ends[:end_count]:
            self.ended[int(end["sequence"])] = end.copy()

    def compute(self, prompt: Prompt) -> None:
        """Begins, computes what isn't cached, publishes."""
        with self.cache.begin(prompt) as sequence:
            if sequence.copies().size:
                sequence.confirm_copies()
            shared = sequence.info().shared_page_count
            for at, page in enumerate(sequence.pages()[: len(prompt) // PAGE_SIZE]):
                if at >= shared:
                    self.kv[page] = self.bytes_of(prompt, at)
            sequence.publish(len(prompt))

    def steps_until(self, is_true: Callable[[], bool]) -> None:
        def stepped() -> bool:
            self.step()
            return is_true()

        until(stepped)

    def fetch(self, prompt: Prompt, deadline: float | None = None) -> tuple[int, int]:
        """A request that fetches. Returns the pages that it reuses, of which all hold the right
        bytes, and how many of them came."""
        with self.cache.begin(prompt) as sequence:
            brought = 0
            if sequence.fetch(deadline).is_open:
                self.steps_until(lambda: sequence.id in self.ended)
                brought = int(self.ended.pop(sequence.id)["brought_page_count"])
            reused = sequence.info().cached_position_count // PAGE_SIZE
            for at, page in enumerate(sequence.pages()[:reused]):
                np.testing.assert_array_equal(self.kv[page], self.bytes_of(prompt, at))
            return reused, brought

    def stored(self, prompt: Prompt) -> None:
        """Until the tiers have all pages of a prompt, of which the device has none."""
        self.steps_until(
            lambda: self.cache.prefetch(prompt, look_only=True).position_count
            == PAGES * PAGE_SIZE
        )


@contextmanager
def engine(pages: int = 256) -> Iterator[Engine]:
    with radixkv.PageTable(pages, page_size=PAGE_SIZE, slot_count=16) as table:
        with radixkv.Cache(table, journal_bytes=1 << 16) as cache:
            yield Engine(cache, pages + 1)
            if not cache.closed:
                cache.check()
