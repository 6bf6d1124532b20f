"""E01, E03, E04: batches of KV events. tests/vllm decodes them with vLLM's own structs."""

import sys
import threading
import time

import numpy as np
import pytest
from conftest import ids

import radixkv


def make() -> radixkv.Cache:
    table = radixkv.PageTable(64, page_size=16, slot_count=4)
    return radixkv.Cache(table, journal_bytes=1 << 16)


def request(cache: radixkv.Cache, count: int, space: radixkv.Namespace | None = None) -> None:
    with cache.begin(ids(count), space=space) as sequence:
        sequence.publish(count)


def test_e01_batches_come_until_nothing_is_new() -> None:
    cache = make()
    request(cache, 48)
    with radixkv.EventEncoder(cache) as encoder:
        payload = encoder.encode(1.5)
        assert b"AllBlocksCleared" in payload and b"BlockStored" in payload
        assert encoder.encode(1.5) == b""
        cache.evict(1)
        assert b"BlockRemoved" in encoder.encode(2.0)
        encoder.repeat()
        again = encoder.encode(2.5)
        assert again.index(b"AllBlocksCleared") < again.index(b"BlockStored")
        assert encoder.lost_record_count == 0
        cache.close()
        assert b"AllBlocksCleared" in encoder.encode(3.0)
    with pytest.raises(radixkv.InvalidState, match="EventEncoder is closed"):
        encoder.encode(1.0)


def test_e04_namespaces_have_names() -> None:
    cache = make()
    space = radixkv.Namespace(lora_id=7, salt=bytes(range(32)))
    with radixkv.EventEncoder(cache, wide_hashes=True, medium="CPU") as encoder:
        encoder.name_namespace(space, lora_name="sql", cache_salt="tenant-a")
        request(cache, 16, space)
        payload = b"".join(iter(lambda: encoder.encode(0.0, size_limit=1), b""))
        assert b"sql" in payload and b"tenant-a" in payload and b"CPU" in payload
        with pytest.raises(radixkv.InvalidArgument, match="lora_name"):
            encoder.name_namespace(None, lora_name="sql")
        with pytest.raises(radixkv.InvalidArgument, match="timestamp"):
            encoder.encode(float("nan"))
        with pytest.raises(ValueError, match="cache_salt: has a NUL"):
            encoder.name_namespace(None, cache_salt="a\0b")
        assert encoder.handle


def test_e03_what_was_lost_is_told_anew() -> None:
    table = radixkv.PageTable(64, page_size=16, slot_count=4)
    cache = radixkv.Cache(table, journal_bytes=8192)
    with radixkv.EventEncoder(cache) as encoder:
        encoder.encode(0.0)
        for at in range(100):
            with cache.begin(ids(64) + at) as sequence:
                sequence.publish(64)
        payload = encoder.encode(0.0)
        assert encoder.lost_record_count > 0
        assert b"AllBlocksCleared" in payload


def test_e01_a_cache_without_journal_has_no_events() -> None:
    bare = radixkv.Cache(radixkv.PageTable(8, page_size=16, slot_count=1))
    with pytest.raises(radixkv.InvalidState, match="journal"):
        radixkv.EventEncoder(bare)


def test_e04_who_waits_for_an_encoder_lets_others_run() -> None:
    count = 1_000_000
    table = radixkv.PageTable(count + 1, page_size=1, external=True)
    cache = radixkv.Cache(table, journal_bytes=1 << 24)
    pages = np.arange(1, count + 1, dtype=np.uint32)
    cache.insert(ids(count), pages, published=np.empty_like(pages))
    with radixkv.EventEncoder(cache) as encoder:
        ticks, done = [0], threading.Event()

        def tick() -> None:
            while not done.wait(0.001):
                ticks[0] += 1

        def encode() -> None:
            while encoder.encode(0.0, size_limit=1 << 25):
                pass

        waits = (lambda: encoder.name_namespace(None), lambda: encoder.lost_record_count)
        ticker = threading.Thread(target=tick)
        ticker.start()
        try:
            for wait in waits:
                encoder.repeat()
                reader = threading.Thread(target=encode)
                reader.start()
                longest, meanwhile = 0.0, 0
                while reader.is_alive():
                    before, start = ticks[0], time.perf_counter()
                    wait()
                    took = time.perf_counter() - start
                    if took > longest:
                        longest, meanwhile = took, ticks[0] - before
                assert longest < 0.1 or meanwhile > 3, f"{longest} s, {meanwhile} ticks"
        finally:
            done.set()
            ticker.join()


def test_e01_a_batch_may_be_of_any_size() -> None:
    cache = make()
    request(cache, 48)
    with radixkv.EventEncoder(cache) as encoder:
        assert b"BlockStored" in encoder.encode(1.5, size_limit=sys.maxsize)
        assert encoder.encode(1.5, size_limit=sys.maxsize) == b""
