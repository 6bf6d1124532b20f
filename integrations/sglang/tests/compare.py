"""P04, P07: puts the runs of serve.py side by side: tokens, hits, time.

    compare.py FOLDER PAGE_SIZE   reads FOLDER/{default,python,radixkv}-PAGE_SIZE.{json,log}

Fails when a token differs or a request hit less than with SGLang's own cache.
"""

import json
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

KINDS = ("default", "python", "radixkv")


def answers(path: Path) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in json.loads(path.read_text())}


def calls(path: Path) -> list[tuple[str, str, float, float]]:
    """Request, method, and the microseconds of it and of the tensors that it made."""
    rows = (line.split(" ") for line in path.read_text().splitlines())
    return [(row[0], row[1], int(row[2]) / 1e3, int(row[3]) / 1e3) for row in rows]


def by_request(rows: list[tuple[str, str, float, float]]) -> tuple[list[float], list[float]]:
    """Microseconds of each request's calls, and of the tensors in them; both in order."""
    took: dict[str, float] = defaultdict(float)
    tensors: dict[str, float] = defaultdict(float)
    for name, _, us, converting in rows:
        if name.startswith("talk-"):
            took[name] += us
            tensors[name] += converting
    return sorted(took.values()), sorted(tensors.values())


def percentile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


def show_time(folder: Path, page_size: str) -> None:
    print("  us per request in the cache's calls, one request at a time; calls x us of each:")
    for kind in KINDS:
        path = folder / f"{kind}-{page_size}.log"
        if not path.exists():
            continue
        rows = [row for row in calls(path) if row[0].startswith("talk-")]
        took, tensors = by_request(rows)
        p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
        print(f"  {kind:8} p50 {p50:7.1f}  p99 {p99:7.1f}  of these tensors p50", end=" ")
        print(f"{percentile(tensors, 0.5):.1f}  p99 {percentile(tensors, 0.99):.1f}")
        methods: dict[str, list[float]] = defaultdict(list)
        for _, method, us, _ in rows:
            methods[method].append(us)
        parts = sorted(methods.items(), key=lambda item: -sum(item[1]))
        print("          ", end="")
        print(
            ", ".join(
                f"{name} {len(us) / len(took):.1f} x {statistics.median(us):.1f}"
                for name, us in parts
            )
        )


def main(folder: Path, page_size: str) -> int:
    theirs = answers(folder / f"default-{page_size}.json")
    ours = answers(folder / f"radixkv-{page_size}.json")
    assert theirs.keys() == ours.keys(), "the runs did not answer the same requests"
    kept = [name for name in theirs if theirs[name]["ended"] != "abort"]
    differing = [name for name in kept if theirs[name]["output"] != ours[name]["output"]]
    alone = [name for name in theirs if name.startswith("talk-")]
    less = [name for name in alone if ours[name]["cached"] < theirs[name]["cached"]]
    more = [name for name in alone if ours[name]["cached"] > theirs[name]["cached"]]
    hits = {kind: sum(a["cached"] for a in run.values()) for kind, run in
            (("theirs", theirs), ("ours", ours))}
    print(f"page size {page_size}: {len(theirs)} requests")
    print(f"  answers that differ: {len(differing)} of {len(kept)} {differing[:5]}")
    print(f"  hits, one request at a time: less {len(less)}, more {len(more)} of {len(alone)}")
    print(f"  cached tokens in all: theirs {hits['theirs']}, ours {hits['ours']}")
    for name, run in (("theirs", theirs), ("ours", ours)):
        ended = Counter(entry["ended"] for entry in run.values())
        retractions = sum(entry["retractions"] for entry in run.values())
        print(f"  {name}: aborted {ended['abort']}, retractions {retractions}")
    show_time(folder, page_size)
    for name in less[:10]:
        print(f"  LESS {name}: theirs {theirs[name]['cached']}, ours {ours[name]['cached']}")
    return 1 if differing or less else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
