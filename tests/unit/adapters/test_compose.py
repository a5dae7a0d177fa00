"""What is said to Compose, word for word."""

from __future__ import annotations

from control.adapters import compose

BASE = ["docker", "compose", "--ansi", "never", "--progress", "plain"]


def test_up_names_every_profile_as_a_flag() -> None:
    assert list(compose.up("mine", ("monitoring", "autoscale"))) == [
        *BASE, "-p", "mine", "--profile", "monitoring", "--profile", "autoscale",
        "up", "--detach", "--no-build", "--remove-orphans",
    ]  # fmt: skip


def test_standby_replicas_are_created_by_name() -> None:
    assert list(compose.create("mine", ("standby",), ("engine-2", "engine-3"))) == [
        *BASE, "-p", "mine", "--profile", "standby", "create", "--no-build", "engine-2", "engine-3",
    ]  # fmt: skip


def test_down_is_about_every_profile_and_keeps_volumes_unless_told() -> None:
    assert list(compose.down("mine")) == [*BASE, "-p", "mine", "--profile", "*", "down", "--remove-orphans"]
    assert list(compose.down("mine", volumes=True)) == [
        *BASE,
        "-p",
        "mine",
        "--profile",
        "*",
        "down",
        "--remove-orphans",
        "--volumes",
    ]


def test_stop_and_start_reach_standby_replicas_too() -> None:
    assert list(compose.stop("mine", ("engine-1",))) == [*BASE, "-p", "mine", "--profile", "*", "stop", "engine-1"]
    assert list(compose.start("mine", ("engine-1",))) == [*BASE, "-p", "mine", "--profile", "*", "start", "engine-1"]


def test_logs() -> None:
    assert list(compose.logs("mine", ("gateway",), True, "5")) == [
        *BASE, "-p", "mine", "--profile", "*", "logs", "--follow", "--tail", "5", "gateway",
    ]  # fmt: skip


def test_the_operators_environment_cannot_overrule_the_rendered_files_and_keys_stay_here() -> None:
    environ = {
        "PATH": "/bin",
        "COMPOSE_FILE": "other.yaml",
        "COMPOSE_PROFILES": "gpu",
        "FB_GATEWAY_PORT": "1",
        "FLASHBOX_API_KEY": "fb-x",
        "HTTPS_PROXY": "http://proxy",
        "DOCKER_HOST": "ssh://h",
    }
    assert set(compose.environment(environ)) == {"PATH", "HTTPS_PROXY", "DOCKER_HOST"}


def test_every_sentence_names_the_project_it_is_told() -> None:
    sentences = (
        compose.up("mine", ()),
        compose.create("mine", (), ("engine-2",)),
        compose.stop("mine", ()),
        compose.start("mine", ("engine-1",)),
        compose.down("mine", False),
        compose.logs("mine", (), False, "5"),
        compose.config_quiet("mine", ()),
    )
    for sentence in sentences:
        assert sentence[len(BASE) :][:2] == ("-p", "mine"), sentence
