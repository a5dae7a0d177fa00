"""How vLLM lays out the KV cache of this model, and how many requests it holds.

The pool is cut into rows: one block id stands for `block_tokens` tokens of full context in all layers at once, and a
row is what one block id occupies. Three kinds of layer share the pool:

- every layer keeps a sliding window of uncompressed entries, in pages of `window_page_tokens`;
- layers with compress ratio 4 keep one entry for 4 tokens of full context, and an index over them;
- layers with ratio 128 keep one entry for 128 tokens; both kinds also keep a small running state.

vLLM groups layers of a kind so that all groups are equally long (padding the short ones); window pages then come in
`window_groups` per position. The numbers agree with the logs of three measured configurations.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from control.core.capacity.weights import INDEXED

if TYPE_CHECKING:
    from control.core.facts.model import Architecture, KvCache, ModelFacts


@dataclass(frozen=True)
class KvModel:
    """The layout as numbers. Not divided by TP: there is one key-value head, so every GPU holds all of it."""

    block_tokens: int
    row_bytes: int
    full_row_bytes: int  # the part of a row that grows with the context
    window_groups: int
    window_page_tokens: int
    window_tokens: int
    state_page_tokens: tuple[tuple[int, int], ...]  # compress ratio -> tokens of one state page
    page_bytes: int
    window_layers: int
    context_layers: tuple[tuple[int, int, int], ...]  # compress ratio, layers, bytes of one context page

    def rows(self, kv_bytes: int) -> int:
        """Block ids in a pool of that size."""
        return max(0, kv_bytes) // self.row_bytes

    def in_flight_rows(self, batched_tokens: int, batches: int) -> int:
        """Rows held by tokens that are scheduled and not settled: windows and states of whole batches."""
        tokens = batched_tokens * batches
        share = sum(1 / page for _, page in self.state_page_tokens) + self.window_groups / self.window_page_tokens
        return ceil(tokens * share)

    def context_rows(self, tokens: int) -> int:
        """Rows of full context for so many tokens."""
        return ceil(tokens / self.block_tokens)

    def tail_rows(self) -> int:
        """Rows that every decoding request holds besides: the ends of its windows and states."""
        windows = self.window_groups * self._pages(self.window_tokens - 1, self.window_page_tokens)
        states = (self._pages(self._reach(ratio) - 1, page) for ratio, page in self.state_page_tokens)
        return windows + sum(states)

    def request_rows(self, tokens: int) -> int:
        """Rows of one decoding request with so many tokens of context."""
        return self.context_rows(tokens) + self.tail_rows()

    def held(self, rows: int, batched_tokens: int, batches: int, tokens: int) -> int:
        """Requests of that length that fit beside the prefill in flight."""
        free = rows - self.in_flight_rows(batched_tokens, batches)
        return max(0, free) // self.request_rows(tokens)

    def logged_concurrency(self, rows: int, batched_tokens: int, batches: int, max_len: int) -> float:
        """The engine's own line "Maximum concurrency": its worst case for one request, no capacity."""
        tokens = batched_tokens * batches
        windows = self._pages(min(self.window_tokens - 1 + tokens, max_len), self.window_page_tokens)
        need = windows * self.window_layers * self.page_bytes
        for ratio, layers, context_bytes in self.context_layers:
            state = self._pages(min(self._reach(ratio) - 1 + tokens, max_len), dict(self.state_page_tokens)[ratio])
            need += state * layers * self._state_bytes(ratio, context_bytes)
            need += self.context_rows(max_len) * layers * context_bytes
        return rows / ceil(need / self.full_row_bytes)

    def logged_tokens(self, rows: int, batched_tokens: int, batches: int, max_len: int) -> int:
        """The engine's own line "GPU KV cache size"."""
        return int(self.logged_concurrency(rows, batched_tokens, batches, max_len) * max_len)

    def _state_bytes(self, ratio: int, context_bytes: int) -> int:
        """A state page is padded to a window page; an indexed layer holds its index page beside it."""
        return context_bytes if ratio == INDEXED else self.page_bytes

    def _reach(self, ratio: int) -> int:
        """Tokens that one state looks back over: overlapping windows of ratio 4, one block of 128."""
        return 2 * ratio if ratio == INDEXED else ratio

    @staticmethod
    def _pages(tokens: int, page_tokens: int) -> int:
        return ceil(tokens / page_tokens) + 1


def kv_model(model: ModelFacts, architecture: Architecture | None = None) -> KvModel:
    """The layout for a model, or for its first layers only."""
    a, kv = architecture or model.architecture, model.kv_cache
    ratios = sorted({ratio for ratio in a.compress_ratios if ratio})
    counts = {ratio: a.compress_ratios.count(ratio) for ratio in ratios}
    layers = len(a.compress_ratios)
    groups = _window_groups(layers, tuple(counts.values()))
    slots = max(ceil(layers / groups), *counts.values()) if counts else ceil(layers / groups)
    page = _page(kv.window_page_tokens * kv.entry_bytes, kv)
    context = tuple((ratio, counts[ratio], _context_bytes(ratio, page, kv)) for ratio in ratios)
    beside = sum(count * (size - page if ratio == INDEXED else size) for ratio, count, size in context)
    return KvModel(
        block_tokens=kv.block_tokens,
        row_bytes=slots * page + beside,
        full_row_bytes=sum(count * size for _, count, size in context),
        window_groups=groups,
        window_page_tokens=kv.window_page_tokens,
        window_tokens=a.sliding_window,
        state_page_tokens=tuple((ratio, kv.state_page_tokens[ratio]) for ratio in ratios),
        page_bytes=page,
        window_layers=layers,
        context_layers=context,
    )


def _context_bytes(ratio: int, page: int, kv: KvCache) -> int:
    """One block of full context in one layer; an indexed layer shares the window's page size and adds its index."""
    entries = kv.block_tokens // ratio
    if ratio == INDEXED:
        return page + _page(entries * kv.index_entry_bytes, kv)
    return _page(entries * kv.entry_bytes, kv)


def _page(size: int, kv: KvCache) -> int:
    return ceil(size / kv.page_align_bytes) * kv.page_align_bytes


def _window_groups(layers: int, counts: tuple[int, ...]) -> int:
    """How many groups the window layers fall into: the group length with the least padding, the longest of equals."""
    kinds = (max(counts, default=1), layers, *counts)
    lengths = range(max(1, kinds[0]), max(kinds) + 1)
    best = min(lengths, key=lambda length: (sum((length - kind % length) % length for kind in kinds), -length))
    return ceil(layers / best)
