#!/usr/bin/env python3
"""Makes data/*.trace from the published request traces. Run by hand, once; the results are kept.

    python3 scripts/convert_traces.py --source DIRECTORY [--out data]

The source directory holds mooncake_conversation_trace.jsonl, mooncake_synthetic_trace.jsonl and
agent_tokens.jsonl, each plain or zstd-compressed (.zst; needs the zstd command). data/README.md
says where they come from and describes the format. Each file is read back after writing and
compared with its source, so what is kept is kept without loss.
"""
import argparse
import json
import os
import subprocess


def lines(directory, name):
    path = os.path.join(directory, name)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
    else:
        command = ["zstd", "-dcq", path + ".zst"]
        text = subprocess.run(command, check=True, capture_output=True).stdout.decode("utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def load_mooncake(directory, name):
    """[(unit ids, tokens in the last unit, output tokens)] by time; a unit is 512 tokens."""
    rows = sorted(lines(directory, name), key=lambda row: row["timestamp"])  # stable
    requests = []
    for row in rows:
        last = row["input_length"] - 512 * (len(row["hash_ids"]) - 1)
        assert 1 <= last <= 512, "the ids cover the prompt exactly"
        requests.append((row["hash_ids"], last, row["output_length"]))
    return requests


def load_agent(directory, name):
    """The same with a unit of one token: the ids are the tokens."""
    requests = []
    for row in lines(directory, name):
        kept = requests[row["r"]][0][: row["p"]] if row["r"] >= 0 else []
        requests.append((kept + row["x"], 1, len(row["o"])))
    return requests


def common_length(a, b):
    if a[: len(b)] == b:
        return len(b)
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a))


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return out


def encode(name, unit, implied, requests):
    head = f"rkv-trace 1 {name} unit {unit} ids {'implied' if implied else 'explicit'} "
    out = bytearray(f"{head}requests {len(requests)}\n".encode())
    next_id = 0
    for index, (ids, last, output_count) in enumerate(requests):
        # The latest request with the longest common prefix, among the last thousand: near enough.
        base, kept = index, 0
        for candidate in range(index - 1, max(-1, index - 1001), -1):
            other = requests[candidate][0]
            if len(other) > kept < len(ids) and other[: kept + 1] == ids[: kept + 1]:
                base, kept = candidate, common_length(other, ids)
        if implied:  # ids count up at their first use, so the longest prefix must be found
            old = next((i for i, unit_id in enumerate(ids) if unit_id >= next_id), len(ids))
            if kept < old:
                base, kept = next(
                    (i, old) for i in range(index - 1, -1, -1) if requests[i][0][:old] == ids[:old]
                )
            assert ids[kept:] == list(range(next_id, next_id + len(ids) - kept))
            next_id += len(ids) - kept
        fields = [index - base, kept, len(ids) - kept]
        fields += [] if implied else ids[kept:]
        fields += [last, output_count] if unit > 1 else [output_count]
        for value in fields:
            out += varint(value)
    return bytes(out)


def decode(data):
    head, body = data.split(b"\n", 1)
    words = head.split()
    unit, implied, count = int(words[4]), words[6] == b"implied", int(words[8])
    position, next_id, requests = 0, 0, []

    def read():
        nonlocal position
        value = shift = 0
        while True:
            byte = body[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    for index in range(count):
        distance, kept, new = read(), read(), read()
        ids = requests[index - distance][0][:kept] if distance else []
        if implied:
            ids = ids + list(range(next_id, next_id + new))
            next_id += new
        else:
            ids = ids + [read() for _ in range(new)]
        last = read() if unit > 1 else 1
        requests.append((ids, last, read()))
    assert position == len(body)
    return requests


TRACES = [
    ("conversation", 512, True, load_mooncake, "mooncake_conversation_trace.jsonl"),
    ("synthetic", 512, True, load_mooncake, "mooncake_synthetic_trace.jsonl"),
    ("agent", 1, False, load_agent, "agent_tokens.jsonl"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", required=True, help="directory of the published traces")
    parser.add_argument("--out", default="data", help="where to write (default: data)")
    options = parser.parse_args()
    for name, unit, implied, load, source in TRACES:
        requests = load(options.source, source)
        data = encode(name, unit, implied, requests)
        assert decode(data) == requests, name
        path = os.path.join(options.out, name + ".trace")
        with open(path, "wb") as file:
            file.write(data)
        print(f"{path}: {len(requests)} requests, {len(data)} bytes, read back equal")


if __name__ == "__main__":
    main()
