"""Answers whose form the request prescribes: one of a list, any JSON object, or an object of a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stub.errors import ApiError, complaint, invalid, missing
from stub.wire import dump

_NOTE = "This is flashbox's stand-in engine: the form is yours, the content is prepared."
_TYPES: Mapping[str, object] = {
    "string": "stand-in",
    "integer": 0,
    "number": 0.5,
    "boolean": True,
    "null": None,
    "array": [],
    "object": {},
}


def forced_text(values: Mapping[str, Any]) -> str | None:
    """The whole text of the answer, when the request leaves no choice."""
    outputs = values["structured_outputs"]
    if isinstance(outputs, dict) and isinstance(outputs.get("choice"), list) and outputs["choice"]:
        return str(outputs["choice"][0])
    wanted = values["response_format"]
    if not isinstance(wanted, dict) or wanted.get("type") not in ("json_object", "json_schema"):
        return None
    if wanted["type"] == "json_object":
        return dump({"note": _NOTE}).decode()
    schema = wanted["json_schema"].get("schema") if isinstance(wanted["json_schema"], dict) else None
    return dump(instance(schema if isinstance(schema, dict) else {"type": "object"})).decode()


def instance(schema: Mapping[str, Any], depth: int = 0) -> object:
    """The plainest value that fits the parts of a schema which the stand-in understands."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind not in _TYPES:
        raise ApiError(f"Grammar error: Invalid type: {kind}")
    if kind == "object" and depth < 16:
        properties = schema.get("properties") or {}
        return {name: instance(part, depth + 1) for name, part in properties.items() if isinstance(part, dict)}
    if kind == "array" and schema.get("minItems") and depth < 16:
        return [instance(schema.get("items") or {}, depth + 1)] * int(schema["minItems"])
    if kind in ("integer", "number") and "minimum" in schema:
        return schema["minimum"]
    return _TYPES[kind]


_KNOWN_FORMATS = ("text", "json_object", "json_schema", "structural_tag")
_PLAIN = "'text', 'json_object' or 'json_schema'"
_TAG = "'structural_tag'"


def check_format(wanted: Any) -> None:
    """Refuse a `response_format` of an unknown type as the union of three request types refuses it."""
    if not isinstance(wanted, dict) or wanted.get("type") in _KNOWN_FORMATS:
        return
    loc = ("body", "response_format", "function-wrap[__log_extra_fields__()]")
    given = wanted.get("type")

    def not_one_of(expected: str) -> dict[str, object]:
        return complaint("literal_error", (*loc, "type"), f"Input should be {expected}", given, expected=expected)

    lacking = [missing((*loc, name), wanted) for name in ("format", "structures", "triggers") if name not in wanted]
    raise invalid([not_one_of(_PLAIN), not_one_of(_TAG), *lacking[:1], not_one_of(_TAG), *lacking[1:]])
