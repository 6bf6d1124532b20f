"""What a call costs more than from C, over the same library in the same run.

The least of many runs is compared, three times if need be: other programs on the machine only add.
Only with RADIXKV_SPEED=1: a test that times is for a machine that does nothing else.
"""

import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hot_path import BATCH, TOKENS, best, from_c

import radixkv

PATIENCE = 3

pytestmark = pytest.mark.skipif(
    os.environ.get("RADIXKV_SPEED") != "1", reason="times, with RADIXKV_SPEED=1 only"
)


@pytest.fixture(scope="module")
def c() -> dict[str, float]:
    try:
        return from_c()
    except FileNotFoundError:
        pytest.skip("there is no C compiler")


@pytest.fixture
def cache() -> Iterator[radixkv.Cache]:
    with radixkv.PageTable(70000, slot_count=512) as table, radixkv.Cache(table) as cache:
        yield cache


def at_most(limit: float, there: float, call: Callable[[], object], count: int) -> None:
    more = [best(call, count) - there for _ in range(PATIENCE)]
    assert min(more) <= limit, f"{min(more):.2f} us more than from C"


def test_p03_a_match_costs_little_more_than_from_c(
    cache: radixkv.Cache, c: dict[str, float]
) -> None:
    prompt, pages = np.arange(1, TOKENS + 1, dtype=np.uint32), np.empty(TOKENS, np.uint32)
    with cache.begin(prompt) as sequence:
        sequence.publish(TOKENS)
    assert cache.match(prompt, pages).token_count == TOKENS
    at_most(1.0, c["match"], lambda: cache.match(prompt), 500)
    at_most(1.0, c["match_pages"], lambda: cache.match(prompt, pages), 500)
    at_most(1.0, c["probe"], lambda: cache.probe(prompt), 500)


def test_p03_a_step_costs_little_more_than_from_c(
    cache: radixkv.Cache, c: dict[str, float]
) -> None:
    """256 sequences that decode a token each."""
    infos = np.zeros(BATCH, radixkv.dtypes.sequence_info)
    cache.begin_many([np.array([at + 1], np.uint32) for at in range(BATCH)], infos)
    sequences, decoded = infos["sequence"].copy(), np.full(BATCH, 5, np.uint32)
    statuses = np.zeros(BATCH, np.int32)
    at_most(
        6.0,
        c["append_many_256"],
        lambda: cache.append_many(sequences, decoded, statuses=statuses),
        10,
    )
    assert not statuses.any()
