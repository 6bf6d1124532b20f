"""How large must a KV pool be? Hit rate over pool size, from a real request trace.

    bash scripts/python.sh example            # draws target/prefix_cache.png
    python examples/python/prefix_cache.py --trace data/synthetic.trace --out hits.png

Each request of the trace goes the way of a real one: begin (match, lock, allocate), publish what
was computed, release. Run it cell by cell where your editor knows `# %%`.
"""

# %% What a trace is: see data/README.md.
import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import radixkv

ROOT = Path(__file__).resolve().parents[2]
PAGE_SIZE = 64
# An odd factor spreads a block's tokens, so that two prompts agree as far as their blocks do.
SPREAD, TOKEN_LIMIT = np.uint32(0x9E3779B1), np.uint32(0x3FFFFFFF)


class Trace:
    """Prompts of a trace, as numbers of blocks of `unit` tokens."""

    def __init__(self, path: Path, limit: int) -> None:
        data = path.read_bytes()
        line, _, body = data.partition(b"\n")
        words = line.decode().split()
        if words[:2] != ["rkv-trace", "1"]:
            raise SystemExit(f"{path}: not a trace of version 1")
        self.name, self.unit = words[2], int(words[4])
        implied, count = words[6] == "implied", min(int(words[8]), limit)
        numbers = _varints(body)
        self.blocks: list[NDArray[np.uint32]] = []
        self.lengths: list[int] = []
        fresh = 0
        for at in range(count):
            distance, kept, added = next(numbers), next(numbers), next(numbers)
            old = self.blocks[at - distance][:kept] if distance else np.zeros(0, np.uint32)
            if implied:
                new = np.arange(fresh, fresh + added, dtype=np.uint32)
                fresh += added
            else:
                new = np.array([next(numbers) for _ in range(added)], np.uint32)
            last = next(numbers) if self.unit > 1 else 1
            next(numbers)  # tokens generated
            self.blocks.append(np.concatenate([old, new]))
            self.lengths.append((kept + added - 1) * self.unit + last)

    def prompt(self, at: int) -> NDArray[np.uint32]:
        """The tokens of a request."""
        if self.unit == 1:
            return self.blocks[at]
        first = np.multiply(self.blocks[at][:, None], self.unit, dtype=np.uint32)
        inside = np.add(first, np.arange(self.unit, dtype=np.uint32), dtype=np.uint32)
        tokens: NDArray[np.uint32] = np.multiply(inside, SPREAD, dtype=np.uint32)
        tokens &= TOKEN_LIMIT
        return tokens.ravel()[: self.lengths[at]]


def _varints(body: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in body:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


# %% One replay: every request through a cache with so many pages.
def replay(trace: Trace, page_count: int) -> tuple[float, float]:
    """Share of the prompts' positions that were found, and microseconds of a request's calls."""
    hit = asked = 0
    spent = 0.0
    with radixkv.PageTable(page_count, page_size=PAGE_SIZE) as table:
        with radixkv.Cache(table, whole_pages=True) as cache:
            for at in range(len(trace.blocks)):
                prompt = trace.prompt(at)
                asked += len(prompt)
                start = time.perf_counter()
                try:
                    with cache.begin(prompt) as sequence:
                        hit += sequence.info().cached_position_count
                        # Here an engine computes K and V of the rest.
                        sequence.publish(len(prompt))
                except (radixkv.OutOfPages, radixkv.InvalidArgument):
                    pass  # longer than the pool: computed elsewhere, found nothing
                spent += time.perf_counter() - start
            cache.check()
    return hit / asked, spent / len(trace.blocks) * 1e6


# %% The curve.
def curve(trace: Trace, positions: list[int]) -> list[float]:
    """Hit rates for pools of so many positions each, told as they come."""
    print(f"{trace.name}: {len(trace.blocks)} requests, {sum(trace.lengths):,} tokens")
    rates = []
    for count in positions:
        rate, microseconds = replay(trace, count // PAGE_SIZE + 1)
        print(f"{count:>12,} positions  {rate:6.1%} found  {microseconds:6.1f} us a request")
        rates.append(rate)
    return rates


def draw(trace: Trace, positions: list[int], rates: list[float], out: Path) -> None:
    import matplotlib  # only who draws needs it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot(positions, [100 * rate for rate in rates], marker="o")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("KV pool, positions")
    axes.set_ylabel("prompt positions found, %")
    axes.set_ylim(bottom=0)
    axes.set_title(f"{trace.name}: {len(trace.blocks)} requests")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(out, dpi=150)
    print(out)


# %%
def main() -> None:
    parser = argparse.ArgumentParser(description="Hit rate over pool size, from a trace.")
    parser.add_argument("--trace", type=Path, default=ROOT / "data" / "conversation.trace")
    parser.add_argument("--requests", type=int, default=1 << 30, help="the first so many")
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "prefix_cache.png")
    parser.add_argument("--sizes", type=int, default=9, help="pools, each twice the one before")
    options = parser.parse_args()
    trace = Trace(options.trace, options.requests)
    positions = [1 << (17 + at) for at in range(options.sizes)]
    rates = curve(trace, positions)
    if options.out.name != "none":
        draw(trace, positions, rates, options.out)


if __name__ == "__main__":
    main()
