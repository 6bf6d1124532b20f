"""The Python in README.md runs as it stands."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
from conftest import ids

import radixkv

README = Path(__file__).resolve().parents[1] / "README.md"


def blocks() -> list[str]:
    text = README.read_text()
    found = re.findall(r"^( *)```python\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def test_every_block_runs(tmp_path: Path) -> None:
    story, engine, placed, growing, grouped, hot_path, hybrid, tiers = blocks()
    printed = io.StringIO()
    told: dict[str, Any] = {}
    with contextlib.redirect_stdout(printed):
        exec(story, told)
    assert printed.getvalue().split() == re.findall(r"request\(.*# (\d+):", story)

    names: dict[str, Any] = {
        "np": np, "radixkv": radixkv, "tokens": ids(50), "mine": ids(50, 200),
        "published": np.zeros(50, np.uint32),
    }
    exec(engine, names)
    assert names["count"] == 50

    groups = [radixkv.Group.full()]
    with (
        radixkv.PageTable(pools=[100], groups=groups, external=True) as table,
        radixkv.Cache(table, whole_pages=True) as cache,
    ):
        # The n-th page of the request is the engine's n + 1.
        names = {
            "radixkv": radixkv, "cache": cache, "tokens": ids(777), "row": 1, "first": 0, "end": 48,
            "rows": np.arange(2048, dtype=np.int32).reshape(2, 1024) % 1024 + 16,
        }
        exec(placed, names)
        done = names["done"]
        assert isinstance(done, radixkv.InsertResult)
        assert done.page_count == 48 and done.duplicate_page_count == 0
        assert np.array(names["pages"]).tolist() == [49]
        assert cache.probe(ids(777)) == 768

    with radixkv.PageTable(100) as table, radixkv.Cache(table) as cache:
        space = radixkv.namespace_of("tenant a")
        prompt, decoded = ids(512).tolist(), ids(18, 1000).tolist()
        names = {"cache": cache, "space": space, "prompt": prompt, "decoded": decoded}
        exec(growing, names)
        assert names["found"] == [] and len(np.array(names["new"])) == 2
        exec(growing, names)
        assert len(np.array(names["found"])) == 31
        assert cache.probe(prompt + decoded, space=space) == 528

    groups = [radixkv.Group.full(), radixkv.Group.window(40)]
    with radixkv.PageTable(100, groups=groups) as table, radixkv.Cache(table) as cache:
        names = {"cache": cache, "prompt": ids(512).tolist(), "computed": 0}
        exec(grouped, names)
        assert names["count"] == 0 and np.array(names["new"]).shape == (2, 32)
        names["row"].release()
        exec(grouped, names)
        assert names["count"] == 31

    n = 256
    with radixkv.PageTable(2000, slot_count=n) as table, radixkv.Cache(table) as cache:
        # One page each: asked again, all of it but a position is there.
        prompts = [ids(16, 16 * at) for at in range(n)]
        names = {
            "np": np, "radixkv": radixkv, "cache": cache, "prompts": prompts,
            "decoded": ids(n), "positions": np.full(n, 16, np.uint64),
            "plan": radixkv.Plan(table), "indptr": np.zeros(n + 1, np.int32),
            "indices": np.zeros(2 * n, np.int32), "mapping": np.zeros(n, np.int64),
            "copy_pages": told["copy_pages"],
        }
        for turn in range(2):
            exec(hot_path, names)
            assert (names["infos"]["cached_position_count"] == (0, 15)[turn]).all()
            assert (names["mapping"] % 16 == 0).all()
            cache.publish_many(names["ids"], np.full(n, 17, np.uint64))
            cache.release_many(names["ids"])

    k, out = np.ones((50, 2, 64), np.float32), np.zeros((50, 8, 96), np.float32)
    names = {
        "np": np, "radixkv": radixkv, "tokens": ids(50), "q": np.ones((50, 8, 64), np.float32),
        "k": k, "v": np.ones((50, 2, 96), np.float32), "out": out,
    }
    exec(hybrid, names)
    np.testing.assert_allclose(out, 1, rtol=1e-6)
    pages = names["pages"]
    assert isinstance(pages, dict) and len(pages["indices"]) == 4

    names = {
        "np": np, "radixkv": radixkv, "prompt": ids(40), "page_bytes": 64,
        "directory": tmp_path / "kv", "digest_of_the_model": bytes(32),
    }
    exec(tiers, names)
    assert names["start"] == 0
    sequence, below, kv = names["sequence"], names["cache"], names["kv"]
    assert isinstance(sequence, radixkv.Sequence) and isinstance(below, radixkv.Cache)
    assert isinstance(kv, np.ndarray)
    kv[sequence.pages()] = 7
    sequence.publish(40)
    sequence.release()
    while below.tier_stats().host.page_count < 2:
        exec("step()", names)
    below.evict(2)
    kv[:] = 0
    exec("sequence = cache.begin(prompt); fetch = sequence.fetch()", names)
    while not (done := eval("step()", names)):
        pass
    assert [position for _, position in done] == [32] and (kv == 7).sum() == 2 * 64


def test_net_is_imported_where_it_is_named() -> None:
    """`import radixkv` doesn't bring it: it needs a library that is not in the wheel."""
    text = README.read_text()
    assert "radixkv.net.Store(" not in text or "import radixkv.net" in text
