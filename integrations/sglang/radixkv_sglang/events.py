"""SGLang's KV events, made from the journal of the cache.

Who gets them knows a page by a hash over its tokens and all before it. The journal tells of page
numbers: each keeps its hash here for as long as the cache has the page.
"""

import hashlib
from array import array
from typing import NamedTuple

import radixkv
from sglang.srt.disaggregation.kv_events import (
    BlockRemoved,
    BlockStored,
    KVCacheEvent,
    StorageMedium,
    kv_event_namespace_seed,
    namespaced_block_hash,
)
from sglang.srt.mem_cache.events import KVCacheEventRecorder
from sglang.srt.mem_cache.utils import get_hash_str, hash_str_to_int64

from .spaces import ExtraKeys

#: Begins the chain of hashes of a namespace with a cache_salt.
SALT_TAG = b"sglang-cache-salt-v1\0"
#: Names of namespaces that are kept at least, whether anything is in them or not.
NAMES = 4096


class PageHash(NamedTuple):
    #: Of SHA-256 over the page and all before it, in hexadecimal.
    chain: str
    #: What events name the page by.
    published: int


class EventLog:
    """Reads the journal when the engine takes the events."""

    def __init__(self, recorder: KVCacheEventRecorder) -> None:
        self.page_size = recorder.page_size
        # The engine's queue, which puts together what follows one another.
        self._recorder = recorder
        self._hashes: dict[int, PageHash] = {}
        self._keys: dict[radixkv.Namespace, ExtraKeys] = {}
        self._names_limit = NAMES
        #: Of the request that stored what is read.
        self._session_id: str | None = None

    def journal_bytes(self, page_count: int) -> int:
        """Room for the whole pool's pages and tokens twice over, and their records."""
        return 2 * 64 * page_count + 8 * page_count * self.page_size + (1 << 20)

    def follow(self, cache: radixkv.Cache) -> None:
        """A new, empty cache takes the place of the one before."""
        self._cache = cache
        self._journal = radixkv.Journal(cache)
        self._forget()

    def name(self, space: radixkv.Namespace | None, keys: ExtraKeys) -> None:
        """What a namespace is called, before anything is inserted into it."""
        if space is not None:
            self._keys[space] = keys

    def take(self) -> list[KVCacheEvent]:
        self.read()
        self._drop_names()
        events: list[KVCacheEvent] = self._recorder.take()
        return events

    def read(self, session_id: str | None = None) -> None:
        """Reads the journal. What was stored since the last time is of this session."""
        self._session_id = session_id
        for event in self._journal.events():
            if self._journal.lost_count:
                break
            self._add(event)
        if self._journal.lost_count:
            # Events were overwritten before they were read: say all anew. Whose they were nobody
            # knows any more.
            self._session_id = None
            self._journal = radixkv.Journal(self._cache)
            self._forget()
            # They come by the numbers of pages; the hash of a page is made of that of its parent.
            for event in sorted(self._journal.contents(), key=lambda event: event.first_position):
                self._add(event)

    def _forget(self) -> None:
        self._hashes.clear()
        self._recorder.record_all_cleared()

    def _add(self, event: radixkv.Event) -> None:
        if event.group:
            return  # SGLang tells of full attention alone, as this does.
        if event.kind == radixkv.JOURNAL_STORED:
            self._stored(event)
        elif event.kind == radixkv.JOURNAL_REMOVED:
            # They went from the end of a prefix; SGLang names them from its beginning.
            gone = (self._hashes.pop(page, None) for page in event.pages[::-1].tolist())
            if names := [page.published for page in gone if page is not None]:
                self._recorder.enqueue(BlockRemoved(names, medium=StorageMedium.GPU))

    def _stored(self, event: radixkv.Event) -> None:
        # Of stored pages there is a namespace; the default one has no name here.
        assert event.namespace is not None
        keys = self._keys.get(event.namespace, ExtraKeys(None, None))
        names = self._recorder.lora_names
        if self._recorder.dynamo_format:
            lora_name = names.resolve(keys.extra_key)
            seed = kv_event_namespace_seed(**keys._asdict())
        else:
            lora_name = names.get(keys.extra_key)
            adapter = keys.extra_key if lora_name is not None else None
            seed = kv_event_namespace_seed(extra_key=adapter, cache_salt=None)
        parent = self._hashes.get(event.parent_page)
        if parent is not None:
            chain = parent.chain
        elif keys.cache_salt is not None:
            salt = keys.cache_salt.encode("utf-8", "surrogatepass")
            chain = hashlib.sha256(SALT_TAG + salt).hexdigest()
        else:
            chain = None
        before = parent.published if parent else None
        tokens = event.tokens.tolist()
        chains = get_hash_str(array("q", tokens), chain, page_size=self.page_size)
        for at, (page, chain) in enumerate(zip(event.pages.tolist(), chains, strict=True)):
            published = namespaced_block_hash(hash_str_to_int64(chain), namespace_seed=seed)
            self._hashes[page] = PageHash(chain, published)
            self._recorder.enqueue(
                BlockStored(
                    block_hashes=[published],
                    parent_block_hash=before,
                    token_ids=tokens[at * self.page_size : (at + 1) * self.page_size],
                    block_size=self.page_size,
                    lora_id=None,
                    medium=StorageMedium.GPU,
                    cache_salt=keys.cache_salt,
                    session_id=self._session_id,
                    lora_name=lora_name,
                )
            )
            before = published

    def _drop_names(self) -> None:
        """Names of namespaces with nothing in them, once there are twice as many as last time."""
        if len(self._keys) > self._names_limit:
            alive = {space for space, _ in self._cache.namespaces()}
            self._keys = {s: keys for s, keys in self._keys.items() if s in alive}
            self._names_limit = max(NAMES, 2 * len(self._keys))
