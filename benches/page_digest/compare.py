#!/usr/bin/env python3
"""Page digests per second: this library's against block hashes made in Python, in one run.

    scripts/bench.sh digest [--tokens N] [--runs N]

Every way hashes the same prompt, page after page, each page chained to the one before; probes hash
as many tokens in several prompts. A time is the least of the runs, and the ways take turns, so that
a busy machine slows all of them down.
"""
import argparse
import ctypes
import hashlib
import pickle
import random
import struct
import time

try:
    import cbor2
except ImportError:
    cbor2 = None


# As which the tokens are probed.
PROMPTS = 32


class Tokens(ctypes.Structure):
    """rkv_tokens."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("ids", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("items", ctypes.c_void_p),
        ("item_count", ctypes.c_size_t),
    ]


class Args(ctypes.Structure):
    """rkv_tokens_page_digests_args."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("page_size", ctypes.c_uint32),
        ("space", ctypes.c_void_p),
        ("tokens", ctypes.c_void_p),
        ("parent", ctypes.c_void_p),
        ("first_page", ctypes.c_uint64),
    ]


class Cache:
    """Prompts in a block-hash index, and their probes: lookups that change nothing."""

    def __init__(self, library, tokens, page_size):
        self.library, self.handle = library, ctypes.c_void_p()
        self.table = ctypes.c_void_p()
        pages = len(tokens) // page_size
        config = made(struct.pack("<6I48x", 72, page_size, pages + 1, 1, pages, 0))
        self.call("rkv_page_table_create", config, ctypes.byref(self.table))
        block_hash = made(struct.pack("<4I24x", 40, 0, 1, 0))
        self.call("rkv_cache_create", self.table, block_hash, ctypes.byref(self.handle))
        length = len(tokens) // PROMPTS
        self.ids = (ctypes.c_uint32 * len(tokens))(*tokens)
        size, first = ctypes.sizeof(Tokens), ctypes.addressof(self.ids)
        starts = range(0, 4 * len(tokens), 4 * length)
        self.prompts = [Tokens(size, 0, first + at, length, None, 0) for at in starts]
        places = [ctypes.addressof(prompt) for prompt in self.prompts]
        self.items = made(b"".join(struct.pack("<2Q", 0, place) for place in places))
        self.found = made(bytes(16 * PROMPTS))
        self.statuses = made(bytes(4 * PROMPTS))
        for place in places:
            info = made(struct.pack("<I124x", 128))
            begin = made(struct.pack("<2I4Q", 40, 0, 0, place, 0, 0))
            self.call("rkv_sequence_begin", self.handle, begin, info)
            (sequence,) = struct.unpack_from("<Q", info, 8)
            numbers = [ctypes.c_uint64(sequence), ctypes.c_uint64(length)]
            self.call("rkv_sequence_publish", self.handle, *numbers, None)
            self.call("rkv_sequence_release", self.handle, numbers[0])

    def call(self, name, *args):
        status = getattr(self.library, name)(*args)
        assert status == 0, f"{name} returned {status}"

    def probe(self, at_once):
        """A function that probes all prompts, so many in a call."""
        size = ctypes.c_size_t(16)
        places = [ctypes.addressof(of) for of in (self.items, self.found, self.statuses)]
        calls = []
        for at in range(0, PROMPTS, at_once):
            item, found, status = (
                ctypes.c_void_p(place + step * at) for place, step in zip(places, (16, 16, 4)))
            count = ctypes.c_size_t(at_once)
            calls.append((self.handle, item, count, size, found, size, status))
        function = self.library.rkv_cache_probe_many

        def run():
            for call in calls:
                assert function(*call) == 0
            assert self.found.raw == struct.pack("<2Q", *2 * [len(self.ids) // PROMPTS]) * PROMPTS

        return run


def made(data):
    """Memory with these bytes."""
    return ctypes.create_string_buffer(data, len(data))


class Library:
    """rkv_tokens_page_digests() over one prompt."""

    def __init__(self, path, tokens):
        self.all = ctypes.CDLL(path)
        self.call = self.all.rkv_tokens_page_digests
        self.ids = (ctypes.c_uint32 * len(tokens))(*tokens)
        size = ctypes.sizeof(Tokens)
        self.tokens = Tokens(size, 0, ctypes.addressof(self.ids), len(tokens), None, 0)
        self.count = ctypes.c_size_t()

    def make(self, page_size):
        """A function that hashes the whole prompt in one call."""
        pages = len(self.ids) // page_size
        room = ctypes.create_string_buffer(32 * pages)
        size = ctypes.sizeof(Args)
        args = Args(size, page_size, None, ctypes.addressof(self.tokens), None, 0)

        def run():
            status = self.call(ctypes.byref(args), room, ctypes.c_size_t(pages),
                               ctypes.byref(self.count))
            assert status == 0 and self.count.value == pages
            return room[-32:]

        return run


def chained(tokens, page_size, root, digest):
    """A function that hashes the prompt page by page with digest(parent, ids)."""

    def run():
        parent = root
        for start in range(0, len(tokens) - page_size + 1, page_size):
            parent = digest(parent, tokens[start : start + page_size])
        return parent

    return run


def pickled(parent, ids):
    """Models vLLM's hash_block_tokens with `sha256`: a pickled tuple of parent, ids, extra keys."""
    data = pickle.dumps((parent, tuple(ids), None), protocol=pickle.HIGHEST_PROTOCOL)
    return hashlib.sha256(data).digest()


def in_cbor(parent, ids):
    """Models the same with `sha256_cbor`: canonical CBOR instead of pickle."""
    return hashlib.sha256(cbor2.dumps((parent, tuple(ids), None), canonical=True)).digest()


def builtin(parent, ids):
    """Python's own hash of a tuple: 64 bits, not cryptographic, and no two processes agree."""
    return hash((parent, tuple(ids)))


def packed(page_size):
    """What this library hashes, put together in Python: the digests are the same."""
    head = b"rkvpage1" + struct.pack("<II", page_size, 0)
    layout = f"<{page_size}I"

    def digest(parent, ids):
        return hashlib.sha256(head + parent + struct.pack(layout, *ids)).digest()

    return digest


def alone(page_count, page_size):
    """SHA-256 and nothing else: one input of as many 64-byte blocks as the pages take."""
    blocks = (48 + 4 * page_size + 9 + 63) // 64
    data = bytes(64 * (blocks * page_count - 1))
    return lambda: hashlib.sha256(data).digest()


def ways(library, tokens, page_size):
    root = hashlib.sha256(b"rkvname1" + bytes(4)).digest()
    empty = hashlib.sha256(b"").digest()
    pages = len(tokens) // page_size
    cache = Cache(library.all, tokens, page_size)
    all_ways = {
        "radixkv, one call": library.make(page_size),
        f"radixkv, {PROMPTS} prompts probed, one a call": cache.probe(1),
        f"radixkv, {PROMPTS} prompts probed in one call": cache.probe(PROMPTS),
        "SHA-256 alone, one input of as many blocks": alone(pages, page_size),
        "the same digests in Python (struct, hashlib)": chained(
            tokens, page_size, root, packed(page_size)),
        "pickle + SHA-256 per page (as vLLM `sha256`)": chained(tokens, page_size, empty, pickled),
        "Python's `hash` of a tuple per page": chained(tokens, page_size, 0, builtin),
    }
    if cbor2 is not None:
        all_ways["CBOR + SHA-256 per page (as vLLM `sha256_cbor`)"] = chained(
            tokens, page_size, empty, in_cbor)
    names = list(all_ways)
    python = all_ways["the same digests in Python (struct, hashlib)"]
    assert all_ways[names[0]]() == python(), "the library and Python disagree"
    return all_ways


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        named = [line for line in file if line.startswith("model name")]
    return named[0].split(":")[1].strip() if named else "unknown processor"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default="target/release/libradixkv.so")
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--runs", type=int, default=25)
    options = parser.parse_args()
    numbers = random.Random(7)
    tokens = [numbers.randrange(128000) for _ in range(options.tokens)]
    library = Library(options.library, tokens)
    print(f"{options.tokens} tokens, the least of {options.runs} runs; {processor()}.\n")
    print("| page | way | million tokens/s | ns per page | times radixkv's time |")
    print("|--:|---|--:|--:|--:|")
    for page_size in (16, 32, 64, 128, 256):
        all_ways = ways(library, tokens, page_size)
        least = dict.fromkeys(all_ways, float("inf"))
        for _ in range(options.runs):
            for name, run in all_ways.items():
                start = time.perf_counter()
                run()
                least[name] = min(least[name], time.perf_counter() - start)
        own = least["radixkv, one call"]
        for name, seconds in least.items():
            rate = options.tokens / seconds / 1e6
            page = seconds * 1e9 * page_size / options.tokens
            print(f"| {page_size} | {name} | {rate:.1f} | {page:.0f} | {seconds / own:.2f} |")
    if cbor2 is None:
        print("\ncbor2 is not installed: that way was left out")


if __name__ == "__main__":
    main()
