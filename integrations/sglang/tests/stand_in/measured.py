"""Backends of SGLang that measure what a cache's calls take: `measured-default`, SGLang's own
choice; `measured-python`, the same with its core in Python; `measured-radixkv`.

Every call from outside is timed, by the clock of the thread, which stands still when others run;
whatever the cache calls by itself is part of it. A call is charged to the request that was matched
last, so that with one request at a time each gets its own. One line for each goes to the file that
MEASURED_LOG names: request, method, nanoseconds, and of these those that making tensors took.
"""

import os
import time
from collections.abc import Callable
from typing import Any

#: What the scheduler calls, once or more for each request.
METHODS = """match_prefix touch_prefix lock unlock inc_lock_ref dec_lock_ref path_device_indices
    prefix_device_indices checkpoint free_kv_row maybe_hand_to_session claim_kv_row on_release
    evict evict_for_alloc evict_sliding_windows evictable_size protected_size full_evictable_size
    full_protected_size swa_evictable_size swa_protected_size mamba_evictable_size
    mamba_protected_size take_events finish""".split()

#: Of RadixkvCache: between tensors and the arrays of the cache.
CONVERSIONS = {"_numbers": ("indices", "tensor"), "_tables": ("copied",)}


class Meter:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._depth = 0
        self._converted = 0
        self.request = ""

    def of_call(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.thread_time_ns

        def timed(*args: Any, **options: Any) -> Any:
            if self._depth:
                return call(*args, **options)
            if name == "match_prefix" and args[0].req is not None:
                self.request = args[0].req.rid
            self._depth, self._converted = 1, 0
            start = clock()
            try:
                return call(*args, **options)
            finally:
                took = clock() - start
                self._depth = 0
                line = f"{self.request} {name} {took} {self._converted}\n"
                os.write(self._file, line.encode())

        return timed

    def of_conversion(self, call: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.thread_time_ns

        def timed(*args: Any) -> Any:
            start = clock()
            try:
                return call(*args)
            finally:
                self._converted += clock() - start

        return timed


def register() -> None:
    import short_convolutions
    import window_places
    from sglang.srt.mem_cache import registry

    short_convolutions.mend()
    window_places.mend()

    def measured(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def factory(context: Any) -> Any:
            cache = make(context)
            meter = Meter(os.environ["MEASURED_LOG"])
            for name in (it for it in METHODS if hasattr(cache, it)):
                setattr(cache, name, meter.of_call(name, getattr(cache, name)))
            for kind, names in CONVERSIONS.items():
                for name in names if (owner := getattr(cache, kind, None)) is not None else ():
                    setattr(owner, name, meter.of_conversion(getattr(owner, name)))
            return cache

        return factory

    def python(context: Any) -> Any:
        context.params.tree_core_backend = "python"
        return registry.default_radix_cache_factory(context)

    def radixkv(context: Any) -> Any:
        from radixkv_sglang import backend

        return backend.make(context)

    if "measured-default" not in registry.registered_radix_cache_backends():
        default = registry.default_radix_cache_factory
        registry.register_radix_cache_backend("measured-default", measured(default))
        registry.register_radix_cache_backend("measured-python", measured(python))
        registry.register_radix_cache_backend("measured-radixkv", measured(radixkv))
