"""A plan as people and programs see it."""

from __future__ import annotations

from typing import Any

from control.core import plan_report, planning
from control.core.errors import PreflightRefused
from control.core.model import Host, Plan
from control.core.settings import Settings
from tests.unit.capacity.world import facts, host, settings


def planned(machine: str, **engine: Any) -> Plan:
    return planning.plan_capacity(settings(**engine), Host(inventory=host(machine)), facts())


def stub(**engine: Any) -> Plan:
    return planning.plan_capacity(Settings.model_validate({"engine": {"kind": "stub", **engine}}), Host())


def test_a_plan_on_gpus_is_one_row_a_replica_with_what_it_holds() -> None:
    plan = planned("dgx-h100")
    assert plan_report.columns(plan) == (
        *("replica", "address", "state", "GPUs", "TP", "KV GiB"),
        *("2k", "9k", "32k", "128k", "limit"),
    )
    gateway, first, second = plan_report.rows(plan)
    assert len(gateway) == len(first) == len(plan_report.columns(plan))
    assert first == (
        *("engine-0", "172.31.78.10", "active", "0, 1, 2, 3", "4", "24.5"),
        *("256", "256", "121", "34", "256 seats to 11776 tokens, then KV cache"),
    )
    assert second[3] == "4, 5, 6, 7"


def test_the_lengths_end_at_the_context() -> None:
    assert plan_report.columns(planned("dgx-h100", max_model_len=20_000))[6:-1] == ("2k", "9k", "20000")


def test_the_limit_says_what_stops_the_next_request() -> None:
    assert list(plan_report.rows(planned("dgx-h100", max_num_seqs=16)))[1][-1] == "16 seats"
    assert list(plan_report.rows(planned("dgx-h100", max_num_seqs=2048)))[1][-1] == "KV cache"


def test_a_plan_of_stubs_has_three_columns_and_no_sum() -> None:
    plan = stub()
    assert plan_report.columns(plan) == ("replica", "address", "state")
    assert list(plan_report.rows(plan)) == [
        ("gateway", "172.31.78.2", "active"),
        ("engine-0", "172.31.78.10", "active"),
        ("engine-1", "172.31.78.11", "active"),
    ]
    assert plan_report.explained(plan) == plan_report.warnings(plan) == []
    assert set(plan_report.as_data(plan)) == {"kind", "gateway_address", "ip_range", "replicas"}


def test_the_line_of_a_plan_names_gpus_and_states() -> None:
    assert plan_report.describe(stub(replicas=1)) == "1 replica (stub), it is active"
    assert plan_report.describe(stub(replicas=3)) == "3 replicas (stub), all active"
    assert plan_report.describe(planned("hgx-h200")) == "4 replicas of 2 GPUs (NVIDIA H200, TP 2), all active"


def test_what_to_know_before_up_is_a_line_each_with_source_and_cure() -> None:
    (eight, *_) = plan_report.warnings(planned("dgx-h100", tensor_parallel=8))
    assert "TP 8 on eight H100" in eight and "vllm-project/vllm#41027" in eight and "Two replicas of TP 4" in eight
    assert plan_report.warnings(planned("hgx-h200")) == []


def test_data_holds_addresses_gpus_and_the_sum() -> None:
    data = plan_report.as_data(planned("dgx-h100"))
    assert (data["kind"], data["tensor_parallel"], data["gateway_address"]) == ("gpu", 4, "172.31.78.2")
    first = data["replicas"][0]
    assert (first["name"], first["address"], first["active"], first["indexes"]) == (
        "engine-0",
        "172.31.78.10",
        True,
        [0, 1, 2, 3],
    )
    assert len(first["gpus"]) == 4 and data["memory"]["fits"]


def test_a_refusal_is_data_too_with_or_without_a_sum() -> None:
    data = plan_report.refusal_data(refused("one-gpu"))
    assert data["tried"][-1]["tensor_parallel"] == 4 and "too few" in data["refused"]
    plain = plan_report.refusal_data(refused("old-driver-535"))
    assert set(plain) == {"refused", "why", "fix"} and "driver" in plain["refused"]


def refused(machine: str) -> PreflightRefused:
    try:
        planned(machine)
    except PreflightRefused as error:
        return error
    raise AssertionError(f"{machine} is planned")
