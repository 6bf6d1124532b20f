"""radixkv: prefix cache, paged KV memory and attention for LLM serving engines.

The objects, each a context manager with a `close()`:

    PageTable      a pool of physical pages, and one row of pages for each slot
    Cache          the prefix index over one page table; sequences live in it
    Plan           what one step computes, as the arrays that attention kernels take
    Runner         attention over the rows, on the CPU or CUDA, and the KV memory
    SnapshotCache  opaque states by token list, in memory and on disk; stands alone
    EventEncoder   what came into a cache and left it, as KV events for routers

What works on a cache, and goes with its object:

    GrowingRow     the pages of a request in an engine that never exchanges one
    GroupRow       the same with several groups of layers
    RequestRows    those of all its requests, behind the calls of its scheduler
    PlacedRows     rows of an engine that allocates its pages itself
    Journal        which pages came into a cache and left it, in order

The hot path is one call for a step: arrays in, arrays out, no object for each token. Tokens are any
dense array of 32-bit integers and are read where they lie; results go into arrays that the caller
made once. Errors are subclasses of `radixkv.Error`, with the library's message and `status`.

Every method may be called from any thread. C code in the same process works on the same objects:
each of the first list has its pointer in `handle`, `get_include()` has the header, `get_library()`
the library.
"""

from pathlib import Path

from . import dtypes
from ._radixkv import (
    Cache,
    CacheStats,
    ClearResult,
    ContentsResult,
    EventEncoder,
    Fetch,
    FetchResult,
    Group,
    GroupDepths,
    GroupRow,
    GrowingRow,
    IndexMemoryStats,
    InsertResult,
    JournalResult,
    KvMemory,
    Lock,
    Match,
    Namespace,
    NodeInfo,
    PageTable,
    PageTableStats,
    Pin,
    PlacedRows,
    Plan,
    PoolStats,
    PrefetchResult,
    PublishResult,
    RemoteTotals,
    RequestRows,
    Runner,
    RunnerStats,
    Sequence,
    SequenceInfo,
    Shortage,
    SnapshotCache,
    SnapshotInsertResult,
    SnapshotStats,
    SnapshotTierStats,
    TierStats,
    TierTotals,
    TokenItem,
    Tokens,
    abi_version,
    features,
    image_digest,
    index_memory_stats,
    log_message,
    page_numbers,
    page_places,
    reserve_index_memory,
    runner_supports,
    set_log,
    version,
)
from .constants import (
    COPY_LOAD,
    COPY_STORE,
    FEATURE_BLOCK_HASH_INDEX,
    FEATURE_CUDA,
    FEATURE_RADIX_INDEX,
    FETCH_END_LATE,
    JOURNAL_CLEARED,
    JOURNAL_MOVED,
    JOURNAL_REMOVED,
    JOURNAL_STORED,
    LOG_ERROR,
    LOG_OFF,
    REASON_CALLER,
    REASON_CAPACITY,
    REASON_DESTROYED,
    REASON_INVALIDATED,
    REASON_LIMIT,
    REASON_REPLACED,
)
from .errors import (
    BufferTooSmall,
    Busy,
    Corrupt,
    DeviceError,
    Error,
    InternalError,
    InvalidArgument,
    InvalidState,
    OutOfMemory,
    OutOfPages,
    OutOfSlots,
    Pending,
    Poisoned,
    StaleLock,
    StaleNode,
    StalePin,
    StaleSequence,
    StaleTicket,
    Status,
    StorageError,
    Unsupported,
)
from .journal import Event, Journal
from .namespaces import namespace_of
from .tiers import TierPool, host_page

__version__ = version()


def get_include() -> str:
    """The folder with radixkv.h, and the C++ headers in its folder radixkv."""
    return str(Path(__file__).parent / "include")


def get_library() -> str:
    """The path of libradixkv.so, which this process has loaded: link extensions to it."""
    return str(Path(__file__).parent / "lib" / "libradixkv.so")


__all__ = [
    "COPY_LOAD",
    "COPY_STORE",
    "FEATURE_BLOCK_HASH_INDEX",
    "FEATURE_CUDA",
    "FEATURE_RADIX_INDEX",
    "FETCH_END_LATE",
    "JOURNAL_CLEARED",
    "JOURNAL_MOVED",
    "JOURNAL_REMOVED",
    "JOURNAL_STORED",
    "LOG_ERROR",
    "LOG_OFF",
    "REASON_CALLER",
    "REASON_CAPACITY",
    "REASON_DESTROYED",
    "REASON_INVALIDATED",
    "REASON_LIMIT",
    "REASON_REPLACED",
    "BufferTooSmall",
    "Busy",
    "Cache",
    "CacheStats",
    "ClearResult",
    "ContentsResult",
    "EventEncoder",
    "Fetch",
    "FetchResult",
    "Corrupt",
    "DeviceError",
    "Error",
    "Event",
    "Group",
    "GroupDepths",
    "GroupRow",
    "GrowingRow",
    "IndexMemoryStats",
    "InsertResult",
    "InternalError",
    "InvalidArgument",
    "InvalidState",
    "Journal",
    "JournalResult",
    "KvMemory",
    "Lock",
    "Match",
    "Namespace",
    "NodeInfo",
    "OutOfMemory",
    "OutOfPages",
    "OutOfSlots",
    "PageTable",
    "PageTableStats",
    "Pending",
    "Pin",
    "PlacedRows",
    "Plan",
    "Poisoned",
    "PoolStats",
    "PrefetchResult",
    "PublishResult",
    "RemoteTotals",
    "RequestRows",
    "Runner",
    "RunnerStats",
    "Sequence",
    "SequenceInfo",
    "Shortage",
    "SnapshotCache",
    "SnapshotInsertResult",
    "SnapshotStats",
    "SnapshotTierStats",
    "StaleLock",
    "StaleNode",
    "StalePin",
    "StaleSequence",
    "StaleTicket",
    "Status",
    "StorageError",
    "TierPool",
    "TierStats",
    "TierTotals",
    "TokenItem",
    "Tokens",
    "Unsupported",
    "__version__",
    "abi_version",
    "dtypes",
    "features",
    "get_include",
    "get_library",
    "host_page",
    "image_digest",
    "index_memory_stats",
    "log_message",
    "namespace_of",
    "page_numbers",
    "page_places",
    "reserve_index_memory",
    "runner_supports",
    "set_log",
    "version",
]
