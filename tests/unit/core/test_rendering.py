from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from control.core import engines, envfile, envoy_files, images, planning, rendering
from control.core.envoy_versions import versioned
from control.core.errors import FlashboxError
from control.core.header import HEADER, NOTE, is_rendered
from control.core.model import ApiKey, Host, ImageRef, Rendering
from control.core.settings import Autoscaler, Engine, Gateway, Settings
from tests import sources

ROOT = Path(__file__).parents[3]
DYNAMIC = ("lds", "rds", "cds", "sds", "sds_tls", *(f"ecds_{name}" for name in envoy_files.FILTERS))
NAMES = ("bootstrap", *DYNAMIC)
TEMPLATES = {f"config/envoy/{name}.yaml.j2": f"name: {name}\n" for name in NAMES}
SOURCES = {
    **TEMPLATES,
    "config/envoy/auth.lua": "-- lua\n",
    "config/envoy/usage.lua": "-- lua\n",
    **{path: text for path, text in sources.SOURCES.items() if not path.startswith("config/envoy/")},
}
IMAGE_NAMES = ("base", "gateway", "policy", "stub", "engine-cpu", "engine")
IMAGES = {name: ImageRef(name, f"x/{name}", "1") for name in IMAGE_NAMES}
KEYS = (ApiKey("a", "b", "0a" * 32, "2026-01-31T09:00:00Z"),)
STUB = Settings(engine=Engine(kind="stub"))
PLAN = planning.plan_capacity(STUB, Host())


def render(settings: Settings = STUB, **changes: str) -> Rendering:
    return rendering.render(
        settings,
        planning.plan_capacity(settings, Host()),
        KEYS,
        IMAGES,
        {**SOURCES, **{f"config/envoy/{name}": text for name, text in changes.items()}},
    )


def complaint(**changes: str) -> str:
    with pytest.raises(FlashboxError) as caught:
        render(**changes)
    return caught.value.what


def test_a_rendering_is_the_env_file_the_engines_file_and_envoys_files() -> None:
    dynamic = [f"run/envoy/dynamic/{name}.yaml" for name in (*DYNAMIC, "eds")]
    envoy = ["run/envoy/bootstrap.yaml", "run/envoy/entry.json", *dynamic]
    services = ["run/policy/rules.json", "run/budget/limits.json"]
    assert sorted(render()) == sorted([".env", "run/engines.yaml", *services, *envoy])


def test_every_file_opens_with_the_header_once_even_if_a_template_has_it() -> None:
    assert all(is_rendered(text) and text.count(NOTE) == 1 for text in render().values())
    assert render(**{"lds.yaml.j2": HEADER + "a: 1\n"})["run/envoy/dynamic/lds.yaml"] == versioned(HEADER + "a: 1\n")


def test_every_variable_of_the_compose_files_is_in_the_env_file() -> None:
    values = envfile.parse(render()[".env"])
    asked: set[str] = set()
    for path in sorted((ROOT / "compose").glob("*.yaml")):
        asked |= set(re.findall(r"\$\{((?:FB|COMPOSE)_\w+)", path.read_text(encoding="utf-8")))
    assert asked and asked <= set(values), sorted(asked - set(values))
    assert values["COMPOSE_FILE"] == f"compose.yaml:{engines.ENGINES_PATH}"


def test_docker_never_kills_before_the_longest_drain_is_over() -> None:
    odd = Settings(engine=Engine(kind="stub", notice_s=0.5, drain_s=10.1), gateway=Gateway(drain_s=20.5))
    values = envfile.parse(render(odd)[".env"])
    assert (values["FB_ENGINE_STOP_GRACE"], values["FB_GATEWAY_STOP_GRACE"]) == ("26s", "51s")


def test_an_ipv6_address_is_bracketed_for_the_port_of_compose() -> None:
    values = envfile.parse(render(Settings(engine=Engine(kind="stub"), gateway=Gateway(bind="::1")))[".env"])
    assert values["FB_GATEWAY_BIND"] == "[::1]"


def test_only_active_replicas_are_published() -> None:
    some = Settings(engine=Engine(kind="stub", replicas=3), autoscaler=Autoscaler(enabled=True, min_replicas=1))
    eds = render(some)["run/envoy/dynamic/eds.yaml"]
    assert "172.31.78.10" in eds and "172.31.78.11" not in eds


def test_templates_see_settings_plan_keys_wiring_and_the_script() -> None:
    text = render(
        **{
            "ecds_auth.yaml.j2": "{{ settings.project }} {{ plan.kind }} {{ keys[0].digest }} "
            "{{ wiring.GATE_PORT }} {{ auth_lua | indent(2) }}"
        }
    )["run/envoy/dynamic/ecds_auth.yaml"]
    assert text == versioned(f"{HEADER}flashbox stub {'0a' * 32} 9100 -- lua\n")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("a: 1\nb: {{ settings.gateway.prot }}\n", "line 2: "),
        ("\n\n{{ nothing }}\n", "line 3: 'nothing' is undefined"),
        ("a\n{% if %}\n", "line 2: "),
        ("{{ plan.kind | sparkle }}", "line 1: No filter named 'sparkle'"),
    ],
)
def test_a_template_that_names_what_is_not_there_is_told_with_its_line(source: str, words: str) -> None:
    assert complaint(**{"lds.yaml.j2": source}).startswith(f"config/envoy/lds.yaml.j2: {words}")


def test_missing_and_unknown_templates_are_named() -> None:
    some = {name: text for name, text in SOURCES.items() if not name.endswith(("rds.yaml.j2", ".lua"))}
    with pytest.raises(FlashboxError) as caught:
        rendering.render(STUB, planning.plan_capacity(STUB, Host()), KEYS, IMAGES, some)
    assert caught.value.what == "\n".join(
        f"config/envoy/{name}: missing" for name in ("rds.yaml.j2", "auth.lua", "usage.lua")
    )
    assert complaint(**{"eds.yaml.j2": ""}).startswith("config/envoy/eds.yaml.j2: no file of Envoy's")


def test_an_image_that_is_not_listed_is_named() -> None:
    with pytest.raises(FlashboxError, match="expected an image called gateway, found stub"):
        rendering.render(STUB, planning.plan_capacity(STUB, Host()), KEYS, {"stub": IMAGES["stub"]}, SOURCES)


def test_a_rendering_depends_on_its_inputs_and_on_nothing_else() -> None:
    assert render() == render()


# ---- stamp and diff


def test_the_stamp_holds_the_digest_of_every_file_and_of_the_inputs() -> None:
    made = render()
    inputs = rendering.input_digests(STUB, PLAN, KEYS, IMAGES, SOURCES)
    stamp = json.loads(rendering.stamp(made, inputs))
    assert stamp["files"] == {path: hashlib.sha256(text.encode()).hexdigest() for path, text in made.items()}
    assert stamp["inputs"] == inputs
    assert f"# {stamp['note']}\n" == HEADER
    assert set(inputs) == {"settings", "plan", "keys", "images", *SOURCES}


def test_each_input_has_its_own_digest() -> None:
    base = rendering.input_digests(STUB, PLAN, KEYS, IMAGES, SOURCES)
    changed = {
        "settings": rendering.input_digests(Settings(), PLAN, KEYS, IMAGES, SOURCES),
        "plan": rendering.input_digests(STUB, replace(PLAN, replicas=PLAN.replicas[:1]), KEYS, IMAGES, SOURCES),
        "keys": rendering.input_digests(STUB, PLAN, (), IMAGES, SOURCES),
        "images": rendering.input_digests(STUB, PLAN, KEYS, {"a": IMAGES["stub"]}, SOURCES),
        "config/envoy/lds.yaml.j2": rendering.input_digests(
            STUB, PLAN, KEYS, IMAGES, {**SOURCES, "config/envoy/lds.yaml.j2": "x"}
        ),
    }
    for name, other in changed.items():
        assert {path for path in base if base[path] != other[path]} == {name}


def test_nothing_differs_after_everything_was_written() -> None:
    made = render()
    assert rendering.changed(made, made) == ()
    assert rendering.diff(made, made) == ""


def test_a_file_that_is_missing_changed_or_stale_is_in_the_diff() -> None:
    made = {"b": "1\n2\n", "a": "x\n"}
    on_disk = {"b": "1\n3", "a": None, "old": "gone\n"}
    assert rendering.changed(made, on_disk) == ("a", "b")
    assert rendering.stale(made, on_disk) == ("old",)
    assert rendering.diff(made, on_disk) == (
        "--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n"
        "--- a/b\n+++ b/b\n@@ -1,2 +1,2 @@\n 1\n-3\n\\ No newline at end of file\n+2\n"
        "--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
    )


def test_the_bundles_images_and_templates_render() -> None:
    refs = images.parse((ROOT / images.PATH).read_text(encoding="utf-8"))
    assert rendering.render(STUB, planning.plan_capacity(STUB, Host()), KEYS, refs, sources.SOURCES)
