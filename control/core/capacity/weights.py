"""What the weights of one GPU weigh, term by term, from the numbers of config.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from control.core.capacity.terms import GIB, Term, total

if TYPE_CHECKING:
    from control.core.facts.model import Architecture, Formats, ModelFacts

INDEXED = 4  # the compress ratio whose layers also carry an indexer


def weight_terms(architecture: Architecture, formats: Formats, tensor_parallel: int) -> tuple[Term, ...]:
    """The addends for one GPU. Experts and wide matrices are cut by TP; the small ones every GPU holds whole."""
    rest = Term("rest of the model", round(formats.rest_gib * GIB), "measured", "what the log shows beyond these terms")
    return (*_cut(architecture, formats, tensor_parallel), *_whole(architecture, formats), rest)


def _cut(a: Architecture, formats: Formats, tp: int) -> tuple[Term, ...]:
    layers = len(a.compress_ratios)
    expert = 3 * a.hidden_size * a.moe_intermediate_size
    heads = a.num_attention_heads * a.head_dim
    outward = a.o_groups * a.o_lora_rank
    projections = a.q_lora_rank * heads + heads * outward // a.o_groups + outward * a.hidden_size
    experts = f"{layers} layers x {a.n_routed_experts} experts x 3 x {a.hidden_size} x {a.moe_intermediate_size}"
    vocabulary = f"2 x {a.vocab_size} x {a.hidden_size}"
    sizes = (
        ("routed experts", layers * a.n_routed_experts * expert * formats.expert_bytes, experts),
        ("shared experts", layers * a.n_shared_experts * expert * formats.linear_bytes, f"{layers} layers"),
        ("attention projections", layers * projections * formats.linear_bytes, f"{layers} layers, query up and output"),
        ("embedding and output", 2 * a.vocab_size * a.hidden_size * formats.plain_bytes, vocabulary),
    )
    return tuple(_term(name, size / tp, f"{how}, / TP {tp}" if tp > 1 else how) for name, size, how in sizes)


def _whole(a: Architecture, formats: Formats) -> tuple[Term, ...]:
    layers = len(a.compress_ratios)
    stream = a.hc_mult * a.hidden_size
    mixing = 2 * (2 + a.hc_mult) * a.hc_mult * stream
    sizes = (
        ("query and key down", layers * a.hidden_size * (a.q_lora_rank + a.head_dim) * formats.linear_bytes),
        ("hyper-connections", layers * mixing * formats.mixer_bytes),
        ("routers", layers * a.hidden_size * a.n_routed_experts * formats.plain_bytes),
        ("compressors and indexers", _compressors(a, formats)),
    )
    return tuple(_term(name, size, "on every GPU whole") for name, size in sizes)


def _term(name: str, size: float, how: str) -> Term:
    return Term(name, round(size), "computed", how)


def _compressors(a: Architecture, formats: Formats) -> float:
    """Ratio 4 keeps overlapping windows (twice the width) and an indexer; other ratios one plain compressor."""
    indexed = sum(1 for ratio in a.compress_ratios if ratio == INDEXED)
    plain = sum(1 for ratio in a.compress_ratios if ratio and ratio != INDEXED)
    windows = 4 * a.hidden_size * (a.head_dim + a.index_head_dim) + a.hidden_size * a.index_n_heads
    queries = a.q_lora_rank * a.index_n_heads * a.index_head_dim
    each = windows * formats.plain_bytes + queries * formats.linear_bytes
    return indexed * each + plain * 2 * a.hidden_size * a.head_dim * formats.plain_bytes


def file_bytes(model: ModelFacts) -> int:
    """What the main model's weights take on disk."""
    terms = weight_terms(model.architecture, model.formats, 1)
    return total(term for term in terms if term.basis == "computed")


def draft_terms(model: ModelFacts, tensor_parallel: int) -> tuple[Term, ...]:
    """With speculation: everything in the files that is not the main model, which is the most a draft can weigh."""
    rest = max(0, model.files.safetensors_bytes - file_bytes(model))
    how = f"files without the main model, / TP {tensor_parallel}"
    return (Term("draft weights", round(rest / tensor_parallel), "computed", how),)
