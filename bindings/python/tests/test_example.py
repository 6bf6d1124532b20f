"""examples/python/prefix_cache.py: it reads traces rightly, and finds what there is to be found."""

import prefix_cache
import pytest
from prefix_cache import PAGE_SIZE, ROOT, Trace, replay


@pytest.mark.parametrize(
    ("name", "requests", "tokens"),
    [("conversation", 12_031, 144_793_823), ("synthetic", 3_993, 61_194_628)],
)
def test_traces_are_those_of_their_readme(name: str, requests: int, tokens: int) -> None:
    trace = Trace(ROOT / "data" / f"{name}.trace", 1 << 30)
    assert (len(trace.blocks), sum(trace.lengths)) == (requests, tokens)
    assert len(trace.prompt(5)) == trace.lengths[5]


def test_a_pool_for_everything_finds_every_known_page() -> None:
    trace = Trace(ROOT / "data" / "synthetic.trace", 1000)
    known: set[int] = set()
    found = 0
    for at in range(len(trace.blocks)):
        prompt, chain, growing = trace.prompt(at), 0, True
        pages = len(prompt) // PAGE_SIZE
        for page in range(pages):
            tokens = prompt[page * PAGE_SIZE : (page + 1) * PAGE_SIZE].tobytes()
            chain = hash((chain, tokens))
            # The last position is computed always, so its page is not shared whole.
            usable = (page + 1) * PAGE_SIZE < len(prompt)
            if growing and usable and chain in known:
                found += PAGE_SIZE
            else:
                growing = False
            known.add(chain)
    rate, _ = replay(trace, 1 << 19)
    assert rate == found / sum(trace.lengths) > 0.1
    little, _ = replay(trace, 1 << 12)
    assert little < rate


def test_the_curve_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    trace = Trace(ROOT / "data" / "synthetic.trace", 50)
    rates = prefix_cache.curve(trace, [1 << 14, 1 << 20])
    assert rates[0] <= rates[1]
    assert "synthetic: 50 requests" in capsys.readouterr().out
