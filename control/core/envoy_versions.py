"""Which files Envoy goes by: each carries its digest as `version_info`, and Envoy's stats repeat what is in force."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from control.core.endpoints import EDS_PATH
from control.core.header import HEADER, json_with_note
from control.core.policies import Governance
from control.core.settings import Settings

DYNAMIC = "run/envoy/dynamic/"
ENTRY_PATH = "run/envoy/entry.json"
# Asks Envoy for what `in_force` reads.
STATS_PATH = "/stats?filter=(version_text|update_rejected|config_fail)$"
_VERSION = re.compile(r"^version_info: [\"']?([0-9a-f]{16})[\"']?$", re.MULTILINE)
_STAT = re.compile(r'^(?P<prefix>.+)\.(?P<what>version_text|update_rejected|config_fail): "?(?P<value>[^"\n]*)"?$')
# Kind of resource -> the end of the stat's prefix; {} is the resource's name.
_PREFIXES: Mapping[str, str] = {
    "Listener": "listener_manager.lds",
    "Cluster": "cluster_manager.cds",
    "ClusterLoadAssignment": "cluster.{}",
    "Secret": "sds.{}",
    "RouteConfiguration": "rds.{}",
    "TypedExtensionConfig": "extension_config_discovery.http_filter.{}",
}


def entry_json(settings: Settings, rules: Governance, files: Sequence[str]) -> str:
    """What PID 1 of the gateway reads at each start of Envoy: a hot restart is enough to change it."""
    content = {
        "concurrency": settings.gateway.concurrency,
        "max_stream_s": rules.max_stream_s,
        "dynamic": sorted(path.removeprefix(DYNAMIC) for path in files if path.startswith(DYNAMIC)),
    }
    return json_with_note(content)


def versioned(text: str) -> str:
    """A file of resources with its own digest in it."""
    body = text.removeprefix(HEADER)
    return f'{HEADER}version_info: "{hashlib.sha256(body.encode()).hexdigest()[:16]}"\n{body}'


def version(text: str) -> str | None:
    """The version that a file carries."""
    found = _VERSION.search(text)
    return found[1] if found else None


@dataclass(frozen=True)
class Held:
    """What Envoy says of one resource: the version in force, and how many it has refused."""

    version: str = ""
    refused: int = 0


def in_force(stats: str) -> dict[str, Held]:
    """Envoy's answer to STATS_PATH: prefix of the stat -> what is held under it."""
    found: dict[str, dict[str, str]] = {}
    for line in stats.splitlines():
        match = _STAT.match(line)
        if match:
            found.setdefault(match["prefix"], {})[match["what"]] = match["value"]
    return {
        prefix: Held(seen.get("version_text", ""), sum(int(seen.get(n, 0)) for n in ("update_rejected", "config_fail")))
        for prefix, seen in found.items()
    }


def held_of(text: str, held: Mapping[str, Held]) -> dict[str, Held]:
    """What of it is of this file. What nothing asks for has no stat, and nothing to wait for."""
    ends = tuple(_stat_of(resource) for resource in (yaml.safe_load(text) or {}).get("resources") or ())
    return {prefix: seen for prefix, seen in held.items() if any(_is(prefix, end) for end in ends)}


def _stat_of(resource: Mapping[str, object]) -> str:
    kind = str(resource.get("@type", "")).rpartition(".")[2]
    return _PREFIXES.get(kind, "{}").format(resource.get("cluster_name") or resource.get("name"))


def _is(prefix: str, end: str) -> bool:
    return prefix == end or prefix.endswith(f".{end}")


def taken(text: str, held: Mapping[str, Held]) -> bool:
    """Whether Envoy goes by this file."""
    return all(seen.version == version(text) for seen in held_of(text, held).values())


def behind(files: Mapping[str, str], held: Mapping[str, Held]) -> dict[str, str]:
    """Of these files (path -> text) the watched ones that Envoy does not go by; the endpoints are somebody else's."""
    watched = {path: text for path, text in files.items() if path.startswith(DYNAMIC) and path != EDS_PATH}
    return {path: text for path, text in watched.items() if not taken(text, held)}


def refused(text: str, before: Mapping[str, Held], now: Mapping[str, Held]) -> bool:
    """Whether Envoy has refused this file since `before`."""
    own = held_of(text, now)
    return any(
        seen.refused > before.get(prefix, Held()).refused and seen.version != version(text)
        for prefix, seen in own.items()
    )
