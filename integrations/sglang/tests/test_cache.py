"""P04: the cache between SGLang's allocator and its pool of rows, without a model."""

from array import array

import beside
import pytest
import radixkv
import torch
from conftest import Request, Scheduler
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixKey

A = list(range(100, 140))
B = list(range(200, 240))


def test_what_was_computed_is_found_again(page_size: int) -> None:
    scheduler = Scheduler("ours", page_size, 256)
    assert scheduler.run(A) == 0
    # 40 tokens and two of the three that were said have KV: the next turn finds their pages.
    assert scheduler.run(A + [7, 8, 9] + B) == 42 // page_size * page_size
    # A whole prompt is never found whole: its last token is computed for its logits.
    assert scheduler.run(A) == 39 // page_size * page_size


def test_extra_keys_and_salts_divide(page_size: int) -> None:
    scheduler = Scheduler("ours", page_size, 512)
    keys = [(None, None), ("bc", "a"), ("c", "ab"), ("", None), ("bc", None), (None, "a")]
    for extra_key, cache_salt in keys:
        assert scheduler.run(A, extra_key=extra_key, cache_salt=cache_salt) == 0
    for extra_key, cache_salt in keys:
        assert scheduler.run(A, extra_key=extra_key, cache_salt=cache_salt) > 0


def test_two_that_compute_the_same_share_one_copy(page_size: int) -> None:
    scheduler = Scheduler("ours", page_size, 256)
    first = scheduler.start(A + [1])
    second = scheduler.start(B)
    # Had the second one started first, both would have computed A: as a request in chunks does.
    third = Request(A + [2], None, None)
    third.last_node = scheduler.cache.root_node
    third.lock = scheduler.cache.lock(third.last_node)
    third.kv.req_pool_idx = scheduler.free_rows.pop()
    scheduler.running.append(third)
    scheduler._allocate(third, len(A) + 1)
    scheduler.cache.checkpoint(third, up_to=len(A) + 1)
    assert first is not None and second is not None
    torch.testing.assert_close(scheduler.row(third)[: len(A)], scheduler.row(first)[: len(A)])
    scheduler.check()
    for request in (third, second, first):
        scheduler.finish(request)
    scheduler.check()


def test_chunks_abort_and_retraction_lose_nothing(page_size: int) -> None:
    scheduler = Scheduler("ours", page_size, 256)
    request = scheduler.start(A + B, chunk=12)
    assert request is not None and request.kv.cache_protected_len == 80
    scheduler.decode(request, [7] * 11)
    # Retracted: what was checkpointed stays, what was decoded goes.
    scheduler.finish(request, checkpoint=False)
    scheduler.check()
    assert scheduler.cache.total_size() == 80 and scheduler.cache.protected_size() == 0
    assert scheduler.run(A + B + [1]) == 80


def test_only_what_nobody_holds_is_evicted(page_size: int) -> None:
    scheduler = Scheduler("ours", page_size, 128)
    held = scheduler.start(A)
    scheduler.run(B)
    cache = scheduler.cache
    evictable = cache.evictable_size()
    assert evictable == 42 // page_size * page_size and cache.protected_size() == 40
    assert cache.evict(EvictParams(num_tokens=1)).num_tokens_evicted == page_size
    assert cache.evict(EvictParams(num_tokens=1000)).num_tokens_evicted == evictable - page_size
    assert cache.evict(EvictParams(num_tokens=1)).num_tokens_evicted == 0
    scheduler.check()
    assert held is not None
    scheduler.finish(held)
    cache.evict(EvictParams(num_tokens=1000))
    assert scheduler.allocator.available_size() == 128


def test_a_prefix_that_was_merged_or_evicted_meanwhile(page_size: int) -> None:
    scheduler = Scheduler("ours", page_size, 256)
    scheduler.run(A + B)
    cache = scheduler.cache
    match = cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", A))))
    prefix = match.last_device_node
    # Another request locks and lets go of what lies below: the node between merges away.
    scheduler.run(A + B)
    lock = cache.lock(prefix)
    assert cache.protected_size() == 40
    assert len(cache.path_device_indices(prefix)) == 40
    cache.unlock(lock)
    cache.evict(EvictParams(num_tokens=1000))
    for use in (cache.lock, cache.path_device_indices):
        with pytest.raises(RuntimeError, match="was evicted"):
            use(prefix)
    assert cache.protected_size() == 0


def test_locks_without_receipts(page_size: int) -> None:
    scheduler = Scheduler("ours", page_size, 256)
    scheduler.run(A)
    cache = scheduler.cache
    prefix = cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", A)))).last_device_node
    assert cache.inc_lock_ref(prefix).delta == -40
    assert cache.inc_lock_ref(prefix).delta == 0
    assert cache.dec_lock_ref(prefix).delta == 0
    assert cache.dec_lock_ref(prefix).delta == 40
    with pytest.raises(ValueError, match="no lock"):
        cache.dec_lock_ref(prefix)
    with pytest.raises(radixkv.StaleLock):
        lock = cache.lock(prefix)
        cache.unlock(lock)
        cache.unlock(lock)


def test_reset(page_size: int) -> None:
    scheduler = Scheduler("ours", page_size, 256)
    scheduler.run(A)
    scheduler.cache.reset()
    scheduler.allocator.clear()
    scheduler.check()
    assert scheduler.run(A) == 0


def test_order_of_the_waiting(page_size: int) -> None:
    scheduler = Scheduler("ours", page_size, 256)
    scheduler.run(A + B)
    scheduler.run(A + list(range(300, 340)))
    scheduler.run(B)

    def waits(tokens: list[int]) -> object:
        match = scheduler.cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", tokens))))
        return match.last_device_node

    waiting = [waits(t) for t in (B, [1], A + list(range(300, 340)), A + B, A + B, B, A)]
    # Under A wait four, two of them below B; under B two; one has nothing.
    assert scheduler.cache.dfs_weight_order(waiting) == [3, 4, 2, 6, 0, 5, 1]


def test_as_on_another_device(page_size: int, elsewhere: None) -> None:
    both = [Scheduler(kind, page_size, 384) for kind in ("ours", "theirs")]
    found = beside.hits(both, 0, running_limit=4, said_limit=12)
    assert sum(ours for ours, _ in found) >= sum(theirs for _, theirs in found) > 0


@pytest.mark.parametrize("seed", range(6))
def test_hits_beside_those_of_sglang(page_size: int, seed: int) -> None:
    """The same requests, side by side with SGLang's default cache, in a pool with room for a
    third of them: no less is found in all. A single request may find less: where two prompts part
    inside a node, SGLang makes the unused rest of the node recent, and this cache does not."""
    both = [Scheduler(kind, page_size, 384) for kind in ("ours", "theirs")]
    found = beside.hits(both, seed, running_limit=4, said_limit=12)
    all_ours, all_theirs = map(sum, zip(*found, strict=True))
    assert all_ours >= all_theirs > 0
    assert sum(ours < theirs for ours, theirs in found) <= 0.02 * len(found)


def test_a_request_that_keeps_less_than_it_published(page_size: int) -> None:
    """As with --strip-thinking-cache after a retraction: A is the prompt, and B was said."""
    scheduler = Scheduler("ours", page_size, 256)
    request = scheduler.start(A + B)
    assert request is not None and request.kv.cache_protected_len == 80
    assert scheduler.decode(request, [7] * 5)
    cache, kv, owned = scheduler.cache, request.kv, len(A)
    request.is_finished = True
    cache.checkpoint(request, up_to=owned)
    cache.free_kv_row(kv, [(kv.cache_protected_len, owned)])
    cache.unlock(request.lock)
    cache.free_kv_row(kv, [(-(-owned // page_size) * page_size, kv.kv_allocated_len)])
    cache.on_release(request, checkpointed=True)
    scheduler._free_row(request)
    scheduler.running.remove(request)
    scheduler.check()
    assert (cache.total_size(), cache.protected_size()) == (80, 0)


@pytest.mark.parametrize("odd", [-1, 1 << 31, 1 << 32, -(1 << 63)])
def test_a_prompt_with_an_id_that_no_token_has_is_computed(page_size: int, odd: int) -> None:
    """SGLang's server takes any integer of 64 bits, and with tensor parallelism computes it."""
    scheduler = Scheduler("ours", page_size, 256)
    for _ in range(2):
        assert scheduler.run([*A, odd, *B]) == 0
    assert scheduler.cache.total_size() == 0
    # The last one of a prompt is not matched, but it would be kept.
    assert scheduler.run([*A, odd]) == 0
    # Chunks before it are kept as ever.
    request = scheduler.start([*A, odd, *B], chunk=len(A))
    assert request is not None and request.kv.cache_protected_len == len(A)
    scheduler.check()
    scheduler.finish(request)
    scheduler.check()
    assert scheduler.run([*A, 1]) == len(A)
