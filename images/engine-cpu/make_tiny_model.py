"""Write a model folder that `vllm serve FOLDER --load-format dummy` takes: a Llama of 2 layers without weights.

usage: python make_tiny_model.py FOLDER

Its tokenizer knows the 256 bytes and 7 special tokens, so a token is a byte. Standard library only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SPECIAL = ("<|bos|>", "<|eos|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
POSITIONS = 32_768
CHAT = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": POSITIONS,
    "rms_norm_eps": 1e-6,
    "initializer_range": 0.02,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
}
BYTES = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}


def alphabet() -> list[str]:
    """One printable character for each byte, as byte-level tokenizers have it since GPT-2."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def vocabulary() -> dict[str, int]:
    """Every token and its number."""
    return {token: number for number, token in enumerate((*SPECIAL, *alphabet()))}


def tokenizer() -> dict[str, object]:
    """tokenizer.json."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    model = {"type": "BPE", "vocab": vocabulary(), "merges": [], "fuse_unk": False, "byte_fallback": False}
    unset = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, **flags, "special": True} for number, token in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {**BYTES, "add_prefix_space": False},
        "post_processor": None,
        "decoder": {**BYTES, "add_prefix_space": True},
        "model": {**dict.fromkeys(unset), **model},
    }


def tokenizer_config() -> dict[str, object]:
    """tokenizer_config.json."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[1],
        "pad_token": SPECIAL[2],
        "model_max_length": POSITIONS,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT,
    }


def main(arguments: list[str]) -> int:
    """Write the three files."""
    if len(arguments) != 1:
        print("usage: python make_tiny_model.py FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": {**CONFIG, "vocab_size": len(vocabulary())},
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": tokenizer_config(),
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
