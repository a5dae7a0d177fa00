"""`init`, `render`, and the commands that only look."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from pathlib import Path

import pytest

from control.core.model import PortUse
from tests.unit.world import GOOD_HOST, Operator

STUB = ("--profile", "stub")


def test_init_twice_overwrites_neither_settings_nor_secrets(operator: Operator) -> None:
    operator.types("init", *STUB)
    operator.stack_yaml("project: mine\n")
    secret = operator.text("secrets/upstream_key")
    result = operator.types("init", *STUB)
    assert result.exit_code == 0
    assert operator.text("config/stack.yaml") == "project: mine\n"
    assert operator.text("secrets/upstream_key") == secret
    assert "COMPOSE_PROJECT_NAME=mine" in operator.text(".env")


def test_secrets_belong_to_the_service_user_and_nobody_else_reads_them(operator: Operator) -> None:
    old = os.umask(0)
    try:
        operator.types("init", *STUB)
    finally:
        os.umask(old)
    for name in ("upstream_key", "api-keys.json"):
        seen = (operator.folder / "secrets" / name).stat()
        assert stat.S_IMODE(seen.st_mode) == 0o600
        assert os.geteuid() != 0 or (seen.st_uid, seen.st_gid) == (1001, 1001)


def test_secrets_follow_a_changed_service_user_and_lose_an_open_mode(operator: Operator) -> None:
    operator.types("init", *STUB)
    path = operator.folder / "secrets/upstream_key"
    path.chmod(0o644)
    operator.types("init", *STUB, "--set", "service.uid=1234")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_uid == (1234 if os.geteuid() == 0 else os.geteuid())


def test_rendered_files_can_be_read_by_another_user_whatever_the_umask(operator: Operator) -> None:
    old = os.umask(0o077)
    try:
        operator.types("init", *STUB)
    finally:
        os.umask(old)
    for path in (operator.folder / "run/envoy").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path


def test_init_without_gpus_makes_what_it_can_and_names_the_rehearsal(operator: Operator) -> None:
    result = operator.types("init")
    assert result.exit_code == 3
    assert "--profile stub" in result.stderr
    assert (operator.folder / "secrets/upstream_key").exists()


def test_render_check_writes_nothing_and_tells_the_difference(operator: Operator) -> None:
    operator.types("init", *STUB)
    assert operator.types("render", "--check").exit_code == 0
    before = operator.text(".env")
    result = operator.types("render", "--check", "--set", "gateway.port=9000")
    assert result.exit_code == 1
    assert "+FB_GATEWAY_PORT=9000" in result.stdout
    assert operator.text(".env") == before


def test_a_hand_edited_rendered_file_is_found_and_mended(operator: Operator) -> None:
    operator.types("init", *STUB)
    path = operator.folder / "run/envoy/dynamic/rds.yaml"
    path.write_text(path.read_text() + "# by hand\n")
    assert operator.types("render", "--check").exit_code == 1
    assert operator.types("render").exit_code == 0
    assert operator.types("render", "--check").exit_code == 0


def test_a_file_of_an_older_rendering_is_removed(operator: Operator) -> None:
    operator.types("init", *STUB)
    old = operator.folder / "run/envoy/dynamic/old.yaml"
    old.write_text((operator.folder / "run/envoy/dynamic/rds.yaml").read_text())
    assert operator.types("render", "--check").exit_code == 1
    operator.types("render")
    assert not old.exists()


def test_the_rules_of_the_policy_service_are_compared_and_left_over_ones_go(operator: Operator) -> None:
    operator.types("init", *STUB)
    rules, old = operator.folder / "run/policy/rules.json", operator.folder / "run/policy/old.json"
    assert operator.types("render", "--check").exit_code == 0
    old.write_text(rules.read_text())
    rules.write_text(rules.read_text().replace('"enforce"', '"observe"'))
    result = operator.types("render", "--check")
    assert result.exit_code == 1
    assert '+  "mode": "enforce"' in result.stdout and "--- a/run/policy/old.json" in result.stdout
    operator.types("render")
    assert not old.exists() and '"enforce"' in rules.read_text()
    assert (operator.folder / "run/stamp.json").exists()


def test_a_template_that_envoy_refuses_is_not_published(operator: Operator) -> None:
    operator.types("init", *STUB)
    template = operator.folder / "config/envoy/cds.yaml.j2"
    before = operator.text("run/envoy/dynamic/cds.yaml")
    template.write_text(template.read_text().replace("connect_timeout", "connect_time_out"))
    result = operator.types("render")
    assert result.exit_code == 1
    assert "connect_time_out" in result.stderr
    assert operator.text("run/envoy/dynamic/cds.yaml") == before


def test_run_may_be_deleted_at_any_time(operator: Operator) -> None:
    import shutil

    operator.types("up", *STUB)
    shutil.rmtree(operator.folder / "run")
    for words in (("status",), ("stop",), ("keys", "list"), ("up", *STUB), ("down",)):
        assert operator.types(*words).exit_code == 0, words


def test_status_json_has_url_gateway_and_replicas_with_phase(operator: Operator) -> None:
    operator.types("up", *STUB)
    seen = json.loads(operator.types("status", "--json").stdout)
    assert seen["url"].endswith("/v1") and seen["kind"] == "stub"
    assert seen["gateway"]["status"] == "running" and seen["gateway"]["answers"] == 200
    assert [(r["name"], r["phase"]) for r in seen["replicas"]] == [("engine-0", "ready"), ("engine-1", "ready")]


def test_status_for_people_names_every_service_and_the_url(operator: Operator) -> None:
    operator.types("up", *STUB)
    shown = operator.types("status").stdout
    for word in ("gateway", "engine-0", "engine-1", "ready", "/v1 (answers)"):
        assert word in shown


def test_status_of_a_stopped_stack_has_no_url(operator: Operator) -> None:
    operator.types("up", *STUB)
    operator.types("stop")
    seen = json.loads(operator.types("status", "--json").stdout)
    assert seen["url"] is None and seen["replicas"][0]["phase"] is None
    assert "not running" in operator.types("status").stdout


def test_status_without_a_stack_says_up(operator: Operator) -> None:
    assert "python ctl.py up" in operator.types("status").stdout


def test_doctor_shows_all_checks_and_refuses_with_3(operator: Operator) -> None:
    operator.host = dataclasses.replace(GOOD_HOST, ports=(PortUse("127.0.0.1", 8000, "caddy (process 9)"),), cpus=None)
    result = operator.types("doctor", *STUB)
    assert result.exit_code == 3
    assert "caddy (process 9)" in result.stdout and "why:" in result.stdout and "fix:" in result.stdout
    assert "unknown  cpus" in result.stdout and "ok       cgroup" in result.stdout
    data = json.loads(operator.types("doctor", *STUB, "--json").stdout)
    assert {entry["outcome"] for entry in data} == {"passed", "found", "unknown"}
    assert not (operator.folder / "run").exists()


def test_doctor_of_a_good_host_is_0(operator: Operator) -> None:
    assert operator.types("doctor", *STUB).exit_code == 0


def test_plan_explains_which_settings_led_to_it(operator: Operator) -> None:
    result = operator.types("plan", *STUB, "--set", "engine.replicas=3", "--explain")
    assert result.exit_code == 0
    assert "engine-2" in result.stdout and "--set engine.replicas=3" in result.stdout
    plan = json.loads(operator.types("plan", *STUB, "--json").stdout)
    assert [r["address"] for r in plan["replicas"]] == ["172.31.78.10", "172.31.78.11"]


def test_plan_touches_nothing(operator: Operator) -> None:
    operator.types("plan", *STUB)
    assert not (operator.folder / "run").exists() and not (operator.folder / "secrets").exists()


def test_config_show_in_three_forms(operator: Operator) -> None:
    operator.stack_yaml("gateway: {port: 9000}\n")
    assert "port: 9000" in operator.types("config", "show").stdout
    assert json.loads(operator.types("config", "show", "--json").stdout)["gateway"]["port"] == 9000
    both = json.loads(operator.types("config", "show", "--json", "--origin").stdout)
    assert both["gateway.port"] == {"value": 9000, "origin": "config/stack.yaml"}


def test_config_schema_is_json(operator: Operator) -> None:
    assert json.loads(operator.types("config", "schema").stdout)["properties"]


def test_logs_pass_service_and_tail_on_and_refuse_what_is_not_there(operator: Operator) -> None:
    assert "no container" in operator.types("logs").stderr
    operator.types("up", *STUB)
    assert operator.types("logs", "engine-0", "-f", "--tail", "5").exit_code == 0
    assert operator.world.said[-1][-4:] == ("--follow", "--tail", "5", "engine-0")
    result = operator.types("logs", "engine0")
    assert result.exit_code == 2 and "did you mean engine-0?" in result.stderr
    assert operator.types("logs", "--tail", "many").exit_code == 2


def test_images_list_tells_what_is_there_and_what_is_unknown(operator: Operator) -> None:
    rows = json.loads(operator.types("images", "list", "--json").stdout)
    assert {"base", "gateway", "stub"} <= {row["name"] for row in rows}
    operator.host = dataclasses.replace(GOOD_HOST, images=None)
    assert "unknown" in operator.types("images", "list").stdout


@pytest.mark.parametrize("raw", [b"\xff\xfep\x00r\x00", b"project: \xe9\n"])
def test_a_stack_yaml_in_another_encoding_is_named(operator: Operator, raw: bytes) -> None:
    operator.stack_yaml("")
    Path(operator.folder / "config/stack.yaml").write_bytes(raw)
    result = operator.types("config", "show")
    assert result.exit_code == 2
    assert "stack.yaml" in result.stderr and "UTF-8" in result.stderr


def test_version_is_that_of_pyproject(operator: Operator) -> None:
    assert operator.types("version").stdout.startswith("flashbox 0.")


@pytest.mark.parametrize("damaged", ["", "  \n", "short", "a" * 20 + "\n", "two words of a key", "\u00e9" * 20])
def test_a_damaged_upstream_key_is_refused_before_anything_is_touched(operator: Operator, damaged: str) -> None:
    operator.types("init", *STUB)
    (operator.folder / "secrets/upstream_key").write_text(damaged, encoding="utf-8")
    (operator.folder / "config/stack.yaml").unlink()
    for words in (("init", *STUB), ("up", *STUB)):
        result = operator.types(*words)
        assert result.exit_code == 3, result.output
        assert "secrets/upstream_key" in result.stderr and "python ctl.py init" in result.stderr
        assert not (operator.folder / "config/stack.yaml").exists()
    assert operator.text("secrets/upstream_key") == damaged
    assert operator.world.status == {}


def test_init_without_gpus_names_itself_with_the_stand_in(operator: Operator) -> None:
    result = operator.types("init")
    assert result.exit_code == 3
    assert "python ctl.py init --profile stub" in result.stderr
    assert "ctl.py up" not in result.stderr
