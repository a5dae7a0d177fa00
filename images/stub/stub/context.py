"""Does a prompt and its answer fit into the context? Refused as 0.26.0 refuses: before a single event is sent."""

from __future__ import annotations

from typing import Any

from stub.errors import ApiError, bad_value
from stub.release import Release
from stub.tokenizer import LONGEST_TOKEN, Tokenizer

_TOO_LONG = (
    "This model's maximum context length is {limit} tokens. However, you requested {output} output tokens "
    "and your prompt contains {found}. Please reduce the length of the input prompt or the number "
    "of requested output tokens."
)
# Where answers are cut instead, only the prompt can be too long.
_PROMPT_TOO_LONG = (
    "This model's maximum context length is {limit} tokens. However, your prompt contains {found}. "
    "Please reduce the length of the input prompt."
)


class Context:
    """The context window of the served model."""

    def __init__(self, tokenizer: Tokenizer, max_model_len: int, release: Release) -> None:
        self._tokenizer = tokenizer
        self._release = release
        self.limit = max_model_len

    def fit(
        self, prompt: str | list[int], output: int | None, truncate: int | None = None, name: str = "max_tokens"
    ) -> list[int]:
        """The token ids of a prompt that leaves room for its answer; `name` is what the request calls its length."""
        reserved = output or 0
        self._check_output(reserved, truncate, name)
        cuts = self._release.cuts_long_answers
        if truncate is not None and truncate >= 0:
            return self._cut(prompt, truncate)
        room = self.limit if cuts else self.limit - max(0, reserved)
        if isinstance(prompt, str):
            self._check_characters(prompt, room, reserved)
        tokens = self._tokens(prompt)
        if len(tokens) > (room - 1 if cuts else room):
            found = f"at least {room + 1} input tokens, for a total of at least {room + 1 + reserved} tokens"
            if cuts:
                found = f"at least {room + 1} input tokens, which exceeds this limit even without any output tokens"
            raise bad_value(self._too_long(found, reserved), "input_tokens", room + 1)
        return tokens

    def _too_long(self, found: str, output: int) -> str:
        if self._release.cuts_long_answers:
            return _PROMPT_TOO_LONG.format(limit=self.limit, found=found)
        return _TOO_LONG.format(limit=self.limit, output=output, found=found)

    def room(self, tokens: list[int], output: int | None) -> int:
        """How long an answer may become."""
        room = self.limit - len(tokens)
        return room if output is None else min(output, room) if self._release.cuts_long_answers else output

    def _check_output(self, output: int, truncate: int | None, name: str) -> None:
        if output > self.limit:
            text = (
                f"{name}={output} cannot be greater than {self._release.total_tokens_named}={self.limit}. "
                "Please request fewer output tokens."
            )
            raise bad_value(text, name, output)
        room = self.limit - output
        if truncate is not None and truncate > room:
            text = (
                f"truncate_prompt_tokens={truncate} cannot be greater than max_model_len - max_tokens = {room}. "
                "Please request a smaller truncation size."
            )
            raise bad_value(text, "truncate_prompt_tokens", truncate)

    def _check_characters(self, prompt: str, room: int, output: int) -> None:
        most = room * LONGEST_TOKEN
        if len(prompt) > most:
            bound = f"more than {most} characters, which is the upper bound for {room} input tokens"
            found = f"{len(prompt)} characters ({bound})"
            raise bad_value(self._too_long(found, output), "input_text", len(prompt))

    def _cut(self, prompt: str | list[int], count: int) -> list[int]:
        if count == 0:
            raise ApiError("The decoder prompt cannot be empty")
        # The end of the text is enough: no token is longer than LONGEST_TOKEN characters.
        end = prompt[-count * LONGEST_TOKEN :] if isinstance(prompt, str) else prompt
        return self._tokens(end)[-count:]

    def _tokens(self, prompt: str | list[int]) -> list[int]:
        if isinstance(prompt, str):
            return self.tokens_of(prompt)
        for token in prompt:
            if not 0 <= token < self._tokenizer.size:
                raise ApiError(f"Token id {token} is out of vocabulary")
        return prompt

    def tokens_of(self, text: Any) -> list[int]:
        """The token ids of a text, however long."""
        try:
            return self._tokenizer.encode(text)
        except UnicodeEncodeError:
            text = "TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]"
            raise ApiError(text) from None
