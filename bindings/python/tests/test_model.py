"""100,000 operations against a dict: what is found is exactly what was inserted and not evicted."""

import random

import numpy as np
from conftest import PAGE_SIZE
from numpy.typing import NDArray

import radixkv

OPERATIONS = 100_000
POOL = 400
Prefix = tuple[int, ...]


class Naive:
    """Pages by (namespace, all tokens up to the page's end), and nothing else."""

    def __init__(self) -> None:
        self.pages: dict[tuple[int, Prefix], int] = {}
        self.free = list(range(POOL - 1, 0, -1))
        self.locks: dict[int, tuple[int, Prefix]] = {}

    def match(self, space: int, prompt: Prefix) -> list[int]:
        found = []
        for end in range(PAGE_SIZE, len(prompt) + 1, PAGE_SIZE):
            page = self.pages.get((space, prompt[:end]))
            if page is None:
                break
            found.append(page)
        return found

    def partial(self, space: int, prompt: Prefix, whole: int) -> int:
        """The longest common start of the next page with any that follows the same prefix."""
        at = whole * PAGE_SIZE
        best = 0
        for (other, prefix) in self.pages:
            if other != space or len(prefix) != at + PAGE_SIZE or prefix[:at] != prompt[:at]:
                continue
            common = 0
            for a, b in zip(prefix[at:], prompt[at:], strict=False):
                if a != b:
                    break
                common += 1
            best = max(best, common)
        return best

    def drop(self, page: int) -> None:
        [key] = [key for key, value in self.pages.items() if value == page]
        assert not any(
            space == key[0] and prefix[: len(key[1])] == key[1]
            for space, prefix in self.locks.values()
        ), "a locked page was evicted"
        assert not any(
            other[0] == key[0] and len(other[1]) > len(key[1]) and other[1][: len(key[1])] == key[1]
            for other in self.pages
        ), "a page went before those that hang on it"
        del self.pages[key]
        self.free.append(page)


def prompt_of(rng: random.Random) -> Prefix:
    """Few different pages, so that prompts share and diverge, also inside pages."""
    length = rng.randint(1, 5 * PAGE_SIZE)
    kinds = [rng.randint(1, 3) for _ in range(5)]
    tokens = [kinds[at // PAGE_SIZE] for at in range(length)]
    if rng.random() < 0.3:
        tokens[rng.randrange(length)] = 9
    return tuple(tokens)


def test_p02_differential() -> None:
    rng = random.Random(20_260_101)
    model = Naive()
    spaces = [None, radixkv.namespace_of("a"), radixkv.Namespace(lora_id=0)]
    into: NDArray[np.uint32] = np.zeros(64, np.uint32)
    found_pages = evicted = inserted = 0
    with radixkv.PageTable(POOL, page_size=PAGE_SIZE, external=True) as table:
        with radixkv.Cache(table) as cache:
            for step in range(OPERATIONS):
                kind, space = rng.random(), rng.randrange(3)
                prompt = prompt_of(rng)
                tokens = np.array(prompt, np.uint32)
                whole = len(prompt) // PAGE_SIZE
                if kind < 0.45:
                    lock = rng.random() < 0.2 and len(model.locks) < 20
                    found = cache.match(tokens, into, space=spaces[space], lock=lock)
                    expected = model.match(space, prompt)
                    assert into[: found.page_count].tolist() == expected
                    if step % 16 == 0:
                        partial = model.partial(space, prompt, len(expected))
                        assert found.partial_position_count == partial
                        assert found.token_count == len(expected) * PAGE_SIZE + partial
                    if found.lock:
                        model.locks[found.lock] = (space, prompt[: found.token_count])
                        if found.partial_position_count:
                            # The whole page is kept: the lock is on all of it.
                            model.locks[found.lock] = next(
                                key for key, page in model.pages.items()
                                if page == found.partial_page
                            )
                    found_pages += found.page_count
                elif kind < 0.55:
                    assert cache.probe(tokens, space=spaces[space]) >= PAGE_SIZE * len(
                        model.match(space, prompt)
                    )
                elif kind < 0.85 and whole <= len(model.free):
                    mine = np.array(model.free[len(model.free) - whole :], np.uint32)
                    published = np.zeros(whole, np.uint32)
                    done = cache.insert(tokens, mine, published=published, space=spaces[space])
                    claimed = 0
                    for at in range(whole):
                        key = (space, prompt[: (at + 1) * PAGE_SIZE])
                        if key not in model.pages:
                            model.pages[key] = int(mine[at])
                            model.free.remove(int(mine[at]))
                            claimed += 1
                        assert published[at] == model.pages[key]
                    assert done.claimed_page_count == claimed
                    inserted += claimed
                elif kind < 0.95:
                    wanted = rng.randint(1, 12)
                    count = cache.evict(wanted, into)
                    for page in into[:count].tolist():
                        model.drop(page)
                    if count < wanted:  # the rest is locked: each page under some lock
                        for held, prefix in model.pages:
                            assert any(
                                other == held and lock[: len(prefix)] == prefix
                                for other, lock in model.locks.values()
                            )
                    evicted += count
                elif model.locks:
                    lock_id = rng.choice(list(model.locks))
                    cache.unlock(lock_id)
                    del model.locks[lock_id]
                if step % 1000 == 0:
                    cache.check()
                    table.check()
                    assert cache.stats().cached_page_count == len(model.pages)
                    assert cache.stats().lock_count == len(model.locks)
    # What was compared was not empty.
    assert found_pages > 10_000 and evicted > 1_000 and inserted > 1_000
