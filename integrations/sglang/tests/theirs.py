"""P04: SGLang's own tests of its radix cache, against this one.

    theirs.py CHECKOUT|test_radix_cache_unit.py

The file is in SGLang's source and not in its wheel. Each test runs twice: with SGLang's RadixCache
as it is installed, which shows whether the test is one of this release, and with radixkv's. Fails
when one passes with SGLang's, fails with radixkv's, and is not named here.
"""

import contextlib
import io
import sys
import types
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from sglang.srt.disaggregation import kv_events
from sglang.srt.mem_cache import base_prefix_cache, radix_cache

from simulated import SimulatedCache

WHERE = "test/registered/unit/mem_cache/test_radix_cache_unit.py"

#: What can't hold for another cache, and why.
OTHERWISE = {
    "test_hash_value_storage": "looks for hashes in the nodes of SGLang's tree",
    "test_hash_value_split": "looks for hashes in the nodes of SGLang's tree",
    "test_cache_salt_event_hashes_are_preserved_across_node_split": "looks for hashes in the nodes "
    "of SGLang's tree",
}

#: What can't be run here.
ELSEWHERE = {"test_memory_allocated": "asks an accelerator how much memory is allocated"}


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
    """The test file as a module, with what this release has elsewhere or has no more."""
    if not hasattr(kv_events, "BlockStoredMetadata"):
        kv_events.BlockStoredMetadata = dict
        kv_events.BlockStoredWithMetadata = lambda metadata, **fields: kv_events.BlockStored(
            **fields, **metadata
        )
    mamba = types.ModuleType("sglang.srt.mem_cache.mamba_radix_cache")
    mamba.TreeNode = radix_cache.TreeNode  # type: ignore[attr-defined]
    sys.modules.setdefault(mamba.__name__, mamba)
    module = types.ModuleType("test_radix_cache_unit")
    exec(compile(source, WHERE, "exec"), vars(module))
    module.RadixCache = cache  # type: ignore[attr-defined]
    return module


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases(test)
        else:
            yield test


def outcomes(source: str, cache: Any) -> tuple[dict[str, str], set[str]]:
    """What came of each test: nothing, or the last line of its failure. And which made a cache."""
    suite = unittest.TestLoader().loadTestsFromModule(load(source, cache))
    found, users = {}, set()
    for test in cases(suite):
        name = test.id().rpartition(".")[2]
        if name in ELSEWHERE:
            continue
        result, before = unittest.TestResult(), cache.made
        with contextlib.redirect_stdout(io.StringIO()):
            test.run(result)
        bad = result.failures + result.errors
        found[name] = bad[0][1].strip().splitlines()[-1] if bad else ""
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


def main(path: Path) -> int:
    source = (path if path.is_file() else path / WHERE).read_text()
    theirs, _ = outcomes(source, with_indices(Simulated))
    ours, users = outcomes(source, with_indices(SimulatedCache))
    other_release = {name: reason for name, reason in theirs.items() if reason}
    failed = {
        name: reason
        for name, reason in ours.items()
        if reason and name not in other_release and name not in OTHERWISE
    }
    passed = [name for name, reason in ours.items() if not reason]
    print(f"SGLang's tests of its radix cache: {source.count('    def test_')}")
    print(f"  pass: {len(passed)}, of which {len(users & set(passed))} make a cache")
    for name, reason in {**OTHERWISE, **ELSEWHERE}.items():
        if f"def {name}(" in source:
            print(f"  not applicable: {name}: {reason}")
    for name, reason in other_release.items():
        print(f"  of another release, fails with SGLang's own: {name}: {reason[:120]}")
    for name, reason in failed.items():
        print(f"  FAILS: {name}: {reason}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
