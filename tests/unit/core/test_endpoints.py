from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from control.core import endpoints
from control.core.errors import UsageError
from control.core.header import HEADER
from control.core.model import Replica

REPLICAS = tuple(Replica(slot, f"10.0.0.{10 + slot}") for slot in range(4))
NAMES = [replica.name for replica in REPLICAS]


def listed(text: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = yaml.safe_load(text)["resources"][0]["endpoints"][0]["lb_endpoints"]
    return found


@given(st.permutations(REPLICAS), st.sets(st.sampled_from(NAMES)))
def test_every_replica_is_listed_and_exactly_the_named_ones_drain(order: list[Replica], draining: set[str]) -> None:
    text = endpoints.eds(order, draining)
    assert text == endpoints.eds(REPLICAS, draining), "the order of the input shows"
    assert text.startswith(HEADER)
    for replica, entry in zip(REPLICAS, listed(text), strict=True):
        assert entry["endpoint"] == {
            "address": {"socket_address": {"address": replica.address, "port_value": 8000}},
            "hostname": replica.name,
            "health_check_config": {"port_value": 9100},
        }
        assert entry.get("health_status") == ("DRAINING" if replica.name in draining else None)


def test_the_version_changes_with_the_content_and_only_then() -> None:
    def version(*replicas: Replica, draining: tuple[str, ...] = ()) -> str:
        return str(yaml.safe_load(endpoints.eds(replicas, draining))["version_info"])

    assert version(*REPLICAS) == version(*REPLICAS)
    assert len({version(*REPLICAS), version(*REPLICAS[:3]), version(*REPLICAS, draining=("engine-1",)), version()}) == 4


def test_no_replica_is_an_empty_list_and_not_a_missing_one() -> None:
    assert listed(endpoints.eds(())) == []


def test_draining_a_replica_that_is_not_published_is_refused() -> None:
    with pytest.raises(UsageError, match="engine-9: no such replica is published"):
        endpoints.eds(REPLICAS, ["engine-9"])
