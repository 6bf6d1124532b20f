"""KV events over ZeroMQ, as vLLM publishes them, and stores that caches share: libradixkv_net.

The library is one of its own, with sockets and a thread, and is not in the wheel: `make net` in the
repository builds it, `make install-net` installs it. It is looked for, in this order, where the
argument `library` says, where the environment variable RADIXKV_NET_LIBRARY says, and where the
system's loader looks.

    with radixkv.EventEncoder(cache) as encoder, EventPublisher("tcp://*:5557") as publisher:
        while serving:
            if payload := encoder.encode(time.time()):
                publisher.publish(payload)
            else:
                time.sleep(0.01)
"""

import ctypes
import operator
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ._net_structs import Config, RemoteStore, Stats, StoreConfig
from .errors import Error, InvalidState, Status, make

ABI_VERSION = 2
"""Of radixkv_net.h, as this module knows it. Later libraries serve it too."""

_CONNECT = 1
_NETWORK = 200


class NetworkError(Error, OSError):
    """The system refused a socket or a thread: an address in use, no such host; or the library is
    not there."""

    status = _NETWORK


@dataclass(frozen=True, slots=True)
class PublisherStats:
    """What a publisher counted."""

    port: int
    """The port that is bound; 0 for none."""
    replay_port: int
    """That of replays; 0 for none."""
    published_batch_count: int
    """Batches that were published: the number of the next one."""
    published_byte_count: int
    """Their bytes."""
    dropped_batch_count: int
    """Those of them that found the queue full. They are kept for replays like all others. What a
    subscriber has no room for, or what was on its way when it went, is not counted."""
    queued_batch_count: int
    """Batches in the queue."""
    replay_batch_count: int
    """Batches that can be replayed."""
    replay_request_count: int
    """Requests for a replay."""


def _load(path: str | os.PathLike[str] | None) -> ctypes.CDLL:
    if path is not None:
        path = os.fsdecode(_path("library", path))
    path = path or os.environ.get("RADIXKV_NET_LIBRARY") or "libradixkv_net.so"
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise NetworkError(
            f"{path} cannot be loaded: {error}. RADIXKV_NET_LIBRARY or library= says where it is"
        ) from error
    pointer = ctypes.c_void_p
    signatures: list[tuple[str, type | None, list[type]]] = [
        ("rkv_net_abi_version", ctypes.c_uint32, []),
        (
            "rkv_net_last_error_message",
            ctypes.c_size_t,
            [ctypes.c_char_p, ctypes.c_size_t],
        ),
        ("rkv_net_publisher_create", ctypes.c_int, [pointer, pointer]),
        ("rkv_net_publisher_destroy", None, [pointer]),
        (
            "rkv_net_publisher_publish",
            ctypes.c_int,
            [pointer, ctypes.c_char_p, ctypes.c_size_t, pointer],
        ),
        ("rkv_net_publisher_read_stats", ctypes.c_int, [pointer, pointer]),
        ("rkv_net_store_create", ctypes.c_int, [pointer, pointer]),
        ("rkv_net_store_describe", ctypes.c_int, [pointer, pointer]),
        ("rkv_net_store_destroy", None, [pointer]),
        (
            "rkv_net_store_last_failure",
            ctypes.c_size_t,
            [pointer, ctypes.c_char_p, ctypes.c_size_t],
        ),
    ]
    for name, result, arguments in signatures:
        # The first is the version: an older library may lack those behind it.
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise NetworkError(f"{path} is no libradixkv_net: {error}") from error
        function.restype, function.argtypes = result, arguments
        if name == "rkv_net_abi_version" and (version := function()) < ABI_VERSION:
            raise NetworkError(f"{path} has ABI version {version}, and {ABI_VERSION} is needed")
    return library


class _Owned:
    """A handle of the library, in the process that made it. The lock of a child is not looked at:
    a thread that the child has not may have had it at the fork."""

    _library: ctypes.CDLL
    _handle: int | None = None

    def __init__(self, library: str | os.PathLike[str] | None) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._library = _load(library)

    def _locked(self) -> threading.Lock:
        """Its lock, to be entered before `_open()`."""
        if self._is_inherited():
            name = type(self).__name__
            raise _refused(f"the {name} is from before fork(): in a child it can only be closed")
        return self._lock

    def _is_inherited(self) -> bool:
        return self._process != os.getpid()

    def _open(self) -> int:
        if self._handle is None:
            raise ValueError(f"the {type(self).__name__} is closed")
        return self._handle

    def _call(self, function: Callable[..., int], *arguments: object) -> None:
        _call(self._library, function, *arguments)


class EventPublisher(_Owned):
    """Publishes batches of KV events: a PUB socket, and a ROUTER socket at which subscribers ask
    for batches that they missed. The library has a thread for them.

    endpoint: "tcp://HOST:PORT", with * as the host for every interface and port 0 for any that is
        free, or "ipc://PATH". With connect=True a subscriber is bound there,
        now or later.
    replay_endpoint: the same for replays, always bound; None for nowhere.
    topic: the first frame of each message, by which subscribers choose.
    data_parallel_rank: added to both ports, unless they are 0; behind a path it is "_dp" and the
        rank.
    replay_batch_limit: batches that are kept in memory for replays, with a replay_endpoint.
    queue_batch_limit: batches that wait for the thread at most.
    library: the path of libradixkv_net.so.

    ValueError names an argument that is refused; NetworkError says what the system said. Every
    method may be called from any thread.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        replay_endpoint: str | None = None,
        topic: str = "",
        connect: bool = False,
        data_parallel_rank: int = 0,
        replay_batch_limit: int = 10_000,
        queue_batch_limit: int = 100_000,
        library: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(library)
        most = (1 << 32) - 1
        texts = [
            _text("endpoint", endpoint),
            None if replay_endpoint is None else _text("replay_endpoint", replay_endpoint),
            _text("topic", topic),
        ]
        config = Config(
            ctypes.sizeof(Config),
            _CONNECT if connect else 0,
            *texts,
            _number("data_parallel_rank", data_parallel_rank, 0, most),
            _number("replay_batch_limit", replay_batch_limit, 1, most),
            _number("queue_batch_limit", queue_batch_limit, 1, most),
            0,
        )
        handle = ctypes.c_void_p()
        self._call(
            self._library.rkv_net_publisher_create, ctypes.byref(config), ctypes.byref(handle)
        )
        self._handle = handle.value

    def publish(self, payload: bytes | bytearray | memoryview) -> int:
        """Copies a batch, bytes or what lends some, and hands it over; waits for no subscriber. Its
        number comes back, one more than that of the batch before. An empty batch has a number as
        well."""
        if not isinstance(payload, bytes):
            try:
                payload = bytes(memoryview(payload))
            except TypeError:
                raise _wrong("payload", "bytes are", payload) from None
        number = ctypes.c_uint64()
        publish = self._library.rkv_net_publisher_publish
        with self._locked():
            self._call(publish, self._open(), payload, len(payload), ctypes.byref(number))
        return number.value

    def stats(self) -> PublisherStats:
        """What was counted."""
        stats = Stats(ctypes.sizeof(Stats))
        with self._locked():
            self._call(
                self._library.rkv_net_publisher_read_stats, self._open(), ctypes.byref(stats)
            )
        return PublisherStats(*(getattr(stats, name) for name in PublisherStats.__slots__))

    def close(self) -> None:
        """Gives what waits in the queue to the sockets, and ends: a subscriber that reads gets it
        within 100 milliseconds, or not. More than one close is fine."""
        if self._is_inherited():
            self._handle = None  # there is nothing of it in a child
            return
        with self._locked():
            handle, self._handle = self._handle, None
            if handle is not None:
                self._library.rkv_net_publisher_destroy(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # None when the library could not be loaded.
        if self._handle is not None:
            self.close()


_described: dict[int, RemoteStore] = {}
"""What the addresses of stores that are open lead to."""


class _Lease:
    """What a cache keeps of a store that is attached to it."""

    __slots__ = ("__weakref__", "store")

    def __init__(self, store: "Store") -> None:
        self.store = store


class Store(_Owned):
    """A store that caches share, on a server of Redis or Valkey, or in a bucket of S3: what a cache
    takes as `remote`.

    url: "redis://HOST:PORT", with USER:PASSWORD@ and /DATABASE as they are needed, the same with
        valkey://, "rediss://" or "valkeys://" over TLS, or "unix://PATH"; "s3://BUCKET" or
        "s3://BUCKET/FOLDER". No server has to be there yet. Credentials and region for S3 are in
        the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION; without them it asks
        a server that only machines of Amazon's have.
    prefix: what each key begins with; None for "radixkv/".
    endpoint: for S3: where it is, if not at Amazon; None for what the environment says.
    ttl_s: for Redis: seconds after which goes what was written; 0 for never.
    connection_count: for Redis: connections that read, and as many that write.
    ca_file: for TLS: certificates, in PEM, of whom the server's may be; None for the system's.
    library: the path of libradixkv_net.so.

    Caches that have it keep it: while one does, `close()` raises InvalidState. It is not closed by
    itself, since nobody knows who has its `address`. ValueError names an argument that is refused.
    Every method may be called from any thread.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str | None = None,
        endpoint: str | None = None,
        ttl_s: int = 0,
        connection_count: int = 4,
        ca_file: str | os.PathLike[str] | None = None,
        library: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(library)
        self._leases: weakref.WeakSet[_Lease] = weakref.WeakSet()
        texts = [
            _text("url", url),
            None if prefix is None else _text("prefix", prefix),
            None if endpoint is None else _text("endpoint", endpoint),
        ]
        config = StoreConfig(
            ctypes.sizeof(StoreConfig),
            0,
            *texts,
            _number("ttl_s", ttl_s, 0, (1 << 64) - 1),
            _number("connection_count", connection_count, 1, 256),
            0,
            None if ca_file is None else _path("ca_file", ca_file),
        )
        handle = ctypes.c_void_p()
        create = self._library.rkv_net_store_create
        self._call(create, ctypes.byref(config), ctypes.byref(handle))
        self._handle = handle.value
        self._functions = RemoteStore(ctypes.sizeof(RemoteStore))
        describe = self._library.rkv_net_store_describe
        self._call(describe, self._handle, ctypes.byref(self._functions))
        # A store that nobody closes lives on when its object goes: so does what its address leads
        # to.
        _described[ctypes.addressof(self._functions)] = self._functions

    @property
    def address(self) -> int:
        """Of the functions that a cache calls, an rkv_remote_store: for C code. Whoever has it is
        not known here: close the store only when it is used no more."""
        with self._locked():
            self._open()
            return ctypes.addressof(self._functions)

    def _lend(self) -> tuple[int, object]:
        """The address for a cache, and what that keeps for as long as it may use it."""
        with self._locked():
            self._open()
            lease = _Lease(self)
            self._leases.add(lease)
        return ctypes.addressof(self._functions), lease

    def last_failure(self) -> str:
        """Why a call to the server failed last, for a log; empty when none has."""
        message = ctypes.create_string_buffer(4096)
        with self._locked():
            self._library.rkv_net_store_last_failure(self._open(), message, len(message))
        return message.value.decode(errors="replace")

    def close(self) -> None:
        """Ends it. More than one close is fine. Raises InvalidState while a cache has it: detach
        its tiers, or close it, before."""
        if self._is_inherited():
            self._handle = None  # there is nothing of it in a child
            return
        with self._locked():
            if self._leases:
                raise _refused("the Store is attached to a cache: detach that, or close it, before")
            handle, self._handle = self._handle, None
            if handle is not None:
                self._library.rkv_net_store_destroy(handle)
                del _described[ctypes.addressof(self._functions)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except InvalidState:
            # What is under way is what the caller has to hear of.
            if kind is None:
                raise


def _call(library: ctypes.CDLL, function: Callable[..., int], *arguments: object) -> None:
    status = function(*arguments)
    if status == 0:
        return
    # The message is the thread's: this one's.
    message = ctypes.create_string_buffer(library.rkv_net_last_error_message(None, 0))
    library.rkv_net_last_error_message(message, len(message))
    text = message.value.decode()
    raise NetworkError(text) if status == _NETWORK else make(status, text, None, None)


def _refused(why: str) -> Error:
    return make(Status.INVALID_STATE, why, None, None)


def _text(name: str, given: str) -> bytes:
    if not isinstance(given, str):
        raise _wrong(name, "str is", given)
    return _without_nul(name, given.encode())


def _path(name: str, given: str | os.PathLike[str]) -> bytes:
    try:
        return _without_nul(name, os.fsencode(given))
    except TypeError:
        raise _wrong(name, "a path is", given) from None


def _number(name: str, given: int, least: int, most: int) -> int:
    try:
        number = operator.index(given)
    except TypeError:
        raise _wrong(name, "int is", given) from None
    if not least <= number <= most:
        raise ValueError(f"{name} {number} is not {least} to {most}")
    return number


def _without_nul(name: str, encoded: bytes) -> bytes:
    if b"\0" in encoded:
        raise ValueError(f"{name}: has a NUL")
    return encoded


def _wrong(name: str, what: str, given: object) -> TypeError:
    return TypeError(f"{name}: {what} needed, not {type(given).__name__}")
