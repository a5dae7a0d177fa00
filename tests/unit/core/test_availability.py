from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.core import wiring
from control.core.availability import Service, place
from control.core.errors import PreflightRefused

GATEWAY = Service("gateway", "flashbox/gateway:1")
GRAFANA = Service("grafana", "grafana/grafana:12", "monitoring", required=False)
LOKI = Service("loki", "grafana/loki:3", "monitoring", required=False)


def test_an_optional_service_without_an_image_goes_into_the_profile_that_nobody_switches_on() -> None:
    placed = place(
        [GATEWAY, GRAFANA, LOKI], {GATEWAY.image: "present", GRAFANA.image: "missing", LOKI.image: "obtainable"}
    )
    assert placed.profiles == {"gateway": "", "grafana": wiring.UNAVAILABLE_PROFILE, "loki": "monitoring"}
    assert placed.unavailable == (GRAFANA,)
    (note,) = placed.notes()
    assert "grafana is left out" in note and "docker load" in note and GRAFANA.image in note


def test_what_could_not_be_learnt_is_not_missing() -> None:
    placed = place([GATEWAY, GRAFANA], {GRAFANA.image: None})
    assert placed.unavailable == () and placed.profiles["grafana"] == "monitoring"


def test_compose_gets_the_profile_as_a_variable() -> None:
    otel = Service("otel-collector", "otel:1", "monitoring", required=False)
    assert place([otel], {otel.image: "missing"}).environment() == {"FB_OTEL_COLLECTOR_PROFILE": "unavailable"}


def test_a_required_service_without_an_image_refuses_with_exit_3_and_names_docker_load() -> None:
    engine = Service("engine-0", "vllm/vllm-openai:v1")
    with pytest.raises(PreflightRefused) as caught:
        place([GATEWAY, engine, GRAFANA], dict.fromkeys((GATEWAY.image, engine.image, GRAFANA.image), "missing"))
    assert caught.value.exit_code == 3
    assert "gateway" in caught.value.what and "engine-0" in caught.value.what and "grafana" not in caught.value.what
    assert f"docker save -o image.tar {engine.image}" in caught.value.fix and "docker load" in caught.value.fix


SERVICES = st.lists(
    st.builds(
        Service, st.from_regex(r"[a-z]{1,6}", fullmatch=True), st.sampled_from("abc"), st.just("p"), st.just(False)
    ),
    unique_by=lambda service: service.name,
)


@given(SERVICES, st.dictionaries(st.sampled_from("abc"), st.sampled_from(["present", "obtainable", "missing", None])))
def test_every_service_is_placed_and_exactly_the_missing_are_set_aside(services: list[Service], have: dict) -> None:
    placed = place(services, have)
    assert set(placed.profiles) == {service.name for service in services}
    aside = {service.name for service in services if have.get(service.image) == "missing"}
    assert {name for name, profile in placed.profiles.items() if profile == "unavailable"} == aside
