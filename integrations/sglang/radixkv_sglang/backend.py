"""What SGLang calls: once in each process, and where a cache is made."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang.srt.mem_cache.registry import TreeCacheBuildContext

    from .cache import RadixkvCache

NAME = "radixkv"


def register() -> None:
    """The entry point: makes `--radix-cache-backend radixkv` known."""
    from sglang.srt.mem_cache import registry

    if NAME not in registry.registered_radix_cache_backends():
        registry.register_radix_cache_backend(NAME, make)


def make(context: "TreeCacheBuildContext") -> "RadixkvCache":
    """The cache of a scheduler. Raises InterfaceChanged for an SGLang that differs from the one
    this was written for, NotCovered for a configuration that is not covered."""
    from . import interface

    # Before what imports names of SGLang's, which another one may not have.
    interface.check()
    from . import limits
    from .cache import RadixkvCache
    from .states import StatesCache
    from .windows import WindowedCache

    limits.check(context)
    if context.is_hybrid_ssm:
        return StatesCache(context.params)
    return (WindowedCache if context.is_hybrid_swa else RadixkvCache)(context.params)
