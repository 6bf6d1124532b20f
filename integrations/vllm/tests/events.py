#!/usr/bin/env python3
"""The KV cache events of both caches, followed as a router follows them (P05).

    events.py MODEL [--requests N]

Where nothing is evicted, both tell of the same blocks. In a tight pool, what was told of and not
taken back is what radixkv's cache holds, and each block comes after its parent.
"""

import argparse
from typing import Any

import radixkv
import twins
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from vllm.v1.kv_cache_interface import KVCacheSpecKind

STATES = KVCacheSpecKind.MAMBA.value

class Mirror:
    """What a reader of the events knows."""

    def __init__(self) -> None:
        #: By the group of layers and the block's hash.
        self.blocks: dict[tuple[int, Any], tuple[int, ...]] = {}
        self.count = 0

    def publish(self, batch: Any) -> None:
        for event in batch.events:
            self.count += 1
            if isinstance(event, BlockStored):
                parent, size = event.parent_block_hash, event.block_size
                group = event.group_idx
                # Of a window, the parent may be gone; of states it need not have been.
                known = parent is None or (group, parent) in self.blocks
                partial = event.kv_cache_spec_sliding_window or event.kv_cache_spec_kind == STATES
                assert known or partial, "a block before its parent"
                for at, block in enumerate(event.block_hashes):
                    tokens = tuple(event.token_ids[at * size : (at + 1) * size])
                    self.blocks[group, block] = tokens
            elif isinstance(event, BlockRemoved):
                for block in event.block_hashes:
                    del self.blocks[event.group_idx, block]
            else:
                assert isinstance(event, AllBlocksCleared)
                self.blocks.clear()


def follow(
    name: str,
    model: str,
    count: int,
    blocks: int,
    windows: tuple[int, ...] = (),
    states: int = 0,
) -> tuple[Mirror, Any]:
    # With windows vLLM keeps all that it computes of them, too, where it is told so.
    scheduler = twins.make(
        name, model, blocks, events=True, sequences=16, windows=windows, states=states,
        retention=None,
    )  # fmt: skip
    mirror, hasher = Mirror(), twins.start_hashing()
    scheduler.kv_event_publisher = mirror
    for prompt in twins.prompts(count, 1):
        scheduler.add_request(twins.request_of(prompt, hasher))
    while scheduler.has_unfinished_requests():
        twins.step(scheduler)
    return mirror, scheduler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=100)
    args = parser.parse_args()

    theirs, _ = follow("vLLM", args.model, args.requests, 20000)
    ours, _ = follow("radixkv", args.model, args.requests, 20000)
    assert theirs.blocks == ours.blocks
    print(f"Both tell of {len(ours.blocks)} blocks, in {theirs.count} and {ours.count} events.")

    ours, scheduler = follow("radixkv", args.model, args.requests, 700)
    cache = scheduler.kv_cache_manager.cache
    held = [tuple(it.tokens.tolist()) for it in radixkv.Journal(cache).contents()]
    told = sorted(token for block in ours.blocks.values() for token in block)
    assert sorted(token for tokens in held for token in tokens) == told
    evicted = cache.stats().evicted_page_count
    assert evicted and len(ours.blocks) == cache.stats().cached_page_count
    assert scheduler.reset_prefix_cache()
    events = scheduler.kv_cache_manager.take_events()
    assert isinstance(events[-1], AllBlocksCleared)
    print(f"After {evicted} evictions the events tell what the cache holds: {len(held)} records.")

    windows = (256, 256)
    theirs, _ = follow("vLLM", args.model, args.requests, 60000, windows)
    ours, _ = follow("radixkv", args.model, args.requests, 60000, windows)
    assert theirs.blocks == ours.blocks
    print(f"With windows both tell of {len(ours.blocks)} blocks in three groups.")
    matches(*follow("radixkv", args.model, args.requests, 1400, windows))

    theirs, _ = follow("vLLM", args.model, args.requests, 60000, states=1)
    ours, _ = follow("radixkv", args.model, args.requests, 60000, states=1)
    # The group of full attention comes last. Where steps end depends on what was found.
    full = [{at for at in it.blocks if at[0] == 1} for it in (theirs, ours)]
    assert full[0] == full[1] and len(ours.blocks) > len(full[1])
    # vLLM tells of a state with the tokens since the one before.
    assert all(tokens == ours.blocks[1, block[1]] for block, tokens in ours.blocks.items())
    print(f"With states both tell of {len(full[1])} blocks of attention.")
    matches(*follow("radixkv", args.model, args.requests, 900, states=1))


def matches(ours: Mirror, scheduler: Any) -> None:
    """The events tell what a tight pool holds."""
    held = scheduler.kv_cache_manager.table.pool_stats(0).cached_page_count
    groups = scheduler.kv_cache_manager.cache.group_stats()
    told = [sum(group == it for group, _ in ours.blocks) for it in range(len(groups))]
    assert sum(told) == held and sorted(told) == sorted(groups["cached_page_count"].tolist())
    assert (groups["evicted_page_count"] > 0).all()
    print(f"In a tight pool the events tell what the cache holds: {held} blocks.")


main()
