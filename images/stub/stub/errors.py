"""Refusals in the words and shapes of the release that is stood in for."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from stub.release import Release
from stub.wire import dump

Complaint = dict[str, object]
_MOST_TOLD = 10  # complaints that later releases tell
BUSY = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."


class ApiError(Exception):
    """One refusal: status, message, type and param of the error object."""

    def __init__(
        self, message: str, status: int = 400, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.kind, self.param = message, status, kind, param

    def told(self, release: Release) -> tuple[str, str, str | None]:
        """Message, type and param as a release words them."""
        return self.message, self.kind, self.param

    def response(self, release: Release) -> Response:
        """The refusal as an HTTP answer."""
        message, kind, param = self.told(release)
        body = {"error": {"message": message, "type": kind, "param": param, "code": self.status}}
        return Response(dump(body), self.status, media_type="application/json")


class NoSuchModel(ApiError):
    """The model that was asked for is not served here."""

    def __init__(self, name: object, served: str) -> None:
        super().__init__(f"The model `{name}` does not exist.", 404, "NotFoundError", "model")
        self._served = served

    def told(self, release: Release) -> tuple[str, str, str | None]:
        """Later releases say what is served."""
        aliases = f" Valid aliases: {self._served}." if release.names_aliases else ""
        return self.message + aliases, self.kind, self.param


class Invalid(ApiError):
    """A body that does not have the shape of the request."""

    def __init__(self, complaints: Sequence[Complaint | str], param: str | None = None) -> None:
        super().__init__("", kind="Bad Request", param=param)
        self._complaints = list(complaints)
        first = self._complaints[0]
        if param is None and isinstance(first, dict):
            self.param = _dotted(first["loc"])

    def told(self, release: Release) -> tuple[str, str, str | None]:
        """Each complaint on a line; 0.26.0 repeats the whole input, later releases only say how large it is."""
        count = len(self._complaints)
        head = f"{count} validation error{'s' if count > 1 else ''}:"
        lines = list(map(str, self._complaints))
        if not release.repeats_input:
            more = [f"...and {count - _MOST_TOLD} more errors"] if count > _MOST_TOLD else []
            lines = [*(str(_brief(entry)) for entry in self._complaints[:_MOST_TOLD]), *more]
        return "\n  ".join([head, *lines]), self.kind, self.param


class WholeBody(Invalid):
    """A check of the whole body failed; later releases tell it as a plain refusal."""

    def __init__(self, entry: Complaint, text: str, param: str, newer_param: str) -> None:
        super().__init__([entry], param)
        self._text, self._newer_param = text, newer_param

    def told(self, release: Release) -> tuple[str, str, str | None]:
        """With the body in it, or the bare text."""
        return super().told(release) if release.repeats_input else (self._text, "BadRequestError", self._newer_param)


class VLLMValidationError(ValueError):
    """Named as in the server stood in for, because its `repr` is part of the recorded messages."""


class Unparsable(Exception):
    """A body that is no text: the router itself answers."""


def bad_value(text: str, param: str, value: object) -> ApiError:
    """A value that is refused after the body was understood."""
    return ApiError(f"{text} (parameter={param}, value={value})", param=param)


def internal(message: str) -> ApiError:
    """A failure of the server."""
    return ApiError(message, 500, "InternalServerError")


def busy() -> ApiError:
    """The queue is full, or the server says so."""
    return ApiError(BUSY, 503, "Service Unavailable")


def invalid(complaints: Sequence[Complaint | str], param: str | None = None) -> ApiError:
    """A body that does not have the shape of the request."""
    return Invalid(complaints, param)


def _dotted(loc: object) -> str:
    """The place of a complaint without the parts that name a type of a union."""
    parts = loc if isinstance(loc, tuple) else (loc,)
    return ".".join(str(part) for part in parts if "[" not in str(part) and part not in ("str", "int", "float", "bool"))


def _brief(entry: Complaint | str) -> Complaint | str:
    if isinstance(entry, str):
        return entry
    value = entry["input"]
    size = f"<{type(value).__name__} of {len(value)} items>" if isinstance(value, (dict, list)) else str(value)
    return {**entry, "loc": _dotted(entry["loc"]), "input": size}


def complaint(kind: str, loc: Sequence[object], text: str, value: object, **context: object) -> Complaint:
    """One entry of a validation error."""
    entry: Complaint = {"type": kind, "loc": tuple(loc), "msg": text, "input": value}
    return {**entry, "ctx": context} if context else entry


def missing(loc: Sequence[object], value: object) -> Complaint:
    """A field that must be there."""
    return complaint("missing", loc, "Field required", value)


def whole_body(
    text: str, body: object, param: str | None, value: object = None, newer_param: str | None = None
) -> ApiError:
    """A check of the whole body failed; `param` None is a plain ValueError."""
    error = VLLMValidationError(text) if param else ValueError(text)
    detail = "" if value is None else f", value={value}"
    suffix = f" (parameter={param}{detail})" if param else ""
    entry = complaint("value_error", ("body",), f"Value error, {text}{suffix}", body, error=error)
    newer = newer_param or param or "body"
    return WholeBody(entry, f"{text} (parameter={newer}{detail})", param or "body", newer)
