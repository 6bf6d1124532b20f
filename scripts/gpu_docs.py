"""Writes what scripts/gpu.sh measured into the GPU section of docs/PERFORMANCE.md."""

import pathlib
import sys

MARK = "<!-- scripts/gpu.sh -->"


def text_of(path):
    """What a stage left; nothing where it did not run."""
    return path.read_text().splitlines() if path.exists() else []


def lines(path):
    return [line.split("\t") for line in text_of(path) if line]


def main(folder, page):
    folder, page = pathlib.Path(folder), pathlib.Path(page)
    rows = lines(folder / "shapes.tsv")
    facts = {row[0]: row[1] for row in rows if len(row) == 2}
    shapes = [row for row in rows if len(row) == 10 and row[0] != "id"]
    torch = {}
    matmul = None
    for row in lines(folder / "torch.tsv"):
        if row[0] == "matmul":
            matmul = float(row[2])
        else:
            torch[row[0], row[1]] = row[2] if len(row[2]) < 12 else "–"
    others = {}
    for row in lines(folder / "peers.tsv"):
        if len(row) == 5:
            others[row[0], row[1], row[2]] = row[3] if len(row[3]) < 12 else "–"
    libraries = list(dict.fromkeys(library for _, _, library in others))
    copy = float(facts["copy"])
    text = [
        f"Library of commit {(folder / 'commit').read_text().strip()}; "
        f"{(folder / 'device').read_text().strip()}.",
        f"Ceilings of the same run: copy {copy:.2f} TB/s"
        + (f", matrix product {matmul:.0f} TFLOP/s in bf16." if matmul else "; no matrix product."),
        "",
    ]
    text += [line for line in text_of(folder / "tests.log") if line.startswith("test result")]
    text += text_of(folder / "sanitizer.txt")
    text += [
        "",
        "| id | page | KV | kernel | µs | spread | TFLOP/s | TB/s | × roofline | host µs "
        "| SDPA flash | SDPA cuDNN |" + "".join(f" {library} |" for library in libraries),
        "|---|--:|---|---|" + "--:|" * (8 + len(libraries)),
    ]
    for name, size, kv, kernel, us, spread, flops, rate, host, bound in shapes:
        ceiling, reached = (copy, float(rate)) if bound == "memory" else (matmul, float(flops))
        times = f"{ceiling / reached:.2f}" if ceiling and reached else "–"
        peers = [torch.get((name, peer), "–") for peer in ("flash", "cudnn")]
        # Those of the same pages, in bf16.
        size_of = size if kv == "bf16" else None
        peers += [others.get((name, size_of, library), "–") for library in libraries]
        text.append(
            f"| {name} | {size} | {kv} | {kernel} | {us} | {spread} % | {flops} | {rate} "
            f"| {times} | {host} | "
            + " | ".join(peers)
            + " |"
        )
    before, _, rest = page.read_text().partition(MARK)
    _, _, after = rest.partition(MARK)
    page.write_text(before + MARK + "\n\n" + "\n".join(text) + "\n\n" + MARK + after)


main(*sys.argv[1:])
