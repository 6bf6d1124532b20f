"""Models with random weights, as checkpoints: models.py KIND FOLDER."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MellumConfig,
    MellumForCausalLM,
)

SHAPE: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = 100


def llama() -> Any:
    """Two layers of full attention."""
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, **SHAPE))


def mellum() -> Any:
    """Six layers, four of them with sliding windows. It is dense. SGLang gives such a model a pool
    of its own for the windows' layers; Gemma 3 it gives one pool for all."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2
    config = MellumConfig(
        num_hidden_layers=len(kinds),
        layer_types=kinds,
        mlp_layer_types=["dense"] * len(kinds),
        sliding_window=WINDOW,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=32,
        **SHAPE,
    )
    return MellumForCausalLM(config)


def lfm2() -> Any:
    """Six layers, four of them short convolutions, whose last inputs are a state."""
    kinds = ["conv", "conv", "full_attention"] * 2
    config = Lfm2Config(
        num_hidden_layers=len(kinds),
        layer_types=kinds,
        conv_L_cache=4,
        block_auto_adjust_ff_dim=False,
        **SHAPE,
    )
    return Lfm2ForCausalLM(config)


MODELS: dict[str, Callable[[], Any]] = {"llama": llama, "lfm2": lfm2, "mellum": mellum}


def save(kind: str, folder: Path) -> None:
    torch.manual_seed(0)
    MODELS[kind]().save_pretrained(folder)


if __name__ == "__main__":
    save(sys.argv[1], Path(sys.argv[2]))
