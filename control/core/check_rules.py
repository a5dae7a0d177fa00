"""The tests behind the preflight checks: pure, each over one situation."""

from __future__ import annotations

import ipaddress
import re

from control.core import kinds
from control.core.check_model import Seen, Situation, found, passed, unknown
from control.core.model import PortUse
from control.core.plan_report import describe
from control.core.planning import REHEARSE

COMPOSE_MINIMUM = (2, 24)
_MIB, _GIB = 1024**2, 1024**3
# A build from nothing took 1.2 GiB of layers and scratch (measured, debootstrap of trixie); the rest is room to move.
BUILD_BYTES = 3 * _GIB
CLONE_BYTES = 64 * _MIB  # rendered files, secrets, results: a few MiB


def docker_daemon(now: Situation) -> Seen:
    error, version = now.host.docker_error, now.host.docker_version
    if error is None:
        return passed(f"Docker {version} answers") if version else unknown("the daemon's version was not learnt")
    if "permission denied" in error.lower():
        return found(error, "sudo usermod -aG docker $USER, then log in again; or run as root.")
    return found(error)


def compose_version(now: Situation) -> Seen:
    text = now.host.compose_version
    if text is None:
        return _without_answer(now, "docker compose version gave no answer")
    match = re.match(r"v?(\d+)\.(\d+)", text)
    if match is None:
        return unknown(f"docker compose calls its version {text!r}")
    least = ".".join(map(str, COMPOSE_MINIMUM))
    if (int(match[1]), int(match[2])) < COMPOSE_MINIMUM:
        return found(f"expected Compose {least} or newer, found {text}")
    return passed(f"Compose {text}")


def buildx(now: Situation) -> Seen:
    if now.host.buildx_version:
        return passed(f"buildx {now.host.buildx_version}")
    images = now.host.images
    if images and all(images.values()):
        return passed("no buildx, and every image is there already")
    return found("docker buildx does not answer, and images are still to be built")


def _without_answer(now: Situation, text: str) -> Seen:
    """A silent plugin beside a daemon that answers is missing; without the daemon nothing is certain."""
    return found(text) if now.host.docker_error is None and now.host.docker_version else unknown(text)


def gateway_port(now: Situation) -> Seen:
    gateway = now.settings.gateway
    where = f"{gateway.bind}:{gateway.port}"
    if gateway.port == 0:
        return passed("gateway.port is 0: Docker chooses a free port")
    if now.host.ports is None:
        return unknown("the listening ports were not learnt")
    taken = [use for use in now.host.ports if use.port == gateway.port and _meet(use.address, gateway.bind)]
    if not taken:
        return passed(f"{where} is free")
    others = [use for use in taken if not _is_our_gateway(use, now.settings.project)]
    if len(others) < len(taken) and all(use.holder is None for use in others):
        return passed(f"{where} is held by this stack's own gateway")
    holder = next((use.holder for use in others if use.holder), None)
    seen = (
        f"gateway.port: expected {where} to be free, found it held by {holder or 'a process that only root can name'}"
    )
    return found(seen, f"Stop it, or choose another port: --set gateway.port={gateway.port + 1}")


def gateway_bind(now: Situation) -> Seen:
    bind = now.settings.gateway.bind
    if now.host.bindable is None:
        return unknown(f"whether this host can listen on {bind} was not learnt")
    if now.host.bindable:
        return passed(f"{bind} is an address of this host")
    return found(f"gateway.bind: expected an address of this host, found {bind}")


def _meet(one: str, other: str) -> bool:
    """Whether two listening addresses claim the same port; `::` takes IPv4 too."""
    try:
        left, right = ipaddress.ip_address(one or "0.0.0.0"), ipaddress.ip_address(other)
    except ValueError:
        return True  # an address in a form we do not know: better to ask once too often
    if left.version != right.version:
        return any(address.version == 6 and address.is_unspecified for address in (left, right))
    return left == right or left.is_unspecified or right.is_unspecified


def _is_our_gateway(use: PortUse, project: str) -> bool:
    """Docker names it `container flashbox-gateway-1 of project flashbox`."""
    return bool(use.holder and re.match(rf"container {re.escape(project)}-gateway-\d+\b", use.holder))


def disk(now: Situation) -> Seen:
    free = now.host.disk_free_bytes
    docker_root = now.host.docker_root
    short, silent = [], []
    for path, there in free.items():
        need = _needed_bytes(now) if path == docker_root else CLONE_BYTES
        if there is None:
            silent.append(path)
        elif there < need:
            short.append(f"{path}: expected {_size(need)} free, found {_size(there)}")
    if short:
        return found("; ".join(short))
    if docker_root not in free:
        silent.append(docker_root or "Docker's folder")
    if silent:
        return unknown(f"free space was not learnt: {', '.join(silent)}")
    return passed(", ".join(f"{path}: {_size(there)} free" for path, there in free.items() if there is not None))


def _needed_bytes(now: Situation) -> int:
    """Docker's folder: the rotated logs at their largest, and the images that are still to be built."""
    containers = 1 + (len(now.plan.replicas) if now.plan else 0)
    logs = containers * now.settings.logs.max_files * now.settings.logs.max_size_mib * _MIB
    built = now.host.images is not None and bool(now.host.images) and all(now.host.images.values())
    return logs + (0 if built else BUILD_BYTES)


def _size(value: int) -> str:
    return f"{value / _GIB:.1f} GiB" if value >= _GIB else f"{value / _MIB:.0f} MiB"


def folder_rights(now: Situation) -> Seen:
    if not now.host.unwritable:
        return passed("every folder that commands write is writable")
    who = "this user" if now.host.euid is None else f"uid {now.host.euid}"
    return found(f"{who} cannot write {', '.join(now.host.unwritable)}")


def subnet_free(now: Situation) -> Seen:
    if now.host.subnets is None:
        return unknown("the networks of this host were not learnt")
    wanted = ipaddress.IPv4Network(now.settings.network.engine_subnet)
    own = f"docker network {now.settings.project}_engine"
    clashes = [
        f"{subnet} ({user})" for subnet, user in now.host.subnets.items() if user != own and _overlaps(subnet, wanted)
    ]
    if not clashes:
        return passed(f"{wanted} is free")
    seen = f"network.engine_subnet: expected {wanted} to be free, found {', '.join(clashes)}"
    free = _free_subnet(list(now.host.subnets))
    return found(seen, f"Choose another, such as --set network.engine_subnet={free}" if free else "")


def _overlaps(text: str, wanted: ipaddress.IPv4Network) -> bool:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return isinstance(network, ipaddress.IPv4Network) and network.overlaps(wanted)


def _free_subnet(used: list[str]) -> str | None:
    candidates = (f"{a}.{b}.{c}.0/24" for a, b in ((172, 31), (10, 213), (192, 168)) for c in range(79, 256))
    return next((c for c in candidates if not any(_overlaps(u, ipaddress.IPv4Network(c)) for u in used)), None)


def service_user(now: Situation) -> Seen:
    """secrets/ is 0600: whoever writes it must be root, who can give it away, or the containers' own user."""
    uid, euid = now.settings.service.uid, now.host.euid
    if euid is None:
        return unknown("the user of this command was not learnt")
    if euid in (0, uid):
        return passed("root gives the secrets to uid " + str(uid) if euid == 0 else f"uid {uid} runs this command too")
    seen = f"service.uid: expected {euid}, the user of this command, found {uid}"
    return found(seen, f"Run as root, or set service.uid to {euid} in config/stack.yaml.")


def gpu_present(now: Situation) -> Seen:
    if now.settings.engine.kind != "gpu":
        return passed(f"engine.kind is {now.settings.engine.kind}: no GPU is asked for")
    inventory = now.host.inventory
    if inventory.gpus is None:
        return unknown(inventory.problem or "nvidia-smi could not be asked")
    names = sorted({gpu.name or "a GPU without a name" for gpu in inventory.gpus})
    if not names:
        return found("engine.kind is gpu, found no GPU")
    return passed(f"{len(inventory.gpus)} GPUs: {', '.join(names)}")


def capacity(now: Situation) -> Seen:
    """The sum of the planner; what it refuses is told as it is."""
    if now.settings.engine.kind != "gpu":
        return passed(f"engine.kind is {now.settings.engine.kind}: nothing is planned on GPUs")
    if now.plan is not None:
        return passed(describe(now.plan))
    if not now.host.inventory.gpus or now.refusal is None:
        return unknown("without GPUs nothing is planned")
    return found("\n".join(filter(None, (now.refusal.what, now.refusal.why))), now.refusal.fix)


def same_kind_running(now: Situation) -> Seen:
    running, wanted, project = now.host.running_kind, now.settings.engine.kind, now.settings.project
    if running is None:
        if now.host.docker_error is not None:
            return unknown("without the daemon nothing is known of running stacks")
        return passed(f"no replica of project {project} runs")
    there, here = now.host.running_project_dir, now.host.clone_dir
    if there and here and there != here:
        return found(
            f"project {project} runs from {there}, and this is {here}",
            f"Work in {there}, or give this clone a name of its own: --set project=NAME",
        )
    if running == wanted:
        return passed(f"project {project} runs with kind {running}")
    place = f" (from {now.host.running_project_dir})" if now.host.running_project_dir else ""
    return found(f"engine.kind: expected {running}, which project {project} runs{place}, found {wanted}")


def cgroup(now: Situation) -> Seen:
    version = now.host.cgroup_version
    if version is None:
        return unknown("the cgroup version was not learnt")
    return passed(f"cgroup v{version}") if version in ("1", "2") else found(f"expected cgroup 1 or 2, found {version}")


def cpus(now: Situation) -> Seen:
    """Docker refuses a container whose CPU limit is above the machine's."""
    there, limit = now.host.cpus, kinds.cpus(now.settings)
    if there is None:
        return unknown("the number of CPUs was not learnt")
    if now.settings.engine.kind == "gpu" or limit is None or limit <= there:
        return passed(f"{there} CPUs")
    return found(f"engine.cpus: expected at most {there}, the CPUs of this host, found {limit:g}")


def memory(now: Situation) -> Seen:
    there = now.host.memory_bytes
    if there is None:
        return unknown("the size of the memory was not learnt")
    replicas = len(now.plan.replicas) if now.plan and now.plan.kind != "gpu" else 0  # those have no limit
    limits = (now.settings.gateway.memory_mib + replicas * (kinds.memory_mib(now.settings) or 0)) * _MIB
    if limits > there:
        return found(f"the limits of gateway and {replicas} replicas add up to {_size(limits)}, found {_size(there)}")
    return passed(f"limits of {_size(limits)} within {_size(there)}")


NO_GPU_FIX = f"{REHEARSE} rehearses the whole stack on a CPU."
