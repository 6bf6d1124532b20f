"""What is refused when the engine starts: another interface, and what is not covered (P05)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)

from radixkv_vllm import InterfaceChanged, NotCovered, interface, limits

#: What recurrent layers may be set up with, and what is said of it.
STATES: dict[tuple[tuple[str, Any], ...], str] = {
    (("mamba_cache_mode", "none"),): "mamba_cache_mode none",
    (("num_speculative_blocks", 2),): "states for drafts",
    (("num_prefill_checkpoint_blocks", 1),): "in the middle of a step",
    (("block_size", 64),): "blocks of 16, 64 tokens",
}
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


def layers(specs: list[Any], **others: Any) -> KVCacheConfig:
    groups = [KVCacheGroupSpec([str(at)], spec) for at, spec in enumerate(specs)]
    return KVCacheConfig(num_blocks=9, kv_cache_tensors=[], kv_cache_groups=groups, **others)


def test_layers_that_are_not_covered_are_refused() -> None:
    full = FullAttentionSpec(block_size=16, **SHAPE)
    window = SlidingWindowSpec(block_size=16, sliding_window=64, **SHAPE)
    chunk = ChunkedLocalAttentionSpec(block_size=16, attention_chunk_size=64, **SHAPE)
    state = MambaSpec(
        block_size=16, shapes=((8,),), dtypes=(torch.float32,), mamba_cache_mode="align"
    )
    covered = ([full], [full, window], [window, window, full], [full] * 2 + [window] * 6)
    for specs in (*covered, [state, full], [window, state, state, full]):
        limits.check_layers(layers(specs), 16, 16)
    for specs in ([window], [full, chunk], [state]):
        with pytest.raises(NotCovered, match=type(specs[-1]).__name__):
            limits.check_layers(layers(specs), 16, 16)
    with pytest.raises(NotCovered, match="9 groups"):
        limits.check_layers(layers([full] + [window] * 8), 16, 16)
    with pytest.raises(NotCovered, match="blocks of 32"):
        limits.check_layers(layers([full]), 32, 32)
    other = SlidingWindowSpec(block_size=32, sliding_window=64, **SHAPE)
    with pytest.raises(NotCovered, match="blocks of 16, 32 tokens"):
        limits.check_layers(layers([full, other]), 32, 16)
    with pytest.raises(NotCovered, match="for drafts"):
        limits.check_layers(layers([full, replace(window, extra_retained_tokens=2)]), 16, 16)
    for changes, said in STATES.items():
        with pytest.raises(NotCovered, match=said):
            limits.check_layers(layers([full, replace(state, **dict(changes))]), 16, 16)
    with pytest.raises(NotCovered, match="retention_interval"):
        limits.check_layers(layers([full], prefix_cache_retention_interval=64), 16, 16)
