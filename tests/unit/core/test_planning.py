from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.core import planning, wiring
from control.core.errors import PreflightRefused, UsageError
from control.core.gpus import Inventory
from control.core.model import Host, Plan
from control.core.settings import Autoscaler, Engine, Network, Settings
from tests.unit.capacity.world import facts, host

PRIVATE = [ipaddress.IPv4Network(net) for net in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]


@st.composite
def subnets(draw: st.DrawFn) -> str:
    around = draw(st.sampled_from(PRIVATE))
    length = draw(st.integers(16, 24))
    number = draw(st.integers(0, 2 ** (length - around.prefixlen) - 1))
    return f"{ipaddress.IPv4Address(int(around.network_address) + (number << (32 - length)))}/{length}"


def settings(
    subnet: str = "172.31.78.0/24", replicas: int | None = None, kind: str = "stub", least: int | None = None
) -> Settings:
    return Settings(
        engine=Engine(kind=kind, replicas=replicas),  # type: ignore[arg-type]
        network=Network(engine_subnet=subnet),
        autoscaler=Autoscaler(enabled=least is not None, min_replicas=least or 1),
    )


def plan(wanted: Settings) -> Plan:
    return planning.plan_capacity(wanted, Host())


@given(subnets(), st.integers(1, wiring.MAX_REPLICAS))
def test_addresses_are_unique_inside_the_subnet_and_never_in_dockers_range(subnet: str, count: int) -> None:
    made = plan(settings(subnet, count))
    network, handed_out = ipaddress.IPv4Network(subnet), ipaddress.IPv4Network(made.ip_range)
    own = (made.gateway_address, made.policy_address, made.budget_address)
    fixed = [ipaddress.IPv4Address(address) for address in (*own, *(r.address for r in made.replicas))]
    assert len(made.replicas) == count
    assert len(set(fixed)) == count + len(own)
    bridge = network[1]  # Docker's own gateway of the network
    for address in fixed:
        assert address in network and address not in handed_out
        assert address not in (network.network_address, network.broadcast_address, bridge)
    assert handed_out.subnet_of(network)
    assert handed_out.num_addresses * 2 == network.num_addresses


@given(subnets(), st.integers(1, wiring.MAX_REPLICAS))
def test_the_same_slot_has_the_same_address_whatever_the_number_of_replicas(subnet: str, count: int) -> None:
    whole = plan(settings(subnet, wiring.MAX_REPLICAS)).replicas
    assert plan(settings(subnet, count)).replicas == whole[:count]


@given(st.integers(1, wiring.MAX_REPLICAS), st.data())
def test_with_the_autoscaler_the_first_min_replicas_are_active_and_the_rest_stand_by(
    count: int, data: st.DataObject
) -> None:
    least = data.draw(st.integers(1, count))
    made = plan(settings(replicas=count, least=least))
    assert [r.slot for r in made.active] == list(range(least))
    assert [r.slot for r in made.standby] == list(range(least, count))


def test_without_the_autoscaler_all_replicas_are_active_and_there_are_two_by_default() -> None:
    made = plan(settings())
    assert [(r.name, r.address, r.active) for r in made.replicas] == [
        ("engine-0", "172.31.78.10", True),
        ("engine-1", "172.31.78.11", True),
    ]
    assert (made.gateway_address, made.ip_range, made.kind) == ("172.31.78.2", "172.31.78.128/25", "stub")


@pytest.mark.parametrize(
    ("replicas", "words"), [(2, "engine.replicas is 2"), (None, "engine.replicas is not set, so 2 are planned")]
)
def test_more_minimum_than_replicas_is_refused_with_both_settings(replicas: int | None, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(settings(replicas=replicas, least=3))
    assert caught.value.what.startswith("autoscaler.min_replicas: expected at most 2, found 3")
    assert words in caught.value.what


@given(st.integers(25, 30), st.integers(1, 300))
def test_more_replicas_than_the_subnet_holds_are_refused_with_both_settings(length: int, count: int) -> None:
    subnet = ipaddress.IPv4Network(f"10.1.2.0/{length}")
    room = max(0, subnet.num_addresses // 2 - wiring.FIRST_REPLICA_HOST)
    if count <= room:
        assert len(planning.replica_addresses(subnet, count)) == count
        return
    with pytest.raises(UsageError) as caught:
        planning.replica_addresses(subnet, count)
    assert f"engine.replicas: {count} do not fit into network.engine_subnet {subnet}" in caught.value.what
    assert caught.value.what.endswith(f"room for {room}")


def test_the_smallest_subnet_that_settings_allow_holds_the_largest_number_of_replicas() -> None:
    assert (
        len(planning.replica_addresses(ipaddress.IPv4Network("10.0.0.0/24"), wiring.MAX_REPLICAS))
        == wiring.MAX_REPLICAS
    )


@pytest.mark.parametrize(
    "subnet",
    [
        "127.0.0.0/16", "127.5.5.0/24", "169.254.0.0/16", "169.254.1.0/24", "0.0.0.0/16", "0.1.0.0/24",
        "224.0.0.0/16", "239.1.1.0/24", "240.0.0.0/16", "255.255.255.0/24", "8.8.8.0/24", "100.64.0.0/16",
        "172.31.78.1/24", "10.0.0.0", "nonsense", "", "fd00::/64", "10.0.0.0/33", "300.0.0.0/24", "10.0.0.0/31",
    ],
)  # fmt: skip
def test_every_bad_subnet_is_refused_with_the_setting_and_the_value(subnet: str) -> None:
    unchecked = settings().model_copy(update={"network": Network.model_construct(engine_subnet=subnet)})
    with pytest.raises(UsageError) as caught:
        plan(unchecked)
    assert caught.value.what.startswith("network.engine_subnet: expected a private IPv4 network")
    assert subnet in caught.value.what


NO_GPU = Inventory(gpus=())


@pytest.mark.parametrize("inventory", [Inventory(), NO_GPU, host("dgx-h100")])
def test_the_kind_cpu_is_one_replica_on_any_machine(inventory: Inventory) -> None:
    made = planning.plan_capacity(settings(kind="cpu"), Host(inventory=inventory))
    assert [(r.name, r.active, r.gpus) for r in made.replicas] == [("engine-0", True, ())]
    assert len(planning.plan_capacity(settings(kind="cpu", replicas=3), Host()).replicas) == 3


def test_a_memory_limit_that_real_vllm_cannot_start_in_is_refused() -> None:
    with pytest.raises(UsageError, match=r"engine\.memory_mib: expected at least 2048 for kind cpu, found 512"):
        planning.plan_capacity(Settings(engine=Engine(kind="cpu", memory_mib=512)), Host())


def on_gpus(machine: Inventory, wanted: Settings | None = None, rootless: bool | None = None) -> Plan:
    return planning.plan_capacity(
        wanted or settings(kind="gpu"), Host(inventory=machine, docker_rootless=rootless), facts()
    )


@pytest.mark.parametrize(("inventory", "words"), [(NO_GPU, "no NVIDIA GPU"), (Inventory(), "could not be read")])
def test_without_gpus_the_kind_gpu_is_refused_and_the_rehearsal_is_named(inventory: Inventory, words: str) -> None:
    with pytest.raises(PreflightRefused) as caught:
        on_gpus(inventory)
    assert words in caught.value.what and "python ctl.py up --profile stub" in caught.value.fix


def test_too_few_gpus_are_refused_with_the_sum() -> None:
    with pytest.raises(PreflightRefused) as caught:
        on_gpus(host("h100-x2"))
    assert caught.value.exit_code == 3
    assert "TP 2: 69.68 - weights 74.04" in caught.value.why and "short by" in caught.value.why


def test_a_replica_gets_the_uuids_of_its_gpus_and_none_is_shared() -> None:
    made = on_gpus(host("dgx-h100"))
    here = [gpu.uuid for gpu in host("dgx-h100").gpus or ()]
    assert [list(replica.gpus) for replica in made.replicas] == [here[:4], here[4:]]
    assert [replica.address for replica in made.replicas] == ["172.31.78.10", "172.31.78.11"]
    assert made.kind == "gpu" and made.gpu is not None and made.gpu.tensor_parallel == 4


def test_with_the_autoscaler_gpus_of_standby_replicas_are_theirs_already() -> None:
    made = on_gpus(host("hgx-h200"), settings(kind="gpu", least=1))
    assert [r.active for r in made.replicas] == [True, False, False, False]
    assert len({uuid for replica in made.replicas for uuid in replica.gpus}) == 8
    with pytest.raises(UsageError, match=r"autoscaler\.min_replicas: expected at most 2, found 3"):
        on_gpus(host("dgx-h100"), settings(kind="gpu", least=3))


@pytest.mark.parametrize("rootless", [True, False, None])
def test_the_plan_knows_whether_docker_may_raise_limits(rootless: bool | None) -> None:
    assert on_gpus(host("dgx-h100"), rootless=rootless).rootless is bool(rootless)


def test_the_kind_gpu_is_never_planned_without_facts() -> None:
    with pytest.raises(ValueError, match="facts"):
        planning.plan_capacity(settings(kind="gpu"), Host(inventory=host("dgx-h100")))
