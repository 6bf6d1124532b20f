"""A pytest plugin that runs vLLM's own tests against radixkv's manager (P05).

    pytest -p upstream tests/v1/core/test_prefix_caching.py

What the tests name KVCacheManager, Scheduler and AsyncScheduler is ours. A test that asks for what
is refused is skipped with the refusal; one of `EXCEPTIONS` has to fail, and its reason is there;
one that never makes a manager says nothing about ours, and is counted apart.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import glass
import pytest
from vllm.v1.core import kv_cache_manager
from vllm.v1.core.sched import async_scheduler, scheduler

import radixkv_vllm
import radixkv_vllm.scheduler

EXCEPTIONS: dict[str, str] = {
    name: entry["reason"]
    for entry in json.loads((Path(__file__).parent / "upstream.json").read_text())
    for name in entry["tests"]
}

OURS = {
    kv_cache_manager.KVCacheManager: glass.GlassManager,
    scheduler.Scheduler: radixkv_vllm.SyncScheduler,
    async_scheduler.AsyncScheduler: radixkv_vllm.AsyncScheduler,
}
_outcomes: Counter[str] = Counter()
_reasons: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _ours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of vLLM's classes, wherever the tests' modules name them."""
    for name in ("KVCacheManager", "HybridManager"):
        monkeypatch.setattr(radixkv_vllm.scheduler, name, glass.GlassManager)
    package = f"{request.module.__package__}."
    for module in [it for name, it in sys.modules.items() if name.startswith(package)]:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value in OURS:
                monkeypatch.setattr(module, name, OURS[value])


def _name(item: pytest.Item) -> str:
    return item.nodeid.rpartition("/")[2]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    outcome = yield
    report = outcome.get_result()
    if call.when == "setup":
        item.stash[_made] = glass.made
    if call.when != "call":
        return
    name = _name(item)
    base = name.partition("[")[0]
    reason = EXCEPTIONS.get(name) or EXCEPTIONS.get(base)
    if call.excinfo is not None and call.excinfo.errisinstance(radixkv_vllm.NotCovered):
        said = str(call.excinfo.value).removeprefix("radixkv_vllm does not cover this engine: ")
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"refused: {said}")
        kind = "refused"
        _reasons[said] += 1
    elif glass.made == item.stash[_made]:
        kind = "without a manager"
        if report.failed:  # e.g. the configuration of a model that is not here
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, "fails before it makes a manager")
    elif reason is not None:
        kind = "excepted"
        _reasons[reason] += 1
        if report.passed:
            report.outcome, report.longrepr = "failed", f"passes, and is excepted: {reason}"
            kind = "failed"
        else:
            report.outcome, report.longrepr = "skipped", (str(item.path), 0, reason)
    else:
        kind = report.outcome
    _outcomes[kind] += 1


_made = pytest.StashKey[int]()


@pytest.fixture
def caplog_vllm(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """From vLLM's own conftest, which needs all that it can be installed with."""
    return caplog


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A table of what came of them, and one of the reasons; to a file when it is named."""
    lines = ["| tests | |", "|---|--:|"]
    lines += [f"| {kind} | {count} |" for kind, count in _outcomes.most_common()]
    lines += ["", "| refused or excepted | tests |", "|---|--:|"]
    lines += [f"| {reason} | {count} |" for reason, count in _reasons.most_common()]
    if path := os.environ.get("UPSTREAM_REPORT"):
        Path(path).write_text("\n".join(lines) + "\n")
    for line in lines:
        terminalreporter.write_line(line)
