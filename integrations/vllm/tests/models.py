"""Models with random weights: float32, so that two ways to batch agree."""

from pathlib import Path
from typing import Any

import workload

SHAPE: dict[str, Any] = {
    "vocab_size": workload.VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def make(folder: Path, kind: str) -> None:
    """One of the kinds below, when it is not there."""
    import torch

    if (folder / "config.json").exists():
        return
    torch.manual_seed(0)
    MODELS[kind]().save_pretrained(folder)


def llama() -> Any:
    """Two layers of full attention."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(num_hidden_layers=2, tie_word_embeddings=False, **SHAPE)
    return LlamaForCausalLM(config)


def gemma3() -> Any:
    """Two layers of full attention and four with a sliding window: three groups."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        num_hidden_layers=6,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
        sliding_window=50,
        query_pre_attn_scalar=32,
        tie_word_embeddings=True,
        pad_token_id=0,
        **SHAPE,
    )
    return Gemma3ForCausalLM(config)


def lfm2() -> Any:
    """Two layers of full attention and four short convolutions, whose last inputs are a state: vLLM
    makes three groups of them."""
    from transformers import Lfm2Config, Lfm2ForCausalLM

    config = Lfm2Config(
        num_hidden_layers=6,
        layer_types=["conv", "conv", "full_attention"] * 2,
        conv_L_cache=4,
        block_auto_adjust_ff_dim=False,
        tie_word_embeddings=True,
        # Else what is said is the token before, whatever the layers say.
        initializer_range=0.2,
        # vLLM reads these, which transformers has no more.
        conv_dim=SHAPE["hidden_size"],
        conv_dim_out=SHAPE["hidden_size"],
        block_dim=SHAPE["hidden_size"],
        **SHAPE,
    )
    return Lfm2ForCausalLM(config)


#: With layers that have a state. What they answer on a CPU depends on how vLLM batches, whichever
#: cache it has.
RECURRENT = {"lfm2"}

MODELS = {"llama": llama, "gemma3": gemma3, "lfm2": lfm2}
