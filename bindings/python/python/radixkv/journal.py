"""The journal of a cache, read into arrays that are kept from one call to the next."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import dtypes
from ._radixkv import Cache, Namespace, PageTable
from .constants import JOURNAL_CLEARED, JOURNAL_STORED
from .errors import BufferTooSmall

_LORA, _IMAGE = 1, 2


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to some pages, one after another in a prefix."""

    #: One higher than that of the event before; 0 of `Journal.contents()`.
    number: int
    #: JOURNAL_STORED, JOURNAL_REMOVED or JOURNAL_CLEARED. Expect others.
    kind: int
    #: Of removed pages and a cleared namespace, a REASON_. Expect others. Else 0.
    reason: int
    #: The pages.
    pages: NDArray[np.uint32]
    #: Of stored pages, a token for each position; 2**31 where there is no text.
    tokens: NDArray[np.uint32]
    #: Of stored pages, the page before the first; 0 at the beginning of a prefix.
    parent_page: int
    #: Of stored pages, the position at which the first begins.
    first_position: int
    #: Of stored pages and a cleared namespace. Else None.
    namespace: Namespace | None
    #: The group of layers of the pages.
    group: int = 0


class Journal:
    """Journal(source, *, after=0, pages=4096, tokens=65536)

    Reads what changed in a cache that was made with `journal_bytes`, in order, whichever call
    caused it. The arrays grow by themselves when a record does not fit.

    source: a Cache, or the PageTable under it, which still tells of the end of the cache.
    after: the number of the last event that is known.
    pages, tokens: room to begin with.

    One thread uses it at a time; any number of Journals may read one cache.
    """

    def __init__(
        self,
        source: Cache | PageTable,
        *,
        after: int = 0,
        pages: int = 4096,
        tokens: int = 65536,
    ) -> None:
        self.source = source
        #: The number of the last event that was read.
        self.number = after
        #: Events that were overwritten before they were read, in all. After any, begin again with
        #: `contents()`.
        self.lost_count = 0
        self.records = np.zeros(256, dtypes.journal_record)
        self.pages = np.zeros(pages, np.uint32)
        self.tokens = np.zeros(tokens, np.uint32)
        self.items = np.zeros(64, dtypes.journal_item)

    def read(self) -> int:
        """Reads the next records into `records`, `pages`, `tokens` and `items`; a record says where
        its parts lie. Returns how many; 0 when there is nothing new. Makes no other objects.

        Raises InvalidState when the cache has no journal.
        """
        while True:
            try:
                done = self.source.read_journal(
                    self.number, self.records, self.pages, self.tokens, self.items
                )
            except BufferTooSmall as short:
                self._grow(short)
                continue
            self.number = done.last_number
            self.lost_count += done.lost_count
            return done.record_count

    def events(self) -> Iterator[Event]:
        """All events up to now, as objects of their own. Who stops in between, or raises, finds the
        rest the next time."""
        while count := self.read():
            last = self.number
            for event in [self._event(at, numbered=True) for at in range(count)]:
                self.number = event.number
                yield event
                if self.number < event.number:
                    # `contents()` told meanwhile what is of before it: it is told again.
                    break
            else:
                self.number = last

    def contents(self) -> Iterator[Event]:
        """What the cache holds, as events of stored pages: what a reader begins with, and begins
        again with when some were lost. They come by page number: a page may come before its parent.
        `events()` goes on from there: a stored page replaces what
        is known of it, and the removal of one that is not known is passed over.

        Raises TypeError when the source is a PageTable.
        """
        if not isinstance(self.source, Cache):
            raise TypeError("source: the contents are told by a Cache alone")
        page, begun = 0, False
        while True:
            try:
                done = self.source.read_contents(
                    page, self.records, self.pages, self.tokens, self.items
                )
            except BufferTooSmall as short:
                self._grow(short)
                continue
            if not begun:
                self.number, begun = done.number, True
            page = done.next_page
            # Whole: who gets them may read on in between. What was read so is told again behind
            # them, for they are of before it.
            yield from [self._event(at, numbered=False) for at in range(done.record_count)]
            self.number = min(self.number, done.number)
            if page == 0:
                return

    def _grow(self, short: BufferTooSmall) -> None:
        records, pages, tokens, items = short.needs
        self.records = _room(self.records, records)
        self.pages = _room(self.pages, pages)
        self.tokens = _room(self.tokens, tokens)
        self.items = _room(self.items, items)

    def _event(self, at: int, *, numbered: bool) -> Event:
        record = self.records[at]
        first, count = int(record["page_index"]), int(record["page_count"])
        token, token_count = int(record["token_index"]), int(record["token_count"])
        kind = int(record["kind"])
        named = kind in (JOURNAL_STORED, JOURNAL_CLEARED)
        return Event(
            number=int(record["number"]) if numbered else 0,
            kind=kind,
            reason=int(record["reason"]),
            pages=self.pages[first : first + count].copy(),
            tokens=self.tokens[token : token + token_count].copy(),
            parent_page=int(record["parent_page"]),
            first_position=int(record["first_position"]),
            namespace=_namespace(record) if named else None,
            group=int(record["group"]),
        )


def _room(array: NDArray[Any], needed: int) -> NDArray[Any]:
    return array if len(array) >= needed else np.zeros(2 * needed, array.dtype)


def _namespace(record: np.void) -> Namespace:
    flags = int(record["namespace_flags"])
    return Namespace(
        lora_id=int(record["lora_id"]) if flags & _LORA else None,
        epoch=int(record["epoch"]),
        image_digest=record["image_digest"].tobytes() if flags & _IMAGE else None,
        salt=record["salt"].tobytes(),
    )
