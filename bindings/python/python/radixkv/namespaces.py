"""Namespaces from the extra keys of an engine."""

import hashlib
from functools import lru_cache

from ._radixkv import Namespace


def namespace_of(
    *keys: str | bytes | int, lora_id: int | None = None, epoch: int = 0
) -> Namespace:
    """The namespace that extra keys stand for, e.g. a tenant's salt: equal for equal keys in equal
    order, different for any others.

    The salt is SHA-256 over the keys, each with its kind and its length before it, so that no two
    lists of keys run together. The last 4096 are remembered, so asking again costs little.
    """
    return _remembered(tuple(map(_encoded, keys)), lora_id, epoch)


def _made(
    keys: tuple[tuple[bytes, bytes], ...], lora_id: int | None, epoch: int
) -> Namespace:
    if not keys:
        return Namespace(lora_id=lora_id, epoch=epoch)
    digest = hashlib.sha256()
    for kind, data in keys:
        digest.update(kind + len(data).to_bytes(8, "little") + data)
    return Namespace(lora_id=lora_id, epoch=epoch, salt=digest.digest())


_remembered = lru_cache(maxsize=4096)(_made)


def _encoded(key: str | bytes | int) -> tuple[bytes, bytes]:
    if isinstance(key, str):
        return b"s", key.encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return b"b", key
    if isinstance(key, int):
        return b"i", str(key).encode()
    raise TypeError(f"keys: str, bytes or int is needed, not {type(key).__name__}")
