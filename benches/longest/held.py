#!/usr/bin/env python3
"""How long threads had a lock for writing, where that was long in each of several runs.

usage: held.py PROGRAM LIBRARY_FOLDER HEADER [--runs N] [--limit US] [--reserve MIB] WORLD...

The library is built with the feature `timed-lock`. A world does the same in each run, so its holds
have the same numbers; of each the shortest time counts, without what others had the processor for.
"""
import argparse
import collections
import os
import re
import subprocess
import sys

# Lines of the library that a row is told with.
LINES = 3


def holds_of(arguments, world):
    """The holds of one run that were long: by page size and index, thread and number."""
    environment = dict(os.environ, LD_LIBRARY_PATH=arguments.library,
                       RADIXKV_LONG_HOLD_US=str(arguments.limit))
    command = [arguments.program, "--header", arguments.header, world, "--rounds", "1",
               "--reserve", str(arguments.reserve)]
    # Without all functions of the header it says so, and ends with 1.
    run = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    if run.returncode not in (0, 1):
        sys.exit(f"{world}: {run.stderr[-2000:]}")
    holds, shape = {}, None
    for line in run.stderr.splitlines():
        begins = re.fullmatch(r".+, page size (\d+), index (\d+)", line)
        if begins:
            shape = begins.groups()
        elif line.startswith("held|"):
            _, thread, number, us, faults, place = line.split("|", 5)
            lines = re.sub(r":(\d+):\d+", r":\1", place).split(" < ")
            holds[shape, thread, int(number)] = (float(us), int(faults), lines[:LINES])
    return holds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("library")
    parser.add_argument("header")
    parser.add_argument("worlds", nargs="+")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=float, default=50)
    parser.add_argument("--reserve", type=int, default=0)
    arguments = parser.parse_args()
    print("| world | page | index | thread | holds | longest, us | page faults in it "
          "| given up at |")
    print("|---|--:|--:|---|--:|--:|--:|---|")
    for world in arguments.worlds:
        runs = [holds_of(arguments, world) for _ in range(arguments.runs)]
        rows = collections.defaultdict(list)
        for key in set(runs[0]).intersection(*runs[1:]):
            shape, thread, _ = key
            us, faults, lines = min(run[key] for run in runs)
            rows[shape, thread, " < ".join(lines)].append((us, faults))
        for (shape, thread, place), held in sorted(rows.items(), key=lambda row: -max(row[1])[0]):
            us, faults = max(held)
            page, index = shape
            print(f"| {world} | {page} | {index} | {thread} | {len(held)} | {us:.1f} | {faults} "
                  f"| `{place}` |", flush=True)


if __name__ == "__main__":
    main()
