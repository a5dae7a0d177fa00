"""What the service refuses by itself, before or without looking into a body."""

from __future__ import annotations

from policy.encodings import supported
from policy.judge import Violation

# Seconds after which it is worth trying again.
RETRY_AFTER_S = {503: 2, 408: 1}
INVALID, OVERLOADED = "invalid_request_error", "overloaded_error"
# Rules that hold in `observe` too: what the caller may ask for is no matter of policy, and without memory or a body
# that can be read there is nothing to pass on.
ALWAYS = ("key.models",)


class Refused(Exception):
    """Ends the call with this violation, in `observe` too."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.rule)
        self.violation = violation


def may_pass(violation: Violation) -> bool:
    """Whether `observe` lets it through."""
    return violation.rule not in ALWAYS


def _made(status: int, code: str, kind: str, message: str, rule: str) -> Violation:
    return Violation(status=status, code=code, type=kind, message=message, param=None, rule=rule)


def media_type() -> Violation:
    """vLLM's status for it."""
    text = "Unsupported content-type: expected application/json."
    return _made(400, "unsupported_media_type", INVALID, text, "body.media_type")


def encoding(name: str) -> Violation:
    shown = name if name.isascii() and name.isprintable() and len(name) < 40 else "of the request"
    text = f"Unsupported content-encoding {shown}: expected {supported()}, or none."
    return _made(415, "unsupported_encoding", INVALID, text, "body.encoding")


def bad_encoding(name: str) -> Violation:
    return _made(400, "invalid_encoding", INVALID, f"The body is not complete and valid {name}.", "body.encoding")


def too_large(most: int) -> Violation:
    text = f"The body is larger than {most} bytes, the limit of this gateway."
    return _made(413, "request_too_large", INVALID, text, "body.size")


def too_complex() -> Violation:
    text = "The body holds too many values to be checked: send fewer, or a smaller body."
    return _made(413, "request_too_complex", INVALID, text, "body.complexity")


def no_room() -> Violation:
    text = "Too many large uploads at once. Try again shortly."
    return _made(503, "over_capacity", OVERLOADED, text, "body.capacity")


def too_slow() -> Violation:
    text = "The upload made too little progress while others waited for its place. Try again."
    return _made(408, "upload_too_slow", "timeout_error", text, "body.slow")
