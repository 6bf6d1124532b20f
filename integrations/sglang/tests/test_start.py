"""P04: what is looked at at the start: SGLang's interface, and what the engine is to do."""

import ast
import sys
import types
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from sglang.srt.mem_cache import base_prefix_cache, registry
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams

from stateful import row_pool

from radixkv_sglang import InterfaceChanged, NotCovered, RadixkvCache, backend, interface, limits


def test_the_installed_release_is_the_one() -> None:
    interface.check()


def test_a_changed_interface_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    base = base_prefix_cache.BasePrefixCache
    monkeypatch.setattr(base, "pin", lambda self, node: None, raising=False)
    monkeypatch.setattr(base, "evict", lambda self, request: None)
    monkeypatch.delattr(base, "touch_prefix")
    fields = {**interface.FIELDS, "TreeLock": "node receipt"}
    monkeypatch.setattr(interface, "FIELDS", fields)
    with pytest.raises(InterfaceChanged) as changed:
        interface.check()
    for part in (
        "new method pin()",
        "no method touch_prefix() any more",
        "evict() takes (request), not (params)",
        "TreeLock differs in swa_released",
        interface.SGLANG,
    ):
        assert part in str(changed.value)


def test_what_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a process that has not made a cache.
    for name in ("cache", "limits", "states", "windows"):
        monkeypatch.delitem(sys.modules, f"radixkv_sglang.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "sglang.srt.mem_cache.allocator.mamba", None)
    monkeypatch.delattr(base_prefix_cache, "TreeLock")
    with pytest.raises(InterfaceChanged) as changed:
        backend.make(mock.Mock())
    for part in (
        "there is no sglang.srt.mem_cache.allocator.mamba",
        "sglang.srt.mem_cache.base_prefix_cache has no TreeLock",
    ):
        assert part in str(changed.value)


def test_all_that_is_imported_is_looked_for() -> None:
    wanted = {(f"sglang.{module}", name) for module, names in interface.IMPORTED.items()
              for name in names.split()}
    for path in sorted(Path(backend.__file__).parent.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang"):
                names = {(node.module, alias.name) for alias in node.names}
                assert names <= wanted, f"{path.name} imports {names - wanted}"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The bags of settings that SGLang publishes, for a plain model."""
    bags: dict[str, Any] = {
        "get_memory": mock.Mock(
            enable_lmcache=False, enable_flexkv=False, enable_unified_cache_external_linker=False
        ),
        "get_disagg": mock.Mock(disaggregation_mode="null"),
        "get_spec": mock.Mock(speculative_algorithm=None),
        "get_exec": mock.Mock(
            dllm=mock.Mock(dllm_algorithm=None), mamba=mock.Mock(mamba_max_states_per_path=-1)
        ),
        "get_serving": mock.Mock(enable_streaming_session=False),
        "get_observability": mock.Mock(kv_canary_sweep_interval=0),
    }
    for name, bag in bags.items():
        monkeypatch.setattr(limits, name, lambda bag=bag: bag)
    return bags


def context(pages_of: int = 1, **changes: Any) -> Any:
    if pages_of == 1:
        allocator: Any = TokenToKVPoolAllocator(64, torch.float32, "cpu", None, False)
    else:
        allocator = PagedTokenToKVPoolAllocator(64, pages_of, torch.float32, "cpu", None, False)
    made = types.SimpleNamespace(
        params=CacheInitParams(False, None, allocator, pages_of),
        is_hybrid_swa=False,
        is_hybrid_ssm=False,
        full_tokens_per_layer=64,
        enable_hierarchical_cache=False,
        model_config=types.SimpleNamespace(is_multimodal=False),
    )
    for name, value in changes.items():
        setattr(made.params if hasattr(made.params, name) else made, name, value)
    return made


def test_a_plain_model_is_covered(engine: dict[str, Any]) -> None:
    for page_size in (1, 16):
        assert isinstance(backend.make(context(page_size)), RadixkvCache)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"is_hybrid_swa": True}, "handed out by a TokenToKVPoolAllocator"),
        ({"is_hybrid_swa": True, "full_tokens_per_layer": 0}, "windows alone"),
        ({"is_hybrid_swa": True, "swa_gates_prefix_match": False}, "requests' own"),
        ({"is_hybrid_swa": True, "draft_swa_window": 9}, "drafts"),
        ({"is_hybrid_ssm": True}, "states are in a NoneType"),
        ({"is_hybrid_ssm": True, "is_hybrid_swa": True}, "windows and recurrent layers"),
        ({"enable_hierarchical_cache": True}, "host memory"),
        ({"model_config": types.SimpleNamespace(is_multimodal=True)}, "images"),
        ({"is_eagle": True}, "speculatively"),
        ({"enable_session_radix_cache": True}, "by session"),
        ({"eviction_policy": "lfu"}, "evicts by lfu"),
        ({"page_size": 8}, "pages of 1 tokens and its cache pages of 8"),
        ({"token_to_kv_pool_allocator": mock.Mock()}, "handed out by a Mock"),
    ],
)
def test_what_is_refused(engine: dict[str, Any], change: Any, sentence: str) -> None:
    with pytest.raises(NotCovered, match=sentence):
        backend.make(context(**change))


def test_what_is_refused_of_states(engine: dict[str, Any]) -> None:
    pool: Any = row_pool(8, buffered=False)
    states = {"is_hybrid_ssm": True, "req_to_token_pool": pool}
    limits.check(context(**states))
    limits.check(context(16, **states, enable_mamba_extra_buffer=True))
    pool.mamba_pool.replayssm_write_pos = pool.mamba_ckpt_pool = object()
    with pytest.raises(NotCovered) as refused:
        limits.check(context(16, **states, enable_mamba_extra_buffer_lazy=True))
    for part in ("extra_buffer_lazy", "lag behind", "8 bits", "lie anywhere"):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("bag", "field", "value", "sentence"),
    [
        ("get_memory", "enable_lmcache", True, "--enable-lmcache"),
        ("get_observability", "kv_canary_sweep_interval", 8, "--kv-canary-sweep-interval"),
        ("get_memory", "enable_flexkv", True, "--enable-flexkv"),
        ("get_disagg", "disaggregation_mode", "prefill", "--disaggregation-mode"),
        ("get_spec", "speculative_algorithm", "NGRAM", "--speculative-algorithm"),
        ("get_exec", "dllm", mock.Mock(dllm_algorithm="x"), "--dllm-algorithm"),
        ("get_serving", "enable_streaming_session", True, "--enable-streaming-session"),
    ],
)
def test_what_is_refused_of_the_settings(
    engine: dict[str, Any], bag: str, field: str, value: Any, sentence: str
) -> None:
    setattr(engine[bag], field, value)
    with pytest.raises(NotCovered, match=sentence):
        backend.make(context())


def test_all_that_is_refused_is_told_at_once(engine: dict[str, Any]) -> None:
    with pytest.raises(NotCovered) as refused:
        limits.check(context(is_hybrid_swa=True, eviction_policy="lfu"))
    assert "sliding windows" in str(refused.value) and "lfu" in str(refused.value)


def test_a_cache_that_is_turned_off(engine: dict[str, Any]) -> None:
    off = context(disable=True, eviction_policy="lfu")
    cache = backend.make(off)
    assert not cache.supports_prefix_sharing()
    assert cache.evictable_size() == cache.protected_size() == 0
    assert cache.lock(cache.root_node).receipt == 0


def test_the_backend_is_registered_once() -> None:
    backend.register()
    backend.register()
    assert registry.get_radix_cache_factory("radixkv") is backend.make


def test_more_states_of_a_path_than_a_cache_can_count(engine: dict[str, Any]) -> None:
    pool: Any = row_pool(8, buffered=False)
    states = {"is_hybrid_ssm": True, "req_to_token_pool": pool}
    engine["get_exec"].mamba.mamba_max_states_per_path = 512
    limits.check(context(**states))
    engine["get_exec"].mamba.mamba_max_states_per_path = 513
    with pytest.raises(NotCovered, match="--mamba-max-states-per-path"):
        limits.check(context(**states))
    limits.check(context(**states, disable=True))
