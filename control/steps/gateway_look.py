"""What the gateway goes by now, as data for programs and as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from control.context import Control
from control.core import budget_status, envoy_versions, gateway_changes, limits, policies
from control.core import gateway_status as status
from control.core.envoy_files import BOOTSTRAP_PATH
from control.core.errors import PreflightRefused
from control.core.model import Rendering
from control.steps import apply, budget_look, gateway_live, prepare, survey

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
# A rule in force -> the setting that overrides the policy's value.
RULES: Mapping[str, str] = {
    "key_per_second": "gateway.limits.requests_per_second",
    "key_per_minute": "gateway.limits.requests_per_minute",
    "ip_per_second": "gateway.limits.ip_requests_per_second",
    "ip_per_minute": "gateway.limits.ip_requests_per_minute",
    "tokens_per_minute": "gateway.limits.tokens_per_minute",
    "streams": "gateway.limits.streams",
    "max_body_bytes": "gateway.max_body_mib",
    "route_timeout_s": "gateway.route_timeout_s",
    "idle_timeout_s": "gateway.idle_timeout_s",
    "max_stream_s": "gateway.max_stream_s",
    "max_requests": "gateway.max_requests",
}
AFFINITY = "gateway.affinity"


def look(control: Control) -> dict[str, Any]:
    """Ask PID 1, Envoy, the policy service, and compare with what the settings come to."""
    rendered, reason = _rendered(control)
    state = gateway_live.state(control)
    seen: dict[str, Any] = {"running": state is not None, "processes": state, "rules": _rules(control)}
    seen["keys"] = _keys(control)
    if state is None:
        return seen
    stats, clusters = (
        gateway_live.run(control, "ask", path) or "" for path in (status.STATS_PATH, status.CLUSTERS_PATH)
    )
    counts, page = status.numbers(stats), gateway_live.policy_page(control)
    hosts = status.hosts(clusters)
    return {
        **seen,
        "listeners": (gateway_live.run(control, "ask", status.LISTENERS_PATH) or "").split(),
        "requests": counts.get("http.ingress_http.downstream_rq_active"),
        "connections": counts.get("http.ingress_http.downstream_cx_active"),
        "breakers": status.breakers(counts, clusters),
        "hosts": hosts,
        "limits": status.limits(counts),
        "refused": status.refusals(page or ""),
        "policy_service": _policy_service(control, page, rendered),
        "budget": budget_look.look(control, rendered, hosts, counts),
        "certificate_days": status.certificate_days(counts),
        "in_step": reason or _in_step(state, rendered, envoy_versions.in_force(stats)),
    }


def _rendered(control: Control) -> tuple[Rendering, str]:
    """What is published, or why that cannot be told."""
    try:
        wanted = prepare.rendering(control, survey.planned(control))
    except PreflightRefused as refused:
        return {}, f"cannot be told: {refused.what}"
    on_disk = control.workspace.on_disk(tuple(wanted))
    published = {path: text for path, text in on_disk.items() if text is not None}
    changed = gateway_changes.changes(wanted, on_disk)
    pending = [*changed.files, *changed.container]
    return published, f"settings that are not applied: {', '.join(pending)}" if pending else ""


def _in_step(state: Mapping[str, object], published: Rendering, held: Mapping[str, envoy_versions.Held]) -> str:
    """Whether what runs is what is published; "" is yes."""
    behind = list(envoy_versions.behind(published, held))
    if not gateway_changes.started_with(state, published):
        behind.append(BOOTSTRAP_PATH)
    return f"Envoy goes by older files than are published: {', '.join(behind)}" if behind else ""


def _policy_service(control: Control, page: str | None, published: Rendering) -> dict[str, Any]:
    versions = gateway_live.versions_on(page) if page is not None else set()
    text = published.get(apply.RULES)
    wanted = gateway_changes.version_of(text) if text else None
    return {"answers": page is not None, "versions": sorted(versions), "published": wanted and wanted[:12]}


def _rules(control: Control) -> dict[str, Any]:
    """The rules in force by the settings, each with the place that decided it."""
    settings, origins = control.settings, control.resolved.origins
    try:
        plan = survey.planned(control)
    except PreflightRefused:
        return {"policy": settings.gateway.policy, "mode": settings.gateway.mode, "affinity": None, "values": []}
    rules = policies.govern(settings, plan, policies.chosen(settings, control.workspace.sources()))
    values = []
    for name, path in RULES.items():
        own = survey.value_at(settings, path) is not None
        values.append({"rule": name, "value": getattr(rules, name), "from": origins[path] if own else "policy"})
    named = {"policy": rules.policy, "policy_from": origins["gateway.policy"], "affinity": rules.affinity}
    named["affinity_from"] = origins[AFFINITY] if settings.gateway.affinity else f"{len(plan.replicas)} replicas"
    return {**named, "mode": settings.gateway.mode, "mode_from": origins["gateway.mode"], "values": values}


def _keys(control: Control) -> list[dict[str, Any]]:
    """Keys that have rules of their own."""
    fields = (*limits.OF_A_KEY, "expires", "models")
    known = prepare.stored_keys(control)
    return [
        {"name": key.name, "key_id": key.key_id, **{field: getattr(key, field) for field in fields}}
        for key in known
        if any(getattr(key, field) not in (None, ()) for field in fields)
    ]


def tables(seen: Mapping[str, Any]) -> Iterator[Table]:
    """For people: a title, columns, rows."""
    yield from _about(seen)
    rules = seen["rules"]
    title = f"policy {rules['policy']} ({rules.get('policy_from', '')}), mode {rules['mode']}"
    yield title, ("rule", "value", "from"), [(r["rule"], f"{r['value']:.12g}", r["from"]) for r in rules["values"]]
    if seen["keys"]:
        of_keys = ("key", "per second", "per minute", "tokens/min", "streams", "expires", "models")
        yield "keys with rules of their own", of_keys, [_key_row(key) for key in seen["keys"]]
    if not seen["running"]:
        return
    if seen["budget"]["keys"]:
        rows = [budget_status.row(key) for key in seen["budget"]["keys"]]
        yield "tokens and streams", budget_status.COLUMNS, rows
    for title, name in (("limits", "limits"), ("refused by the policy service", "refused")):
        if seen[name]:
            yield title, tuple(seen[name][0]), [tuple(map(str, row.values())) for row in seen[name]]
    yield "breakers", ("cluster", "what", "limit", "left"), [tuple(map(str, b.values())) for b in seen["breakers"]]
    columns = ("cluster", "name", "address", "health", "active", "total")
    yield "hosts", columns, [tuple(str(host.get(c, "")) for c in columns) for host in seen["hosts"]]


def _key_row(key: Mapping[str, Any]) -> tuple[str, ...]:
    fields = (*(key[field] for field in limits.OF_A_KEY), key["expires"], ", ".join(key["models"]))
    return key["name"], *("" if value in (None, "") else str(value) for value in fields)


def _about(seen: Mapping[str, Any]) -> Iterator[Table]:
    if not seen["running"]:
        yield "the gateway is not running (python ctl.py up)", (), ()
        return
    state, service = seen["processes"], seen["policy_service"]
    previous = state["previous"]
    yield f"Envoy: {state['phase']}, epoch {state['epoch']}, {seen['requests']} requests in flight", (), ()
    if previous:
        yield f"  an earlier one (epoch {previous['epoch']}) still holds {previous['requests']} streams", (), ()
    yield f"listeners: {', '.join(seen['listeners'])}", (), ()
    answers = f"goes by {', '.join(service['versions']) or 'no rules'}" if service["answers"] else "does not answer"
    yield f"policy service: {answers}", (), ()
    for line in budget_status.lines(seen["budget"]):
        yield line, (), ()
    if seen["rules"]["affinity"]:
        yield f"affinity {seen['rules']['affinity']} ({seen['rules']['affinity_from']})", (), ()
    if seen["certificate_days"] is not None:
        yield f"certificate: {seen['certificate_days']} days left", (), ()
    yield seen["in_step"] or "runs what is rendered", (), ()
