"""Everything that flashbox renders, joined: `.env`, the engines file and Envoy's files.

Text in, text out. What is on disk is compared here too, so that `render --check` and `render`
cannot disagree about what would change.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from control.core import (
    budget_limits,
    endpoints,
    engine_cpu,
    engine_gpu,
    engines,
    envfile,
    envoy_files,
    envoy_versions,
    policies,
    policy_memory,
    policy_rules,
    wiring,
)
from control.core.errors import FlashboxError
from control.core.header import json_with_note, with_header
from control.core.model import ApiKey, ImageRef, Plan, Rendering
from control.core.settings import Settings

ENV_PATH = ".env"
STAMP_PATH = "run/stamp.json"
# Folders whose files are rendered into others.
SOURCES = (envoy_files.TEMPLATES, policies.FOLDER, policies.SCHEMAS)
# Above the longest drain, so that Docker's SIGKILL never comes before our own end.
_GATEWAY_STOP_MARGIN_S = 30
_ENGINE_STOP_MARGIN_S = 15


def render(
    settings: Settings,
    plan: Plan,
    keys: Sequence[ApiKey],
    images: Mapping[str, ImageRef],
    sources: Mapping[str, str],
) -> Rendering:
    """Every rendered file: path -> text. `sources`: what is edited in config/ (see `SOURCES`), path -> text."""
    rules = policies.govern(settings, plan, policies.chosen(settings, sources))
    return {
        ENV_PATH: with_header(envfile.dump(_environment(settings, plan, rules, images))),
        engines.ENGINES_PATH: engines.engines_yaml(settings, plan),
        policy_rules.RULES_PATH: policy_rules.rules_json(settings, plan, rules, sources),
        budget_limits.LIMITS_PATH: budget_limits.limits_json(rules, keys),
        **_envoy(settings, plan, rules, keys, sources),
    }


def _envoy(
    settings: Settings,
    plan: Plan,
    rules: policies.Governance,
    keys: Sequence[ApiKey],
    sources: Mapping[str, str],
) -> Rendering:
    """Everything that the gateway reads. What Envoy watches carries its version, so that it can say what it goes by."""
    files = {
        path: envoy_versions.versioned(text) if path.startswith(envoy_versions.DYNAMIC) else text
        for path, text in envoy_files.render(settings, plan, rules, keys, sources).items()
    }
    files[endpoints.EDS_PATH] = endpoints.eds(plan.active)
    return {**files, envoy_versions.ENTRY_PATH: envoy_versions.entry_json(settings, rules, tuple(files))}


def _environment(
    settings: Settings, plan: Plan, rules: policies.Governance, images: Mapping[str, ImageRef]
) -> dict[str, str]:
    """What Compose needs: which files, and every variable of compose/*.yaml."""
    gateway, engine, service = settings.gateway, settings.engine, settings.service
    return {
        "COMPOSE_FILE": f"compose.yaml:{engines.ENGINES_PATH}",
        "COMPOSE_PROJECT_NAME": settings.project,
        "FB_GATEWAY_BIND": f"[{gateway.bind}]" if ":" in gateway.bind else gateway.bind,
        "FB_GATEWAY_PORT": str(gateway.port),
        "FB_GATEWAY_IMAGE": _reference(images, "gateway"),
        "FB_STUB_IMAGE": _reference(images, "stub"),
        "FB_CPU_IMAGE": _reference(images, engine_cpu.IMAGE),
        "FB_ENGINE_IMAGE": engine_gpu.image(_image(images, engine_gpu.IMAGE), plan),
        "FB_GATEWAY_DRAIN_S": engines.plain(gateway.drain_s),
        "FB_GATEWAY_STOP_GRACE": _grace(gateway.drain_s, _GATEWAY_STOP_MARGIN_S),
        "FB_GATEWAY_MEMORY": f"{gateway.memory_mib}m",
        "FB_GATEWAY_ADDRESS": plan.gateway_address,
        "FB_POLICY_IMAGE": _reference(images, "policy"),
        "FB_POLICY_ADDRESS": plan.policy_address,
        "FB_POLICY_MEMORY_MIB": str(policy_memory.memory_mib(rules.max_body_bytes, len(wiring.POLICY_PORTS))),
        "FB_BUDGET_ADDRESS": plan.budget_address,
        "FB_ENGINE_SUBNET": settings.network.engine_subnet,
        "FB_ENGINE_IP_RANGE": plan.ip_range,
        "FB_ENGINE_STOP_GRACE": _grace(engine.notice_s + engine.drain_s, _ENGINE_STOP_MARGIN_S),
        "FB_SERVICE_USER": f"{service.uid}:{service.gid}",
        "FB_SERVICE_UID": str(service.uid),
        "FB_SERVICE_GID": str(service.gid),
        "FB_LOG_MAX_SIZE": f"{settings.logs.max_size_mib}m",
        "FB_LOG_MAX_FILES": str(settings.logs.max_files),
    }


def _reference(images: Mapping[str, ImageRef], name: str) -> str:
    return _image(images, name).reference


def _image(images: Mapping[str, ImageRef], name: str) -> ImageRef:
    if name not in images:
        found = ", ".join(images) or "none"
        raise FlashboxError(f"config/images.yaml: expected an image called {name}, found {found}", fix=_MEND)
    return images[name]


def _grace(longest_s: float, margin_s: int) -> str:
    return f"{math.ceil(longest_s) + margin_s}s"


_MEND = "Take the file from the release again."


# ---- the stamp


def input_digests(
    settings: Settings, plan: Plan, keys: Sequence[ApiKey], images: Mapping[str, ImageRef], sources: Mapping[str, str]
) -> dict[str, str]:
    """SHA-256 of everything that a rendering is made from; facts and machine count by the plan they lead to."""
    planned = [[replica.name, replica.address, replica.active, replica.gpus] for replica in plan.replicas]
    serve = plan.gpu.serve.args if plan.gpu is not None else ()
    references = {name: images[name].reference for name in sorted(images)}
    return {
        "settings": sha256(json.dumps(settings.model_dump(mode="json"), sort_keys=True)),
        "plan": sha256(json.dumps([plan.kind, planned, serve])),
        "keys": sha256(json.dumps([asdict(key) for key in keys])),
        "images": sha256(json.dumps(references)),
        **{path: sha256(sources[path]) for path in sorted(sources)},
    }


def stamp(rendering: Rendering, inputs: Mapping[str, str] | None = None) -> str:
    """The text of run/stamp.json: the SHA-256 of every file, and of the inputs (see `input_digests`)."""
    content = {
        "inputs": dict(inputs or {}),
        "files": {path: sha256(rendering[path]) for path in sorted(rendering) if path != STAMP_PATH},
    }
    return json_with_note(content)


def sha256(text: str) -> str:
    """The digest of a file or of an input, in hex."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


# ---- what is on disk


def changed(rendering: Rendering, on_disk: Mapping[str, str | None]) -> tuple[str, ...]:
    """Paths whose text on disk is missing or another, in order."""
    return tuple(path for path in sorted(rendering) if on_disk.get(path) != rendering[path])


def stale(rendering: Rendering, on_disk: Mapping[str, str | None]) -> tuple[str, ...]:
    """Paths that are on disk and no longer rendered."""
    return tuple(path for path in sorted(on_disk) if on_disk[path] is not None and path not in rendering)


def diff(rendering: Rendering, on_disk: Mapping[str, str | None]) -> str:
    """What rendering would change, as a unified diff; empty when nothing."""
    paths = (*changed(rendering, on_disk), *stale(rendering, on_disk))
    return "".join(_file_diff(path, on_disk.get(path), rendering.get(path)) for path in sorted(paths))


def _file_diff(path: str, old: str | None, new: str | None) -> str:
    lines = difflib.unified_diff(
        (old or "").splitlines(keepends=True),
        (new or "").splitlines(keepends=True),
        fromfile="/dev/null" if old is None else f"a/{path}",
        tofile="/dev/null" if new is None else f"b/{path}",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
