from __future__ import annotations

from typing import Any

import pytest
import yaml

from control.core import engines, planning
from control.core.header import HEADER
from control.core.model import Host
from control.core.settings import Autoscaler, Engine, Settings, Stub


def services(settings: Settings) -> dict[str, Any]:
    text = engines.engines_yaml(settings, planning.plan_capacity(settings, Host()))
    assert text.startswith(HEADER)
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    return found


def test_active_replicas_carry_no_profile_and_standby_ones_exactly_standby() -> None:
    found = services(
        Settings(engine=Engine(kind="stub", replicas=3), autoscaler=Autoscaler(enabled=True, min_replicas=2))
    )
    assert [found[f"engine-{n}"].get("profiles") for n in range(3)] == [None, None, ["standby"]]


def test_a_replica_has_its_own_name_address_and_label() -> None:
    for slot, (name, service) in enumerate(services(Settings(engine=Engine(kind="stub"))).items()):
        assert name == service["hostname"] == service["labels"]["flashbox.replica"] == f"engine-{slot}"
        assert service["networks"] == {"engine": {"ipv4_address": f"172.31.78.{10 + slot}"}}
        assert service["extends"] == {"file": "compose/engine.yaml", "service": "stub"}


def test_every_value_of_an_environment_is_text_that_compose_leaves_alone() -> None:
    odd = Settings(engine=Engine(kind="stub", drain_s=0.5, cpus=0.25), stub=Stub(decode_tokens_per_s=12.5))
    environment = services(odd)["engine-0"]["environment"]
    assert all(isinstance(value, str) and "$" not in value for value in environment.values())
    assert environment["GATE_DRAIN_S"] == environment["STUB_SHUTDOWN_TIMEOUT_S"] == "0.5"
    assert environment["STUB_DECODE_TOKENS_PER_S"] == "12.5"


def test_a_dollar_in_a_value_is_doubled_for_compose() -> None:
    named = Engine(kind="stub").model_copy(update={"served_model_name": "a$b"})
    assert services(Settings(engine=named))["engine-0"]["environment"]["GATE_MODEL"] == "a$$b"


def test_no_secret_is_in_the_file_only_the_name_of_its_file() -> None:
    environment = services(Settings(engine=Engine(kind="stub")))["engine-0"]["environment"]
    assert [name for name in environment if "KEY" in name] == ["GATE_API_KEY_FILE"]
    assert environment["GATE_API_KEY_FILE"] == "/run/secrets/upstream_key"


@pytest.mark.parametrize(
    ("number", "text"), [(300.0, "300"), (0.0, "0"), (12.25, "12.25"), (1e6, "1000000"), (0.001, "0.001")]
)
def test_numbers_are_written_as_people_write_them(number: float, text: str) -> None:
    assert engines.plain(number) == text


@pytest.mark.parametrize(
    ("engine", "stub", "start", "seats"),
    [
        ({}, {}, "120", "64"),
        ({}, {"load_s": 600}, "720", "64"),
        ({"start_timeout_s": 7.5, "max_num_seqs": 3}, {"load_s": 600}, "7.5", "3"),
    ],
)
def test_what_a_setting_leaves_open_follows_from_the_kind(
    engine: dict[str, Any], stub: dict[str, Any], start: str, seats: str
) -> None:
    made = services(Settings(engine=Engine(kind="stub", **engine), stub=Stub(**stub)))["engine-0"]["environment"]
    assert (made["GATE_START_TIMEOUT_S"], made["STUB_MAX_NUM_SEQS"]) == (start, seats)
