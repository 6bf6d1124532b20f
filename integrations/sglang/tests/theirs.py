"""P04: SGLang's own tests of its caches, against this one.

    theirs.py CHECKOUT|FOLDER

The files are in SGLang's source and not in its wheel: test_radix_cache_unit.py, and of
test_unified_radix_cache_unittest.py the cases with full attention alone, five page sizes; a folder
may have one of them. Each test runs twice: with SGLang's cache as it is installed, which shows
whether the test is one of this release, and with radixkv's. Fails when one passes with SGLang's,
fails with radixkv's, and is not named here, or is named and passes; and when too few are left that
make a cache, as with a checkout that names its tests otherwise.
"""

import ast
import contextlib
import importlib
import io
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from sglang.srt.disaggregation import kv_events
from sglang.srt.mem_cache import base_prefix_cache, radix_cache, unified_radix_cache
from sglang.srt.mem_cache.unified_cache.components import base
from sglang.test.test_utils import CustomTestCase

from simulated import SimulatedCache

WHERE = "test/registered/unit/mem_cache"

TIER = "a tier in host memory, which is refused at start"

#: What can't hold for another cache, and why.
OTHERWISE = {
    "test_hash_value_storage": "looks for hashes in the nodes of SGLang's tree",
    "test_hash_value_split": "looks for hashes in the nodes of SGLang's tree",
    "test_cache_salt_event_hashes_are_preserved_across_node_split": "looks for hashes in the nodes "
    "of SGLang's tree",
    "test_build_backup_kv_action_orders_ancestors_first": TIER,
    "test_hicache_evict_device_leaf_aborts_demote_when_backup_fails": TIER,
    "test_hicache_evict_keeps_node_on_device_when_backup_fails": TIER,
    "test_hicache_write_back_evict_drops_unbacked_leaf_when_host_full": TIER,
    "test_evict_respects_priority_policy": "an order other than LRU, which is refused at start",
    "test_evict_iterative_tombstone_cleanup": "looks at the children of the root of SGLang's tree",
    "test_prev_prefix_len": "`insert`, which no scheduler calls, frees duplicates; here "
    "`checkpoint` does",
    "test_full_kv_hit_length_counts_the_split_fragment": "a field that LMCache alone reads",
    "test_diagnostics": "looks for a word in a message",
}

#: What can't be run here.
ELSEWHERE = {"test_memory_allocated": "asks an accelerator how much memory is allocated"}


#: Tests of a file that make a cache and pass, at least: 14 and 11 did with SGLang 0.5.23.
LEAST = 10


def with_indices(kind: type) -> type:
    """A cache whose matches have `device_indices`, as they had in earlier releases."""

    class Cache(kind):
        made = 0

        def __init__(self, params: Any) -> None:
            super().__init__(params)
            Cache.made += 1

        def match_prefix(self, params: Any) -> Any:
            found = super().match_prefix(params)
            result = Match(*found)
            result.device_indices = self.path_device_indices(found.last_device_node)
            return result

    class Match(base_prefix_cache.MatchResult):
        device_indices: torch.Tensor

    return Cache


def load(source: str, cache: type) -> types.ModuleType:
    """The tests of the radix cache, with what this release has elsewhere or has no more."""
    if not hasattr(kv_events, "BlockStoredMetadata"):
        kv_events.BlockStoredMetadata = dict
        kv_events.BlockStoredWithMetadata = lambda metadata, **fields: kv_events.BlockStored(
            **fields, **metadata
        )
    mamba = types.ModuleType("sglang.srt.mem_cache.mamba_radix_cache")
    mamba.TreeNode = radix_cache.TreeNode  # type: ignore[attr-defined]
    sys.modules.setdefault(mamba.__name__, mamba)
    module = types.ModuleType("test_radix_cache_unit")
    exec(compile(source, module.__name__, "exec"), vars(module))
    module.RadixCache = cache  # type: ignore[attr-defined]
    return module


def load_unified(source: str, cache: type) -> types.ModuleType:
    """The tests of the unified cache. Names that this release lacks are there, and empty."""
    sys.modules.setdefault(f"{base.__package__}.tree_component", base)
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            imported = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names):
                with contextlib.suppress(ImportError):
                    importlib.import_module(f"{node.module}.{name}")
                if not hasattr(imported, name):
                    setattr(imported, name, type(name, (), {}))
    module = sys.modules["test_unified"] = types.ModuleType("test_unified")
    exec(compile(source, module.__name__, "exec"), vars(module))
    module.UnifiedRadixCache = cache  # type: ignore[attr-defined]
    for name in [name for name, value in vars(module).items() if isinstance(value, type)]:
        if issubclass(vars(module)[name], unittest.TestCase) and "_FULL_ps" not in name:
            delattr(module, name)
    return module


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases(test)
        else:
            yield test


def outcomes(module: types.ModuleType, cache: Any) -> tuple[dict[str, str], set[str]]:
    """What came of each test that was not skipped: nothing, or the last line of its first failure.
    And which made a cache."""
    suite = unittest.TestLoader().loadTestsFromModule(module)
    found: dict[str, str] = {}
    users = set()
    for test in cases(suite):
        name = test.id().rpartition(".")[2]
        if name in ELSEWHERE:
            continue
        result, before = unittest.TestResult(), cache.made
        with contextlib.redirect_stdout(io.StringIO()):
            test.run(result)
        if result.skipped:
            continue
        bad = result.failures + result.errors
        said = bad[0][1].strip().splitlines()[-1] if bad else ""
        found[name] = found.get(name) or said
        if cache.made > before:
            users.add(name)
    return found, users


class Simulated(radix_cache.RadixCache):
    """SGLang's, whose `create_simulated` makes none but itself."""

    @classmethod
    def create_simulated(
        cls,
        disable: bool = False,
        mock_allocator: Any = None,
        page_size: int = 1,
        **options: Any,
    ) -> "Simulated":
        params = radix_cache.CacheInitParams(disable, None, mock_allocator, page_size, **options)
        return cls(params)


class Unified(unified_radix_cache.UnifiedRadixCache):
    """SGLang's, with the core that has nodes to look at."""

    def __init__(self, params: Any) -> None:
        params.tree_core_backend = "python"
        super().__init__(params)


Load = Callable[[str, type], types.ModuleType]
FILES: dict[str, tuple[Load, type]] = {
    "test_radix_cache_unit.py": (load, Simulated),
    "test_unified_radix_cache_unittest.py": (load_unified, Unified),
}


def compare(name: str, source: str) -> bool:
    """Shows one file's tests. Whether all is well."""
    load_file, own = FILES[name]
    kinds = [with_indices(kind) for kind in (own, SimulatedCache)]
    (theirs, _), (ours, users) = (outcomes(load_file(source, kind), kind) for kind in kinds)
    other_release = {name: reason for name, reason in theirs.items() if reason}
    failed = {
        name: reason or f"passes, and is excepted: {OTHERWISE[name]}"
        for name, reason in ours.items()
        if name not in other_release and bool(reason) != (name in OTHERWISE)
    }
    passed = {name for name, reason in ours.items() if not reason}
    made = len(users & passed)
    print(f"{name}: {len(ours)} tests")
    print(f"  pass: {len(passed)}, of which {made} make a cache")
    for name, reason in {**OTHERWISE, **ELSEWHERE}.items():
        if f"def {name}(" in source:
            print(f"  not applicable: {name}: {reason}")
    print(f"  of another release, fail with SGLang's own: {len(other_release)}")
    for name, reason in other_release.items():
        print(f"    {name}: {reason[:100]}")
    for name, reason in failed.items():
        print(f"  FAILS: {name}: {reason}")
    if made < LEAST:
        print(f"  FAILS: {LEAST} that make a cache have to pass")
    return not failed and made >= LEAST


def main(path: Path) -> int:
    warnings.simplefilter("ignore")
    # It tries again.
    CustomTestCase._callTestMethod = vars(unittest.TestCase)["_callTestMethod"]
    folder = path / WHERE if (path / WHERE).is_dir() else path
    sources = {name: (folder / name).read_text() for name in FILES if (folder / name).is_file()}
    assert sources, f"{folder} has none of {', '.join(FILES)}"
    return 0 if all([compare(name, source) for name, source in sources.items()]) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
