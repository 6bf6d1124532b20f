"""Checkpoints with random weights by transformers, and the greedy tokens that it generates with
each:

    transformers_greedy.py FOLDER [NAME...]

Each becomes a folder with config.json, model.safetensors and greedy.json: a list of prompts with
their tokens. Numbers are f32. A prompt at which two tokens come close to each other on the way is
left out: sums in another order may decide there.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

MODELS = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM),
    "qwen3-next": (Qwen3NextConfig, Qwen3NextForCausalLM),
}
# Norms of these multiply by one more than their weights.
ZERO_CENTRED = ("gemma3", "qwen3-next")
VOCAB_SIZE = 320
PROMPTS = 32
GENERATED = 24
# Of logits that spread over several units; the engine's differ from these by less than 1e-4.
LEAST_GAP = 2e-3


def theta(base: float, **scaling: object) -> dict:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": base, **scaling}}


# Original positions so few that the stretched, the gradual and the short waves all occur.
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

FULL, WINDOW, DELTA = "full_attention", "sliding_attention", "linear_attention"

# Name, architecture, how the weights are stored, what differs from the defaults below.
CHECKPOINTS = [
    ("llama-grouped", "llama", torch.float32, {"head_dim": 64, **theta(10000.0)}),
    (
        "llama-tied-bf16",
        "llama",
        torch.bfloat16,
        {"head_dim": 64, "num_key_value_heads": 4, "tie_word_embeddings": True, **theta(1e5)},
    ),
    ("llama-3.1", "llama", torch.bfloat16, {"head_dim": 128, **theta(5e5, **LLAMA3)}),
    (
        "llama-biased",
        "llama",
        torch.float16,
        {
            "head_dim": 96,
            "num_key_value_heads": 1,
            "attention_bias": True,
            "mlp_bias": True,
            "rms_norm_eps": 1e-3,
            **theta(2000.0),
        },
    ),
    ("mistral", "mistral", torch.bfloat16, {"head_dim": 64, "sliding_window": None}),
    ("qwen2", "qwen2", torch.bfloat16, {"hidden_size": 256, **theta(1e6)}),
    (
        "qwen3-tied",
        "qwen3",
        torch.bfloat16,
        {"head_dim": 128, "tie_word_embeddings": True, **theta(1e6)},
    ),
    (
        "qwen3-untied",
        "qwen3",
        torch.float32,
        {"head_dim": 256, "num_key_value_heads": 1, **theta(5000.0)},
    ),
    (
        "qwen3-biased",
        "qwen3",
        torch.float32,
        {
            "head_dim": 64,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "attention_bias": True,
        },
    ),
    # Prompts are up to ten windows long.
    (
        "gemma3",
        "gemma3",
        torch.float32,
        {
            "num_hidden_layers": 6,
            "head_dim": 64,
            "sliding_window": 32,
            "query_pre_attn_scalar": 24,
        },
    ),
    (
        "gemma3-mixed-bf16",
        "gemma3",
        torch.bfloat16,
        {
            "num_hidden_layers": 5,
            "head_dim": 128,
            "num_key_value_heads": 1,
            "sliding_window": 45,
            "layer_types": [WINDOW, FULL, WINDOW, WINDOW, FULL],
            "query_pre_attn_scalar": 40,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1e5, "factor": 4.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 2000.0},
            },
        },
    ),
    (
        "qwen3-next",
        "qwen3-next",
        torch.float32,
        {
            "num_hidden_layers": 4,
            "head_dim": 64,
            "num_experts": 0,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 32,
            "linear_value_head_dim": 32,
        },
    ),
    (
        "qwen3-next-mixed-bf16",
        "qwen3-next",
        torch.bfloat16,
        {
            "num_hidden_layers": 5,
            "head_dim": 96,
            "layer_types": [DELTA, FULL, DELTA, DELTA, FULL],
            "mlp_only_layers": [0, 1, 2, 3, 4],
            "linear_num_key_heads": 3,
            "linear_num_value_heads": 3,
            "linear_key_head_dim": 24,
            "linear_value_head_dim": 40,
            "linear_conv_kernel_dim": 3,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5000.0,
                "partial_rotary_factor": 0.5,
            },
        },
    ),
]


def settings(changes: dict) -> dict:
    return {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 128,
        "intermediate_size": 224,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": None,
        **changes,
    }


@torch.no_grad()
def randomise(model: torch.nn.Module, norm_mean: float, embedding_scale: float) -> None:
    """Every parameter counts: no norm is one, no bias zero. Queries and keys are so large that
    attention picks some positions, layers add more than the embedding is, and logits differ.
    Delta nets forget within some ten tokens, some heads sooner and some later."""
    gain = {"embed_tokens": 3 / embedding_scale, "lm_head": 3}
    gain.update(dict.fromkeys(("q_proj", "k_proj", "o_proj", "out_proj", "down_proj"), 2))
    for name, parameter in model.named_parameters():
        if name.endswith("linear_attn.norm.weight"):
            parameter.normal_(1.0, 0.3)
        elif name.endswith("dt_bias"):
            parameter.normal_(-3.0, 1.5)
        elif parameter.ndim == 1:
            parameter.normal_(norm_mean if "norm" in name else 0.0, 0.3)
        else:
            part = name.split(".")[-2]
            parameter.normal_(0.0, gain.get(part, 1) / parameter[0].numel() ** 0.5)


def prompts(seed: int) -> list[list[int]]:
    """Some that begin alike and part within a page and at the end of one, some that are the
    beginning of another one, and some that stand alone."""
    torch.manual_seed(seed)

    def tokens(count: int) -> list[int]:
        return torch.randint(2, VOCAB_SIZE, (count,)).tolist()

    made = []
    for family in range(6):
        shared = tokens(64 + 37 * family)
        made += [shared + tokens(3 + 11 * i) for i in range(6)]
        made += [shared[: len(shared) // 2], shared[:48]]
    return made + [tokens(1 + 29 * i) for i in range(8)]


@torch.no_grad()
def greedy(model: torch.nn.Module, prompt: list[int]) -> list[int] | None:
    """What follows; None where two tokens come close."""
    ids = torch.tensor([prompt])
    made = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=GENERATED,
        min_new_tokens=GENERATED,
        do_sample=False,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    best = torch.cat(made.logits).topk(2).values
    if (best[:, 0] - best[:, 1]).min() < LEAST_GAP:
        return None
    return made.sequences[0, len(prompt) :].tolist()


def write(folder: Path, seed: int, kind: str, dtype: torch.dtype, changes: dict) -> int:
    config_class, model_class = MODELS[kind]
    torch.manual_seed(seed)
    model = model_class(config_class(**settings(changes)))
    scale = model.config.hidden_size**0.5 if kind == "gemma3" else 1.0
    randomise(model, 0.0 if kind in ZERO_CENTRED else 1.0, scale)
    model.to(dtype).save_pretrained(folder)
    # What was written, computed in f32.
    model = model_class.from_pretrained(folder, dtype=torch.float32).eval()
    kept = []
    for prompt in prompts(seed):
        tokens = greedy(model, prompt)
        if tokens is not None:
            kept.append({"prompt": prompt, "tokens": tokens})
    if len(kept) < PROMPTS:
        sys.exit(f"error: {folder.name}: only {len(kept)} prompts without a near tie")
    (folder / "greedy.json").write_text(json.dumps(kept))
    return len(kept)


def main() -> None:
    torch.set_num_threads(1)  # the models are small
    out, wanted = Path(sys.argv[1]), sys.argv[2:]
    shutil.rmtree(out, ignore_errors=True)
    for seed, (name, *model) in enumerate(CHECKPOINTS):
        if wanted and name not in wanted:
            continue
        print(f"{name}: {write(out / name, seed, *model)} prompts", flush=True)


if __name__ == "__main__":
    main()
