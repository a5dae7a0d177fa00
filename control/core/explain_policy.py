"""What `explain` says of each rule of a policy, as data; values are read from the policy and from what is in force."""

from __future__ import annotations

from collections.abc import Callable

from control.core.explain import Entry
from control.core.policies import CONTEXT, Bound, Governance, Policy

_REFUSED = "400 invalid_request_error"
_OWN_LIMIT = "429 rate_limit_error, code rate_limit_exceeded, with Retry-After and X-RateLimit headers of this limit."
_ADDRESS_LIMIT = "429 rate_limit_error, code rate_limit_exceeded, with Retry-After and X-RateLimit headers."
_ANOTHER = "Choose another policy: gateway.policy. A bound has no setting of its own."
_KINDS = " connections/waiting/requests"
_PER_KEY = "for one key python ctl.py keys limits NAME {option} N."
_BUDGETS = "429 rate_limit_error, code {code}, with Retry-After{more}. On /v1/messages in Anthropic's form."


# ---- values in words


def _range(low: float | None, high: float | str | None) -> str:
    if low is None and high is None:
        return "no bound"
    end = "the context" if high == CONTEXT else "" if high is None else f"{high:.10g}"
    if low is None:
        return f"at most {end}"
    return f"{low:.10g} to {end}" if end else f"at least {low:.10g}"


def _bound(name: str) -> tuple[Callable[[Policy], str], Callable[[Governance], str]]:
    def of_policy(policy: Policy) -> str:
        bound = policy.bounds.get(name, Bound())
        return _range(bound.minimum, bound.maximum)

    return of_policy, lambda rules: _range(*rules.bounds.get(name, (None, None)))


def _count(value: int) -> str:
    return str(value) if value else "no limit"


def _seconds(value: float) -> str:
    return f"{value:.10g} s" if value else "none"


def _of_engines(policy: Policy) -> str:
    found = policy.breakers
    named = (found.max_connections, found.max_pending_requests, found.max_requests)
    if set(named) == {"engines"}:
        return "what the replicas run at once, and as many waiting"
    return "/".join(map(str, named)) + _KINDS


def _of_rules(rules: Governance) -> str:
    return f"{rules.max_connections}/{rules.max_pending_requests}/{rules.max_requests}{_KINDS}"


def _limits(name: str, field: str, window: str, whose: str, answer: str, option: str, why: str) -> Entry:
    title = f"{whose} does not send more requests in one {window} than its limit"
    refuses = f"Requests above it, of {whose.lower()}, whatever they ask for."
    return _limit(name, field, option, title, refuses, answer, why)


def _limit(name: str, field: str, option: str, title: str, refuses: str, answer: str, why: str) -> Entry:
    setting = f"gateway.limits.{name}"
    of_one = f"; {_PER_KEY.format(option=option)}" if option else "."
    return Entry(
        id=f"policy.{name}",
        title=title,
        refuses=refuses,
        answer=answer,
        why=why,
        change=f"{setting} (0: no limit, null: the policy's){of_one}",
        settings=(setting,),
        of_policy=lambda policy: _count(getattr(policy.limits, name)),
        in_force=lambda rules: _count(getattr(rules, field)),
    )


def _bounds(name: str, title: str, refuses: str, why: str, param: str, change: str = _ANOTHER) -> Entry:
    of_policy, in_force = _bound(name)
    answer = f"{_REFUSED}, such as integer_above_max_value; param names the field ({param})."
    return Entry(f"policy.{name}", title, why, change, refuses, answer, (), of_policy, in_force)


# ---- the rules

_BOUNDS = (
    _bounds(
        "max_tokens",
        "An answer is asked for in a length that the policy allows",
        "max_tokens, max_completion_tokens or max_output_tokens outside the bound.",
        "A long answer holds its place on a replica for minutes. strict refuses above 8192, as many sites do: agents "
        "that write files ask for more. standard allows what fits into the context, which is the engine's own rule.",
        "max_tokens, or the name that the client used",
    ),
    _bounds(
        "temperature",
        "Sampling is asked for with a temperature that the policy allows",
        "temperature outside the bound; not sent, or null, is not refused.",
        "0 is greedy decoding, which agents and evaluations send by default: standard takes it. strict refuses below "
        "0.01, as many sites do against repetition; the real causes of repetition are chat template, sampling defaults "
        "and damaged weights.",
        "temperature",
    ),
    _bounds(
        "n",
        "A request asks for few answers at once",
        "n (and best_of) outside the bound.",
        "Each answer is a stream of its own on the replica, paid for by one request of the limits.",
        "n",
    ),
    _bounds(
        "logprobs",
        "A request asks for few alternatives of each token",
        "logprobs as a number, or top_logprobs, outside the bound.",
        "The engine itself has a maximum of 20; many alternatives make answers of many megabytes.",
        "top_logprobs or logprobs",
    ),
    _bounds(
        "prompt_logprobs",
        "A request asks for few alternatives of each token of the prompt",
        "prompt_logprobs outside the bound.",
        "It is computed for the whole prompt at once and needs memory for each token of it.",
        "prompt_logprobs",
    ),
)
_LIMITS = (
    _limits(
        *("requests_per_second", "key_per_second", "second", "One key", _OWN_LIMIT),
        "--rps",
        "One key cannot take the service from the others: so many at once, then so many each second. A changed limit "
        "takes effect within a second and touches no other key's count.",
    ),
    _limits(
        *("requests_per_minute", "key_per_minute", "minute", "One key", _OWN_LIMIT),
        "--rpm",
        "Strict: no 60 seconds of any start admit more. A tenth of it may come at once.",
    ),
    _limits(
        *("ip_requests_per_second", "ip_per_second", "second", "One client address", _ADDRESS_LIMIT, ""),
        "Comes before the key is looked at, so guessing keys is limited too. Off by default: a whole office shares one "
        "address. Behind a proxy set gateway.trusted_proxies, or all clients are one.",
    ),
    _limits(
        *("ip_requests_per_minute", "ip_per_minute", "minute", "One client address", _ADDRESS_LIMIT, ""),
        "The same for minutes.",
    ),
    _limit(
        *("tokens_per_minute", "tokens_per_minute", "--tpm", "One key does not use up its tokens of a minute"),
        "New requests of a key whose budget is used up, until it is paid back; what runs goes on.",
        _BUDGETS.format(code="token_budget_exhausted", more=" and X-RateLimit-*-Tokens headers"),
        "Requests are no measure: one may be a thousand times another. Prompt and answer are charged as the engine "
        "counted them, when a request has ended or its client has left. Nobody knows the length of an answer before, "
        "so a key may go into debt, and waits until it is paid.",
    ),
    _limit(
        *("streams", "streams", "--streams", "One key does not have more requests at once than it may"),
        "The request above it, stream or not, while the others run.",
        _BUDGETS.format(code="too_many_streams", more=" 1"),
        "One key cannot take every place on the replicas. A place is free again as soon as the request has ended, "
        "whatever its end.",
    ),
)
_PROTECTION = (
    Entry(
        id="policy.body",
        title="A request's body is not larger than the limit",
        refuses="A body above it, by Content-Length before a byte is read, chunked ones as they come; compressed ones "
        "when they are unpacked.",
        answer="413 invalid_request_error, code request_too_large.",
        why="A prompt that fills the context is about 1 MiB; pictures need more. The bound also sizes the memory of "
        "the policy service, which holds bodies while it judges them.",
        change="gateway.max_body_mib (null: the policy's); gateway apply makes the policy service anew for it.",
        settings=("gateway.max_body_mib",),
        of_policy=lambda policy: f"{policy.body_mib} MiB ({policy.body_mib * 1_048_576} bytes)",
        in_force=lambda rules: f"{rules.max_body_bytes // 1_048_576} MiB ({rules.max_body_bytes} bytes)",
    ),
    Entry(
        id="policy.route_timeout",
        title="An answer is complete within the route's time",
        refuses="An answer that takes longer, streams included.",
        answer="504 timeout_error, code timeout; a stream that has begun is cut.",
        why="300 s cut long streams in the middle: reasoning of a large model takes longer. standard has idle timers "
        "and a long maximum instead.",
        change="gateway.route_timeout_s (0: none, null: the policy's).",
        settings=("gateway.route_timeout_s",),
        of_policy=lambda policy: _seconds(policy.timeouts.route_s),
        in_force=lambda rules: _seconds(rules.route_timeout_s),
    ),
    Entry(
        id="policy.idle_timeout",
        title="A stream brings a byte now and then",
        refuses="A stream or a connection without a byte for this long.",
        answer="Before the answer began 504 timeout_error, code timeout, or 408 request_timeout for an upload that "
        "stopped; afterwards the stream is closed.",
        why="A client that is gone and a replica that hangs look like this. A long prefill brings no byte: the time "
        "must fit it.",
        change="gateway.idle_timeout_s (null: the policy's).",
        settings=("gateway.idle_timeout_s",),
        of_policy=lambda policy: _seconds(policy.timeouts.idle_s),
        in_force=lambda rules: _seconds(rules.idle_timeout_s),
    ),
    Entry(
        id="policy.max_stream",
        title="A request ends within the longest duration, upload and stream included",
        refuses="A request that lasts longer.",
        answer="504 timeout_error, code max_duration; a stream that has begun is cut.",
        why="Whatever the idle timer does not see ends here. Replacing the gateway's process waits at most this long.",
        change="gateway.max_stream_s (null: the policy's).",
        settings=("gateway.max_stream_s",),
        of_policy=lambda policy: _seconds(policy.timeouts.max_stream_s),
        in_force=lambda rules: _seconds(rules.max_stream_s),
    ),
    Entry(
        id="policy.breakers",
        title="No more requests are on the replicas at once than they can run and hold in their queue",
        refuses="The request above it, whoever sends it.",
        answer="503 overloaded_error, code over_capacity, with Retry-After: it is not the caller's own limit.",
        why="Waiting in a long queue is worse than trying again. Raising it only moves the queue into the replicas.",
        change="gateway.max_requests (null: the policy's), or more replicas.",
        settings=("gateway.max_requests",),
        of_policy=_of_engines,
        in_force=_of_rules,
    ),
)
_CHOICES = (
    Entry(
        id="policy.mode",
        title="What the policy refuses is refused, or only counted",
        why="observe counts and logs what limits and bounds would have refused (would_refuse in the log), and lets it "
        "pass: try a policy with real clients first. Keys, sizes, times and breakers hold in either mode.",
        change="gateway.mode: enforce or observe.",
        settings=("gateway.mode",),
        in_force=lambda rules: "observe" if rules.observe else "enforce",
    ),
    Entry(
        id="policy.overflow",
        title="A prompt fits into the context",
        refuses="With reject the engine refuses a prompt that is longer than the context; with truncate the oldest "
        "turns that are not system messages are left out until it fits.",
        answer="reject: the engine's own 400. truncate: the answer carries x-flashbox-truncated: turns=N.",
        why="Cutting tokens out of a chat destroys its structure, leaving out whole turns does not. The engine's own "
        "/tokenize counts.",
        change="gateway.on_overflow: reject or truncate.",
        settings=("gateway.on_overflow",),
        in_force=lambda rules: "truncate" if rules.truncate else "reject",
    ),
    Entry(
        id="policy.affinity",
        title="Turns of one conversation go to one replica, which has their beginning in its cache",
        why="A prompt whose beginning is cached is answered sooner. prefix knows a conversation by what comes before "
        "its second turn, session by the header x-session-id, and without one by that. A replica that has more than "
        "its share to do passes new turns on; one that leaves takes only its own conversations along.",
        change="gateway.affinity: none, prefix or session; null: prefix with two or more replicas.",
        settings=("gateway.affinity",),
        in_force=lambda rules: rules.affinity,
    ),
    Entry(
        id="policy.shape",
        title="A body is a request of its route",
        refuses="What cannot be one: no JSON, wrong types, NaN, a key written twice, invalid UTF-8, nesting above 128. "
        "null fields, unknown fields, content parts and tools of any schema pass.",
        answer=f"{_REFUSED}; param names the field. On /v1/messages in Anthropic's form.",
        why="What one parser reads in another way than the next gets past a bound. Every policy checks the shape, "
        "off too.",
        change="config/schemas holds the schemas, one per route; they are part of the release.",
    ),
)

ENTRIES: tuple[Entry, ...] = (*_BOUNDS, *_LIMITS, *_PROTECTION, *_CHOICES)
