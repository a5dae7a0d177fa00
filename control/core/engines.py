"""run/engines.yaml: the planned replicas as Compose services, dumped from data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import yaml

from control.core import engine_cpu, engine_gpu, kinds, wiring
from control.core.header import with_header
from control.core.model import Plan, Replica
from control.core.settings import Settings

ENGINES_PATH = "run/engines.yaml"
# Seen from the clone, not from run/: Compose takes the folder of the first file in COMPOSE_FILE for all of them.
_BASE_FILE = "compose/engine.yaml"
_ANYWHERE = "0.0.0.0"  # inside the container, whose only network is the internal one


@dataclass(frozen=True)
class Parts:
    """What the replicas of one kind have beyond what every replica has."""

    environment: Mapping[str, str]
    service: Mapping[str, object]


def engines_yaml(settings: Settings, plan: Plan) -> str:
    """One service for each replica; standby ones carry the profile that no command starts by accident."""
    services = {replica.name: _service(settings, plan, replica) for replica in plan.replicas}
    content: dict[str, object] = {"services": services}
    if plan.kind == "gpu":
        owner = {"extends": {"file": _BASE_FILE, "service": engine_gpu.CACHE_OWNER}, **engine_gpu.cache_owner(settings)}
        content = {
            "services": {**services, engine_gpu.CACHE_OWNER: owner},
            "volumes": engine_gpu.volumes(settings, plan),
        }
    return with_header(yaml.safe_dump(_for_compose(content), sort_keys=False, width=120))


def plain(value: float) -> str:
    """A number as people write it: 300, not 300.0."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _service(settings: Settings, plan: Plan, replica: Replica) -> dict[str, object]:
    own = _KINDS[plan.kind](settings, plan, replica)
    service: dict[str, object] = {
        "extends": {"file": _BASE_FILE, "service": plan.kind},
        "hostname": replica.name,
        "environment": {**_gate(settings), **own.environment},
        "networks": {"engine": {"ipv4_address": replica.address}},
        "labels": {wiring.REPLICA_LABEL: replica.name, wiring.KIND_LABEL: plan.kind},
        **own.service,
    }
    if not replica.active:
        service["profiles"] = [wiring.STANDBY_PROFILE]
    return service


def _gate(settings: Settings) -> dict[str, str]:
    engine = settings.engine
    return {
        "GATE_PORT": str(wiring.GATE_PORT),
        "GATE_UPSTREAM": f"http://127.0.0.1:{wiring.ENGINE_PORT}",
        "GATE_MODEL": engine.served_model_name,
        "GATE_API_KEY_FILE": f"{wiring.SECRETS_MOUNT}/{wiring.UPSTREAM_KEY}",
        "GATE_NOTICE_S": plain(engine.notice_s),
        "GATE_DRAIN_S": plain(engine.drain_s),
        "GATE_HANG_S": plain(engine.hang_s),
        "GATE_PROBE_S": plain(engine.probe_s),
        "GATE_START_TIMEOUT_S": plain(kinds.start_timeout_s(settings)),
    }


def _gpu(settings: Settings, plan: Plan, replica: Replica) -> Parts:
    start = plain(kinds.start_timeout_s(settings))
    return Parts(engine_gpu.environment(plan), engine_gpu.service(plan, replica, start))


def _stub(settings: Settings, plan: Plan, replica: Replica) -> Parts:
    engine, stub = settings.engine, settings.stub
    environment = {
        "STUB_HOST": _ANYWHERE,
        "STUB_PORT": str(wiring.ENGINE_PORT),
        "STUB_MODEL": engine.served_model_name,
        "STUB_RELEASE": stub.release,
        "STUB_MODE": stub.mode,
        "STUB_MAX_MODEL_LEN": str(engine.max_model_len),
        "STUB_MAX_NUM_SEQS": str(kinds.seats(settings)),
        "STUB_LOAD_S": plain(stub.load_s),
        "STUB_PREFILL_TOKENS_PER_S": plain(stub.prefill_tokens_per_s),
        "STUB_DECODE_TOKENS_PER_S": plain(stub.decode_tokens_per_s),
        "STUB_DEFAULT_MAX_TOKENS": str(stub.default_max_tokens),
        "STUB_CONTROL_PORT": str(wiring.CONTROL_PORT),
        "STUB_SHUTDOWN_TIMEOUT_S": plain(engine.drain_s),
    }
    return Parts(environment, limits(settings))


def _cpu(settings: Settings, plan: Plan, replica: Replica) -> Parts:
    return Parts(engine_cpu.environment(settings), {"command": engine_cpu.command(settings), **limits(settings)})


def limits(settings: Settings) -> dict[str, object]:
    """CPU and memory of one replica, where they are limited."""
    cpus, memory = kinds.cpus(settings), kinds.memory_mib(settings)
    return {**({"cpus": cpus} if cpus else {}), **({"mem_limit": f"{memory}m"} if memory else {})}


# One function for each kind of engine.
_KINDS: Mapping[str, Callable[[Settings, Plan, Replica], Parts]] = {"gpu": _gpu, "cpu": _cpu, "stub": _stub}


def _for_compose(value: object) -> object:
    """Compose replaces `$name` in every value of a Compose file; two signs are one."""
    if isinstance(value, Mapping):
        return {name: _for_compose(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_for_compose(inner) for inner in value]
    return value.replace("$", "$$") if isinstance(value, str) else value
