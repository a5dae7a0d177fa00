"""From the complaints of the schema to the one that helps: which field, what was expected, what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from policy.judge import words
from policy.judge.outline import outline
from policy.judge.verdict import SHAPE, Violation, invalid

# The bound of a policy that a field is under, whatever it is called.
BOUNDS: Mapping[str, str] = {
    "max_tokens": "policy.max_tokens",
    "max_completion_tokens": "policy.max_tokens",
    "max_output_tokens": "policy.max_tokens",
    "temperature": "policy.temperature",
    "n": "policy.n",
    "best_of": "policy.n",
    "logprobs": "policy.logprobs",
    "top_logprobs": "policy.logprobs",
    "prompt_logprobs": "policy.prompt_logprobs",
}
_MOST_LOOKED_AT = 64  # complaints: a list of a million wrong items is wrong at its first
Path = tuple[Any, ...]
Wording = Callable[[Any, Any], tuple[str, str]]


def first(validator: Any, document: Any, order: Mapping[str, int]) -> Violation:
    """The violation for the first field, in the schema's order, that is wrong; the same for every order of fields."""
    short = outline(document)
    errors = islice(validator.iter_errors(short), _MOST_LOOKED_AT)
    found = [flat for error in errors for flat in _flat(error)]
    if not found:
        return _far(validator, document, short)
    return _violation(min(found, key=lambda error: _rank(error, order)), document)


def _far(validator: Any, document: Any, short: Any) -> Violation:
    """For a fault beyond what is looked at in detail: the field that has it."""
    fields = document if isinstance(document, dict) else {}
    wrong = (name for name in sorted(fields) if not validator.is_valid({**short, name: fields[name]}))
    param = words.spelled(wrong_one) if (wrong_one := list(islice(wrong, 1))) else None
    return invalid("invalid_value", f"Invalid value for {param or 'the body'}: one of its later items is wrong.", param)


def _flat(error: Any) -> Iterator[Any]:
    """An error itself, or of an anyOf the ones of the branch that came furthest."""
    kind = error.kind
    branches = [branch for branch in getattr(kind, "context", None) or () if branch]
    if kind.name in ("anyOf", "oneOf") and branches:
        furthest = max(branches, key=lambda branch: max(len(list(one.instance_path)) for one in branch))
        for one in furthest:
            yield from _flat(one)
    else:
        yield error


def _rank(error: Any, order: Mapping[str, int]) -> tuple[Any, ...]:
    path = tuple(error.instance_path)
    missing = error.kind.property if error.kind.name == "required" else None
    top = path[0] if path else missing
    steps = tuple((0, step, "") if isinstance(step, int) else (1, 0, str(step)) for step in path)
    return (
        order.get(str(top), len(order)),
        steps,
        str(missing),
        _KINDS.index(error.kind.name) if (error.kind.name in _KINDS) else len(_KINDS),
    )


def _violation(error: Any, document: Any) -> Violation:
    kind = error.kind
    path, found = _walked(document, error.instance_path)
    if kind.name == "required":
        param = words.spelled([*path, kind.property])
        return invalid("missing_required_parameter", f"Missing required parameter: {param}.", param)
    param = words.spelled(path)
    code, said = _WORDINGS.get(kind.name, _other)(kind, found)
    fault = "type" if code == "invalid_type" else "value"
    message = f"Invalid {fault} for {param or 'the body'}: {said}, found {words.value(found)}."
    return invalid(code, message, param, _rule(kind.name, path))


def _rule(kind: str, path: Path) -> str:
    """The policy's bound, if it is one that was passed."""
    ends = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    return BOUNDS.get(str(path[0]), SHAPE) if len(path) == 1 and kind in ends else SHAPE


def _walked(document: Any, path: Iterable[Any]) -> tuple[Path, Any]:
    """The place and what is there. The validator's own path has a number where a name of digits is meant."""
    steps: list[Any] = []
    for given in path:
        step = str(given) if isinstance(document, dict) else given
        if isinstance(document, dict) and step not in document:  # written as 05, say
            break
        steps.append(step)
        document = document[step]
    return tuple(steps), document


# ---- words for each kind of complaint: an error code and what was expected


def _type(kind: Any, found: Any) -> tuple[str, str]:
    return "invalid_type", f"expected {words.types(kind.types)}"


def _end(side: str, code: str) -> Wording:
    def said(kind: Any, found: Any) -> tuple[str, str]:
        number = "integer" if isinstance(found, int) else "decimal"
        return f"{number}_{code}_value", f"expected {side} {words.number(kind.limit)}"

    return said


def _size(side: str, what: str, code: str) -> Wording:
    def said(kind: Any, found: Any) -> tuple[str, str]:
        return code, f"expected {side} {words.counted(kind.limit, what)}"

    return said


def _enum(kind: Any, found: Any) -> tuple[str, str]:
    options = [
        option if isinstance(option, str) else words.value(option) for option in kind.options if option is not None
    ]
    return "invalid_value", f"expected {words.either(options)}"


def _pattern(kind: Any, found: Any) -> tuple[str, str]:
    return "invalid_value", "expected another form"


def _contains(kind: Any, found: Any) -> tuple[str, str]:
    return "array_above_max_length", "expected fewer items"


def _other(kind: Any, found: Any) -> tuple[str, str]:
    return "invalid_value", "expected another value"


_WORDINGS: Mapping[str, Wording] = {
    "type": _type,
    "enum": _enum,
    "minimum": _end("at least", "below_min"),
    "maximum": _end("at most", "above_max"),
    "exclusiveMinimum": _end("more than", "below_min"),
    "exclusiveMaximum": _end("less than", "above_max"),
    "minLength": _size("at least", "character", "empty_string"),
    "maxLength": _size("at most", "character", "string_above_max_length"),
    "minItems": _size("at least", "item", "empty_array"),
    "maxItems": _size("at most", "item", "array_above_max_length"),
    "minProperties": _size("at least", "property", "empty_object"),
    "maxProperties": _size("at most", "property", "object_above_max_size"),
    "pattern": _pattern,
    "contains": _contains,
}
_KINDS = tuple(_WORDINGS)
