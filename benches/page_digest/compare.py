#!/usr/bin/env python3
"""Page digests per second: this library's against block hashes made in Python, in one run.

    scripts/bench.sh digest [--tokens N] [--runs N]

Every way hashes the same prompt, page after page, each page chained to the one before. A time is
the least of the runs, and the ways take turns, so that a busy machine slows all of them down.
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


class Library:
    """rkv_tokens_page_digests() over one prompt."""

    def __init__(self, path, tokens):
        self.call = ctypes.CDLL(path).rkv_tokens_page_digests
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
    made = {
        "radixkv, one call": library.make(page_size),
        "SHA-256 alone, one input of as many blocks": alone(pages, page_size),
        "the same digests in Python (struct, hashlib)": chained(
            tokens, page_size, root, packed(page_size)),
        "pickle + SHA-256 per page (as vLLM `sha256`)": chained(tokens, page_size, empty, pickled),
        "Python's `hash` of a tuple per page": chained(tokens, page_size, 0, builtin),
    }
    if cbor2 is not None:
        made["CBOR + SHA-256 per page (as vLLM `sha256_cbor`)"] = chained(
            tokens, page_size, empty, in_cbor)
    names = list(made)
    assert made[names[0]]() == made[names[2]](), "the library and Python disagree"
    return made


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
        made = ways(library, tokens, page_size)
        least = dict.fromkeys(made, float("inf"))
        for _ in range(options.runs):
            for name, run in made.items():
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
