"""One model revision: config/models/*.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from control.core.facts.base import Capability, Group, Sourced, Version, Word

Size = Annotated[int, Field(ge=1, le=1_000_000)]
Bytes = Annotated[int, Field(ge=1, le=100_000_000_000_000)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PerValue = Annotated[float, Field(gt=0, le=8)]
TensorParallel = Annotated[int, Field(ge=1, le=64)]
FlagValue = bool | int | str


class Files(Sourced):
    """What a complete download is."""

    revision: str = Field(pattern=r"^[0-9a-f]{40}$")
    shards: int = Field(ge=1, le=10_000)
    tensors: int = Field(ge=1, le=10_000_000)
    safetensors_bytes: Bytes
    repository_files: int | None = Field(ge=1, le=100_000)
    repository_bytes: Bytes | None
    sha256: dict[str, Sha256]


class Parameters(Sourced):
    """How large the model is."""

    total: int = Field(ge=1_000_000, le=100_000_000_000_000)
    active: int = Field(ge=1_000_000, le=100_000_000_000_000)


class Context(Sourced):
    """How long a request may be."""

    max_tokens: int = Field(ge=256, le=100_000_000)
    think_max_tokens: int | None = Field(ge=256, le=100_000_000)


class Support(Sourced):
    """What can run it."""

    min_release: Version
    capabilities: list[Capability] = Field(min_length=1)
    tensor_parallel: list[TensorParallel] = Field(min_length=1)


class Architecture(Sourced):
    """The names and numbers of the repository's config.json that decide the memory."""

    model_type: str
    hidden_size: Size
    num_attention_heads: Size
    head_dim: Size
    q_lora_rank: Size
    o_lora_rank: Size
    o_groups: Size
    index_n_heads: Size
    index_head_dim: Size
    n_routed_experts: Size
    n_shared_experts: Size
    moe_intermediate_size: Size
    sliding_window: Size
    hc_mult: Size
    vocab_size: Size
    compress_ratios: list[Annotated[int, Field(ge=0, le=65_536)]] = Field(min_length=1, max_length=1000)

    def cut(self, layers: int) -> Architecture:
        """The same model with its first layers only, as measurements on one GPU use it."""
        return self.model_copy(update={"compress_ratios": self.compress_ratios[:layers]})


class Formats(Sourced):
    """Bytes of one value by kind of matrix, and what is not explained by them."""

    expert_bytes: PerValue
    linear_bytes: PerValue
    plain_bytes: PerValue
    mixer_bytes: PerValue
    rest_gib: float = Field(ge=0, le=64)


class KvCache(Sourced):
    """How vLLM stores the context of this model."""

    dtype: str
    block_tokens: Size
    entry_bytes: Size
    index_entry_bytes: Size
    page_align_bytes: Size
    window_page_tokens: Size
    state_page_tokens: dict[int, Size] = Field(min_length=1)


class Serve(Sourced):
    """Options of `vllm serve` that this model needs."""

    flags: dict[Word, FlagValue]


class Speculation(Sourced):
    """How drafts are made when engine.speculation is on."""

    config: dict[str, FlagValue]
    min_release: Version


class ModelFacts(Group):
    """Everything known of one revision."""

    name: Word
    title: str
    repository: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    licence: str
    files: Files
    parameters: Parameters
    context: Context
    support: Support
    architecture: Architecture
    formats: Formats
    kv_cache: KvCache
    serve: Serve
    speculation: Speculation | None
