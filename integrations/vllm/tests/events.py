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
                # Of a window, the parent may be gone.
                known = parent is None or (group, parent) in self.blocks
                window = event.kv_cache_spec_sliding_window
                assert known or window, "a block before its parent"
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
    name: str, model: str, count: int, blocks: int, windows: tuple[int, ...] = ()
) -> tuple[Mirror, Any]:
    # With windows vLLM keeps all that it computes of them, too, where it is told so.
    scheduler = twins.make(
        name, model, blocks, events=True, sequences=16, windows=windows, retention=None
    )
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
    ours, scheduler = follow("radixkv", args.model, args.requests, 1400, windows)
    held = scheduler.kv_cache_manager.table.pool_stats(0).cached_page_count
    groups = scheduler.kv_cache_manager.cache.group_stats()
    told = [sum(group == it for group, _ in ours.blocks) for it in range(3)]
    assert sum(told) == held and sorted(told) == sorted(groups["cached_page_count"].tolist())
    assert (groups["evicted_page_count"] > 0).all()
    print(f"In a tight pool the events tell what the cache holds: {held} blocks.")


main()
