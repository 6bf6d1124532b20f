"""The batch verbs do what as many single calls do, and tell of each."""

import numpy as np
import pytest
from conftest import PAGE_SIZE, ids

import radixkv
from radixkv import dtypes


def test_p02_steps_of_many_sequences(cache: radixkv.Cache) -> None:
    n = 20
    prompts = [ids(30 + at, 1000 * at) for at in range(1, n + 1)]
    infos = np.zeros(n, dtypes.sequence_info)
    assert cache.begin_many(prompts, infos, reserve=4) == 0
    np.testing.assert_array_equal(infos["position_count"], [30 + at for at in range(1, n + 1)])
    sequences = infos["sequence"].copy()
    assert len(set(sequences.tolist())) == n
    positions = infos["position_count"].astype(np.uint64)
    for step in range(40):
        assert cache.append_many(sequences, np.full(n, step + 1, np.uint32)) == 0
        positions += np.uint64(1)
    results = np.zeros(n, dtypes.publish_result)
    assert cache.publish_many(sequences, positions, results) == 0
    np.testing.assert_array_equal(results["claimed_page_count"], positions // PAGE_SIZE)
    assert cache.release_many(sequences) == 0

    decoded = np.arange(1, 41, dtype=np.uint32)
    whole = [np.append(prompt, decoded) for prompt in prompts]
    found = np.zeros(n, dtypes.probe)
    assert cache.probe_many(whole, found) == 0
    np.testing.assert_array_equal(found["token_count"], positions // PAGE_SIZE * PAGE_SIZE)

    matches, into = np.zeros(n, dtypes.match), np.zeros((n, 8), np.uint32)
    assert cache.match_many(whole, matches, into, lock=True) == 0
    np.testing.assert_array_equal(matches["token_count"], found["token_count"])
    for at in range(n):
        one = np.zeros(8, np.uint32)
        count = cache.match(whole[at], one).page_count
        np.testing.assert_array_equal(into[at, :count], one[:count])
        cache.unlock(int(matches["lock"][at]))
    assert cache.stats().lock_count == 0


def test_several_tokens_for_each(cache: radixkv.Cache) -> None:
    infos = np.zeros(3, dtypes.sequence_info)
    cache.begin_many([ids(10), ids(10, 100), ids(10, 200)], infos)
    sequences = infos["sequence"].copy()
    counts = np.array([2, 0, 3], np.uint32)
    assert cache.append_many(sequences, ids(5, 900), counts=counts) == 0
    # A step of decoding has a column of them.
    assert cache.append_many(sequences, ids(3, 950).reshape(3, 1)) == 0
    lengths = [cache.sequence(it).info().position_count for it in sequences.tolist()]
    assert lengths == [13, 11, 14]
    with cache.sequence(sequences[0].item()) as first:  # an object that owns nothing
        first.truncate(11)
    assert cache.stats().sequence_count == 3
    cache.release_many(sequences)


def test_an_item_that_fails_keeps_no_other_from_its_turn(cache: radixkv.Cache) -> None:
    infos = np.zeros(3, dtypes.sequence_info)
    statuses = np.full(3, -1, np.int32)
    failed = cache.begin_many([ids(10), ids(100_000), ids(10, 50)], infos, statuses=statuses)
    assert failed == 1
    assert statuses.tolist() == [0, radixkv.Status.INVALID_ARGUMENT, 0]
    assert infos["sequence"][1] == 0
    sequences = infos["sequence"].copy()
    with pytest.raises(radixkv.StaleSequence, match=r"items\[1\]") as caught:
        cache.append_many(sequences, ids(3))
    assert caught.value.statuses == [0, radixkv.Status.STALE_SEQUENCE, 0]
    with cache.sequence(int(sequences[2]), own=True) as third:
        assert third.info().position_count == 11
    assert cache.release_many(sequences, statuses=statuses) == 2
    assert statuses.tolist() == [0, 3, 3]


def test_namespaces_of_many(cache: radixkv.Cache) -> None:
    a, b = radixkv.namespace_of("a"), radixkv.namespace_of("b")
    infos = np.zeros(3, dtypes.sequence_info)
    cache.begin_many([ids(32)] * 3, infos, spaces=[a, b, None])
    sequences = infos["sequence"].copy()
    cache.publish_many(sequences[:2], np.full(2, 32, np.uint64))
    found = np.zeros(2, dtypes.probe)
    cache.probe_many([ids(32)] * 2, found, spaces=a)
    assert found["token_count"].tolist() == [32, 32]
    cache.probe_many([ids(32)] * 2, found, spaces=[None, b])
    assert found["token_count"].tolist() == [0, 32]
    cache.release_many(sequences)


def test_reserve_and_allocate_of_each(cache: radixkv.Cache) -> None:
    infos = np.zeros(2, dtypes.sequence_info)
    each = np.array([0, 64], np.uint64)
    cache.begin_many([ids(16), ids(16, 50)], infos, reserve=each)
    assert infos["page_count"].tolist() == [1, 5]
    cache.release_many(infos["sequence"].copy())


def test_empty_batches(cache: radixkv.Cache) -> None:
    none = np.zeros(0, np.uint64)
    assert cache.release_many(none) == 0
    assert cache.append_many(none, np.zeros(0, np.uint32)) == 0
    assert cache.begin_many([], np.zeros(0, dtypes.sequence_info)) == 0
