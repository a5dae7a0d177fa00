"""The table of keys in the gateway's script: what config/envoy/ecds_auth.yaml.j2 prints, as Lua."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from control.core import limits, moments
from control.core.budget_limits import is_counted
from control.core.model import ApiKey
from control.core.policies import Governance


@dataclass(frozen=True)
class Table:
    """Lines of two Lua tables; keys name their limits, which most of them share."""

    limits: tuple[str, ...]  # ["20/600"] = {...}
    keys: tuple[str, ...]  # ["<digest>"] = {...}, by digest


def table(keys: Sequence[ApiKey], rules: Governance) -> Table:
    """Every key that may come in, with the limits in force for it."""
    shared: dict[str, str] = {}
    rows: dict[str, str] = {}
    for key in keys:
        second, minute = _limits(key, rules)
        name = f"{second}/{minute}"
        shared[name] = _limits_row(second, minute)
        for digest, expires in _digests(key):
            rows[digest] = _row(key, name, expires, is_counted(key, rules))
    return Table(
        tuple(f"[{_text(name)}] = {shared[name]}," for name in sorted(shared)),
        tuple(f"[{_text(digest)}] = {rows[digest]}," for digest in sorted(rows)),
    )


def _digests(key: ApiKey) -> Iterator[tuple[str, int | None]]:
    """Each digest that stands for the key, and when it ends (unix seconds)."""
    ends = _seconds(key.expires)
    yield key.digest, ends
    for old in key.former:
        until = _seconds(old.expires)
        yield old.digest, until if ends is None or until is None else min(until, ends)


def _limits(key: ApiKey, rules: Governance) -> tuple[int, int]:
    second, minute = key.requests_per_second, key.requests_per_minute
    return rules.key_per_second if second is None else second, rules.key_per_minute if minute is None else minute


def _limits_row(second: int, minute: int) -> str:
    """0 is no limit: then its fields are not there."""
    fields: dict[str, str | int] = {}
    if second:
        fields |= {"per_second": second, "cost_second": limits.second_cost(second)}
    if minute:
        fields |= {"per_minute": minute, "cost_minute": limits.minute_cost(minute)}
        fields |= {"shape_minute": _text(limits.minute_shape(minute))}
    return _fields(fields)


def _row(key: ApiKey, name: str, expires: int | None, counted: bool) -> str:
    fields: dict[str, str | int] = {"name": _text(key.name), "limits": f"LIMITS[{_text(name)}]"}
    if expires is not None:
        fields["expires"] = expires
    if key.models:
        fields["models"] = _text(",".join(key.models))
    if counted:
        fields["budget"] = "true"
    return _fields(fields)


def _fields(fields: dict[str, str | int]) -> str:
    return "{" + ", ".join(f"{name} = {value}" for name, value in fields.items()) + "}"


def _text(value: str) -> str:
    """A Lua string in one line of YAML: whatever could end it is written as its number."""
    safe = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\{byte:03d}" for byte in value.encode())
    return f'"{"".join(safe)}"'


def _seconds(moment: str | None) -> int | None:
    """Unix time; a time that cannot be read is over, so that no fault of a file lets a key in for ever."""
    if moment is None:
        return None
    read = moments.read(moment)
    return int(read.timestamp()) if read else 0
