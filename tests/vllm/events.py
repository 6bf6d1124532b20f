"""E01: vLLM's own structs decode our batches of KV events, strictly and field by field.

Random requests in several namespaces, with evictions; each payload is decoded by the type that
vLLM's publisher encodes. What it gives back must be what was asked for: token ids, parents,
adapter, salt, group; and encoding it again must give the same values.

    python tests/vllm/events.py [SEED]
"""

import sys

import msgspec
import numpy as np
from vllm.distributed.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KVEventBatch,
)

import radixkv

PAGE_SIZE = 16


def run(is_wide: bool, random: np.random.Generator) -> dict[str, int]:
    decoder = msgspec.msgpack.Decoder(type=KVEventBatch, strict=True)
    spaces = [
        (None, None, None),
        (radixkv.Namespace(lora_id=7), "sql", None),
        (radixkv.Namespace(salt=b"s" * 32), None, "tenant-a"),
        (radixkv.Namespace(lora_id=7, salt=b"t" * 32), "sql", "tenant-b"),
    ]
    counts = {"stored": 0, "removed": 0, "cleared": 0}
    asked: dict[tuple[int, ...], str | None] = {}
    known: dict[bytes | int, tuple[tuple[int, ...], str | None, str | None]] = {}
    with (
        radixkv.PageTable(400, page_size=PAGE_SIZE, slot_count=8) as table,
        radixkv.Cache(table, journal_bytes=1 << 20) as cache,
        radixkv.EventEncoder(cache, wide_hashes=is_wide, data_parallel_rank=2) as encoder,
    ):
        for space, lora_name, salt in spaces:
            if space is not None:
                encoder.name_namespace(space, lora_name=lora_name, cache_salt=salt or "")
        for _ in range(400):
            space, lora_name, _salt = spaces[random.integers(4)]
            family = int(random.integers(6))
            prompt = np.arange(family * 1000, family * 1000 + random.integers(1, 150))
            ids = np.concatenate([prompt, random.integers(0, 3, random.integers(60))])
            ids = ids.astype(np.uint32)
            asked[tuple(ids.tolist())] = lora_name
            with cache.begin(ids, space=space) as sequence:
                if sequence.info().copy_count:
                    sequence.confirm_copies()
                sequence.publish(len(ids))
            while payload := encoder.encode(12.5):
                batch = decoder.decode(payload)
                assert (batch.ts, batch.data_parallel_rank) == (12.5, 2)
                again = decoder.decode(msgspec.msgpack.encode(batch))
                assert again == batch
                for event in batch.events:
                    follow(event, known, is_wide, counts)
        prefixes = {ids[:n] for ids in asked for n in range(PAGE_SIZE, len(ids) + 1, PAGE_SIZE)}
        for prefix, _lora_name, _salt in known.values():
            assert prefix in prefixes, "a block is of a prompt that nobody had"
        held = {(prefix, lora, salt) for prefix, lora, salt in known.values()}
        assert len(held) == len(known) == cache.stats().cached_page_count
    return counts


def follow(
    event: BlockStored | BlockRemoved | AllBlocksCleared,
    known: dict[bytes | int, tuple[tuple[int, ...], str | None, str | None]],
    is_wide: bool,
    counts: dict[str, int],
) -> None:
    match event:
        case AllBlocksCleared():
            known.clear()
            counts["cleared"] += 1
        case BlockRemoved():
            assert (event.medium, event.group_idx) == ("GPU", 0)
            for name in event.block_hashes:
                del known[name]
            counts["removed"] += 1
        case BlockStored():
            assert (event.block_size, event.medium, event.group_idx) == (PAGE_SIZE, "GPU", 0)
            assert event.kv_cache_spec_kind == "full_attention"
            assert (event.lora_id is None) == (event.lora_name is None)
            assert len(event.token_ids) == PAGE_SIZE * len(event.block_hashes)
            parent = event.parent_block_hash
            before, lora, salt = ((), event.lora_name, None) if parent is None else known[parent]
            assert lora == event.lora_name
            keys = event.extra_keys or [None] * len(event.block_hashes)
            for at, (name, key) in enumerate(zip(event.block_hashes, keys, strict=True)):
                assert isinstance(name, bytes if is_wide else int) and name not in known
                rest = list(key or ())
                if lora is not None:
                    assert rest.pop(0) == lora
                if parent is None and at == 0 and rest:
                    salt = rest.pop(0)
                assert not rest
                before += tuple(event.token_ids[at * PAGE_SIZE : (at + 1) * PAGE_SIZE])
                known[name] = (before, lora, salt)
            counts["stored"] += 1


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    for is_wide in (False, True):
        counts = run(is_wide, np.random.default_rng(seed))
        assert all(counts.values()), counts
        print(f"vLLM's structs decode {'32-byte' if is_wide else '64-bit'} hashes: {counts}")


if __name__ == "__main__":
    main()
