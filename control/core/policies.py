"""Policies of the gateway: config/policies/*.yaml as types, and what holds on this stack after settings are applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from control.core import complaints, kinds, limits, strict_yaml
from control.core.errors import FlashboxError
from control.core.model import Plan
from control.core.settings import Settings
from control.core.settings.base import Seconds
from control.core.settings.gateway import POLICIES, PolicyName

FOLDER = "config/policies"
SCHEMAS = "config/schemas"  # of request bodies, one per route; the policy's bounds are worked in
CONTEXT = "context"  # a bound that is the model's context
ENGINES = "engines"  # a breaker that is sized to the replicas
# What a policy may bound; a schema names one by `x-bound`.
BOUNDS = ("max_tokens", "temperature", "n", "logprobs", "prompt_logprobs")
_MEND = "Take the file from the release again."
# Waiting beside running, when breakers follow the engines: as many requests again.
_WAITING = 2


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


_Count = Annotated[int, Field(ge=0, le=limits.MOST)]
_Breaker = Annotated[int, Field(ge=1, le=2**31 - 1)] | Literal["engines"]


class Bound(_Part):
    """What a number may be, both ends included; an end that is null or missing is open."""

    minimum: float | None = None
    maximum: float | Literal["context"] | None = None


class PolicyLimits(_Part):
    """How much one caller may ask; 0 is no limit."""

    requests_per_second: _Count
    requests_per_minute: _Count
    ip_requests_per_second: _Count
    ip_requests_per_minute: _Count
    tokens_per_minute: Annotated[int, Field(ge=0, le=limits.MOST_TOKENS)]
    streams: Annotated[int, Field(ge=0, le=limits.MOST_STREAMS)]


class Timeouts(_Part):
    """Seconds; route_s 0 is none."""

    route_s: float = Field(ge=0, le=86_400)
    idle_s: Seconds
    max_stream_s: Seconds


class Breakers(_Part):
    """Envoy's circuit breakers of the engines' cluster."""

    max_connections: _Breaker
    max_pending_requests: _Breaker
    max_requests: _Breaker


class Policy(_Part):
    """One file of config/policies."""

    policy: PolicyName
    about: str
    validate_: Literal["bounds", "shape"] = Field(alias="validate")
    bounds: Mapping[str, Bound]
    limits: PolicyLimits
    body_mib: int = Field(ge=1, le=1024)
    timeouts: Timeouts
    breakers: Breakers


@dataclass(frozen=True)
class Governance:
    """The rules in force: the policy with this deployment's settings and plan worked in."""

    policy: str
    observe: bool
    truncate: bool
    bounds: Mapping[str, tuple[float | None, float | None]]  # name -> (minimum, maximum)
    key_per_second: int  # requests; 0: no limit, here and below
    key_per_minute: int
    ip_per_second: int
    ip_per_minute: int
    tokens_per_minute: int
    streams: int
    affinity: str  # none, prefix or session
    max_body_bytes: int
    route_timeout_s: float  # 0: none
    idle_timeout_s: float
    max_stream_s: float
    max_connections: int
    max_pending_requests: int
    max_requests: int


def parse(text: str, path: str) -> Policy:
    """One policy file; raises FlashboxError with everything that is wrong in it."""
    document = strict_yaml.read(text, path)
    if document.complaints:
        raise FlashboxError("\n".join(document.complaints), fix=_MEND)
    try:
        policy = Policy.model_validate(document.value)
    except ValidationError as error:
        lines = [f"{path}: {complaints.path_of(fault['loc']) or 'policy'}: {fault['msg']}" for fault in error.errors()]
        raise FlashboxError("\n".join(lines), fix=_MEND) from None
    wrong = [f"{path}: {complaint}" for complaint in _contradictions(policy, path)]
    if wrong:
        raise FlashboxError("\n".join(wrong), fix=_MEND)
    return policy


def _contradictions(policy: Policy, path: str) -> Iterator[str]:
    """What each part alone allows and the whole does not."""
    if path != f"{FOLDER}/{policy.policy}.yaml":
        yield f"policy: expected the name of the file, found {policy.policy}"
    if policy.validate_ == "shape" and policy.bounds:
        yield "bounds: expected none, since validate is shape"
    for name, bound in policy.bounds.items():
        if name not in BOUNDS:
            hint = complaints.did_you_mean(name, BOUNDS) or f" (known: {', '.join(BOUNDS)})"
            yield f"bounds.{name}: unknown bound{hint}"
        low, high = bound.minimum, bound.maximum
        if low is not None and isinstance(high, float) and low > high:
            yield f"bounds.{name}: expected a minimum up to the maximum, found {low:g} above {high:g}"


def chosen(settings: Settings, sources: Mapping[str, str]) -> Policy:
    """The policy that `gateway.policy` names, from `sources` (path -> text)."""
    return _named(settings.gateway.policy, sources)


def _named(name: str, sources: Mapping[str, str]) -> Policy:
    path = f"{FOLDER}/{name}.yaml"
    if path not in sources:
        raise FlashboxError(f"{path}: missing", fix=_MEND)
    return parse(sources[path], path)


def every(sources: Mapping[str, str]) -> dict[str, Policy]:
    """All shipped policies by name, the default first."""
    return {name: _named(name, sources) for name in POLICIES}


def govern(settings: Settings, plan: Plan, policy: Policy) -> Governance:
    """The rules in force: a setting that is not null is stronger than the policy."""
    gateway, asked, own, times = settings.gateway, settings.gateway.limits, policy.limits, policy.timeouts
    room = _room(settings, plan)
    breakers = policy.breakers
    return Governance(
        policy=policy.policy,
        observe=gateway.mode == "observe",
        truncate=gateway.on_overflow == "truncate",
        bounds={name: _ends(bound, kinds.context(settings)) for name, bound in policy.bounds.items()},
        key_per_second=_first(asked.requests_per_second, own.requests_per_second),
        key_per_minute=_first(asked.requests_per_minute, own.requests_per_minute),
        ip_per_second=_first(asked.ip_requests_per_second, own.ip_requests_per_second),
        ip_per_minute=_first(asked.ip_requests_per_minute, own.ip_requests_per_minute),
        tokens_per_minute=_first(asked.tokens_per_minute, own.tokens_per_minute),
        streams=_first(asked.streams, own.streams),
        affinity=gateway.affinity or ("prefix" if len(plan.replicas) > 1 else "none"),
        max_body_bytes=_first(gateway.max_body_mib, policy.body_mib) * 1_048_576,
        route_timeout_s=times.route_s if gateway.route_timeout_s is None else gateway.route_timeout_s,
        idle_timeout_s=gateway.idle_timeout_s or times.idle_s,
        max_stream_s=gateway.max_stream_s or times.max_stream_s,
        max_connections=gateway.max_requests or _breaker(breakers.max_connections, room),
        max_pending_requests=gateway.max_requests or _breaker(breakers.max_pending_requests, room),
        max_requests=gateway.max_requests or _breaker(breakers.max_requests, room),
    )


def _first(own: int | None, default: int) -> int:
    return default if own is None else own


def _ends(bound: Bound, context: int) -> tuple[float | None, float | None]:
    return bound.minimum, float(context) if bound.maximum == CONTEXT else bound.maximum  # type: ignore[return-value]


def _breaker(value: int | Literal["engines"], room: int) -> int:
    return room if value == ENGINES else value  # type: ignore[return-value]


def _room(settings: Settings, plan: Plan) -> int:
    """Requests that run on all planned replicas at once, and as many waiting."""
    return _WAITING * kinds.seats(settings, plan) * max(1, len(plan.replicas))
