"""What the judge says: what is wrong with a body, and what the gateway's log may know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

INVALID = "invalid_request_error"
NOT_FOUND = "not_found_error"
SHAPE = "policy.shape"
MODELS = "key.models"


@dataclass(frozen=True)
class Violation:
    """One refusal. `param` is spelled as OpenAI spells it; `rule` names the entry of `ctl.py explain`."""

    status: int
    code: str
    type: str
    message: str
    param: str | None
    rule: str

    def body(self, form: str, request_id: str) -> bytes:
        """The answer's body, in the form that clients of the route expect."""
        if form == "anthropic":
            error: dict[str, str | None] = {"type": self.type, "message": self.message}
            return orjson.dumps({"type": "error", "error": error, "request_id": request_id})
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return orjson.dumps({"error": {**error, "request_id": request_id}})


@dataclass(frozen=True)
class Facts:
    """What a body asks for, as far as it can be told; None where it does not say. `max_tokens` is what counts."""

    model: str | None
    max_tokens: int | None
    stream: bool | None


@dataclass(frozen=True)
class Verdict:
    """No violation: the body may pass. `document` is the parsed body, None if it could not be read."""

    violation: Violation | None
    facts: Facts
    document: Any


def invalid(code: str, message: str, param: str | None = None, rule: str = SHAPE) -> Violation:
    """A body that is refused for what is in it."""
    return Violation(status=400, code=code, type=INVALID, message=message, param=param, rule=rule)
