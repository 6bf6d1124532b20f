"""A Mellum of 6 layers with random weights, four of them with sliding windows, as a checkpoint.

It is dense. SGLang gives such a model a pool of its own for the windows' layers; Gemma 3 it gives
one pool for all.
"""

import sys
from pathlib import Path

import torch
from tiny_llama import VOCABULARY
from transformers import MellumConfig, MellumForCausalLM

WINDOW = 100


def save(folder: Path) -> None:
    torch.manual_seed(0)
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2
    config = MellumConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=len(kinds),
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        layer_types=kinds,
        mlp_layer_types=["dense"] * len(kinds),
        sliding_window=WINDOW,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=32,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    MellumForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    save(Path(sys.argv[1]))
