# Types of the extension module; the docstrings are the module's own. `_Array` is anything with the
# buffer protocol, DLPack or `__cuda_array_interface__`, `_Ids` a list of tokens.
from collections.abc import Callable, Sequence as _List
from os import PathLike

from typing import Any, Final, Literal, Protocol, Self, final

from typing_extensions import Buffer, CapsuleType, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .net import Store as _Store

class _Dlpack(Protocol):
    def __dlpack__(self) -> Any: ...

class _CudaArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

__all__ = [
    "Cache",
    "CacheStats",
    "ClearResult",
    "ContentsResult",
    "EventEncoder",
    "Fetch",
    "FetchResult",
    "Group",
    "GroupDepths",
    "GroupRow",
    "GrowingRow",
    "IndexMemoryStats",
    "InsertResult",
    "JournalResult",
    "KvMemory",
    "Lock",
    "Match",
    "Namespace",
    "NodeInfo",
    "PageTable",
    "PageTableStats",
    "Pin",
    "PlacedRows",
    "Plan",
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
    "TierStats",
    "TierTotals",
    "TokenItem",
    "Tokens",
    "abi_version",
    "features",
    "image_digest",
    "layouts",
    "index_memory_stats",
    "log_message",
    "page_numbers",
    "page_places",
    "reserve_index_memory",
    "runner_supports",
    "set_log",
    "version",
]

_Array: TypeAlias = Buffer | _Dlpack | _CudaArray
_Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]
_Ids: TypeAlias = _Array | Tokens | list[int] | tuple[int, ...]

@final
class Shortage:
    pool: Final[int]
    needed_page_count: Final[int]
    free_page_count: Final[int]
    reclaimable_page_count: Final[int]
    locked_page_count: Final[int]
    private_page_count: Final[int]
    retained_page_count: Final[int]

@final
class PageTableStats:
    page_size: Final[int]
    total_page_count: Final[int]
    free_page_count: Final[int]
    cached_page_count: Final[int]
    private_page_count: Final[int]
    reclaimable_page_count: Final[int]
    slot_count: Final[int]
    free_slot_count: Final[int]
    memory_bytes: Final[int]
    outside_page_count: Final[int]

@final
class PoolStats:
    total_page_count: Final[int]
    free_page_count: Final[int]
    cached_page_count: Final[int]
    private_page_count: Final[int]
    reclaimable_page_count: Final[int]
    outside_page_count: Final[int]
    retained_page_count: Final[int]

@final
class Match:
    partial_page: Final[int]
    node: Final[int]
    partial_node: Final[int]
    lock: Final[int]
    token_count: Final[int]
    position_count: Final[int]
    page_count: Final[int]
    partial_position_count: Final[int]
    known_position_count: Final[int]
    checkpoint_at: Final[tuple[int, int]]
    limiting_group: Final[int]

@final
class InsertResult:
    node: Final[int]
    claimed_page_count: Final[int]
    duplicate_page_count: Final[int]
    lock: Final[int]
    claimed_group_page_count: Final[int]
    duplicate_group_page_count: Final[int]
    page_count: Final[int]

@final
class ClearResult:
    namespace_count: Final[int]
    freed_page_count: Final[int]
    held_page_count: Final[int]
    waiting_page_count: Final[int]
    dropped_sequence_count: Final[int]

@final
class GroupDepths:
    position_count: Final[int]
    known_position_count: Final[int]
    checkpoint_at: Final[tuple[int, int]]

@final
class NodeInfo:
    lock_count: Final[int]
    parent: Final[int]
    position_count: Final[int]
    page_count: Final[int]
    end_position: Final[int]
    child_count: Final[int]
    last_access: Final[int]
    hit_count: Final[int]

@final
class IndexMemoryStats:
    reserved_bytes: Final[int]
    huge_page_bytes: Final[int]
    used_bytes: Final[int]

@final
class CacheStats:
    cached_page_count: Final[int]
    reclaimable_page_count: Final[int]
    node_count: Final[int]
    namespace_count: Final[int]
    sequence_count: Final[int]
    image_count: Final[int]
    index_bytes: Final[int]
    lookup_count: Final[int]
    lookup_position_count: Final[int]
    hit_position_count: Final[int]
    partial_hit_position_count: Final[int]
    inserted_page_count: Final[int]
    duplicate_page_count: Final[int]
    evicted_page_count: Final[int]
    prefix_count: Final[int]
    retained_sequence_count: Final[int]
    retained_page_count: Final[int]
    displaced_sequence_count: Final[int]
    inherit_count: Final[int]
    inherited_position_count: Final[int]
    lock_count: Final[int]
    dropped_checkpoint_count: Final[int]

@final
class SequenceInfo:
    slot: Final[int]
    sequence: Final[int]
    position_count: Final[int]
    cached_position_count: Final[int]
    cached_token_count: Final[int]
    page_count: Final[int]
    shared_page_count: Final[int]
    node: Final[int]
    copy_count: Final[int]
    inherited_position_count: Final[int]
    known_position_count: Final[int]
    checkpoint_at: Final[tuple[int, int]]
    limiting_group: Final[int]

@final
class PublishResult:
    claimed_page_count: Final[int]
    remapped_page_count: Final[int]
    first_remapped_index: Final[int]
    shared_page_count: Final[int]
    node: Final[int]

@final
class RunnerStats:
    thread_count: Final[int]
    kv_bytes: Final[int]
    page_bytes: Final[int]

@final
class JournalResult:
    record_count: Final[int]
    page_count: Final[int]
    token_count: Final[int]
    item_count: Final[int]
    last_number: Final[int]
    newest_number: Final[int]
    oldest_number: Final[int]
    lost_count: Final[int]

@final
class ContentsResult:
    next_page: Final[int]
    record_count: Final[int]
    page_count: Final[int]
    token_count: Final[int]
    item_count: Final[int]
    number: Final[int]
    newest_number: Final[int]

@final
class SnapshotStats:
    entry_count: Final[int]
    entry_bytes: Final[int]
    pinned_entry_count: Final[int]
    pin_count: Final[int]
    detached_count: Final[int]
    detached_bytes: Final[int]
    node_count: Final[int]
    namespace_count: Final[int]
    index_bytes: Final[int]
    lookup_count: Final[int]
    hit_count: Final[int]
    full_hit_count: Final[int]
    lookup_token_count: Final[int]
    hit_token_count: Final[int]
    stored_count: Final[int]
    replaced_count: Final[int]
    rejected_count: Final[int]
    evicted_count: Final[int]
    removed_count: Final[int]

@final
class SnapshotInsertResult:
    stored: Final[int]
    replaced: Final[int]
    evicted_count: Final[int]

@final
class SnapshotTierStats:
    is_read_only: Final[int]
    entry_count: Final[int]
    used_bytes: Final[int]
    byte_limit: Final[int]
    writing_count: Final[int]
    waiting_bytes: Final[int]
    loading_bytes: Final[int]
    ticket_count: Final[int]
    index_bytes: Final[int]
    write_count: Final[int]
    written_bytes: Final[int]
    failed_write_count: Final[int]
    no_space_count: Final[int]
    full_count: Final[int]
    throttled_count: Final[int]
    unfit_count: Final[int]
    load_count: Final[int]
    loaded_count: Final[int]
    read_bytes: Final[int]
    joined_count: Final[int]
    failed_load_count: Final[int]
    damaged_count: Final[int]
    late_count: Final[int]
    no_memory_count: Final[int]
    unusable_count: Final[int]
    commit_count: Final[int]
    longest_commit_ns: Final[int]
    write_ns: Final[int]
    read_ns: Final[int]
    remote: Final[RemoteTotals]
    is_ring: Final[int]

@final
class TierTotals:
    page_count: Final[int]
    used_bytes: Final[int]
    byte_limit: Final[int]
    stored_page_count: Final[int]
    fetched_page_count: Final[int]
    evicted_page_count: Final[int]
    damaged_page_count: Final[int]
    failed_count: Final[int]

@final
class RemoteTotals:
    asked_page_count: Final[int]
    found_page_count: Final[int]
    read_page_count: Final[int]
    read_bytes: Final[int]
    fetched_page_count: Final[int]
    written_page_count: Final[int]
    written_bytes: Final[int]
    known_page_count: Final[int]
    damaged_page_count: Final[int]
    gone_page_count: Final[int]
    failed_page_count: Final[int]
    late_page_count: Final[int]
    skipped_page_count: Final[int]
    dropped_page_count: Final[int]
    waiting_page_count: Final[int]
    late_fetch_count: Final[int]
    call_count: Final[int]
    slow_call_count: Final[int]
    call_ns: Final[int]
    longest_call_ns: Final[int]
    pause_count: Final[int]
    is_paused: Final[int]

@final
class TierStats:
    is_read_only: Final[int]
    host: Final[TierTotals]
    disk: Final[TierTotals]
    open_fetch_count: Final[int]
    open_job_count: Final[int]
    copied_page_count: Final[int]
    index_bytes: Final[int]
    followed_number: Final[int]
    fetch_count: Final[int]
    joined_count: Final[int]
    complete_count: Final[int]
    shortened_count: Final[int]
    late_count: Final[int]
    abandoned_count: Final[int]
    fetch_ns: Final[int]
    longest_fetch_ns: Final[int]
    lost_page_count: Final[int]
    throttled_page_count: Final[int]
    lost_record_count: Final[int]
    cleared_page_count: Final[int]
    waiting_write_count: Final[int]
    unusable_page_count: Final[int]
    longest_commit_ns: Final[int]
    remote: Final[RemoteTotals]
    open_prefetch_count: Final[int]
    prefetch_count: Final[int]
    refused_prefetch_count: Final[int]
    prefetched_disk_page_count: Final[int]
    prefetched_remote_page_count: Final[int]
    is_ring: Final[int]

@final
class FetchResult:
    is_open: Final[int]
    position_count: Final[int]
    host_position_count: Final[int]
    asked_position_count: Final[int]

@final
class PrefetchResult:
    prefetch: Final[int]
    cached_position_count: Final[int]
    position_count: Final[int]
    host_position_count: Final[int]
    asked_position_count: Final[int]

@final
class TokenItem:
    index: Final[int]
    position_count: Final[int]
    def __eq__(self, other: object, /) -> bool: ...
    @staticmethod
    def coord(index: int, bin: int) -> TokenItem: ...
    @staticmethod
    def size(index: int, width_bin: int, height_bin: int) -> TokenItem: ...
    @staticmethod
    def image(index: int, position_count: int, digest: bytes) -> TokenItem: ...

@final
class Tokens:
    ids: Final[NDArray[np.uint32]]
    items: Final[list[TokenItem]]
    position_count: Final[int]
    def __new__(cls, ids: _Ids, items: _List[TokenItem] = ()) -> Self: ...
    def __len__(self) -> int: ...
    @staticmethod
    def build(prompt: _Ids, items: _List[TokenItem]) -> Tokens: ...
    def regions(self) -> list[tuple[int, int]]: ...
    @staticmethod
    def page_digests(
        tokens: _Ids,
        page_size: int,
        digests: _Array | None = None,
        *,
        space: Namespace | None = None,
        parent: bytes | None = None,
        first_page: int = 0,
    ) -> int: ...

@final
class Namespace:
    lora_id: Final[int | None]
    epoch: Final[int]
    image_digest: Final[bytes | None]
    salt: Final[bytes]
    def __new__(
        cls,
        *,
        lora_id: int | None = None,
        epoch: int = 0,
        image_digest: bytes | None = None,
        salt: bytes | None = None,
    ) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...
    def __hash__(self) -> int: ...

@final
class Group:
    @staticmethod
    def full(*, pool: int = 0) -> Group: ...
    @staticmethod
    def window(window: int, *, sinks: int = 0, pool: int = 0) -> Group: ...
    @staticmethod
    def chunk(chunk: int, *, pool: int = 0) -> Group: ...
    @staticmethod
    def state(*, pool: int = 0, draft_state_count: int = 0) -> Group: ...

@final
class PageTable:
    handle: Final[int]
    closed: Final[bool]
    page_size: Final[int]
    def __new__(
        cls,
        page_count: int = 0,
        *,
        page_size: int = 16,
        slot_count: int = 256,
        row_page_limit: int = 0,
        external: bool = False,
        groups: _List[Group] = (),
        pools: _List[int] = (),
    ) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def close(self) -> None: ...
    def stats(self) -> PageTableStats: ...
    def pool_stats(self, pool: int) -> PoolStats: ...
    def check(self) -> None: ...
    def allocate_slot(self) -> int: ...
    def free_slot(self, slot: int) -> None: ...
    def allocate_pages(self, pages: _Array, *, pool: int = 0) -> None: ...
    def free_pages(self, pages: _Array, *, pool: int = 0) -> None: ...
    def map(self, slot: int, first_index: int, pages: _Array) -> None: ...
    def reserve(self, slot: int, position_count: int) -> None: ...
    def can_reserve(self, slot: int | None, position_count: int) -> bool: ...
    def row_capacity(self, slot: int) -> int: ...
    def row(self, slot: int, first_index: int = 0) -> NDArray[np.uint32]: ...
    def read_row(self, slot: int, pages: _Array, first_index: int = 0) -> int: ...
    def read_slot_mapping(self, slot: int, positions: _Array, mapping: _Array) -> None: ...
    def read_batch(
        self,
        slots: _Array,
        position_counts: _Array,
        indptr: _Array,
        indices: _Array | None,
        last_page_len: _Array,
    ) -> int: ...
    def read_journal(
        self, after_number: int, records: _Array, pages: _Array, tokens: _Array, items: _Array
    ) -> JournalResult: ...

@final
class Cache:
    handle: Final[int]
    closed: Final[bool]
    table: Final[PageTable]
    def __new__(
        cls,
        table: PageTable,
        *,
        index: str = "radix",
        whole_pages: bool = False,
        retained_sequence_limit: int = 0,
        retained_page_limit: int = 0,
        journal_bytes: int = 0,
        checkpoint_limit: int = 0,
    ) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def close(self) -> None: ...
    def match(
        self,
        tokens: _Ids,
        pages: _Array | None = None,
        *,
        space: Namespace | None = None,
        lock: bool = False,
    ) -> Match: ...
    def probe(self, tokens: _Ids, *, space: Namespace | None = None) -> int: ...
    def insert(
        self,
        tokens: _Ids,
        pages: _Array,
        *,
        published: _Array | None = None,
        space: Namespace | None = None,
        lock: bool = False,
        from_node: int = 0,
        from_token_index: int = 0,
        from_page_index: int = 0,
        groups: _List[tuple[int, _Array, _Array | None]] = (),
        moved_lock: int = 0,
    ) -> InsertResult: ...
    def evict(self, page_count: int, pages: _Array | None = None) -> int: ...
    def contains_page(self, page: int) -> bool: ...
    def lock(self, node: int) -> int: ...
    def slide_lock(self, lock: int, position: int) -> None: ...
    def unlock(self, lock: int) -> None: ...
    def hold(self, lock: int) -> Lock: ...
    def clear(
        self,
        space: Namespace | None = None,
        *,
        lora: bool = False,
        image: bool = False,
        salt: bool = False,
        epoch: bool = False,
        everything: bool = False,
    ) -> ClearResult: ...
    def stats(self) -> CacheStats: ...
    def check(self) -> None: ...
    def node_info(self, node: int) -> NodeInfo: ...
    def node_pages(self, node: int) -> NDArray[np.uint32]: ...
    def node_children(self, node: int) -> NDArray[np.uint64]: ...
    def namespaces(self) -> list[tuple[Namespace, int]]: ...
    def dump(self, format: str = "json") -> str: ...
    def attach_tiers(
        self,
        page_bytes: int = 0,
        host_bytes: int = 0,
        *,
        host_memory: _Array | None = None,
        pools: _List[tuple[int, int, _Array | None]] = (),
        directory: _Path | None = None,
        disk_bytes: int = 0,
        fingerprint: bytes | None = None,
        store_after_uses: int | None = 0,
        worker_count: int = 8,
        commit_interval_ms: int = 250,
        event_fd: int | None = None,
        remote: _Store | int | None = None,
        remote_timeout_ms: int = 0,
        agree: bool = False,
        threads: bool = False,
    ) -> None: ...
    def detach_tiers(self, timeout: float = 60.0) -> bool: ...
    def flush_tiers(self, timeout: float = 60.0) -> bool: ...
    def shrink_tiers(
        self, host_bytes: int | None = None, disk_bytes: int | None = None
    ) -> None: ...
    def poll(
        self, jobs: _Array | None = None, ends: _Array | None = None
    ) -> tuple[int, int]: ...
    def complete(self, jobs: _Array, *, good: bool = True) -> None: ...
    def prefetch(
        self,
        tokens: _Ids,
        *,
        space: Namespace | None = None,
        deadline: float | None = None,
        look_only: bool = False,
    ) -> PrefetchResult: ...
    def cancel_prefetch(self, prefetch: int) -> None: ...
    def tier_stats(self) -> TierStats: ...
    def probe_groups(
        self, tokens: _Ids, *, space: Namespace | None = None
    ) -> tuple[GroupDepths, NDArray[Any]]: ...
    def group_stats(self) -> NDArray[Any]: ...
    def locked_pages(self, lock: int, group: int) -> NDArray[Any]: ...
    def evict_pool(
        self, pool: int, page_count: int, evicted: _Array | None = None
    ) -> tuple[int, int]: ...
    def begin(
        self,
        tokens: _Ids,
        *,
        space: Namespace | None = None,
        reserve: int = 0,
        allocate: int = 0,
    ) -> Sequence: ...
    def sequence(self, id: int, *, own: bool = False) -> Sequence: ...
    def growing_row(
        self, tokens: _Ids, *, space: Namespace | None = None, late: bool = False
    ) -> GrowingRow: ...
    def group_row(
        self,
        tokens: _Ids,
        *,
        order: _List[int] | None = None,
        space: Namespace | None = None,
        late: bool = False,
    ) -> GroupRow: ...
    def continue_from(
        self,
        parent: int,
        tokens: _Ids | None = None,
        *,
        all_tokens: _Ids | None = None,
        space: Namespace | None = None,
        running: bool = False,
        reserve: int = 0,
        allocate: int = 0,
    ) -> Sequence: ...
    def fork(self, parent: int, count: int, *, reserve: int = 0) -> list[Sequence]: ...
    def drop(self, sequence: int) -> None: ...
    def drop_retained(self, page_count: int | None = None, *, pool: int = 0) -> int: ...
    def retained(self) -> NDArray[np.uint64]: ...
    def match_many(
        self,
        prompts: list[Any],
        matches: _Array,
        pages: _Array | None = None,
        *,
        spaces: Namespace | _List[Namespace | None] | None = None,
        lock: bool = False,
        statuses: _Array | None = None,
    ) -> int: ...
    def probe_many(
        self,
        prompts: list[Any],
        found: _Array,
        *,
        spaces: Namespace | _List[Namespace | None] | None = None,
        statuses: _Array | None = None,
    ) -> int: ...
    def begin_many(
        self,
        prompts: list[Any],
        infos: _Array,
        *,
        spaces: Namespace | _List[Namespace | None] | None = None,
        reserve: int | _Array | None = None,
        allocate: int | _Array | None = None,
        statuses: _Array | None = None,
    ) -> int: ...
    def append_many(
        self,
        sequences: _Array,
        tokens: _Ids,
        *,
        counts: _Array | None = None,
        statuses: _Array | None = None,
    ) -> int: ...
    def publish_many(
        self,
        sequences: _Array,
        computed: _Array,
        results: _Array | None = None,
        *,
        statuses: _Array | None = None,
    ) -> int: ...
    def release_many(self, sequences: _Array, *, statuses: _Array | None = None) -> int: ...
    def read_journal(
        self, after_number: int, records: _Array, pages: _Array, tokens: _Array, items: _Array
    ) -> JournalResult: ...
    def read_contents(
        self, first_page: int, records: _Array, pages: _Array, tokens: _Array, items: _Array
    ) -> ContentsResult: ...

@final
class Lock:
    id: Final[int]
    def unlock(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Sequence:
    id: Final[int]
    cache: Final[Cache]
    slot: Final[int]
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def detach(self) -> int: ...
    def info(self) -> SequenceInfo: ...
    def pages(self, first_index: int = 0, *, group: int = 0) -> NDArray[np.uint32]: ...
    def copies(self) -> NDArray[Any]: ...
    def confirm_copies(self) -> None: ...
    def allocate(self, position_count: int) -> None: ...
    def append(self, tokens: _Ids) -> None: ...
    def truncate(self, position_count: int) -> None: ...
    def publish(self, computed_position_count: int) -> PublishResult: ...
    def release(self) -> None: ...
    def retain(self) -> int | None: ...
    def published(self) -> NDArray[Any]: ...
    def checkpoint(self) -> int: ...
    def donate(self) -> int: ...
    def slide(self, computed_position_count: int) -> None: ...
    def fetch(
        self, deadline: float | None = None, *, look_only: bool = False
    ) -> FetchResult: ...
    def agree(self, position_count: int) -> int: ...

@final
class EventEncoder:
    handle: Final[int]
    lost_record_count: Final[int]
    def __new__(
        cls,
        cache: Cache,
        *,
        wide_hashes: bool = False,
        data_parallel_rank: int | None = None,
        placeholder_token_id: int = 0,
        medium: str = "GPU",
    ) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def close(self) -> None: ...
    def name_namespace(
        self,
        space: Namespace | None,
        *,
        lora_name: str | None = None,
        cache_salt: str | None = None,
    ) -> None: ...
    def encode(self, timestamp: float, *, size_limit: int = 65536) -> bytes: ...
    def repeat(self) -> None: ...

@final
class GrowingRow:
    pages: Final[list[int]]
    page_count: Final[int]
    token_count: Final[int]
    published_page_count: Final[int]
    def match(self, limit: int) -> list[int]: ...
    def take(self, page_count: int) -> None: ...
    def extend(
        self, tokens: _Ids | None, positions: int, computed: int
    ) -> list[int] | None: ...
    def release(self) -> None: ...

@final
class GroupRow:
    pages: Final[list[list[int]]]
    page_count: Final[int]
    token_count: Final[int]
    published_page_count: Final[int]
    private_pages: Final[list[list[int]]]
    def probe(self, limit: int) -> int: ...
    def depths(self, limit: int) -> tuple[int, int]: ...
    def look(self, page_count: int) -> list[list[int]]: ...
    def take(self, page_count: int) -> None: ...
    def slide(self, processed: int) -> None: ...
    def extend(
        self, tokens: _Ids | None, positions: int, computed: int
    ) -> list[list[int]] | None: ...
    def release(self) -> None: ...

@final
class PlacedRows:
    def __new__(
        cls, cache: Cache, *, rows: _Array | None = None, mapping: _Array | None = None
    ) -> Self: ...
    def publish(
        self,
        tokens: _Ids,
        length: int,
        row: int | None = None,
        *,
        places: _Array | None = None,
        window_places: _Array | None = None,
        space: Namespace | None = None,
        from_node: int = 0,
        from_token_index: int = 0,
        lock: int = 0,
        state: int = 0,
        recent: bool = True,
    ) -> InsertResult: ...
    def pages(
        self, first: int, end: int, *, group: int = 0
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]: ...
    def share(
        self, row: int, first: int, end: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
    def release(
        self, row: int, start: int, end: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
    def evict(
        self, page_count: int, window_page_count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...
    def locked_state(self, lock: int) -> NDArray[np.int64]: ...
    def window_pages(self) -> NDArray[np.int64]: ...
    def stray_pages(self) -> NDArray[np.int64]: ...
    @property
    def stray_page_count(self) -> int: ...

class RequestRows:
    rows: Final[dict[str, Any]]
    available_page_count: Final[int]
    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self: ...
    def __init__(
        self,
        cache: Cache,
        *,
        blocks: Callable[[list[Any]], Any],
        empty: Any,
        waiting: tuple[Any, ...],
        max_positions: int,
        watermark: int = 0,
        most: _List[int] | None = None,
        publishes: bool = True,
        ahead: bool = True,
        tells: bool = False,
        zeroes: bool = False,
    ) -> None: ...
    def allocate_slots(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
        skip_zeroing_group_ids: Any = None,
    ) -> Any: ...
    def depths(self, row: GroupRow, limit: int) -> tuple[int, int]: ...
    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None: ...
    def get_blocks(self, request_id: str) -> Any: ...
    def estimate_cached_tokens(self, request: Any) -> int: ...
    def free(self, request: Any) -> None: ...
    def take_new_block_ids(self) -> list[int]: ...
    def new_step_starts(self) -> None: ...

@final
class Plan:
    handle: Final[int]
    def __new__(cls, table: PageTable) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def close(self) -> None: ...
    def set(
        self,
        sequences: _Array | None,
        starts: _Array,
        counts: _Array | None = None,
        *,
        slots: _Array | None = None,
        regions: list[Any] | None = None,
        tree_masks: list[Any] | None = None,
        masks: _Array | None = None,
    ) -> None: ...
    def reserve(
        self,
        *,
        rows: int,
        positions: int,
        pages: int,
        row_positions: int = 0,
        regions: bool = False,
        separate: bool = False,
        trees: bool = False,
    ) -> None: ...
    def check(self) -> None: ...
    def sizes(self, *, group: int = 0, compact: bool = False) -> tuple[int, int, int, int]: ...
    def read(
        self,
        *,
        query_indptr: _Array | None = None,
        indptr: _Array | None = None,
        indices: _Array | None = None,
        last_page_len: _Array | None = None,
        slot_mapping: _Array | None = None,
        copies: _Array | None = None,
        copy_sequences: _Array | None = None,
        first_position: _Array | None = None,
        sink_page_count: _Array | None = None,
        group: int = 0,
        compact: bool = False,
    ) -> tuple[int, int, int, int]: ...
    def arrays(self, *, group: int = 0, compact: bool = False) -> dict[str, NDArray[Any]]: ...

@final
class KvMemory:
    data_ptr: Final[int]
    shape: Final[tuple[int, int, int, int]]
    strides: Final[tuple[int, int, int, int]]
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class Runner:
    handle: Final[int]
    def __new__(
        cls,
        table: PageTable,
        *,
        layers: int,
        query_heads: int,
        kv_heads: int,
        head_dim: int = 128,
        dtype: object = None,
        kv_dtype: object = None,
        kv_layout: str = "nhd",
        backend: str = "cpu",
        device: int = 0,
        threads: int = 0,
        batch_invariant: bool = False,
        kv_layers: _List[tuple[_Array, _Array | None]] | None = None,
        group: int = 0,
        v_head_dim: int | None = None,
        latent: bool = False,
    ) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def close(self) -> None: ...
    def stats(self) -> RunnerStats: ...
    def copy_pages(self, copies: _Array) -> None: ...
    def copy_tier_pages(self, jobs: _Array) -> None: ...
    def append_prefill(
        self,
        plan: Plan,
        layer: int,
        q: _Array,
        k: _Array | None,
        v: _Array | None,
        out: _Array,
        lse: _Array | None = None,
        *,
        sinks: _Array | None = None,
        scale: float = 0.0,
        soft_cap: float = 0.0,
        window: int = 0,
        k_scale: float = 0.0,
        v_scale: float = 0.0,
        k_scales: _Array | None = None,
        v_scales: _Array | None = None,
        stream: int | None = None,
    ) -> None: ...
    def prepare_plan(
        self, plan: Plan, *, keep_copies_open: bool = False, stream: int | None = None
    ) -> None: ...
    def keep_branches(
        self, plan: Plan, branches: list[tuple[int, _Array]], *, stream: int | None = None
    ) -> None: ...
    def reserve_plan(self, plan: Plan) -> None: ...
    def merge_states(
        self,
        outs: _List[_Array],
        lses: _List[_Array],
        out: _Array,
        lse: _Array | None = None,
        *,
        stream: int | None = None,
    ) -> None: ...
    def kv_memory(self, layer: int, *, as_bits: bool = False) -> tuple[KvMemory, KvMemory]: ...

@final
class SnapshotCache:
    handle: Final[int]
    def __new__(cls, *, entry_limit: int = 1024, byte_limit: int | None = None) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def close(self) -> None: ...
    def insert(
        self,
        tokens: _Ids,
        data: object,
        size_bytes: int | None = None,
        *,
        next_token: int | None = None,
        space: Namespace | None = None,
        trimmable: bool = False,
        parts: _List[_Array] | None = None,
    ) -> SnapshotInsertResult: ...
    def match(
        self, tokens: _Ids, *, space: Namespace | None = None, trimmable: bool = False
    ) -> Pin | None: ...
    def probe(self, tokens: _Ids, *, space: Namespace | None = None) -> int: ...
    def remove(self, tokens: _Ids, *, space: Namespace | None = None) -> bool: ...
    def clear(self) -> None: ...
    def stats(self) -> SnapshotStats: ...
    def check(self) -> None: ...
    def attach(
        self,
        directory: _Path | None = None,
        byte_limit: int = 0,
        *,
        fingerprint: bytes | None = None,
        write_after_matches: int | None = 0,
        worker_count: int = 8,
        waiting_byte_limit: int | None = None,
        commit_interval_ms: int = 250,
        event_fd: int | None = None,
        remote: _Store | int | None = None,
        remote_timeout_ms: int = 0,
    ) -> None: ...
    def detach(self, timeout: float = 60.0) -> bool: ...
    def flush(self, timeout: float = 60.0) -> bool: ...
    def fetch(
        self, tokens: _Ids, *, space: Namespace | None = None, trimmable: bool = False
    ) -> Fetch | None: ...
    def tier_stats(self) -> SnapshotTierStats: ...

@final
class Pin:
    data: Final[Any]
    token_count: Final[int]
    common_token_count: Final[int]
    fetchable_token_count: Final[int]
    size_bytes: Final[int]
    full_hit: Final[bool]
    next_token: Final[int | None]
    is_copy: Final[bool]
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def parts(self) -> list[memoryview]: ...
    def release(self) -> None: ...

@final
class Fetch:
    token_count: Final[int]
    common_token_count: Final[int]
    size_bytes: Final[int]
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def take(self) -> Pin | None: ...
    def cancel(self) -> None: ...

def layouts() -> dict[str, Any]: ...
def version() -> str: ...
def abi_version() -> int: ...
def features() -> int: ...
def set_log(receiver: Callable[[int, str], object] | None, level: int = 1) -> None: ...
def log_message(level: int, message: str) -> None: ...
def reserve_index_memory(
    byte_count: int, *, huge_pages: Literal["off", "try", "require"] = "try"
) -> None: ...
def index_memory_stats() -> IndexMemoryStats: ...
def image_digest(data: _Array) -> bytes: ...
def page_numbers(places: _Array, page_size: int, pages: _Array) -> None: ...
def page_places(pages: _Array, page_size: int, places: _Array) -> None: ...
def runner_supports(
    page_size: int,
    *,
    layers: int,
    query_heads: int,
    kv_heads: int,
    head_dim: int = 128,
    dtype: object = None,
    kv_dtype: object = None,
    kv_layout: str = "nhd",
    backend: str = "cpu",
    device: int = 0,
    v_head_dim: int | None = None,
    latent: bool = False,
) -> int: ...
