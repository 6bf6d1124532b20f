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
        self.blocks: dict[Any, tuple[int, ...]] = {}
        self.count = 0

    def publish(self, batch: Any) -> None:
        for event in batch.events:
            self.count += 1
            if isinstance(event, BlockStored):
                parent, size = event.parent_block_hash, event.block_size
                assert parent is None or parent in self.blocks, "a block before its parent"
                for at, block in enumerate(event.block_hashes):
                    self.blocks[block] = tuple(event.token_ids[at * size : (at + 1) * size])
            elif isinstance(event, BlockRemoved):
                for block in event.block_hashes:
                    del self.blocks[block]
            else:
                assert isinstance(event, AllBlocksCleared)
                self.blocks.clear()


def follow(name: str, model: str, count: int, blocks: int) -> tuple[Mirror, Any]:
    scheduler = twins.make(name, model, blocks, events=True, sequences=16)
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


main()
