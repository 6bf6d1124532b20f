"""The package as such: the library in it, C code beside it, what it says of itself."""

import ctypes
import inspect
import os
import re
import shutil
import subprocess
import sys
import threading
import types
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ids, pages
from cuda_device import _capsule, _Tensor
from numpy.typing import NDArray

import radixkv


def header() -> str:
    return (Path(radixkv.get_include()) / "radixkv.h").read_text()


def number(name: str) -> int:
    found = re.search(rf"^(?:#define )?\s*{name}\s*=?\s*(\d+)", header(), re.MULTILINE)
    assert found, f"{name} is not in the header"
    return int(found[1])


def test_p01_numbers_are_those_of_the_header() -> None:
    for status in radixkv.Status:
        assert number(f"RKV_STATUS_{status.name}") == status
    statuses = set(re.findall(r"^    RKV_STATUS_(\w+) = ", header(), re.MULTILINE))
    assert statuses == {status.name for status in radixkv.Status}
    from radixkv import constants

    for name, value in vars(constants).items():
        if name.isupper():
            assert number(f"RKV_{name}") == value
    assert radixkv.abi_version() == number("RKV_ABI_VERSION")
    parts = [number(f"RKV_VERSION_{part}") for part in ("MAJOR", "MINOR", "PATCH")]
    assert radixkv.version() == ".".join(map(str, parts)) == radixkv.__version__
    assert radixkv.features() & radixkv.FEATURE_RADIX_INDEX


RESERVES = """
import radixkv
assert radixkv.index_memory_stats().reserved_bytes == 0
for wrong in (lambda: radixkv.reserve_index_memory(1, huge_pages="all"),
              lambda: radixkv.reserve_index_memory(0)):
    try:
        wrong()
    except ValueError:
        continue
    raise AssertionError("not refused")
radixkv.reserve_index_memory(1 << 20)
stats = radixkv.index_memory_stats()
assert (stats.reserved_bytes, stats.used_bytes) == (1 << 21, 0), stats
assert stats.huge_page_bytes in (0, 1 << 21), stats
with radixkv.PageTable(64) as table, radixkv.Cache(table):
    assert radixkv.index_memory_stats().used_bytes > 0
try:
    radixkv.reserve_index_memory(1 << 20, huge_pages="off")
except radixkv.InvalidState:
    print("done")
"""


def test_index_memory_is_reserved_once() -> None:
    """For a process, so in one of its own."""
    done = subprocess.run([sys.executable, "-c", RESERVES], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


C_PROGRAM = r"""
#include <radixkv.h>
/* What an extension of an engine does: works on a cache that Python made. */
long probe(rkv_cache *cache, const uint32_t *ids, size_t count)
{
    rkv_tokens tokens = {0};
    tokens.struct_size = sizeof tokens;
    tokens.ids = ids;
    tokens.count = count;
    size_t found = 0, positions = 0;
    if (rkv_cache_probe(cache, NULL, &tokens, &found, &positions) != RKV_STATUS_OK) return -1;
    return (long)found;
}
uint64_t begin(rkv_cache *cache, const uint32_t *ids, size_t count)
{
    rkv_tokens tokens = {0};
    rkv_sequence_begin_args args = {0};
    rkv_sequence_info info = {0};
    tokens.struct_size = sizeof tokens;
    tokens.ids = ids;
    tokens.count = count;
    args.struct_size = sizeof args;
    args.tokens = &tokens;
    info.struct_size = sizeof info;
    return rkv_sequence_begin(cache, &args, &info) == RKV_STATUS_OK ? info.sequence : 0;
}
"""


def test_p01_c_code_works_on_the_same_objects(cache: radixkv.Cache, tmp_path: Path) -> None:
    (tmp_path / "ext.c").write_text(C_PROGRAM)
    compiler = os.environ.get("CC", "cc")
    command = [
        compiler, "-shared", "-fPIC", "-Wall", "-Werror", "ext.c", "-I", radixkv.get_include(),
        radixkv.get_library(), "-o", "ext.so",
    ]
    try:
        subprocess.run(command, cwd=tmp_path, check=True)
    except FileNotFoundError:
        pytest.skip("there is no C compiler")
    ext = ctypes.CDLL(str(tmp_path / "ext.so"))
    ext.probe.restype = ctypes.c_long
    ext.begin.restype = ctypes.c_uint64
    with cache.begin(ids(64)) as sequence:
        sequence.publish(64)
    tokens = ids(64)
    handle = ctypes.c_void_p(cache.handle)
    address = tokens.ctypes.data_as(ctypes.c_void_p)
    assert ext.probe(handle, address, ctypes.c_size_t(64)) == 64
    number = ext.begin(handle, address, ctypes.c_size_t(64))
    with cache.sequence(number, own=True) as made:  # and what C made is Python's
        assert made.info().position_count == 64
    cache.close()
    with pytest.raises(radixkv.InvalidState):
        _ = cache.handle
    libraries = set(re.findall(r"\S*libradixkv\.so", Path("/proc/self/maps").read_text()))
    assert libraries == {str(Path(radixkv.get_library()).resolve())}


class Lender:
    """A tensor of a library that has DLPack, and no buffer protocol."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_p01_tensors_with_nothing_but_dlpack(cache: radixkv.Cache) -> None:
    tokens, into = ids(64), np.zeros(4, np.uint32)
    with cache.begin(Lender(tokens)) as sequence:
        sequence.publish(64)
        assert cache.match(Lender(tokens), Lender(into)).page_count == 4
        np.testing.assert_array_equal(into, sequence.pages())  # written where it lies
        assert cache.release_many(Lender(np.array([sequence.detach()]))) == 0
    references = sys.getrefcount(tokens)
    cache.match(Lender(tokens))
    assert sys.getrefcount(tokens) == references
    with pytest.raises(ValueError, match="tokens: must be C-contiguous"):
        cache.match(Lender(ids(64)[::2]))
    with pytest.raises(TypeError, match="tokens: 32-bit"):
        cache.match(Lender(np.zeros(4)))
    frozen = ids(4)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="tokens: "):  # DLPack alone can't say read-only
        cache.match(Lender(frozen))


class Guarded(np.ndarray[Any, Any]):
    """As the arrays of JAX: they have a buffer, which those on a GPU and those of bf16 refuse."""

    def __dlpack__(self, **_named: Any) -> Any:
        return np.asarray(self).view(np.int64).__dlpack__()


def test_p01_what_refuses_its_buffer_is_taken_by_dlpack(cache: radixkv.Cache) -> None:
    tokens = np.arange(1, 65).astype("datetime64[s]").view(Guarded)
    with pytest.raises(ValueError):
        memoryview(tokens)  # type: ignore[arg-type]
    with cache.begin(ids(64)) as sequence:
        sequence.publish(64)
    assert cache.probe(tokens) == 64
    # Without a version DLPack can't say what is read-only: what refuses to be written stays so.
    with pytest.raises(ValueError, match="positions"):
        cache.table.read_slot_mapping(0, np.zeros(64, "datetime64[s]"), np.zeros(64, np.int64))
    with pytest.raises(ValueError, match="mapping"):
        cache.table.read_slot_mapping(0, np.zeros(64, np.uint64), tokens)


_NO_ELEMENTS = (ctypes.c_int64 * 1)(0)
_EMPTY = _Tensor(None, 1, 0, 1, 1, 32, 1, ctypes.addressof(_NO_ELEMENTS), None, 0, None, None)


class Empty:
    """An empty tensor as torch lends it: it lies nowhere."""

    def __dlpack__(self) -> Any:
        return _capsule(ctypes.addressof(_EMPTY), b"dltensor", None)

    def __dlpack_device__(self) -> Any:
        return 1, 0


def test_p01_empty_tensors_are_no_none(cache: radixkv.Cache) -> None:
    with cache.begin(ids(64)) as sequence:
        sequence.publish(64)
        with pytest.raises(radixkv.BufferTooSmall):
            cache.table.read_row(sequence.slot, Empty())
        rows, indptr, last = pages(sequence.slot), np.zeros(2, np.int32), np.zeros(1, np.int32)
        with pytest.raises(radixkv.BufferTooSmall):
            cache.table.read_batch(rows, pages(64), indptr, Empty(), last)
    assert cache.evict(4, Empty()) == 0
    assert cache.stats().cached_page_count == 4


def test_p01_empty_arrays_are_all_the_same(cache: radixkv.Cache) -> None:
    """CPython lends an empty array.array at an address that is aligned to nothing."""
    tokens: list[Any] = [
        array("I"), array("i"), array("q"), array("Q"), memoryview(array("I")), [],
        np.empty(0, np.uint32), np.frombuffer(b"", np.int64), Empty(),
    ]
    row = cache.growing_row(tokens[0])
    for empty in tokens:
        assert cache.probe(empty) == 0 and cache.match(empty).token_count == 0
        assert row.extend(empty, 0, 0) == []
    for sequences in (array("Q"), memoryview(array("Q")), np.empty(0, np.uint64)):
        assert cache.release_many(sequences) == 0
        assert cache.append_many(sequences, array("I")) == 0
    pages = array("I")
    radixkv.page_numbers(array("q"), 16, pages)
    radixkv.page_places(pages, 16, array("q"))
    cache.table.free_pages(pages)


def test_p01_handles_of_all_objects(cache: radixkv.Cache) -> None:
    plan = radixkv.Plan(cache.table)
    runner = radixkv.Runner(cache.table, layers=1, query_heads=1, kv_heads=1)
    snapshots = radixkv.SnapshotCache()
    handles = [it.handle for it in (cache.table, cache, plan)] + [runner.handle]
    assert len({*handles, snapshots.handle}) == 5
    with plan, runner:
        pass
    with pytest.raises(radixkv.InvalidState, match="Plan is closed"):
        _ = plan.handle
    with pytest.raises(radixkv.InvalidState, match="Runner is closed"):
        _ = runner.handle


def test_log_messages_come_on_the_main_thread() -> None:
    seen: list[tuple[int, str, bool]] = []

    def receiver(level: int, message: str) -> None:
        seen.append((level, message, threading.current_thread() is threading.main_thread()))

    with pytest.raises(TypeError, match="^receiver: a callable is needed, not int"):
        radixkv.set_log(5)  # type: ignore[arg-type]
    radixkv.set_log(receiver)
    try:
        thread = threading.Thread(target=radixkv.log_message, args=(1, "from a thread"))
        thread.start()
        thread.join()
        radixkv.log_message(1, "from the main one")
        for _ in range(100):  # a step of Python code, after which pending calls are made
            if len(seen) == 2:
                break
        assert seen == [(1, "from a thread", True), (1, "from the main one", True)]
    finally:
        radixkv.set_log(None)
    radixkv.log_message(1, "to nobody")
    assert len(seen) == 2


def test_log_messages_above_the_level_are_not_sent() -> None:
    seen: list[int] = []
    for level, sent in ((radixkv.LOG_OFF, []), (radixkv.LOG_ERROR, [radixkv.LOG_ERROR])):
        radixkv.set_log(lambda level, message: seen.append(level), level)
        try:
            for of_message in (radixkv.LOG_ERROR, 7, radixkv.LOG_OFF):
                radixkv.log_message(of_message, "a message")
            for _ in range(100):
                pass
            assert seen == sent
        finally:
            radixkv.set_log(None)


def test_what_the_package_says_is_a_context_manager_is_one() -> None:
    text = (radixkv.__doc__ or "").split("\n\n")
    # Each list follows what is said of all in it.
    found = {text[at - 1]: [line.split()[0] for line in lines.splitlines()]
             for at, lines in enumerate(text) if lines.startswith("    ")}
    for said, names in found.items():
        for name in names:
            has = [hasattr(getattr(radixkv, name), it) for it in ("close", "__enter__", "handle")]
            assert has == ["context manager" in said] * 3, name
    assert len(found) == 2 and sum(map(len, found.values())) == 11


def test_a_receiver_of_log_messages_sets_another_one() -> None:
    seen: list[str] = []

    def first(level: int, message: str) -> None:
        seen.append("first " + message)
        radixkv.set_log(lambda level, message: seen.append("second " + message))

    radixkv.set_log(first)
    try:
        for at in range(2):
            radixkv.log_message(1, f"message {at}")
            for _ in range(100):
                if len(seen) == at + 1:
                    break
        assert seen == ["first message 0", "second message 1"]
    finally:
        radixkv.set_log(None)


def test_namespaces_of_keys_do_not_run_together() -> None:
    made = [
        radixkv.namespace_of("ab", "c"), radixkv.namespace_of("a", "bc"),
        radixkv.namespace_of("abc"), radixkv.namespace_of(b"abc"), radixkv.namespace_of("1"),
        radixkv.namespace_of(1), radixkv.namespace_of("abc", lora_id=0), radixkv.namespace_of(),
    ]
    assert len(set(made)) == len(made)
    assert radixkv.namespace_of("ab", "c") == made[0]
    assert made[7] == radixkv.Namespace()
    assert made[6].lora_id == 0 and made[2].lora_id is None


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_page_numbers_of_places(kind: type) -> None:
    numbers = np.array([7, 3, 0, 200_000], np.uint32)
    for page_size in (1, 16, 24):
        of_each = numbers[:, None] * page_size + np.arange(page_size)
        places: NDArray[Any] = of_each.astype(kind).reshape(-1)
        into = np.full(6, 9, np.uint32)
        radixkv.page_numbers(places, page_size, into)
        assert into.tolist() == [*numbers.tolist(), 9, 9]
        radixkv.page_numbers(places[:0], page_size, into[:0])
        into[:] = 9
        radixkv.page_numbers(places[: page_size + 1], page_size, into)  # the second is begun
        assert into.tolist() == [7, 3, 9, 9, 9, 9]


def test_k01_images_are_tokens(cache: radixkv.Cache) -> None:
    digest = radixkv.image_digest(b"an image")
    image = radixkv.TokenItem.image(5, 40, digest)
    tokens = radixkv.Tokens.build(ids(20), [image])
    assert len(tokens) == 21 and tokens.position_count == 60
    assert tokens.regions() == [(5, 45)]
    assert tokens.items == [image] and tokens.ids[4:7].tolist() == [5, 0, 6]
    with cache.begin(tokens) as sequence:
        assert sequence.info().position_count == 60
        sequence.publish(60)
    assert cache.probe(tokens) == 9  # of 48 positions in whole pages: 5, the image, and 3
    other = radixkv.TokenItem.image(5, 40, radixkv.image_digest(b"another one"))
    assert cache.probe(radixkv.Tokens.build(ids(20), [other])) == 5
    with pytest.raises(TypeError, match="text ids alone"):
        cache.append_many(np.zeros(21, np.uint64), tokens)


def test_k01_tokens_are_not_made_of_tokens_with_items(cache: radixkv.Cache) -> None:
    """Without its items, a prompt is the same as one with another image."""
    def prompt(image: bytes) -> radixkv.Tokens:
        digest = radixkv.image_digest(image)
        return radixkv.Tokens.build(ids(20), [radixkv.TokenItem.image(5, 40, digest)])

    with cache.begin(prompt(b"an image")) as sequence:
        sequence.publish(60)
    for image in (b"an image", b"another one"):
        with pytest.raises(TypeError, match="ids: text alone"):
            radixkv.Tokens(prompt(image))
        with pytest.raises(TypeError, match="prompt: text alone"):
            radixkv.Tokens.build(prompt(image), [radixkv.TokenItem.coord(0, 1)])
    # Of text they are.
    text = radixkv.Tokens(radixkv.Tokens(ids(20)))
    assert text.ids.tolist() == ids(20).tolist() and text.items == []
    assert len(radixkv.Tokens.build(text, [radixkv.TokenItem.coord(0, 1)])) == 21


def test_h01_page_digests() -> None:
    into = np.zeros((6, 32), np.uint8)
    assert radixkv.Tokens.page_digests(ids(100), 16) == 6
    assert radixkv.Tokens.page_digests(ids(100), 16, into) == 6
    assert len({bytes(row) for row in into}) == 6
    rest = np.zeros((2, 32), np.uint8)
    parent = bytes(into[3])
    assert radixkv.Tokens.page_digests(ids(100), 16, rest, parent=parent, first_page=4) == 2
    np.testing.assert_array_equal(rest, into[4:])
    with pytest.raises(radixkv.BufferTooSmall) as caught:
        radixkv.Tokens.page_digests(ids(100), 16, rest)
    assert caught.value.needed == 6


def test_p01_everything_is_documented() -> None:
    """help() says what each method takes and does."""
    for name in radixkv.__all__:
        item = getattr(radixkv, name)
        if not inspect.isclass(item) or not item.__module__.startswith("radixkv"):
            continue
        assert inspect.getdoc(item), name
        for method, value in vars(item).items():
            shown = callable(value) or isinstance(value, types.GetSetDescriptorType)
            if method.startswith("_") or not shown:
                continue
            said = inspect.getdoc(value)
            assert said and "--" not in said, f"{name}.{method}"
            if callable(value):
                assert str(inspect.signature(value)), f"{name}.{method}"
    assert "rkv_" not in str(inspect.getdoc(radixkv.CacheStats.lookup_count))


def test_the_exit_of_a_process_with_live_objects() -> None:
    code = (
        "import radixkv, numpy\n"
        "cache = radixkv.Cache(radixkv.PageTable(64))\n"
        "sequence = cache.begin(numpy.arange(1, 40, dtype='u4'))\n"
        "snapshots = radixkv.SnapshotCache()\n"
        "snapshots.insert([1, 2], sequence)\n"
        "pin = snapshots.match([1, 2])\n"
        "radixkv.set_log(print)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_snapshot_cache_is_closed_while_the_process_exits() -> None:
    code = (
        "import radixkv\n"
        "class Engine:\n"
        "    def __init__(self):\n"
        "        self.states = radixkv.SnapshotCache()\n"
        "        self.states.insert([1, 2], object())\n"
        "    def __del__(self):\n"
        "        self.states.close()\n"
        "engine = Engine()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_of_fork_is_refused(cache: radixkv.Cache) -> None:
    child = os.fork()
    if child == 0:
        try:
            cache.stats()
        except radixkv.InvalidState:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("kind", ["array", "memoryview", "list", "tuple", "int32", "int64"])
def test_p01_tokens_of_all_kinds(cache: radixkv.Cache, kind: str) -> None:
    import array

    with cache.begin(ids(64)) as sequence:
        sequence.publish(64)
    whole = ids(64)
    given = {
        "array": array.array("I", whole.tolist()),
        "memoryview": memoryview(whole.tobytes()).cast("I"),
        "list": whole.tolist(),
        "tuple": tuple(whole.tolist()),
        "int32": whole.astype(np.int32),
        "int64": whole.astype(np.int64),
    }[kind]
    assert cache.match(given).token_count == 64


def test_p01_no_other_library_takes_the_place_of_the_package_s(tmp_path: Path) -> None:
    """One that was installed for C programs, and that the loader was told of."""
    shutil.copy(radixkv.get_library(), tmp_path / "libradixkv.so")
    code = (
        "import radixkv, re\n"
        "maps = open('/proc/self/maps').read()\n"
        "print(*set(re.findall(r'\\S*libradixkv\\.so', maps)))\n"
    )
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.split() == [str(Path(radixkv.get_library()).resolve())]
