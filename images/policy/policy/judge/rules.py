"""The rules in force, and the judgement by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jsonschema_rs
import orjson

from policy.judge import complaint
from policy.judge.reading import Unreadable, read
from policy.judge.verdict import MODELS, NOT_FOUND, Facts, Verdict, Violation, invalid

NOTHING = Facts(None, None, None)
# Under which name the length of an answer counts, first one given: the engine's own order.
LENGTHS = ("max_completion_tokens", "max_tokens")
LENGTHS_OF = {"/v1/completions": ("max_tokens",), "/v1/responses": ("max_output_tokens",)}
_LONGEST_MODEL = 128  # in the log
_LONGEST_ECHO = 60


@dataclass(frozen=True)
class _Route:
    validator: Any
    order: Mapping[str, int]  # of the schema's fields


@dataclass(frozen=True)
class Rules:
    """One version of rules.json."""

    max_depth: int
    observe: bool
    served_model: str
    routes: Mapping[str, _Route]

    @classmethod
    def parse(cls, data: bytes) -> Rules:
        """Raises ValueError for what is not a complete set of rules."""
        given = orjson.loads(data)
        try:
            routes = {path: _route(route["schema"]) for path, route in given["routes"].items()}
            return cls(int(given["max_depth"]), given["mode"] == "observe", str(given["served_model"]), routes)
        except (KeyError, TypeError, AttributeError, jsonschema_rs.ValidationError) as error:
            raise ValueError(f"rules: {type(error).__name__}: {str(error)[:200]}") from None

    def judge(self, path: str, raw: bytes, models: frozenset[str] | None = None) -> Verdict:
        """The verdict on a body sent to `path`, by a caller who may use only `models` (None: all)."""
        route = self.routes.get(path)
        if route is None:
            return Verdict(replace(invalid("unknown_url", "This path takes no requests."), status=404), NOTHING, None)
        try:
            document = read(raw, self.max_depth)
        except Unreadable as unreadable:
            return Verdict(self._unread(unreadable.violation, models), NOTHING, None)
        violation = self._model(document, models)
        if violation is None and not route.validator.is_valid(document):
            violation = complaint.first(route.validator, document, route.order)
        return Verdict(violation, _facts(path, document), document)

    def _unread(self, violation: Violation, models: frozenset[str] | None) -> Violation:
        """Where shape is only observed, what cannot be read could still ask for a model that is not the caller's."""
        return replace(violation, rule=MODELS) if self.observe and models is not None else violation

    def _model(self, document: Any, models: frozenset[str] | None) -> Violation | None:
        """Before all else: it holds also where the rest is only observed."""
        if models is None or not isinstance(document, dict):
            return None
        model = document.get("model") or self.served_model
        if not isinstance(model, str) or model in models:
            return None
        shown = model if len(model) <= _LONGEST_ECHO and model.isprintable() else "asked for"
        message = f"The model {shown} does not exist, or this key may not use it."
        return Violation(404, "model_not_found", NOT_FOUND, message, "model", MODELS)


def _route(schema: dict[str, Any]) -> _Route:
    names = [*schema.get("required", ()), *schema.get("properties", ())]
    return _Route(
        jsonschema_rs.Draft202012Validator(schema), {name: at for at, name in enumerate(dict.fromkeys(names))}
    )


def _facts(path: str, document: Any) -> Facts:
    """For the log; of a body that was refused as much as can be told."""
    if not isinstance(document, dict):
        return NOTHING
    model, stream = document.get("model"), document.get("stream")
    lengths = (document.get(name) for name in LENGTHS_OF.get(path, LENGTHS))
    asked = next((length for length in lengths if length is not None), None)
    return Facts(
        model=model[:_LONGEST_MODEL] if isinstance(model, str) else None,
        max_tokens=_whole(asked),
        stream=stream if isinstance(stream, bool) else None,
    )


def _whole(asked: Any) -> int | None:
    """Of a number that could be one, an integer."""
    if isinstance(asked, bool) or not isinstance(asked, (int, float)):
        return None
    whole = int(asked)
    return whole if whole == asked and abs(whole) < 2**63 else None
