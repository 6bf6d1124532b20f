"""Writes what scripts/gpu.sh measured into the GPU section of docs/PERFORMANCE.md.

Usage: gpu_docs.py folder... page. Where several visits left folders, a file of a later one stands
for that of those before it, and other libraries are gathered from all of them. All between the
two marks of the page is replaced; prose is beside them.
"""

import pathlib
import re
import sys

MARK = "<!-- scripts/gpu.sh -->"
SHAPES = pathlib.Path(__file__).parent.parent / "benches/cuda/shapes.rs"
NONE = "–"
# Times the roofline: what was to be reached first, and what at last.
GOALS = {
    "P1": (2.4, 1.35),
    "P3": (2.6, 1.6),
    "P5": (2.8, 1.9),
    "P6": (2.7, 1.35),
    "A1": (2.4, 1.4),
    "A3": (3, 1.7),
    "A5": (2.5, 1.6),
    "A6": (1.5, 1.15),
    "A8": (1.6, 1.2),
    "D1": (1.6, 1.35),
    "D2": (1.25, 1.08),
    "D3": (1.2, 1.05),
    "W1": (1.3, 1.3),
}
# Logs of the stage `first`.
PARTS = ("steps", "hopper", "long-heads", "graphs", "pages", "others")
# Of Nsight Compute's tables, and how a column calls it.
METRICS = [
    ("Duration", "µs"),
    ("SM Frequency", "GHz"),
    ("Issue Slots Busy", "issue slots"),
    ("L1/TEX Cache Throughput", "shared memory, L1"),
    ("L2 Cache Throughput", "L2"),
    ("L2 Hit Rate", "L2 hits"),
    ("DRAM Throughput", "memory"),
]


def lines(path):
    return path.read_text(errors="replace").splitlines() if path else []


def fields(path):
    return [line.split("\t") for line in lines(path) if line]


def number(text):
    """A time, if it is one."""
    try:
        return float(text)
    except ValueError:
        return None


def shown(us):
    return f"{us:.0f}" if us >= 100 else f"{us:.1f}"


def table(head, numbers, rows):
    """Its first columns are text."""
    texts = len(head) - numbers
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * texts + "--:|" * numbers
    for row in rows:
        yield "| " + " | ".join(row) + " |"


class Visits:
    def __init__(self, folders):
        self.folders = [pathlib.Path(folder) for folder in folders]

    def file(self, name):
        """The newest one."""
        found = [folder / name for folder in self.folders if (folder / name).exists()]
        return found[-1] if found else None

    def matching(self, pattern):
        names = {path.name for folder in self.folders for path in folder.glob(pattern)}
        return [self.file(name) for name in sorted(names)]

    def visits(self):
        """Of which library, on which device."""
        for folder in self.folders:
            commit, device = ((folder / name).read_text().strip() for name in ("commit", "device"))
            yield f"Library of commit {commit}; {device}."


class Shapes:
    """What our kernels take, and what the machine allows."""

    def __init__(self, path, matmul):
        rows = fields(path)
        facts = {row[0]: row[1] for row in rows if len(row) == 2}
        self.copy, self.matmul = float(facts["copy"]), matmul
        self.rows = [row for row in rows if len(row) == 10 and row[0] != "id"]
        self.checks = {row[1]: row[5] for row in rows if row[0] == "check"}
        self.errors = [row[5] for row in rows if row[0] == "check"]
        self.times = {tuple(row[:4]): float(row[4]) for row in self.rows}
        self.hosts = {tuple(row[:4]): float(row[8]) for row in self.rows}
        self.rates = {tuple(row[:4]): (float(row[6]), float(row[7])) for row in self.rows}
        self.words = {name: words for name, *words in self.described()}
        self.ids = [name for name in self.words if self.used(name)]

    def used(self, name, page="16", kv="bf16"):
        """The kernel that a runner takes here."""
        keys = [(name, page, kv, kernel) for kernel in ("sm90", "mma")]
        return next((key for key in keys if key in self.times), None)

    def roofline(self, key):
        """Microseconds: the longer of computing and moving what there is at least."""
        (flops, rate), time = self.rates[key], self.times[key]
        if not self.matmul and flops / rate > 100:
            return None
        return time * max(flops / self.matmul if self.matmul else 0, rate / self.copy)

    def described(self):
        """Ids and what they are, as the benchmark's source has them."""
        call = r'shape\(\s*"(\w+)", (\d+), \[(\w+), ([\w +]+), \w+\], \[(\d+), (\d+), (\d+)\]'
        for name, rows, new, keys, query_heads, kv_heads, dim in re.findall(
            call, SHAPES.read_text()
        ):
            yield name, f"{rows} × {new} of {keys}", f"{query_heads}/{kv_heads}, {dim}"


def beside(ours, theirs):
    """Their time, and ours relative to it."""
    time = number(theirs)
    return f"{shown(time)} ({ours / time:.2f})" if time else NONE


def other_libraries(visits):
    """Times by shape, page size and library: PyTorch's know no pages."""
    dense, paged = {}, {}
    for folder in visits.folders:
        for row in fields(folder / "torch.tsv" if (folder / "torch.tsv").exists() else None):
            if row[0] != "matmul":
                dense[row[0], row[1]] = row[2]
        for row in fields(folder / "peers.tsv" if (folder / "peers.tsv").exists() else None):
            if len(row) == 5:
                paged[row[0], row[1], row[2]] = row[3]
    return dense, paged, list(dict.fromkeys(library for _, _, library in paged))


def main_table(shapes, dense, paged, libraries):
    rows = []
    for name in shapes.ids:
        used, mma = shapes.used(name), (name, "16", "bf16", "mma")
        ours, roofline = shapes.times[used], shapes.roofline(used)
        goals = " → ".join(f"{goal:g}" for goal in dict.fromkeys(GOALS.get(name, ())))
        # Latent pages of others are of 64.
        page = "64" if name.startswith("M") else "16"
        others = [paged.get((name, page, library), "") for library in libraries]
        others += [dense.get((name, backend), "") for backend in ("cudnn", "flash")]
        rows.append(
            [name, *shapes.words[name]]
            + [shown(shapes.times[mma]) if mma in shapes.times else NONE, shown(ours)]
            + [f"{ours / roofline:.2f}" if roofline else NONE, goals or NONE]
            + [beside(ours, time) for time in others]
        )
    head = ["id", "rows × new of all positions", "heads, dim", "`attn_mma` alone", "default"]
    head += ["× roofline", "goals", *libraries, "dense, cuDNN", "dense, SDPA flash"]
    return table(head, len(head) - 3, rows)


def page_table(shapes, paged, libraries):
    sizes = sorted({int(page) for _, page, _, _ in shapes.times})
    rows = []
    for name in shapes.ids:
        if not all((name, str(size), "bf16", "mma") in shapes.times for size in sizes):
            continue
        for kv in ("bf16", "e4m3"):
            for label, kernel in (("default", None), ("`attn_mma` alone", "mma")):
                keys = [
                    (name, str(size), kv, kernel) if kernel else shapes.used(name, str(size), kv)
                    for size in sizes
                ]
                if all(key in shapes.times for key in keys):
                    rows.append([name, kv, label, *(shown(shapes.times[key]) for key in keys)])
            for library in libraries if kv == "bf16" else ():
                times = [number(paged.get((name, str(size), library), "")) for size in sizes]
                if any(times):
                    rows.append([name, kv, library, *(shown(t) if t else NONE for t in times)])
    return table(["id", "KV", "", *(f"pages of {size}" for size in sizes)], len(sizes), rows)


def graph_table(shapes):
    rows = []
    for key, time in shapes.times.items():
        name, page, kv, kernel = key
        if "graph" not in kernel:
            continue
        kernel, note = kernel.split(", graph")
        called = (name, page, kv, kernel)
        call = [shown(shapes.times[called]), f"{shapes.hosts[called]:.1f}"]
        # Uncaptured calls share what can be shared.
        us, host = [NONE, NONE] if note else call
        words = [name + note, f"`attn_{kernel}`"]
        rows.append([*words, us, shown(time), host, f"{shapes.hosts[key]:.1f}"])
    return table(["id", "kernel", "call", "graph", "host, call", "host, graph"], 4, rows)


def tier_table(path):
    rows = [row[1:] for row in fields(path) if row[0] == "tiers" and number(row[1])]
    kept = [
        [f"{direction}, {host}", layout, page, mib, ours, one, f"{float(share):.0f} %"]
        for page, layout, _, mib, direction, host, ours, one, share in rows
    ]
    head = ["", "layout", "positions", "MiB", "GB/s", "one copy, GB/s", "share"]
    return list(table(head, 5, kept)) if kept else []


def counter_table(logs):
    rows = []
    for path in logs:
        found, unit = {}, {}
        text = "\n".join(lines(path))
        for line in text.splitlines():
            for metric, _ in METRICS:
                match = re.match(rf"\s*{re.escape(metric)}\s+(\S+)\s+([\d.,]+)\s*$", line)
                if match and metric not in found:
                    unit[metric], found[metric] = match[1], match[2].replace(",", "")
        kernel = re.search(r"(rkv_\w+)", text)
        if not kernel or "Duration" not in found:
            continue
        if unit["Duration"] == "ms":
            found["Duration"] = str(float(found["Duration"]) * 1000)
        tensor = re.search(r"utilized pipeline \(([\d.]+)%\)", text) if "Tensor" in text else None
        values = [float(found[metric]) for metric, _ in METRICS]
        rows.append(
            [path.stem.removeprefix("counters-"), f"`{kernel[1]}`", shown(values[0])]
            + [f"{values[1]:.2f}", f"{float(tensor[1]):.0f} %" if tensor else NONE]
            + [f"{value:.0f} %" for value in values[2:]]
        )
    names = [name for _, name in METRICS]
    head = ["", "kernel", *names[:2], "tensor cores", *names[2:]]
    return list(table(head, len(head) - 2, rows)) if rows else []


def tests(visits):
    """All tests in a line; of those that are run twice, as a whole and side by side, once."""
    whole = [visits.file(f"{name}.log") for name in ("tests", "matrix")]
    parts = [visits.file(f"{name}.log") for name in PARTS]
    passed = failed = 0
    for path in [path for path in whole if path] or [path for path in parts if path]:
        log = "\n".join(lines(path))
        result = re.search(r"^test result: .*?(\d+) passed; (\d+) failed", log, re.MULTILINE)
        if result:
            passed, failed = passed + int(result[1]), failed + int(result[2])
        else:
            yield f"`{path.name}` has no result: it did not end."
    if passed or failed:
        yield f"Tests of `tests/cuda.rs` there: {passed} passed, {failed} failed."
    yield from lines(visits.file("sanitizer.txt"))


def main(*folders, page):
    visits, page = Visits(folders), pathlib.Path(page)
    torch = fields(visits.file("torch.tsv"))
    matmul = next((float(row[2]) for row in torch if row[0] == "matmul"), None)
    shapes = Shapes(visits.file("shapes.tsv"), matmul)
    dense, paged, libraries = other_libraries(visits)
    errors = [number(error) for error in shapes.errors]
    wrong = sorted({name for name, error in shapes.checks.items() if number(error) is None})
    unseen = sorted({name for name, error in shapes.checks.items() if number(error) == 0})
    spreads = [
        f"{row[0]} {float(row[5]):.0f} %"
        for row in shapes.rows
        if tuple(row[:4]) == shapes.used(row[0]) and float(row[5]) > 2
    ]
    calls = [host for key, host in shapes.hosts.items() if "graph" not in key[3]]
    text = [
        *dict.fromkeys(visits.visits()),
        f"Ceilings of the same run: copy {shapes.copy:.2f} TB/s"
        + (f", matrix product {matmul:.0f} TFLOP/s in bf16." if matmul else "; no matrix product."),
        *tests(visits),
        f"What is timed was checked before: off by {max(filter(None, errors)):.1e} at most"
        + (f", wrong: {', '.join(wrong)}" if wrong else "")
        + (f", {', '.join(unseen)} beside another run alone" if unseen else "")
        + ".",
        "",
        "Microseconds of a call, bf16, pages of 16, beside others and our time relative to theirs:",
        "",
        *main_table(shapes, dense, paged, libraries),
        "",
        *([f"Runs that differ by more than 2 %: {', '.join(spreads)}."] if spreads else []),
        "Others take C1 as rows that share nothing, and M1 to M6 over pages of 64; PyTorch takes "
        "dense K and V, not pages.",
        f"The host takes {min(calls):.0f} to {max(calls):.0f} µs to put a call on the stream.",
        "",
        "Page sizes and fp8, µs:",
        "",
        *page_table(shapes, paged, libraries),
        "",
        "Captured into a graph, µs on the device and on the host:",
        "",
        *graph_table(shapes),
    ]
    tiers = tier_table(visits.file("tiers.log"))
    if tiers:
        text += ["", "64 pages between the device and the host, beside one copy:", "", *tiers]
    counters = counter_table(visits.matching("counters-*.log"))
    if counters:
        text += ["", "Counters of Nsight Compute, of one launch by itself:", "", *counters]
    text = "\n".join(text)
    before, _, rest = page.read_text().partition(MARK)
    _, _, after = rest.partition(MARK)
    page.write_text(before + MARK + "\n\n" + text + "\n\n" + MARK + after)


main(*sys.argv[1:-1], page=sys.argv[-1])
