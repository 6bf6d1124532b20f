#!/usr/bin/env python3
"""How long threads had a lock for writing, where that was long in each of several runs.

usage: held.py PROGRAM LIBRARY_FOLDER HEADER [--runs N] [--limit US] [--reserve MIB] WORLD...

The library is built with the feature `timed-lock`. A world that waits for nobody does the same in
each run, so its holds have the same numbers; of each the shortest time counts, without what others
had the processor for. Where other threads do a part of the work the numbers differ from run to run:
then a place counts with the fewest holds that one run had there, and with the longest one of the
run where that was shortest.
"""
import argparse
import collections
import os
import re
import subprocess
import sys
import typing

# Lines of the library that a row is told with.
LINES = 3


class Hold(typing.NamedTuple):
    """What a thread did in a hold: the longest one of several is the largest."""

    us: float
    faults: int
    waits: int


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
            _, thread, number, us, faults, waits, place = line.split("|", 6)
            lines = re.sub(r":(\d+):\d+", r":\1", place).split(" < ")
            hold = Hold(float(us), int(faults), int(waits))
            holds[shape, thread, int(number)] = hold, lines[:LINES]
    return holds


def by_place(holds):
    """The holds of a run, by where they were given up: number and time of each."""
    places = collections.defaultdict(dict)
    for (shape, thread, number), (hold, lines) in holds.items():
        places[shape, thread, " < ".join(lines)][number] = hold
    return places


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
    print("| world | page | index | thread | holds in each run, same ones | longest, us "
          "| page faults in it | waits in it | given up at |")
    print("|---|--:|--:|---|--:|--:|--:|--:|---|")
    for world in arguments.worlds:
        runs = [by_place(holds_of(arguments, world)) for _ in range(arguments.runs)]
        rows = []
        for place in set(runs[0]).intersection(*runs[1:]):
            held = [run[place] for run in runs]
            # The quickest of one and the same hold, where there is one; else of the longest ones.
            same = [min(run[number] for run in held)
                    for number in set(held[0]).intersection(*held[1:])]
            longest = min(max(run.values()) for run in held)
            rows.append((max(same, default=longest), len(same), min(map(len, held)), place))
        for hold, same, count, (shape, thread, lines) in sorted(rows, reverse=True):
            page, index = shape
            print(f"| {world} | {page} | {index} | {thread} | {count}, {same} | {hold.us:.1f} "
                  f"| {hold.faults} | {hold.waits} | `{lines}` |", flush=True)


if __name__ == "__main__":
    main()
