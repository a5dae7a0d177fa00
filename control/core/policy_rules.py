"""run/policy/rules.json: what the policy service goes by, from the rules in force and the schemas in config/schemas.

A schema file names its `routes`, the `form` of their errors and the `schema` of their bodies. A file without routes
has only `$defs`, which every schema can refer to. `x-bound: NAME` in a schema becomes minimum and maximum of that
bound of the policy, and nothing where the policy has none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from control.core import complaints, kinds, policies, strict_yaml, wiring
from control.core.errors import FlashboxError
from control.core.header import json_with_note
from control.core.model import Plan
from control.core.policies import Governance
from control.core.settings import Settings

RULES_PATH = "run/policy/rules.json"
MAX_DEPTH = 128  # of nesting: tools have deep schemas, nobody has these
_BOUND = "x-bound"
_MEND = "Take the file from the release again."


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    routes: list[str] = []
    form: Literal["openai", "anthropic"] = "openai"
    schema_: dict[str, Any] = Field({}, alias="schema")
    defs: dict[str, Any] = Field({}, alias="$defs")


@dataclass(frozen=True)
class Route:
    """What a body of this route must be, and the form in which a refusal is told."""

    form: str
    schema: Mapping[str, Any]


def rules_json(settings: Settings, plan: Plan, rules: Governance, sources: Mapping[str, str]) -> str:
    """The text of the file; the same content has the same version."""
    content: dict[str, Any] = {
        "policy": rules.policy,
        "mode": "observe" if rules.observe else "enforce",
        "max_body_bytes": rules.max_body_bytes,
        "max_depth": MAX_DEPTH,
        "context": kinds.context(settings),
        "truncate": rules.truncate,
        "usage": True,  # ask the engine how many tokens were used; the gateway hides what the client did not ask for
        "affinity": rules.affinity,
        "served_model": settings.engine.served_model_name,
        "tokenize_url": f"http://{plan.gateway_address}:{wiring.GATEWAY_INTERNAL_PORT}/tokenize",
        "routes": {
            path: {"form": route.form, "schema": _bounded(route.schema, rules)}
            for path, route in sorted(routes(sources).items())
        },
    }
    version = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json_with_note({"version": version, **content})


def routes(sources: Mapping[str, str]) -> dict[str, Route]:
    """The routes of every schema file, bounds still named; raises FlashboxError with all that is wrong."""
    files, wrong = _files(sources)
    found: dict[str, Route] = {}
    owner: dict[str, str] = {}
    shared = {name: piece for file in files.values() if not file.routes for name, piece in file.defs.items()}
    for path, file in files.items():
        wrong += [f"{path}: {complaint}" for complaint in _bad_bounds(file.schema_ or file.defs)]
        for route in file.routes:
            if route in owner:
                wrong.append(f"{path}: routes: {route} is in {owner[route]} already")
            owner[route] = path
            defs = {**shared, **file.defs, **file.schema_.get("$defs", {})}
            found[route] = Route(file.form, {**file.schema_, **({"$defs": defs} if defs else {})})
    if not files and not wrong:  # without them every body would pass
        wrong.append(f"{policies.SCHEMAS}: missing")
    if wrong:
        raise FlashboxError("\n".join(wrong), fix=_MEND)
    return found


def _files(sources: Mapping[str, str]) -> tuple[dict[str, _File], list[str]]:
    files: dict[str, _File] = {}
    wrong: list[str] = []
    for path in sorted(sources):
        if not path.startswith(f"{policies.SCHEMAS}/") or not path.endswith(".yaml"):
            continue
        document = strict_yaml.read(sources[path], path)
        wrong += document.complaints
        if document.complaints:
            continue
        try:
            files[path] = _File.model_validate(document.value)
        except ValidationError as error:
            wrong += [f"{path}: {complaints.path_of(f['loc']) or 'file'}: {f['msg']}" for f in error.errors()]
    return files, wrong


def _bad_bounds(piece: object) -> Iterator[str]:
    """Names of bounds that no policy knows."""
    if isinstance(piece, Mapping):
        name = piece.get(_BOUND)
        if _BOUND in piece and name not in policies.BOUNDS:
            known = complaints.did_you_mean(str(name), policies.BOUNDS) or f" (known: {', '.join(policies.BOUNDS)})"
            yield f"{_BOUND}: {name}: unknown bound{known}"
    for inner in _inside(piece):
        yield from _bad_bounds(inner)


def _inside(piece: object) -> Iterator[object]:
    if isinstance(piece, Mapping):
        yield from piece.values()
    elif isinstance(piece, list):
        yield from piece


def _bounded(piece: Any, rules: Governance) -> Any:
    """The schema with numbers in place of names; of two ends of one kind the tighter counts."""
    if isinstance(piece, list):
        return [_bounded(inner, rules) for inner in piece]
    if not isinstance(piece, Mapping):
        return piece
    made = {name: _bounded(inner, rules) for name, inner in piece.items() if name != _BOUND}
    if _BOUND in piece:
        low, high = rules.bounds.get(piece[_BOUND], (None, None))
        ends = {"minimum": (low, max), "maximum": (high, min)}
        for name, (end, tighter) in ends.items():
            if end is not None:
                made[name] = _number(tighter(end, made.get(name, end)))
    return made


def _number(value: float) -> float:
    """8192, not 8192.0."""
    return int(value) if float(value).is_integer() else value
