"""radixkv in the place of SGLang's radix cache.

    python -m sglang.launch_server --model-path MODEL --radix-cache-backend radixkv
    sglang.Engine(model_path=..., radix_cache_backend="radixkv")

SGLang finds it by its entry point; nothing needs to be imported. The scheduler and the allocator of
KV pages are SGLang's own. What SGLang offers and this does not cover is refused when the engine
starts, and so is an SGLang whose interface is another one.
"""

from typing import TYPE_CHECKING

from .errors import InterfaceChanged, NotCovered

if TYPE_CHECKING:
    from .cache import RadixkvCache

__all__ = ["InterfaceChanged", "NotCovered", "RadixkvCache"]


def __getattr__(name: str) -> object:
    # SGLang's modules are imported when they are wanted: the entry point is loaded in each of its
    # processes, most of which have no cache.
    if name == "RadixkvCache":
        from .cache import RadixkvCache

        return RadixkvCache
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
