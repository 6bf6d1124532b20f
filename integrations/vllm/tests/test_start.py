"""What is refused when the engine starts: another interface, and what is not covered (P05)."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)

from radixkv_vllm import InterfaceChanged, NotCovered, interface, limits

SHAPE: dict[str, Any] = {"num_kv_heads": 1, "head_size": 8, "dtype": torch.float32}


def test_the_installed_interface_is_known() -> None:
    interface.check()


def test_another_signature_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: Callable[..., None] = lambda self, request, force: None  # noqa: E731
    monkeypatch.setattr(KVCacheManager, "free", changed)
    with pytest.raises(InterfaceChanged, match=r"free\(\) takes \(request force\)"):
        interface.check()


def test_a_new_call_of_the_scheduler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "UNUSED", interface.UNUSED - {"evict_blocks"})
    with pytest.raises(InterfaceChanged, match="kv_cache_manager.evict_blocks, which is new"):
        interface.check()


def test_windows_are_refused() -> None:
    specs = [
        FullAttentionSpec(block_size=16, **SHAPE),
        SlidingWindowSpec(block_size=16, sliding_window=64, **SHAPE),
    ]
    groups = [KVCacheGroupSpec([str(at)], spec) for at, spec in enumerate(specs)]
    config = KVCacheConfig(num_blocks=9, kv_cache_tensors=[], kv_cache_groups=groups)
    with pytest.raises(NotCovered, match="FullAttentionSpec, SlidingWindowSpec"):
        limits.check_layers(config, 16, 16)
    config = KVCacheConfig(num_blocks=9, kv_cache_tensors=[], kv_cache_groups=groups[:1])
    limits.check_layers(config, 16, 16)
    with pytest.raises(NotCovered, match="blocks of 32"):
        limits.check_layers(config, 32, 32)
