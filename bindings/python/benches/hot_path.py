"""What a call costs from Python and from C, over the same library in one run.

    bash scripts/python.sh bench

The C side, calls.c, is compiled here against the package's own header and library.
"""

import os
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

import numpy as np

import radixkv
from radixkv import dtypes

HERE = Path(__file__).resolve().parent
TOKENS, BATCH = 1104, 256
RUNS = 100


def from_c() -> dict[str, float]:
    """Microseconds of each call from C."""
    library = Path(radixkv.get_library())
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "calls"
        command = [
            os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-Werror", str(HERE / "calls.c"),
            "-I", radixkv.get_include(), str(library), f"-Wl,-rpath,{library.parent}",
            "-o", str(program),
        ]
        subprocess.run(command, check=True)
        done = subprocess.run([program], check=True, capture_output=True, text=True)
    lines = (line.split() for line in done.stdout.splitlines())
    return {name: float(nanoseconds) / 1000 for name, nanoseconds in lines}


def best(call: Callable[[], object], count: int) -> float:
    """Microseconds of a call: the least of many short runs, few of which are interrupted."""
    return min(timeit.repeat(call, number=count, repeat=RUNS)) / count * 1e6


def from_python() -> dict[str, float]:
    """Microseconds of each call from here."""
    table = radixkv.PageTable(70000, slot_count=512)
    cache = radixkv.Cache(table)
    prompt = np.arange(1, TOKENS + 1, dtype=np.uint32)
    with cache.begin(prompt) as sequence:
        sequence.publish(TOKENS)
    pages = np.empty(TOKENS, np.uint32)
    wide, listed = prompt.astype(np.int64), prompt.tolist()

    def match_unlock() -> None:
        cache.unlock(cache.match(prompt, pages, lock=True).lock)

    found = {
        "match": best(lambda: cache.match(prompt), 500),
        "match_pages": best(lambda: cache.match(prompt, pages), 500),
        "match_unlock": best(match_unlock, 500),
        "probe": best(lambda: cache.probe(prompt), 500),
        "match of int64": best(lambda: cache.match(wide), 100),
        "match of a list": best(lambda: cache.match(listed), 50),
    }
    infos = np.zeros(BATCH, dtypes.sequence_info)
    ids = [
        np.arange(64, dtype=np.uint32) + np.uint32(100000 * (at + 1)) for at in range(BATCH)
    ]
    cache.begin_many(ids, infos)
    sequences = infos["sequence"].copy()
    decoded, statuses = np.full(BATCH, 5, np.uint32), np.zeros(BATCH, np.int32)
    computed = np.full(BATCH, 64, np.uint64)
    found["append_many_256"] = best(
        lambda: cache.append_many(sequences, decoded, statuses=statuses), 10
    )
    found["publish_many_256"] = best(
        lambda: cache.publish_many(sequences, computed, statuses=statuses), 10
    )
    positions = infos["position_count"].copy()
    plan = radixkv.Plan(table)
    mapping = np.zeros(BATCH, np.int64)

    def step() -> None:
        plan.set(sequences, positions)
        plan.read(slot_mapping=mapping)

    found["plan.set and read, 256 rows"] = best(step, 10)
    cache.release_many(sequences)
    return found


def main() -> None:
    c = from_c()
    python = from_python()
    print(f"radixkv {radixkv.version()}, Python {sys.version.split()[0]}, numpy {np.__version__}")
    print("| call | from C, us | from Python, us | more, us |\n|---|---|---|---|")
    for name, there in python.items():
        here = c.get(name)
        if here is None:
            print(f"| {name} | | {there:.2f} | |")
        else:
            print(f"| {name} | {here:.2f} | {there:.2f} | {there - here:.2f} |")


if __name__ == "__main__":
    main()
