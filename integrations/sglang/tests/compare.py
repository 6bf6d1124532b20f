"""P04, P07: puts the runs of serve.py side by side: tokens, hits, time.

    compare.py FOLDER PAGE_SIZE   reads FOLDER/{default,python,radixkv}-PAGE_SIZE.{json,log} and
                                  FOLDER/{default,radixkv}-room-PAGE_SIZE.json

Fails when a token differs; when a request hit less than with SGLang's own cache where nothing is
evicted; and when all of those one at a time hit less in the tight pool. There two caches that don't
evict in the same order differ in single requests: those that hit less are named.
"""

import json
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

KINDS = ("default", "python", "radixkv")


def answers(path: Path) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in json.loads(path.read_text())}


class Call(NamedTuple):
    """A call of a cache, and its microseconds: all, those of tensors that it made, and those of
    SGLang's pools."""

    request: str
    method: str
    us: float
    tensors: float
    pools: float


def calls(path: Path) -> list[Call]:
    def call(request: str, method: str, *ns: str) -> Call:
        us, tensors, pools = (int(each) / 1e3 for each in ns)
        return Call(request, method, us, tensors, pools)

    return [call(*line.split(" ")) for line in path.read_text().splitlines()]


def by_request(rows: list[Call]) -> dict[str, list[float]]:
    """Microseconds of each request's calls, of parts of them, and of the rest, each in order."""
    took: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for call in rows:
        own = call.us - call.tensors - call.pools
        parts = {"all": call.us, "tensors": call.tensors, "SGLang's pools": call.pools}
        for part, us in {**parts, "the rest": own}.items():
            took[part][call.request] += us
    return {part: sorted(of.values()) for part, of in took.items()}


def percentile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


def show_time(folder: Path, page_size: str) -> None:
    print("  us per request in the cache's calls, one request at a time; calls x us of each:")
    for kind in KINDS:
        path = folder / f"{kind}-{page_size}.log"
        if not path.exists():
            continue
        rows = [row for row in calls(path) if row.request.startswith("talk-")]
        took = by_request(rows)
        for part, us in took.items():
            p50, p99 = percentile(us, 0.5), percentile(us, 0.99)
            name = kind if part == "all" else f"  {part}"
            print(f"  {name:17} p50 {p50:7.1f}  p99 {p99:7.1f}")
        methods: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            methods[row.method].append(row.us)
        parts = sorted(methods.items(), key=lambda item: -sum(item[1]))
        print("          ", end="")
        print(
            ", ".join(
                f"{name} {len(us) / len(took['all']):.1f} x {statistics.median(us):.1f}"
                for name, us in parts
            )
        )


class Comparison:
    """The answers of two runs to the same requests."""

    def __init__(self, folder: Path, page_size: str) -> None:
        self.theirs = answers(folder / f"default-{page_size}.json")
        self.ours = answers(folder / f"radixkv-{page_size}.json")
        assert self.theirs.keys() == self.ours.keys(), "the runs did not answer the same requests"
        kept = [name for name, answer in self.theirs.items() if answer["ended"] != "abort"]
        self.kept_count = len(kept)
        self.differing = [
            name for name in kept if self.theirs[name]["output"] != self.ours[name]["output"]
        ]
        alone = [name for name in self.theirs if name.startswith("talk-")]
        more = {name: self.cached(self.ours, name) - self.cached(self.theirs, name)
                for name in alone}
        self.alone_count = len(alone)
        self.less = [name for name in alone if more[name] < 0]
        self.more = [name for name in alone if more[name] > 0]
        #: Tokens that requests one at a time found beyond those that SGLang's found.
        self.gain = sum(more.values())

    @staticmethod
    def cached(run: dict[str, dict[str, Any]], name: str) -> int:
        return int(run[name]["cached"])

    def show(self) -> None:
        print(f"  answers that differ: {len(self.differing)} of {self.kept_count}", end=" ")
        print(self.differing[:5])
        print(f"  hits, one request at a time: less {len(self.less)}", end=", ")
        print(f"more {len(self.more)} of {self.alone_count}, in all {self.gain:+} tokens")
        for name in self.less[:10]:
            found = (self.cached(run, name) for run in (self.theirs, self.ours))
            print("  less in {}: theirs {}, ours {}".format(name, *found))
        for whose, run in (("theirs", self.theirs), ("ours", self.ours)):
            ended = Counter(answer["ended"] for answer in run.values())
            retractions = sum(answer["retractions"] for answer in run.values())
            print(f"  {whose}: cached tokens {sum(self.cached(run, name) for name in run)}", end="")
            print(f", aborted {ended['abort']}, retractions {retractions}")


def main(folder: Path, page_size: str) -> int:
    room, tight = (Comparison(folder, name) for name in (f"room-{page_size}", page_size))
    print(f"page size {page_size}, room for all: {len(room.theirs)} requests")
    room.show()
    print(f"page size {page_size}: {len(tight.theirs)} requests")
    tight.show()
    show_time(folder, page_size)
    return 1 if room.differing or room.less or tight.differing or tight.gain < 0 else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
