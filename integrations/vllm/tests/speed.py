#!/usr/bin/env python3
"""The time that a request spends in the cache's calls on the scheduler's thread.

    speed.py MODEL [--requests N] [--blocks N] [--seed N]

vLLM's cache and radixkv's get the same requests in one process, step by step in turn. Each call of
the scheduler into its manager is timed, and summed for the request that it is for; what an empty
call shows in the same way is taken off. Hits are compared with what vLLM finds of each request.
"""

import argparse
import gc
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import twins
from vllm.v1.core.kv_cache_manager import KVCacheBlocks

from radixkv_vllm.blocks import PageBlocks

#: The scheduler's calls for one request.
CALLS = [
    "allocate_slots",
    "cache_blocks",
    "estimate_cached_tokens",
    "free",
    "get_blocks",
    "get_computed_blocks",
    "record_prefix_cache_stats",
]
_clock = time.perf_counter_ns


class Watch:
    """Nanoseconds in a manager's calls, by request and by call."""

    def __init__(self, manager: Any) -> None:
        self.requests: dict[str, float] = defaultdict(float)
        self.calls: dict[str, float] = defaultdict(float)
        self.counts: Counter[str] = Counter()
        self._empty = self._cost_of_nothing()
        self.requests.clear()
        self.calls.clear()
        self.counts.clear()
        for name in CALLS:
            setattr(manager, name, self._timed(name, getattr(manager, name)))

    def _timed(self, name: str, call: Callable[..., Any], empty: float = 0.0) -> Callable[..., Any]:
        empty = self._empty if name != "nothing" else 0.0
        requests, calls, counts = self.requests, self.calls, self.counts

        def timed(first: Any, *args: Any, **kwargs: Any) -> Any:
            start = _clock()
            done = call(first, *args, **kwargs)
            spent = _clock() - start - empty
            requests[first if type(first) is str else first.request_id] += spent
            calls[name] += spent
            counts[name] += 1
            return done

        return timed

    def _cost_of_nothing(self) -> float:
        self._empty = 0.0
        timed, spent = self._timed("nothing", lambda first, second: None), []
        for _ in range(7):
            self.calls.clear()
            for _ in range(5000):
                timed("", 1)
            spent.append(self.calls["nothing"] / 5000)
        return min(spent)


def total_of(owner: type, name: str) -> list[float]:
    """Times a method of a class: nanoseconds in [0]."""
    call, spent = getattr(owner, name), [0.0]

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = _clock()
        done = call(*args, **kwargs)
        spent[0] += _clock() - start
        return done

    setattr(owner, name, timed)
    return spent


def micros(values: Any) -> str:
    values = np.asarray(values) / 1000
    return f"{np.percentile(values, 50):.1f} | {np.percentile(values, 99):.1f} | {values.mean():.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--blocks", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    hasher = twins.start_hashing()
    hashing = [0.0]

    def timed_hasher(request: Any) -> list[Any]:
        start = _clock()
        done = hasher(request)
        hashing[0] += _clock() - start
        return done

    schedulers = {
        name: twins.make(name, args.model, args.blocks) for name in twins.CLASSES
    }
    watches = {name: Watch(it.kv_cache_manager) for name, it in schedulers.items()}
    lists = {"vLLM": total_of(KVCacheBlocks, "get_block_ids")}
    lists["radixkv"] = total_of(PageBlocks, "get_block_ids")
    waiting = list(twins.prompts(args.requests, args.seed))[::-1]
    prompts = {it.name: it.tokens for it in waiting}
    hits: dict[str, dict[str, int]] = {name: {} for name in schedulers}
    gc.collect()
    gc.freeze()
    turn = list(schedulers)
    while waiting or any(it.has_unfinished_requests() for it in schedulers.values()):
        for _ in range(min(2, len(waiting))):
            prompt = waiting.pop()
            for name, scheduler in schedulers.items():
                kept = timed_hasher if name == "vLLM" else hasher
                scheduler.add_request(twins.request_of(prompt, kept))
        turn.reverse()
        for name in turn:
            for request, count in twins.step(schedulers[name]).items():
                hits[name].setdefault(request, count)
    ours = schedulers["radixkv"].kv_cache_manager
    ours.cache.check()
    ours.table.check()

    theirs = watches["vLLM"]
    print("| µs per request | p50 | p99 | mean |")
    print("|---|--:|--:|--:|")
    spent = {name: np.array([it.requests[key] for key in prompts]) for name, it in watches.items()}
    for name in watches:
        print(f"| the cache's calls, {name} | {micros(spent[name])} |")
    p50, p99 = (
        np.percentile(spent["radixkv"], at) / np.percentile(spent["vLLM"], at) for at in (50, 99)
    )
    mean = spent["radixkv"].mean() / spent["vLLM"].mean()
    print(f"| radixkv / vLLM | {p50:.3f} | {p99:.3f} | {mean:.3f} |")
    count = len(prompts)
    for name in watches:
        print(f"| besides: lists of block numbers, {name} | | | {lists[name][0] / count / 1000:.1f} |")
    print(f"| besides: hashing of blocks, vLLM | | | {hashing[0] / count / 1000:.1f} |")
    converted = []
    for tokens in prompts.values():
        start = _clock()
        array("I", tokens[:])
        converted.append(_clock() - start)
    print(f"| of radixkv's calls: the prompt's list of tokens | {micros(converted)} |")
    print()
    print("| call | times a request | vLLM, µs | radixkv, µs |")
    print("|---|--:|--:|--:|")
    for call in CALLS:
        cells = [f"{watches[it].calls[call] / count / 1000:.2f}" for it in watches]
        print(f"| {call} | {theirs.counts[call] / count:.1f} | {cells[0]} | {cells[1]} |")
    print()
    fewer = [it for it in prompts if hits["radixkv"][it] < hits["vLLM"][it]]
    more = [it for it in prompts if hits["radixkv"][it] > hits["vLLM"][it]]
    print("| requests | prompt tokens | hits, vLLM | hits, radixkv | more | fewer |")
    print("|--:|--:|--:|--:|--:|--:|")
    cells = [sum(map(len, prompts.values()))] + [sum(hits[it].values()) for it in schedulers]
    print(f"| {count} | " + " | ".join(map(str, cells)) + f" | {len(more)} | {len(fewer)} |")


main()
