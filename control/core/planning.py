"""What will run on this host: replicas, their fixed addresses, active or standby."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from control.core import engine_cpu, wiring
from control.core.errors import UsageError
from control.core.model import Host, Plan, Replica
from control.core.settings import Settings

if TYPE_CHECKING:
    from control.core.facts import Facts

DEFAULT_STUB_REPLICAS = 2
DEFAULT_CPU_REPLICAS = 1  # it takes every core that it finds
REHEARSE = "python ctl.py up --profile stub"


def plan_capacity(settings: Settings, host: Host, facts: Facts | None = None) -> Plan:
    """Decide the replicas; an error says which settings do not fit together, or why this host cannot.

    `facts` is what the kind gpu is planned from; the other kinds need none.
    """
    return _KINDS[settings.engine.kind](settings, host, facts)


def _on_gpus(settings: Settings, host: Host, facts: Facts | None) -> Plan:
    from control.core.capacity.plan import plan_gpus  # the other kinds need not pay for it

    if facts is None:
        raise ValueError("the kind gpu is planned from facts, and none were given")
    made = plan_gpus(settings, facts, host.inventory)
    plan = _plan(settings, host, [replica.uuids for replica in made.replicas])
    return replace(plan, gpu=made)


def _stubs(settings: Settings, host: Host, _: Facts | None) -> Plan:
    return _plan(settings, host, [()] * (settings.engine.replicas or DEFAULT_STUB_REPLICAS))


def _cpus(settings: Settings, host: Host, _: Facts | None) -> Plan:
    engine_cpu.refuse_what_cannot_start(settings)
    return _plan(settings, host, [()] * (settings.engine.replicas or DEFAULT_CPU_REPLICAS))


# One function for each kind of engine.
_KINDS: Mapping[str, Callable[[Settings, Host, Facts | None], Plan]] = {
    "gpu": _on_gpus,
    "cpu": _cpus,
    "stub": _stubs,
}


def _plan(settings: Settings, host: Host, gpus: Sequence[tuple[str, ...]]) -> Plan:
    """One replica for each entry of `gpus`, which are its own (none for kinds without)."""
    subnet = usable_subnet(settings.network.engine_subnet)
    addresses = replica_addresses(subnet, len(gpus))
    active = _active(settings, len(gpus))
    return Plan(
        kind=settings.engine.kind,
        replicas=tuple(
            Replica(slot, address, active=slot < active, gpus=gpus[slot]) for slot, address in enumerate(addresses)
        ),
        gateway_address=str(subnet[wiring.GATEWAY_HOST]),
        policy_address=str(subnet[wiring.POLICY_HOST]),
        budget_address=str(subnet[wiring.BUDGET_HOST]),
        ip_range=str(_handed_out(subnet)),
        rootless=bool(host.docker_rootless),
    )


def usable_subnet(text: str) -> ipaddress.IPv4Network:
    """The engine network, unless the kernel or Docker has another use for that range."""
    try:
        subnet = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise _bad_subnet(text, str(error)) from None
    kinds = {
        "loopback": subnet.is_loopback,
        "link-local": subnet.is_link_local,
        "multicast": subnet.is_multicast,
        "reserved": subnet.is_reserved,
        "this-network (0.0.0.0/8)": subnet.overlaps(ipaddress.IPv4Network("0.0.0.0/8")),
        "public": not subnet.is_private,
    }
    for kind, is_so in kinds.items():
        if is_so:
            raise _bad_subnet(text, f"it is a {kind} range")
    return subnet


def _bad_subnet(text: str, why: str) -> UsageError:
    return UsageError(
        f"network.engine_subnet: expected a private IPv4 network between /16 and /24, found {text} ({why})",
        "The internal network of gateway and replicas needs a range of its own.",
        "Choose one inside 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16 that this host does not use.",
    )


def replica_addresses(subnet: ipaddress.IPv4Network, count: int) -> tuple[str, ...]:
    """Fixed addresses, all in the lower half of the subnet: Docker hands out the upper."""
    first = int(subnet.network_address) + wiring.FIRST_REPLICA_HOST
    room = max(0, int(_handed_out(subnet).network_address) - first)
    if count > room:
        raise UsageError(
            f"engine.replicas: {count} do not fit into network.engine_subnet {subnet}, which has room for {room}",
            f"Replicas take the addresses from host number {wiring.FIRST_REPLICA_HOST} up to the middle of the subnet.",
            "Lower engine.replicas, or choose a larger network.engine_subnet.",
        )
    return tuple(str(ipaddress.IPv4Address(first + slot)) for slot in range(count))


def _handed_out(subnet: ipaddress.IPv4Network) -> ipaddress.IPv4Network:
    """The upper half: Docker's ip_range for containers without a fixed address."""
    if subnet.prefixlen >= 31:
        raise _bad_subnet(str(subnet), "it has no room for two halves")
    return list(subnet.subnets(prefixlen_diff=1))[1]


def _active(settings: Settings, count: int) -> int:
    """All replicas; with the autoscaler min_replicas, and the rest stand by."""
    if not settings.autoscaler.enabled:
        return count
    least = settings.autoscaler.min_replicas
    if least > count:
        asked = settings.engine.replicas
        replicas = f"engine.replicas is {asked}" if asked else f"engine.replicas is not set, so {count} are planned"
        raise UsageError(
            f"autoscaler.min_replicas: expected at most {count}, found {least} ({replicas})",
            "More replicas cannot be kept active than there are.",
            "Lower autoscaler.min_replicas or raise engine.replicas.",
        )
    return least
