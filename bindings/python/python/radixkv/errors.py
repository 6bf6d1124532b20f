"""Exceptions: one class for each status of the library, all of them `Error`."""

from enum import IntEnum

from ._radixkv import Shortage


class Status(IntEnum):
    """What functions of the library return: the numbers in arrays of statuses."""

    OK = 0
    INVALID_ARGUMENT = 1
    STALE_NODE = 2
    STALE_SEQUENCE = 3
    STALE_LOCK = 4
    BUFFER_TOO_SMALL = 5
    INVALID_STATE = 6
    UNSUPPORTED = 7
    STALE_PIN = 8
    STALE_TICKET = 9
    OUT_OF_PAGES = 100
    OUT_OF_SLOTS = 101
    OUT_OF_MEMORY = 102
    BUSY = 103
    PENDING = 104
    DEVICE = 105
    STORAGE = 106
    INTERNAL = 900
    POISONED = 901
    CORRUPT = 902


class Error(Exception):
    """A call of the library failed, and changed nothing. The message is the library's."""

    #: The library's status.
    status: int = 0
    #: Of a batch: the status of each item, else None. The others were carried out.
    statuses: list[int] | None = None


class InvalidArgument(Error, ValueError):
    """An argument is out of range, inconsistent or unknown; the message names it."""


class StaleNode(Error, LookupError):
    """The node id names no node of this cache: evicted, foreign, or never issued."""


class StaleSequence(Error, LookupError):
    """The sequence id names no live sequence of this cache: ended, foreign, or never issued."""


class StaleLock(Error, LookupError):
    """The lock id names no lock of this cache: undone, foreign, or never issued."""


class StalePin(Error, LookupError):
    """The pin was released already."""


class StaleTicket(Error, LookupError):
    """The fetch has ended: taken, cancelled, or with the directory."""


class BufferTooSmall(Error, ValueError):
    """An array is too small. Nothing is cut off, and nothing else happened."""

    #: Elements that are needed.
    needed: int = 0
    #: Of a journal: (records, pages, tokens, items) that the first record needs.
    needs: tuple[int, int, int, int] = (0, 0, 0, 0)


class InvalidState(Error, RuntimeError):
    """The object is in a state that does not allow the call, e.g. closed."""


class Unsupported(Error, NotImplementedError):
    """This build, or an object of this kind, cannot do what was asked."""


class OutOfPages(Error):
    """Not enough pages, even if everything reclaimable were evicted."""

    #: The numbers behind it.
    shortage: Shortage


class OutOfSlots(Error):
    """Not enough slots of the page table are free."""


class OutOfMemory(Error, MemoryError):
    """The host is out of memory, or the GPU is; the message says which."""


class Busy(Error):
    """The page table already has a cache, or another thread uses the row."""


class Pending(Error):
    """The sequence to go on from is still running, ask again when it is retained; or a fetch is."""


class DeviceError(Error):
    """The GPU or its driver refused or failed."""


class StorageError(Error, OSError):
    """The disk, or what is on it, does not allow the call; the message says what and where."""


class InternalError(Error):
    """A bug in the library: a panic was caught. The object refuses further work."""


class Poisoned(Error):
    """An earlier call on this object ended with InternalError; only closing it is allowed."""


class Corrupt(Error):
    """A check of the invariants failed; the message names the one."""


_CLASSES: dict[int, type[Error]] = {
    Status.INVALID_ARGUMENT: InvalidArgument,
    Status.STALE_NODE: StaleNode,
    Status.STALE_SEQUENCE: StaleSequence,
    Status.STALE_LOCK: StaleLock,
    Status.BUFFER_TOO_SMALL: BufferTooSmall,
    Status.INVALID_STATE: InvalidState,
    Status.UNSUPPORTED: Unsupported,
    Status.STALE_PIN: StalePin,
    Status.STALE_TICKET: StaleTicket,
    Status.OUT_OF_PAGES: OutOfPages,
    Status.OUT_OF_SLOTS: OutOfSlots,
    Status.OUT_OF_MEMORY: OutOfMemory,
    Status.BUSY: Busy,
    Status.PENDING: Pending,
    Status.DEVICE: DeviceError,
    Status.STORAGE: StorageError,
    Status.INTERNAL: InternalError,
    Status.POISONED: Poisoned,
    Status.CORRUPT: Corrupt,
}


def make(status: int, message: str, shortage: Shortage | None, needed: int | None) -> Error:
    """The exception of a status; what the extension module raises."""
    made = _CLASSES.get(status, Error)(message)
    made.status = status
    if isinstance(made, OutOfPages) and shortage is not None:
        made.shortage = shortage
    if isinstance(made, BufferTooSmall) and needed is not None:
        made.needed = needed
    return made
