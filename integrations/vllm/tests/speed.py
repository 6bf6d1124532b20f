#!/usr/bin/env python3
"""The time that a request spends in the cache's calls on the scheduler's thread (P07).

    speed.py MODEL [--windows N...] [--states N] [--requests N] [--repeats N] [--blocks N]

vLLM's cache and radixkv's get the same requests in one process, step by step in turn. Each call of
the scheduler into its manager is timed, and summed for the request that it is for; what an empty
call shows in the same way is taken off. All of it is done several times, and the least time of each
call taken: what else runs on the machine only adds. Hits are compared request by request.
"""

import argparse
import gc
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import radixkv
import twins
from vllm.v1.core.kv_cache_manager import KVCacheBlocks

from radixkv_vllm.blocks import GroupBlocks, PageBlocks

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
#: What vLLM does for its cache as a request comes in and with each token: not a call of the
#: scheduler, and not made where radixkv needs none.
HASHING = "hashing of blocks"
_clock = time.perf_counter_ns


class Watch:
    """Nanoseconds of a manager's calls, in the order of the calls."""

    def __init__(self, manager: Any) -> None:
        self.spent: list[float] = []
        #: The request and the name of each.
        self.what: list[tuple[str, str]] = []
        self._empty = self._cost_of_nothing()
        self.spent.clear()
        self.what.clear()
        for name in CALLS:
            setattr(manager, name, self.timed(name, getattr(manager, name)))

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        spent, what = self.spent, self.what

        def timed(first: Any, *args: Any, **kwargs: Any) -> Any:
            start = _clock()
            done = call(first, *args, **kwargs)
            spent.append(_clock() - start)
            what.append((first if type(first) is str else first.request_id, name))
            return done

        return timed

    def _cost_of_nothing(self) -> float:
        timed, means = self.timed("nothing", lambda first, second: None), []
        for _ in range(7):
            self.spent.clear()
            for _ in range(5000):
                timed("", 1)
            means.append(sum(self.spent) / 5000)
        return min(means)

    def without_watching(self) -> Any:
        return np.array(self.spent) - self._empty


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
    p50, p99 = np.percentile(values, [50, 99])
    return f"{p50:.1f} | {p99:.1f} | {values.mean():.1f}"


class Run:
    """All requests once, through both caches."""

    def __init__(
        self, args: argparse.Namespace, groups: int, prompts: list[twins.Prompt]
    ) -> None:
        layers = {"windows": tuple(args.windows), "states": args.states}
        schedulers = {
            name: twins.make(name, args.model, groups * args.blocks, **layers)
            for name in twins.CLASSES
        }
        self.watches = {name: Watch(it.kv_cache_manager) for name, it in schedulers.items()}
        hashers = {
            name: hasher and self.watches[name].timed(HASHING, hasher)
            for name, it in schedulers.items()
            for hasher in [twins.hasher_of(it)]
        }
        self.hits: dict[str, dict[str, int]] = {name: {} for name in schedulers}
        waiting, turn = prompts[::-1], list(schedulers)
        gc.collect()
        gc.freeze()
        while waiting or any(it.has_unfinished_requests() for it in schedulers.values()):
            for _ in range(min(2, len(waiting))):
                prompt = waiting.pop()
                for name, scheduler in schedulers.items():
                    scheduler.add_request(twins.request_of(prompt, hashers[name]))
            turn.reverse()
            for name in turn:
                for request, count in twins.step(schedulers[name]).items():
                    self.hits[name].setdefault(request, count)
        ours = schedulers["radixkv"].kv_cache_manager
        ours.cache.check()
        ours.table.check()
        self.evicted = ours.cache.stats().evicted_page_count


def least(
    runs: list[Run], name: str
) -> tuple[dict[str, dict[str, float]], dict[str, float], Counter[str]]:
    """Of the cache of that name: the least times of its calls over the runs, summed by request (of
    calls, and of hashing) and by call, and how many calls there were."""
    watches = [it.watches[name] for it in runs]
    assert all(it.what == watches[0].what for it in watches), "the runs made other calls"
    times = np.min([it.without_watching() for it in watches], 0)
    requests: dict[str, dict[str, float]] = {
        kind: defaultdict(float) for kind in ("calls", HASHING)
    }
    calls: dict[str, float] = defaultdict(float)
    for (request, call), time_ in zip(watches[0].what, times, strict=True):
        requests[HASHING if call == HASHING else "calls"][request] += time_
        calls[call] += time_
    return requests, calls, Counter(call for _, call in watches[0].what)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--windows", type=int, nargs="*", default=[])
    parser.add_argument("--states", type=int, default=0)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    prompts = list(twins.prompts(args.requests, args.seed))
    count = len(prompts)
    groups = 1 + len(args.windows) + args.states
    lists = {
        "vLLM": total_of(KVCacheBlocks, "get_block_ids"),
        "radixkv": total_of(GroupBlocks if groups > 1 else PageBlocks, "get_block_ids"),
    }
    runs = [Run(args, groups, prompts) for _ in range(args.repeats)]
    first = runs[0]

    print("| µs per request | p50 | p99 | mean |")
    print("|---|--:|--:|--:|")
    times = {name: least(runs, name) for name in twins.CLASSES}
    spent = {
        name: {kind: np.array([by[it.name] for it in prompts]) for kind, by in found[0].items()}
        for name, found in times.items()
    }
    theirs_, ours_ = spent["vLLM"], spent["radixkv"]["calls"]
    assert not spent["radixkv"][HASHING].any(), "the engine hashes what nobody reads"
    print(f"| the cache's calls, vLLM | {micros(theirs_['calls'])} |")
    print(f"| {HASHING}, vLLM | {micros(theirs_[HASHING])} |")
    print(f"| the cache's calls, radixkv, which needs no hashes | {micros(ours_)} |")
    whole = theirs_["calls"] + theirs_[HASHING]
    for what, other in (("", whole), (", calls alone", theirs_["calls"])):
        p50, p99 = (np.percentile(ours_, at) / np.percentile(other, at) for at in (50, 99))
        mean = ours_.mean() / other.mean()
        print(f"| radixkv / vLLM{what} | {p50:.3f} | {p99:.3f} | {mean:.3f} |")
    for name in twins.CLASSES:
        each = lists[name][0] / count / len(runs) / 1000
        print(f"| besides: lists of block numbers, {name} | | | {each:.1f} |")
    converted = np.min([_conversions(prompts) for _ in runs], 0)
    print(f"| of radixkv's calls: the prompt's list of tokens | {micros(converted)} |\n")

    print("| call | times a request | vLLM, µs | radixkv, µs |")
    print("|---|--:|--:|--:|")
    for call in [*CALLS, HASHING]:
        cells = " | ".join(f"{times[name][1][call] / count / 1000:.2f}" for name in twins.CLASSES)
        print(f"| {call} | {times['vLLM'][2][call] / count:.1f} | {cells} |")

    ours, theirs = first.hits["radixkv"], first.hits["vLLM"]
    more, fewer = (
        sum(before[it.name] < after[it.name] for it in prompts)
        for before, after in ((theirs, ours), (ours, theirs))
    )
    tokens = sum(len(it.tokens) for it in prompts)
    print("\n| requests | prompt tokens | hits, vLLM | hits, radixkv | more | fewer | evicted |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    hits = f"{sum(theirs.values())} | {sum(ours.values())}"
    print(f"| {count} | {tokens} | {hits} | {more} | {fewer} | {first.evicted} |")


def _conversions(prompts: list[twins.Prompt]) -> Any:
    """What it takes to make a row of a list of tokens, of which the prompt is one."""
    spent = []
    with radixkv.PageTable(2) as table, radixkv.Cache(table) as cache:
        for prompt in prompts:
            start = _clock()
            cache.growing_row(prompt.tokens[:])
            spent.append(_clock() - start)
    return spent


main()
