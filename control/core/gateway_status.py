"""What Envoy and the policy service say of themselves, understood: breakers, hosts, limits, refusals."""

from __future__ import annotations

import re
from collections.abc import Mapping

from control.core import budget_status

STATS_PATH = (
    "/stats?filter=(circuit_breakers[.]default[.]remaining_(cx|pending|rq)$|http_local_rate_limit[.]|"
    "ingress_http[.](downstream_(rq_active|cx_active|rq_4xx|rq_5xx|rq_total)|rbac[.]denied)$|"
    f"{budget_status.STATS}|days_until_first_cert_expiring$|version_text$|update_rejected$|config_fail$)"
)
CLUSTERS_PATH, LISTENERS_PATH = "/clusters", "/listeners"
NO_CERTIFICATE = 2**31 - 1  # and above: Envoy's way to say that there is none
_BREAKERS: Mapping[str, str] = {
    "connections": "cx",
    "pending_requests": "pending",
    "requests": "rq",
}
_COUNTED = re.compile(r"^policy_requests_total\{(?P<labels>[^}]*)\} (?P<count>[0-9.e+]+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Json = dict[str, object]


def numbers(stats: str) -> dict[str, int]:
    """Counters and gauges by name."""
    pairs = (line.rpartition(": ") for line in stats.splitlines())
    return {name: int(value) for name, _, value in pairs if value.isdigit()}


def breakers(stats: Mapping[str, int], clusters: str) -> list[Json]:
    """Each circuit breaker of the clusters that count what is left: limit, and room now."""
    limits = {}
    for line in clusters.splitlines():
        cluster, _, rest = line.partition("::default_priority::max_")
        name, _, value = rest.partition("::")
        if value.isdigit():
            limits[cluster, name] = int(value)
    found: list[Json] = []
    for (cluster, name), limit in sorted(limits.items()):
        left = stats.get(f"cluster.{cluster}.circuit_breakers.default.remaining_{_BREAKERS.get(name)}")
        if left is not None:
            found.append({"cluster": cluster, "what": name, "limit": limit, "left": left})
    return found


def hosts(clusters: str) -> list[Json]:
    """Members of the clusters that lead to other containers: health as Envoy sees it, requests in flight."""
    found: dict[tuple[str, str], Json] = {}
    for line in clusters.splitlines():
        parts = line.split("::")
        if len(parts) == 4 and ":" in parts[1]:
            host = found.setdefault((parts[0], parts[1]), {"cluster": parts[0], "address": parts[1]})
            if parts[2] in ("hostname", "health_flags"):
                host[{"hostname": "name", "health_flags": "health"}[parts[2]]] = parts[3].lstrip("/")
            elif parts[2] in ("rq_active", "rq_total", "rq_error"):
                host[parts[2].removeprefix("rq_")] = int(parts[3])
    return [found[key] for key in sorted(found)]


def limits(stats: Mapping[str, int]) -> list[Json]:
    """Each limit filter: how many it let pass and how many it refused. Envoy shows no single bucket."""
    names = sorted(
        {name.partition(".http_local_rate_limit.")[0] for name in stats if ".http_local_rate_limit." in name}
    )
    return [
        {
            "limit": name,
            "passed": stats.get(f"{name}.http_local_rate_limit.ok", 0),
            "over": stats.get(f"{name}.http_local_rate_limit.rate_limited", 0),
            "refused": stats.get(f"{name}.http_local_rate_limit.enforced", 0),
        }
        for name in names
    ]


def refusals(page: str) -> list[Json]:
    """What the policy service refused or, in mode observe, would have refused."""
    found: list[Json] = []
    for line in page.splitlines():
        match = _COUNTED.match(line)
        labels = dict(_LABEL.findall(match["labels"])) if match else {}
        if match and labels.get("verdict", "ok") != "ok":
            rest = {name: labels[name] for name in ("verdict", "route", "rule") if name in labels}
            found.append({**rest, "count": int(float(match["count"]))})
    return found


def certificate_days(stats: Mapping[str, int]) -> int | None:
    """Days until the certificate of the public port ends; None without one."""
    days = stats.get("server.days_until_first_cert_expiring", NO_CERTIFICATE)
    return None if days >= NO_CERTIFICATE else days
