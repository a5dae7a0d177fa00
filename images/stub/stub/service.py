"""The parts of the stand-in, put together: settings, tokenizer, planner, engine, metrics."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from stub import messages, v4
from stub.context import Context
from stub.engine import Engine
from stub.errors import NoSuchModel, busy
from stub.faults import Faults
from stub.metrics import Metrics
from stub.plan import Planner, Wish
from stub.prose import OPENINGS, SENTENCES, THOUGHT
from stub.settings import Settings
from stub.tokenizer import Tokenizer, pieces_of
from stub.tools import calls_of


class Service:
    """One replica's worth of stand-in."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.release = settings.plays
        self.flags = settings.flags
        self.draining = False
        self.load = 0  # requests in hand, for /load
        pieces = pieces_of("".join((*OPENINGS, *SENTENCES, THOUGHT))) if settings.tokenizer == "pieces" else ()
        self.tokenizer = Tokenizer(pieces)
        self.context = Context(self.tokenizer, settings.max_model_len, self.release)
        self.planner = Planner(self.tokenizer, settings.default_max_tokens)
        self.metrics = Metrics(settings)
        self.engine = Engine(
            settings.max_num_seqs, settings.prefill_tokens_per_s, settings.decode_tokens_per_s, self.metrics
        )
        self.faults = Faults(settings.load_s, self.engine)
        shape = (
            f"{settings.model} {settings.max_model_len} {settings.max_num_seqs} {settings.tokenizer} {settings.mode}"
        )
        self.fingerprint = f"vllm-{self.release.version}-{zlib.crc32(shape.encode()):08x}"

    def check_model(self, values: Mapping[str, Any]) -> None:
        """Refuse a model that is not served; none, null and "" mean the one that is."""
        if values["model"] and values["model"] != self.settings.model:
            raise NoSuchModel(values["model"], self.settings.model)

    def check_queue(self, count: int) -> None:
        """Refuse requests over the queue limit, if there is a flag for one; running ones count too."""
        most = self.flags.get("--max-num-queued-reqs", 0)
        if most and len(self.engine.running) + len(self.engine.waiting) + count > most:
            self.metrics.rejected("max_num_queued_reqs")
            raise busy()

    def prompt(self, conversation: Sequence[Any], values: Mapping[str, Any]) -> tuple[str, Wish]:
        """The prompt of a conversation, and what its answer is to have besides words."""
        settings, release = self.settings, self.release
        if not settings.v4:
            text = messages.prompt_of(conversation, settings.model, release, values["add_generation_prompt"])
            return text, Wish()
        thinking = v4.thinks(values, release)
        text = v4.prompt_of(conversation, values, settings.model, release, thinking)
        return text, Wish(thinking, calls_of(values, conversation))
