#!/usr/bin/env python3
"""Page digests as docs/block_hash.md describes them, with nothing but the standard library.

    reference.py check vectors.txt    recomputes every digest of the file; fails on a difference
    reference.py write vectors.txt    writes the digests anew, after the inputs that stand there

It shares no code with the library, so that the file and the library can be wrong only together
with the description.
"""
import hashlib
import struct
import sys

COORD, SIZE, IMAGE = 1, 2, 3


def namespace_digest(lora=None, image=None, salt=bytes(32), epoch=0):
    fields = []
    if lora is not None:
        fields.append((1, struct.pack("<Q", lora)))
    if image is not None:
        fields.append((2, image))
    if salt != bytes(32):
        fields.append((3, salt))
    if epoch != 0:
        fields.append((4, struct.pack("<Q", epoch)))
    data = b"rkvname1" + struct.pack("<I", len(fields))
    for number, value in fields:
        data += struct.pack("<II", number, len(value)) + value
    return hashlib.sha256(data).digest()


def positions(tokens):
    """For each position its id, the item that stands there, and whether an image goes on there."""
    for token in tokens:
        if isinstance(token, int):
            yield token, None, False
        elif token[0] == IMAGE:
            _, digest, length = token
            for offset in range(length):
                yield 0, (IMAGE, offset, length, digest), offset > 0
        else:
            kind, first, second = token
            yield 0, (kind, first, second, bytes(16)), False


def page_digest(parent, page):
    """The digest of a page, given as a list of what positions() yields."""
    ids = b"".join(struct.pack("<I", number) for number, _, _ in page)
    items = b""
    count = 0
    for place, (_, item, continues) in enumerate(page):
        # An image has one record in a page: at its first position there.
        if item is not None and (place == 0 or not continues):
            kind, first, second, digest = item
            items += struct.pack("<IIII", place, kind, first, second) + digest
            count += 1
    head = b"rkvpage1" + struct.pack("<II", len(page), count)
    return hashlib.sha256(head + parent + ids + items).digest()


def page_digests(parent, tokens, page_size):
    everything = list(positions(tokens))
    digests = []
    for start in range(0, len(everything) - page_size + 1, page_size):
        parent = page_digest(parent, everything[start : start + page_size])
        digests.append(parent)
    return digests


def read_case(lines):
    """Namespace, tokens and page size of a case, and its lines without the digests."""
    space, tokens, page_size, inputs = {}, [], 0, []
    for line in lines:
        word, *values = line.split()
        if word in ("namespace", "page"):
            continue
        inputs.append(line)
        if word in ("lora", "epoch"):
            space[word] = int(values[0])
        elif word in ("image", "salt"):
            space[word] = bytes.fromhex(values[0])
        elif word == "page_size":
            page_size = int(values[0])
        elif word == "text":
            tokens += [int(value) for value in values]
        elif word == "range":
            first, count = map(int, values)
            tokens += range(first, first + count)
        elif word == "coord":
            tokens.append((COORD, int(values[0]), 0))
        elif word == "size":
            tokens.append((SIZE, int(values[0]), int(values[1])))
        elif word == "picture":
            tokens.append((IMAGE, bytes.fromhex(values[0]), int(values[1])))
        elif word != "case":
            raise ValueError(f"unknown line: {line}")
    return space, tokens, page_size, inputs


def complete(lines):
    """A case with its digests."""
    space, tokens, page_size, inputs = read_case(lines)
    root = namespace_digest(**space)
    digests = page_digests(root, tokens, page_size)
    return inputs + [f"namespace {root.hex()}"] + [f"page {digest.hex()}" for digest in digests]


def main():
    verb, path = sys.argv[1:]
    with open(path, encoding="ascii") as file:
        blocks = [block.splitlines() for block in file.read().strip().split("\n\n")]
    made = [block if block[0].startswith("#") else complete(block) for block in blocks]
    if verb == "write":
        with open(path, "w", encoding="ascii") as file:
            file.write("\n\n".join("\n".join(block) for block in made) + "\n")
        return 0
    wrong = [block[0] for block, right in zip(blocks, made) if block != right]
    print(f"{len(blocks)} blocks, {len(wrong)} wrong {wrong}")
    return 1 if wrong or verb != "check" else 0


if __name__ == "__main__":
    sys.exit(main())
