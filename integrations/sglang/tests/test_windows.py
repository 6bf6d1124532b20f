"""P04: models with sliding windows, between SGLang's allocator of two pools and its rows."""

from array import array
from typing import Any

import beside
import pytest
import radixkv
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from windowed import WindowScheduler

A = list(range(100, 140))
B = list(range(200, 240))


def test_a_prefix_is_found_as_far_as_its_window_is_there(page_size: int) -> None:
    scheduler = WindowScheduler("ours", page_size, (512, 256), 10)
    assert scheduler.run(A) == 0
    assert scheduler.run([*A, *B]) == 40
    # What is evicted of the window alone shortens what is found, and the full pages stay.
    cache = scheduler.cache
    full, window = cache.total_size()
    done = cache.evict(EvictParams(swa_num_tokens=window))
    assert (done.num_tokens_evicted, done.swa_num_tokens_evicted) == (0, window)
    assert cache.total_size() == (full, 0)
    scheduler.check()
    assert scheduler.run([*A, 1]) == 0
    # That one computed the window's pages anew: they hang on the full pages from before.
    assert cache.total_size()[0] == full + 43 // page_size * page_size - 40
    assert scheduler.run([*A, 1]) == 40
    cache.evict(EvictParams(num_tokens=1000))
    assert cache.total_size() == (0, 0)
    scheduler.check()


def test_what_a_window_has_passed_is_free_while_a_request_decodes(page_size: int) -> None:
    scheduler = WindowScheduler("ours", page_size, (512, 64), 10)
    # Far more than the window's pool holds.
    assert scheduler.run(A, said=range(7, 207)) == 0
    assert scheduler.run([*A, *range(7, 207)]) == 239 // page_size * page_size


@pytest.mark.parametrize("window", [1, 10, 33])
def test_hits_beside_those_of_sglang_with_room(page_size: int, window: int) -> None:
    """Where nothing is evicted, no request finds less than with SGLang's own cache."""
    for ours, theirs in serve(page_size, (8192, 8192), window, seed=window):
        assert ours >= theirs


def test_hits_beside_those_of_sglang_in_tight_pools(page_size: int) -> None:
    """With room for a third, single requests find more or less, and all together no less."""
    all_found = [0, 0]
    for window in (1, 10, 33):
        found = [0, 0]
        for seed in range(3):
            pairs = serve(page_size, (480, 240), window, seed)
            found = [a + sum(b) for a, b in zip(found, zip(*pairs, strict=True), strict=True)]
        print(f"page size {page_size}, window {window}: found {found[0]}, SGLang {found[1]}")
        assert found[0] >= 0.9 * found[1] > 0
        all_found = [a + b for a, b in zip(all_found, found, strict=True)]
    assert all_found[0] >= all_found[1]


def test_as_on_another_device(page_size: int, elsewhere: None) -> None:
    pairs = serve(page_size, (480, 240), 10, 0)
    ours, theirs = map(sum, zip(*pairs, strict=True))
    assert ours >= 0.9 * theirs > 0


def serve(
    page_size: int, sizes: tuple[int, int], window: int, seed: int
) -> list[tuple[int, ...]]:
    """The same conversations beside SGLang's own cache: what each request found."""
    both = [WindowScheduler(kind, page_size, sizes, window) for kind in ("ours", "theirs")]
    found = beside.hits(both, seed, running_limit=3, said_limit=40)
    assert len(found) > 100 and all(scheduler.read > 10_000 for scheduler in both)
    return found


def test_a_request_past_its_prompt_gives_the_lock_of_the_window_back(page_size: int) -> None:
    """The scheduler asks for it with SGLANG_OPT_RELEASE_PREFILL_SWA, of a cache that can do it."""
    scheduler = WindowScheduler("ours", page_size, (512, 256), 10)
    request = scheduler.start(A)
    assert request is not None
    cache = scheduler.cache
    held = cache.swa_protected_size()
    assert held >= 10
    # The window is in the prompt yet.
    cache.release_swa_prefix_lock(request)
    assert cache.swa_protected_size() == held
    assert scheduler.decode(request, range(7, 27))
    cache.release_swa_prefix_lock(request)
    assert (cache.swa_protected_size(), cache.protected_size()) == (0, 40)
    done = cache.evict(EvictParams(swa_num_tokens=1000))
    assert (done.num_tokens_evicted, done.swa_num_tokens_evicted) == (0, 40)
    scheduler.check()
    assert scheduler.decode(request, [1, 2])
    scheduler.finish(request)
    scheduler.check()


def test_another_thread_is_told_sizes_while_the_cache_is_at_work(page_size: int) -> None:
    """SGLang's watchdog would end with what it is refused."""
    scheduler = WindowScheduler("ours", page_size, (512, 256), 10)
    scheduler.run(A)
    cache = scheduler.cache

    def all_sizes() -> tuple[int, int, tuple[int, int]]:
        return cache.swa_evictable_size(), cache.swa_protected_size(), cache.total_size()

    sizes = all_sizes()
    assert sizes[0] + sizes[1] == sizes[2][1] > 0
    told = []

    class Watchdog:
        def __dlpack__(self, **options: Any) -> Any:
            with pytest.raises(radixkv.Busy):
                cache.all_window_indices()
            told.append(all_sizes())
            raise BufferError

        def __dlpack_device__(self) -> Any:
            return 1, 0

    with pytest.raises(ValueError, match="places"):
        cache._placed.publish(array("q", B), 40, places=Watchdog())
    assert told == [sizes]
    scheduler.check()


def test_what_memory_ran_out_for_is_evictable_unless_it_may_be_locked(page_size: int) -> None:
    scheduler = WindowScheduler("ours", page_size, (512, 256), 10)
    scheduler.run(A)
    cache = scheduler.cache
    evictable, (full, window) = cache.swa_evictable_size(), cache.total_size()

    class Strayed:
        stray_page_count = 40 // page_size + 3

        def __init__(self, placed: radixkv.PlacedRows) -> None:
            self.placed = placed

        def __getattr__(self, name: str) -> Any:
            return getattr(self.placed, name)

    placed = cache._placed
    cache._placed = Strayed(placed)
    strays = 40 + 3 * page_size
    assert cache.total_size() == (full, window + strays)
    assert (cache.swa_evictable_size(), cache.swa_protected_size()) == (evictable + strays, 0)
    request = scheduler.start([*A, 1])
    assert request is not None
    # On each page that is locked there may be one.
    locked = cache.full_protected_size()
    assert 40 <= locked < strays
    assert cache.swa_protected_size() - cache._protected(1) == locked
    assert cache.swa_evictable_size() + cache.swa_protected_size() == cache.total_size()[1]
    cache._placed = placed
    scheduler.finish(request)
    scheduler.check()


def test_what_is_free_is_told_of_both_pools(page_size: int) -> None:
    """SGLang's last words when a pool is used up."""
    scheduler = WindowScheduler("ours", page_size, (512, 64), 10)
    scheduler.run(A)
    said = scheduler.cache.available_and_evictable_str()
    assert "Available full tokens: 512 " in said and "Available swa: 64 " in said
