"""Backends of SGLang that measure what a cache's calls take: `measured-default`, SGLang's own
choice; `measured-python`, the same with its core in Python; `measured-radixkv`.

Every call from outside is timed, by the clock of the thread, which stands still when others run;
whatever the cache calls by itself is part of it. A call is charged to the request that was matched
last, so that with one request at a time each gets its own. One line for each goes to the file that
MEASURED_LOG names: request, method, nanoseconds, and of these those that making tensors took, and
those of SGLang's pools, which every cache calls.
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
CONVERSIONS = {"_numbers": ("indices", "own"), "_tables": ("copied",)}

#: What caches have SGLang's pools do: copy states, take back pages and slots, hand slots out.
POOLS = {
    "req_to_token_pool": ("free_mamba_cache", "donate_mamba_ping_pong_slot", "write"),
    "req_to_token_pool.mamba_pool": ("copy_from",),
    "req_to_token_pool.mamba_allocator": ("alloc", "free"),
    "token_to_kv_pool_allocator": ("free", "free_page_ids"),
}


class Meter:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._depth = 0
        self._parts = {"tensors": 0, "pools": 0}
        self._is_in_part = False
        self.request = ""

    def of_call(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.thread_time_ns

        def timed(*args: Any, **options: Any) -> Any:
            if self._depth:
                return call(*args, **options)
            if name == "match_prefix" and args[0].req is not None:
                self.request = args[0].req.rid
            self._depth = 1
            self._parts = dict.fromkeys(self._parts, 0)
            start = clock()
            try:
                return call(*args, **options)
            finally:
                took = clock() - start
                self._depth = 0
                parts = self._parts
                line = f"{self.request} {name} {took} {parts['tensors']} {parts['pools']}\n"
                os.write(self._file, line.encode())

        return timed

    def of_part(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """What belongs to a part of a cache's call, but for what is within another one."""
        clock = time.thread_time_ns

        def timed(*args: Any, **options: Any) -> Any:
            if not self._depth or self._is_in_part:
                return call(*args, **options)
            self._is_in_part = True
            start = clock()
            try:
                return call(*args, **options)
            finally:
                self._parts[part] += clock() - start
                self._is_in_part = False

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
            for part, owners in {"tensors": CONVERSIONS, "pools": POOLS}.items():
                for path, names in owners.items():
                    owner = cache
                    for step in path.split("."):
                        owner = getattr(owner, step, None)
                    for name in (it for it in names if hasattr(owner, it)):
                        setattr(owner, name, meter.of_part(part, getattr(owner, name)))
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
