"""Namespaces from the extra keys of a request."""

from functools import lru_cache
from typing import NamedTuple

from radixkv import Namespace, namespace_of


class ExtraKeys(NamedTuple):
    """What divides caches beside the tokens."""

    #: The request's own, with the id of its LoRA adapter at the end.
    extra_key: str | None
    cache_salt: str | None


@lru_cache(maxsize=4096)
def space_of(extra_key: str | None, cache_salt: str | None) -> Namespace | None:
    """The namespace of a request; None, the default one, without keys."""
    keys = ExtraKeys(extra_key, cache_salt)._asdict()
    given = [part for name, key in keys.items() if key is not None for part in (name, key)]
    return namespace_of(*given) if given else None
