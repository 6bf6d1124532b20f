"""vLLM's KV cache events, made from the journal of the cache.

Who gets them identifies a block by vLLM's hash of it, which the request has. The journal tells of
pages: each keeps its hash here for as long as the cache has it.
"""

from collections.abc import Sequence

import radixkv
from vllm.distributed.kv_events import (
    MEDIUM_GPU,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KVCacheEvent,
)
from vllm.v1.core.kv_cache_utils import (
    ExternalBlockHash,
    generate_block_hash_extra_keys,
    maybe_convert_block_hash,
    to_event_extra_keys,
)
from vllm.v1.kv_cache_interface import (
    KVCacheSpec,
    get_kv_cache_spec_kind,
    get_kv_cache_spec_sliding_window,
)
from vllm.v1.request import Request


class EventLog:
    """Reads the journal, and keeps the events until the engine takes them."""

    Event = KVCacheEvent

    def __init__(
        self, cache: radixkv.Cache, page_size: int, groups: Sequence[tuple[int, KVCacheSpec]]
    ) -> None:
        """`groups`: of each of the cache's groups, the engine's number and its layers."""
        self.page_size = page_size
        self._journal = radixkv.Journal(cache)
        self._hashes: dict[int, ExternalBlockHash] = {}
        self._queue: list[KVCacheEvent] = []
        self._groups = [
            (at, get_kv_cache_spec_kind(spec).value, get_kv_cache_spec_sliding_window(spec))
            for at, spec in groups
        ]

    def published(
        self, request: Request, rows: list[list[int]], first: int, end: int
    ) -> None:
        """The pages [first, end) of a request were given to the cache just now; a row of each of
        the cache's groups."""
        if first == end:
            return
        offered = {
            page: maybe_convert_block_hash(request.block_hashes[at])
            for pages in rows
            for at, page in enumerate(pages[first:end], first)
        }
        for event in self._journal.events():
            if event.kind == radixkv.JOURNAL_STORED:
                # All that is stored was offered: nothing else has come in since the last time.
                stored = [offered[page] for page in event.pages.tolist()]
                self._hashes.update(zip(event.pages.tolist(), stored, strict=True))
                parent = self._hashes[event.parent_page] if event.parent_page else None
                at, tokens = event.first_position, event.tokens.tolist()
                self._stored(request, event.group, stored, parent, at, tokens)
            else:
                self._left(event)
        self._complete()

    def reused(self, request: Request, count: int) -> None:
        """The first pages of a request were found; told to those who ask for all."""
        if getattr(request, "kv_cache_report_mode", "incremental") != "full":
            return
        hashes = [maybe_convert_block_hash(it) for it in request.block_hashes[:count]]
        tokens = request.all_token_ids[: count * self.page_size]
        for group in range(len(self._groups)):
            self._stored(request, group, hashes, None, 0, tokens)

    def cleared(self) -> None:
        """Everything was cleared: that is one event, and not one for each page."""
        for event in self._journal.events():
            if event.reason == radixkv.REASON_CAPACITY:
                self._left(event)
        self._complete()
        self._hashes.clear()
        self._queue.append(AllBlocksCleared())

    def take(self) -> list[KVCacheEvent]:
        """What happened since the last time."""
        for event in self._journal.events():
            self._left(event)
        self._complete()
        taken, self._queue = self._queue, []
        return taken

    def _stored(
        self,
        request: Request,
        group: int,
        hashes: list[ExternalBlockHash],
        parent: ExternalBlockHash | None,
        first_position: int,
        tokens: Sequence[int],
    ) -> None:
        lora, size = request.lora_request, self.page_size
        group_idx, kind, window = self._groups[group]
        starts = range(first_position, first_position + len(hashes) * size, size)
        keys = [generate_block_hash_extra_keys(request, at, at + size, 0)[0] for at in starts]
        self._queue.append(
            BlockStored(
                block_hashes=hashes,
                parent_block_hash=parent,
                token_ids=list(tokens),
                block_size=size,
                lora_id=lora.adapter_id if lora else None,
                medium=MEDIUM_GPU,
                lora_name=lora.name if lora else None,
                extra_keys=to_event_extra_keys(keys),
                group_idx=group_idx,
                kv_cache_spec_kind=kind,
                kv_cache_spec_sliding_window=window,
                session_id=request.session_id,
            )
        )

    def _left(self, event: radixkv.Event) -> None:
        group_idx = self._groups[event.group][0]
        for page in event.pages.tolist():
            removed = [self._hashes.pop(page)]
            self._queue.append(
                BlockRemoved(block_hashes=removed, medium=MEDIUM_GPU, group_idx=group_idx)
            )

    def _complete(self) -> None:
        """The ring is made for what one call does, and is read after each that stores pages."""
        assert self._journal.lost_count == 0, "the journal has lost records"
