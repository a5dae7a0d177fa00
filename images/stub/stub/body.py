"""From the bytes of a request to a JSON object, refused in the order and words of FastAPI and vLLM."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from stub.errors import Unparsable, complaint, internal, invalid, missing
from stub.release import Release

Body = dict[str, Any]


def _is_json(media_type: str) -> bool:
    kind, _, subtype = media_type.partition("/")
    return kind == "application" and (subtype == "json" or subtype.endswith("+json"))


async def read(request: Request, release: Release) -> Body:
    """The body as an object."""
    media_type = request.headers.get("content-type", "").split(";", 1)[0].strip().lower()
    raw = await request.body()
    parsed = _parse(raw) if raw and _is_json(media_type) else None
    if media_type != "application/json":
        raise invalid(["Unsupported Media Type: Only 'application/json' is allowed"])
    if parsed is None:
        raise invalid([missing(("body",), None)])
    if not isinstance(parsed, dict):
        if release.body_must_be_object:
            text = "Input should be a valid dictionary or object to extract fields from"
            raise invalid([complaint("model_attributes_type", ("body",), text, parsed)])
        raise internal(f"'{type(parsed).__name__}' object has no attribute 'get'")
    return parsed


def _parse(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        entry = complaint("json_invalid", ("body", error.pos), "JSON decode error", {}, error=error.msg)
        raise invalid([entry]) from None
    except (UnicodeDecodeError, RecursionError):
        raise Unparsable("There was an error parsing the body") from None
