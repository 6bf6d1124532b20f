"""Time to first token of llama-server, by where the beginning of a prompt comes from, as a table.

    table.py PROGRAM MODEL FOLDER [--quick]

Each prompt is asked for one token: cold; when another prompt has had its slot since, from the cache
in memory of llama-server itself and of radixkv; and after the server was killed and started again,
from disk, of which the kernel was told to forget what it had read.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import time
import urllib.request


class Server:
    def __init__(self, program, model, log, options):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = pathlib.Path(log)
        command = [program, "--model", model, "--port", str(self.port), "--parallel", "1"]
        # One thread, for several wait for each other when others are busy.
        command += ["--ctx-size", "8192", "--threads", "1"]
        with open(log, "wb") as file:
            self.process = subprocess.Popen(command + options, stdout=file, stderr=file)
        start = time.monotonic()
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health"):
                    break
            except OSError:
                assert self.process.poll() is None, self.log.read_text()
                time.sleep(0.02)
        self.start_seconds = time.monotonic() - start

    def ask(self, prompt):
        """Seconds to the first token, and how many tokens were not computed."""
        body = {"prompt": prompt, "n_predict": 1, "temperature": 0, "top_k": 1}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/completion",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        start = time.perf_counter()
        with urllib.request.urlopen(request) as answer:
            said = json.load(answer)
        return time.perf_counter() - start, said["timings"]["cache_n"]

    def wait_for(self, what, times):
        while len(re.findall(what, self.log.read_text())) < times:
            time.sleep(0.05)

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait()


def forget(folder):
    """Has the kernel drop the pages of all files in a folder."""
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    lengths = [500, 1000] if given.quick else [500, 1000, 2000]
    repeats = 1 if given.quick else 3
    folder = pathlib.Path(given.folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    disk = folder / "disk"
    draw = random.Random(1)
    # A new question about what was read: the last tokens are others each time.
    heads = {n: [[draw.randrange(100, 40000) for _ in range(n)] for _ in range(repeats)]
             for n in lengths}
    others = [[draw.randrange(100, 40000) for _ in range(40)] for _ in range(64)]
    tail = [draw.randrange(100, 40000) for _ in range(16)]

    def start(options):
        return Server(given.program, given.model, folder / "log", options)

    columns = ("cold", "llama-server's own, memory", "radixkv, memory", "radixkv, disk")
    times = {n: {column: [] for column in columns} for n in lengths}

    def ask(server, column, n, prompt, at_least):
        seconds, cached = server.ask(prompt)
        assert cached >= at_least, (column, n, cached, server.log.read_text()[-3000:])
        times[n][column].append(seconds)

    own = start(["--no-cache-radix"])
    for n in lengths:
        for head in heads[n]:
            ask(own, "cold", n, head, 0)
            own.ask(others[0])
            ask(own, "llama-server's own, memory", n, head + tail, n - 1)
            own.ask(others[1])
    own.end()

    ours = start(["--cache-disk", str(disk)])
    for n in lengths:
        for head in heads[n]:
            ours.ask(head)
            ours.ask(others[0])
            ask(ours, "radixkv, memory", n, head + tail, n - 1)
            ours.ask(others[1])
    time.sleep(3)  # kept a second after the last request, and written
    ours.end(signal.SIGKILL)
    log = (folder / "log").read_text()
    kept = [(int(tokens), float(size)) for tokens, size in
            re.findall(r"kept a prompt of (\d+) tokens, ([\d.]+) MiB", log)]

    for n in lengths:
        for head in heads[n]:
            forget(disk)
            ours = start(["--cache-disk", str(disk)])
            ask(ours, "radixkv, disk", n, head + tail, n - 1)
            ours.end(signal.SIGKILL)

    print("| tokens | MiB | " + " | ".join(f"{column}, ms" for column in columns) + " |")
    print("|" + "--:|" * (2 + len(columns)))
    for n in lengths:
        size = max(size for tokens, size in kept if tokens <= n + 2)
        cells = [f"{1000 * statistics.median(times[n][column]):.0f}" for column in columns]
        print(f"| {n} | {size:.1f} | " + " | ".join(cells) + " |")


main()
