"""P04: KV events, made from the journal, beside those of SGLang's own cache."""

from typing import Any

import conftest
import pytest
from conftest import Scheduler
from sglang.srt.disaggregation.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.events import KvEventLoraNames

import radixkv
from radixkv_sglang.events import EventLog
from radixkv_sglang.spaces import ExtraKeys

LORA_ID = "a" * 32


class Router:
    """What a consumer of the events knows."""

    def __init__(self) -> None:
        self.blocks: dict[int, tuple[Any, ...]] = {}

    def hear(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, AllBlocksCleared):
                self.blocks.clear()
            elif isinstance(event, BlockRemoved):
                for name in event.block_hashes:
                    del self.blocks[name]
            elif isinstance(event, BlockStored):
                before, size = event.parent_block_hash, event.block_size
                assert before is None or before in self.blocks
                for at, name in enumerate(event.block_hashes):
                    tokens = tuple(event.token_ids[at * size : (at + 1) * size])
                    about = (before, tokens, event.cache_salt, event.lora_name, event.medium)
                    # Of SGLang's own format an extra key is no part of the name.
                    assert self.blocks.setdefault(name, about) == about
                    before = name


def both(page_size: int, size: int, dynamo: bool) -> list[Scheduler]:
    names = KvEventLoraNames()
    names.register(lora_id=LORA_ID, lora_name="french")
    options = {"dynamo_kv_event_format": dynamo, "kv_event_lora_names": names}
    return [
        Scheduler(kind, page_size, size, enable_kv_cache_events=True, **options)
        for kind in ("ours", "theirs")
    ]


def test_what_is_stored_is_told_as_sglang_tells_it(page_size: int) -> None:
    for dynamo in (False, True):
        heard = []
        for scheduler in both(page_size, 1024, dynamo):
            router = Router()
            for keys in ((None, None), ("key", None), ("key" + LORA_ID, None), (None, "salt")):
                for start in (0, 20, 40):
                    request = scheduler.start([*range(start), *range(100, 140)], *keys)
                    assert request is not None
                    scheduler.decode(request, [5, 6, 7])
                    scheduler.finish(request)
                    router.hear(scheduler.cache.take_events())
            heard.append(router.blocks)
        assert heard[0] == heard[1] and heard[0]


def test_what_goes_is_told(page_size: int) -> None:
    scheduler, _ = both(page_size, 128, False)
    router = Router()
    for start in (0, 200, 400, 0):
        request = scheduler.start(range(start, start + 60))
        assert request is not None
        scheduler.finish(request)
        router.hear(scheduler.cache.take_events())
        assert len(router.blocks) == scheduler.cache.total_size() // page_size
    scheduler.cache.evict(EvictParams(num_tokens=1000))
    router.hear(scheduler.cache.take_events())
    assert router.blocks == {}
    scheduler.start(range(50))
    scheduler.cache.reset()
    assert isinstance(scheduler.cache.take_events()[-1], AllBlocksCleared)


def test_events_that_were_overwritten_are_told_anew(
    page_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EventLog, "journal_bytes", lambda log, page_count: 1 << 14)
    scheduler, _ = both(page_size, 256, False)
    router = Router()
    held = scheduler.start(range(300, 340), None, "tenant")
    router.hear(scheduler.cache.take_events())
    for start in range(1000, 100_000, 1000):
        request = scheduler.start(range(start, start + 100))
        assert request is not None
        scheduler.finish(request)
    assert held is not None
    events = scheduler.cache.take_events()
    assert AllBlocksCleared in map(type, events)
    router.hear(events)
    assert len(router.blocks) == scheduler.cache.total_size() // page_size


def test_without_events_there_are_none(page_size: int) -> None:
    scheduler = Scheduler("ours", page_size, 128)
    scheduler.start(range(50))
    assert scheduler.cache.take_events() == []


def test_what_is_told_anew_has_the_names_of_before(
    page_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages of a prefix need not ascend, once pages have come back."""
    options = {"dynamo_kv_event_format": False, "kv_event_lora_names": KvEventLoraNames()}
    heard = []
    for is_late in (False, True):
        with monkeypatch.context() as patch:
            if is_late:
                patch.setattr(EventLog, "journal_bytes", lambda log, page_count: 1 << 14)
            scheduler = Scheduler("ours", page_size, 256, enable_kv_cache_events=True, **options)
        scheduler.allocator.free_pages = scheduler.allocator.free_pages.flip(0)
        router = Router()
        router.hear(scheduler.cache.take_events())
        assert scheduler.start(range(300, 340), None, "tenant") is not None
        for start in range(1000, 100_000, 1000):
            request = scheduler.start(range(start, start + 100))
            assert request is not None
            scheduler.finish(request)
            if not is_late:
                router.hear(scheduler.cache.take_events())
        events = scheduler.cache.take_events()
        assert is_late == (AllBlocksCleared in map(type, events))
        router.hear(events)
        heard.append(router.blocks)
    assert heard[0] == heard[1] and heard[0]


def test_names_of_many_tenants_are_looked_through_seldom(page_size: int) -> None:
    options = {"dynamo_kv_event_format": False, "kv_event_lora_names": KvEventLoraNames()}
    scheduler = Scheduler("ours", page_size, 128, enable_kv_cache_events=True, **options)
    events = scheduler.cache._events
    spaces = [radixkv.namespace_of(number) for number in range(10_002)]

    class Cache:
        calls, alive = 0, 5000

        def namespaces(self) -> list[tuple[radixkv.Namespace, int]]:
            self.calls += 1
            return [(space, 1) for space in spaces[: self.alive]]

    events._cache = cache = Cache()
    for space in spaces[:5000]:
        events.name(space, ExtraKeys(None, None))
    for _ in range(100):
        scheduler.cache.take_events()
    assert cache.calls == 1 and len(events._keys) == 5000
    # Those of whom nothing is left are forgotten in the end.
    cache.alive = 100
    for space in spaces[5000:]:
        events.name(space, ExtraKeys(None, None))
    scheduler.cache.take_events()
    assert cache.calls == 2 and len(events._keys) == 100


def test_blocks_name_the_session_of_the_request_that_stored_them(
    page_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[str | None] = []

    class OfSession(conftest.Request):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.session_id = sessions[-1]

    monkeypatch.setattr(conftest, "Request", OfSession)
    heard = []
    for scheduler in both(page_size, 1024, False):
        for session, start in (("one", 0), ("two", 20), (None, 60), ("one", 0), ("two", 90)):
            sessions.append(session)
            request = scheduler.start([*range(start), *range(100, 140)])
            assert request is not None
            scheduler.decode(request, [5, 6, 7])
            scheduler.finish(request)
        stored = [it for it in scheduler.cache.take_events() if isinstance(it, BlockStored)]
        heard.append({name: it.session_id for it in stored for name in it.block_hashes})
    assert heard[0] == heard[1]
    assert set(heard[0].values()) == {"one", "two", None}
