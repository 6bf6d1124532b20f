"""What lookups cost beside those of SGLang's Rust core, each through its own binding, in one run.

    bash scripts/python.sh bench --sglang

in the environment that integrations/sglang/run.sh makes, of SGLang's wheel: the core is the module
mem_cache.rust_tree_core in it. Called below SGLang's own Python, which turns what comes back into
objects of its own. A decoding step needs nothing of that core: the engine's allocator gives a token
its place, and the tree is told at the next checkpoint.
"""

import importlib
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import radixkv
from hot_path import TOKENS, best

RUNS = 500


def of_radixkv(page_size: int) -> dict[str, Callable[[], object]]:
    table = radixkv.PageTable(70000, page_size=page_size, slot_count=8)
    cache = radixkv.Cache(table)
    prompt = np.arange(1, TOKENS + 1, dtype=np.uint32)
    with cache.begin(prompt) as sequence:
        sequence.publish(TOKENS)
    pages = np.empty(TOKENS, np.uint32)
    wide = array("q", prompt.tolist())

    def locked() -> None:
        cache.unlock(cache.match(prompt, pages, lock=True).lock)

    assert cache.match(wide).token_count == TOKENS
    return {
        "match": lambda: cache.match(prompt),
        "match of the engine's 64-bit tokens": lambda: cache.match(wide),
        "match, with where its KV is": lambda: cache.match(prompt, pages),
        "the same with lock and unlock": locked,
    }


def of_sglang(page_size: int) -> dict[str, Callable[[], object]]:
    torch: Any = importlib.import_module("torch")
    module = "sglang.srt.mem_cache.rust_tree_core.extension"
    bindings: Any = importlib.import_module(module).bindings
    core: Any = bindings.RustUnifiedTreeCoreBinding(
        bindings.TreeCoreInitParamsBinding(
            eviction_policy="lru", page_size=page_size, device="cpu"
        ),
        [0],  # full attention
    )
    key = array("q", range(1, TOKENS + 1))
    indices = torch.arange(page_size, page_size + TOKENS)
    core.begin_insert(bindings.InsertParamsBinding(key=key, value=indices))
    root = core.empty_match_result().last_device_node_id

    def match() -> Any:
        return core.match_prefix(bindings.MatchParamsBinding(key=key))

    def with_indices() -> int:
        node: int = match().last_device_node_id
        core.collect_full_device_indices(node, root)
        return node

    def locked() -> None:
        node = with_indices()
        taken = core.inc_lock_ref(node, [])
        given = bindings.DecLockRefParamsBinding(
            node_id=taken.node_id,
            skipped_lock_components=taken.skipped_lock_components,
            component_lock_uuids=taken.component_lock_uuids,
            component_host_lock_uuids=taken.component_host_lock_uuids,
        )
        core.dec_lock_ref(node, given, False)

    assert match().device_prefix_len == TOKENS
    return {
        "match of the engine's 64-bit tokens": match,
        "match, with where its KV is": with_indices,
        "the same with lock and unlock": locked,
    }


def main() -> None:
    print("| call | tokens a page | SGLang's Rust core, us | radixkv, us |\n|---|--:|--:|--:|")
    for page_size in (16, 1):
        theirs, ours = of_sglang(page_size), of_radixkv(page_size)
        for name, call in ours.items():
            took = best(call, RUNS)
            there = f"{best(theirs[name], RUNS):.2f}" if name in theirs else ""
            print(f"| {name} | {page_size} | {there} | {took:.2f} |")


if __name__ == "__main__":
    main()
