"""Single fields: what a JSON value may be and what it becomes (numbers in strings are numbers, "yes" is true)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stub.errors import Complaint, complaint

_TRUE = (True, 1, "1", "true", "t", "yes", "y", "on")
_FALSE = (False, 0, "0", "false", "f", "no", "n", "off")
Read = Callable[[Any], Any]


class Refused(Exception):
    """A value that a field cannot have: pydantic's name for it, its text, and its limits."""

    def __init__(self, kind: str, text: str, **context: object) -> None:
        super().__init__(text)
        self.kind, self.text, self.context = kind, text, context


def integer(value: Any) -> int:
    """An integer, also as a whole float or in a string."""
    if isinstance(value, str):
        try:
            return int(value.strip())
        except ValueError:
            text = "Input should be a valid integer, unable to parse string as an integer"
            raise Refused("int_parsing", text) from None
    if isinstance(value, float):
        if not value.is_integer():
            raise Refused("int_from_float", "Input should be a valid integer, got a number with a fractional part")
        return int(value)
    if isinstance(value, int):
        return int(value)
    raise Refused("int_type", "Input should be a valid integer")


def between(low: int, high: int) -> Read:
    """An integer within limits."""

    def read(value: Any) -> int:
        found = integer(value)
        if found > high:
            raise Refused("less_than_equal", f"Input should be less than or equal to {high}", le=high)
        if found < low:
            raise Refused("greater_than_equal", f"Input should be greater than or equal to {low}", ge=low)
        return found

    return read


def real(value: Any) -> float:
    """A number, also in a string; NaN is one."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            text = "Input should be a valid number, unable to parse string as a number"
            raise Refused("float_parsing", text) from None
    if isinstance(value, (int, float)):
        return float(value)
    raise Refused("float_type", "Input should be a valid number")


def truth(value: Any) -> bool:
    """A boolean, also as 0, 1 or a word."""
    folded = value.lower() if isinstance(value, str) else value
    if isinstance(folded, (str, int, float)):
        if folded in _TRUE:
            return True
        if folded in _FALSE:
            return False
        raise Refused("bool_parsing", "Input should be a valid boolean, unable to interpret input")
    raise Refused("bool_type", "Input should be a valid boolean")


def text(value: Any) -> str:
    """A string."""
    if isinstance(value, str):
        return value
    raise Refused("string_type", "Input should be a valid string")


def texts(value: Any) -> list[str]:
    """A string or a list of strings."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise Refused("list_type", "Input should be a valid list")


def mapping(value: Any) -> dict[str, Any]:
    """An object."""
    if isinstance(value, dict):
        return value
    raise Refused("dict_type", "Input should be a valid dictionary")


def anything(value: Any) -> Any:
    """A field that is looked at later."""
    return value


@dataclass(frozen=True)
class Field:
    """How a field is read; `none` says whether null is a value of it."""

    read: Read
    default: Any = None
    none: bool = True


LARGEST = 2**63 - 1
# The fields that chat and completions share and that the stand-in looks at. Others are ignored, as unknown ones are.
SHARED: Mapping[str, Field] = {
    "model": Field(text),
    "frequency_penalty": Field(real, 0.0),
    "logit_bias": Field(mapping),
    "n": Field(integer, 1),
    "presence_penalty": Field(real, 0.0),
    "response_format": Field(anything),
    "seed": Field(between(-(2**63), LARGEST)),
    "stop": Field(texts, ()),
    "stream": Field(truth, False),
    "stream_options": Field(mapping),
    "temperature": Field(real, 1.0),
    "top_p": Field(real, 1.0),
    "top_k": Field(integer, 0),
    "min_p": Field(real, 0.0),
    "repetition_penalty": Field(real, 1.0),
    "ignore_eos": Field(truth, False, none=False),
    "min_tokens": Field(integer, 0, none=False),
    "truncate_prompt_tokens": Field(between(-1, LARGEST)),
    "priority": Field(between(-(2**63), LARGEST), 0, none=False),
    "return_token_ids": Field(truth),
    "prompt_logprobs": Field(integer),
    "structured_outputs": Field(anything),
    "include_stop_str_in_output": Field(truth, False, none=False),
}


def read_fields(body: Mapping[str, Any], fields: Mapping[str, Field]) -> tuple[dict[str, Any], list[Complaint]]:
    """All fields of a body with their defaults, and all complaints in the order of the fields."""
    values: dict[str, Any] = {}
    complaints: list[Complaint] = []
    for name, field in fields.items():
        given = body.get(name)
        if given is None and (name not in body or field.none):
            values[name] = field.default
            continue
        try:
            values[name] = field.read(given)
        except Refused as refused:
            complaints.append(complaint(refused.kind, ("body", name), refused.text, given, **refused.context))
    return values, complaints
