"""P04: models with recurrent layers, between SGLang's allocators, pool of states and rows."""

from array import array
from collections.abc import Iterator
from typing import Any

import beside
import pytest
import radixkv
from conftest import Request
from sglang.srt.environ import envs
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.runtime_context import get_context
from stateful import StateScheduler

A = list(range(100, 140))
B = list(range(200, 240))

#: Page size, and whether steps leave states in a buffer, at round positions.
KINDS = [(1, False), (1, True), (4, True)]


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """What SGLang publishes of a server: chunks of 8, and a state each 16 tokens."""
    fields = {"mamba_track_interval": 16, "mamba_max_states_per_path": -1}
    with get_context().override_server_args(_mamba_cache_chunk_size=8, **fields):
        yield


def test_a_prefix_is_found_where_its_state_is() -> None:
    scheduler = StateScheduler("ours", 1, 512, 20, buffered=False)
    # It leaves two: of the prompt, and of all that it said but the last.
    assert scheduler.run(A) == 0
    cache = scheduler.cache
    assert (cache.total_size(), cache.mamba_evictable_size()) == (42, 2)
    assert scheduler.run([*A, 7, 8, *B]) == 42
    assert scheduler.run([*A, *B]) == 40
    assert scheduler.run([*A[:-1], *B]) == 0
    # What is evicted of the states alone leaves the pages.
    tokens, states = cache.total_size(), cache.mamba_evictable_size()
    done = cache.evict(EvictParams(num_tokens=0, mamba_num=states))
    assert (done.num_tokens_evicted, done.mamba_num_evicted) == (0, 8)
    assert (cache.total_size(), cache.mamba_evictable_size()) == (tokens, 0)
    scheduler.check()
    # That one computes all of it again, and its pages were there.
    assert scheduler.run([*A, 7, 8, *B]) == 0
    assert (cache.total_size(), cache.mamba_evictable_size()) == (tokens, 2)
    cache.evict(EvictParams(num_tokens=1000))
    assert cache.total_size() == 0 == cache.mamba_evictable_size()
    scheduler.check()


def test_a_state_is_left_where_prompts_part() -> None:
    scheduler = StateScheduler("ours", 4, 512, 20, buffered=True)
    assert scheduler.run([*A, *B]) == 0
    # 40 tokens are known and have no state: this one leaves it.
    assert scheduler.run([*A, *B[::-1]]) == 0
    assert scheduler.run([*A, *B[:8], 1]) == 40


def test_of_two_that_leave_the_same_state_one_goes() -> None:
    scheduler = StateScheduler("ours", 1, 512, 20, buffered=False)
    both = [scheduler.start(A), scheduler.start(A)]
    assert scheduler.cache.mamba_protected_size() == 1
    scheduler.check()
    for request in both:
        assert request is not None
        scheduler.finish(request)
        scheduler.check()
    assert scheduler.cache.mamba_evictable_size() == 1


def test_a_state_of_more_than_what_was_said_is_not_given_away() -> None:
    scheduler = StateScheduler("ours", 1, 512, 20, buffered=True)
    request = scheduler.start(A)
    assert request is not None and scheduler.decode(request, B[:30])
    # States of 48 and 64 tokens, of which 60 are kept.
    request.is_finished = True
    scheduler.cache.checkpoint(request, up_to=60)
    scheduler.finish(request, checkpoint=False, released=True)
    scheduler.check()
    assert scheduler.run([*A, *B]) == 48


def test_a_request_that_gives_its_lock_of_the_state_back() -> None:
    with envs.SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK.override(True):
        scheduler = StateScheduler("ours", 1, 512, 20, buffered=False)
        request = scheduler.start(A)
        assert request is not None
        assert scheduler.cache.mamba_protected_size() == 0
        assert scheduler.cache.evict(EvictParams(num_tokens=0, mamba_num=1)).mamba_num_evicted == 1
        assert scheduler.cache.protected_size() == 40
        assert scheduler.decode(request, [7, 8])
        scheduler.finish(request)
        scheduler.check()
        assert scheduler.run([*A, 7, 8]) == 41


@pytest.mark.parametrize(("page_size", "buffered"), KINDS)
def test_hits_beside_those_of_sglang_with_room(page_size: int, buffered: bool) -> None:
    """Where nothing is evicted, no request finds less than with SGLang's own cache."""
    for ours, theirs in serve(page_size, 8192, 2048, 0, buffered=buffered):
        assert ours >= theirs


def test_hits_beside_those_of_sglang_in_tight_pools() -> None:
    """Single requests find more or less, and all together no less."""
    all_found = [0, 0]
    for page_size, buffered in KINDS:
        # Too few pages, too few states, and both.
        for seed, (size, states) in enumerate([(480, 200), (4000, 30), (480, 30)]):
            pairs = serve(page_size, size, states, seed, buffered=buffered)
            found = list(map(sum, zip(*pairs, strict=True)))
            less = sum(ours < theirs for ours, theirs in pairs)
            more = sum(ours > theirs for ours, theirs in pairs)
            print(f"page size {page_size}, buffer {buffered}, {size} tokens, {states} states: "
                  f"found {found[0]}, SGLang {found[1]}; less {less}, more {more}, of {len(pairs)}")
            assert found[0] >= 0.95 * found[1] > 0
            all_found = [a + b for a, b in zip(all_found, found, strict=True)]
    print(all_found)
    assert all_found[0] >= all_found[1]


def test_as_on_another_device(elsewhere: None) -> None:
    pairs = serve(4, 480, 30, 0, buffered=True)
    ours, theirs = map(sum, zip(*pairs, strict=True))
    assert ours >= 0.9 * theirs > 0


def serve(
    page_size: int, size: int, states: int, seed: int, *, buffered: bool
) -> list[tuple[int, ...]]:
    """The same conversations beside SGLang's own cache: what each request found."""
    both = [
        StateScheduler(kind, page_size, size, states, buffered=buffered)
        for kind in ("ours", "theirs")
    ]
    found = beside.hits(both, seed, running_limit=3, said_limit=40)
    assert len(found) > 100 and all(scheduler.read > 1000 for scheduler in both)
    return found


def test_a_state_is_not_given_away_with_fewer_tokens() -> None:
    """As with --strip-thinking-cache after a retraction: A is the prompt, and B was said."""
    scheduler = StateScheduler("ours", 1, 512, 20, buffered=False)
    request = scheduler.start([*A, *B])
    assert request is not None and scheduler.decode(request, [7, 8, 9])
    request.is_finished = True
    scheduler.cache.checkpoint(request, up_to=len(A))
    scheduler.finish(request, checkpoint=False, released=True)
    scheduler.check()
    # There is no state of A alone; a wrong one is noticed when it is read.
    assert scheduler.run([*A, 1]) == 0


def test_a_slot_whose_match_is_gone_is_cleared() -> None:
    """SGLang leaves its slot to a request of a session that has to wait, and calls the copy off;
    when it waits no more, nothing may be left to copy."""
    scheduler = StateScheduler("ours", 1, 512, 20, buffered=False)
    assert scheduler.run(A) == 0
    request = Request([*A, 1], None, None)
    key = RadixKey(request.full_untruncated_fill_ids, limit=len(A))
    params = MatchPrefixParams(key=key, cow_mamba=True, req=request)
    cache, kv = scheduler.cache, request.kv
    assert cache.match_prefix(params).device_prefix_len == len(A)
    assert kv.holds_mamba and kv.mamba_cow_src_index is not None
    kv.mamba_cow_src_index, kv.mamba_needs_clear = None, False
    cache.evict(EvictParams(num_tokens=1000))
    assert cache.match_prefix(params).device_prefix_len == 0
    assert kv.holds_mamba and kv.mamba_cow_src_index is None
    assert kv.mamba_needs_clear
    scheduler.pool.mamba_allocator.free(kv.mamba_pool_idx.unsqueeze(-1))
    scheduler.check()


def test_a_prompt_with_an_id_that_no_token_has_keeps_its_state() -> None:
    scheduler = StateScheduler("ours", 1, 512, 20, buffered=False)
    for _ in range(2):
        assert scheduler.run([*A, -1, *B]) == 0
    assert scheduler.cache.mamba_evictable_size() == scheduler.cache.total_size() == 0


def test_what_is_free_is_told_of_both_pools() -> None:
    scheduler = StateScheduler("ours", 1, 512, 20, buffered=False)
    scheduler.run(A)
    said = scheduler.cache.available_and_evictable_str()
    assert "Available full tokens: 512 " in said and "Available mamba: 20 " in said


@pytest.mark.parametrize(("limit", "found"), [(1, 42), (-1, 0)])
def test_what_a_path_has_of_states_beyond_the_limit_goes_first(limit: int, found: int) -> None:
    """When SGLang lacks slots: before that they stay, unlike with its own cache."""
    fields = {"mamba_track_interval": 16, "mamba_max_states_per_path": limit}
    with get_context().override_server_args(_mamba_cache_chunk_size=8, **fields):
        scheduler = StateScheduler("ours", 1, 512, 20, buffered=False)
        for turn in (B, A, [*A, 7, 8, *B]):
            scheduler.run(turn)
        # Of B's prompt and answer, which are the oldest, and of two turns that begin with A.
        cache = scheduler.cache
        assert cache.mamba_evictable_size() == 6
        assert cache.evict(EvictParams(num_tokens=0, mamba_num=3)).mamba_num_evicted == 3
        scheduler.check()
        assert scheduler.run([*B, 7, 8, 9]) == found
        assert scheduler.run([*A, 7, 8, *B, 7, 8, 9]) == 84


def test_a_check_of_another_thread_is_told_nothing_while_the_cache_is_at_work() -> None:
    """SGLang's watchdog would end with what it is refused."""
    scheduler = StateScheduler("ours", 1, 512, 20, buffered=False)
    scheduler.run(A)
    cache = scheduler.cache
    assert (len(cache.all_values_flatten()), len(cache.all_mamba_values_flatten())) == (42, 2)
    told = []

    class Watchdog:
        def __dlpack__(self, **options: Any) -> Any:
            told.append((len(cache.all_values_flatten()), len(cache.all_mamba_values_flatten())))
            raise BufferError

        def __dlpack_device__(self) -> Any:
            return 1, 0

    with pytest.raises(ValueError, match="places"):
        cache._placed.publish(array("q", B), 40, places=Watchdog())
    assert told == [(42, 0)]

    class Evicted:
        def __init__(self, cache: radixkv.Cache) -> None:
            self.cache = cache

        def node_pages(self, node: int) -> Any:
            raise radixkv.StaleNode

        def __getattr__(self, name: str) -> Any:
            return getattr(self.cache, name)

    now, cache._cache = cache._cache, Evicted(cache._cache)
    assert len(cache.all_values_flatten()) == 0
    cache._cache = now
    scheduler.check()
