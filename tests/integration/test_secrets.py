"""Secrets of a running stack are in nothing that Docker, Compose, Envoy or ctl.py tell about it."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator

import pytest
import requests
import yaml

from tests.integration.places import leaks, told_by_docker, told_by_us
from tests.integration.stack import Stack, docker, new_stack

PROMPT, QUERY, COOKIE = "planted-prompt-of-a-caller", "planted-query-of-a-caller", "planted-cookie-of-a-caller"
WRONG_KEY = "fb-planted-wrong-key-that-somebody-mistyped"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """One replica behind HTTPS, with a key that has been used in every way in which a request can end."""
    with new_stack("secrets") as stack:
        tls = {"mode": "self_signed", "names": ["localhost", "127.0.0.1"]}
        stack.settings(engine__replicas=1, engine__drain_s=5, gateway__drain_s=5, gateway__tls=tls)
        stack.up()
        stack.wait_ready(1)
        _use(stack)
        yield stack


def _use(stack: Stack) -> None:
    target = stack.target()
    good = {**target.body(4, stream=False), "messages": [{"role": "user", "content": PROMPT}]}
    used = []
    for key in (target.key, WRONG_KEY, ""):
        for body in (good, {**good, "stream": True}, {**good, "n": 10_000}, {**good, "max_tokens": 10**7}):
            answer = requests.post(
                f"{target.url}/chat/completions?api_key={QUERY}", json=body, timeout=30,
                headers={"authorization": f"Bearer {key}", "cookie": f"s={COOKIE}", "referer": COOKIE},
                verify=str(stack.root / "secrets/tls/current/tls.crt"),
            )  # fmt: skip
            used.append(answer.status_code)
    assert used == [200, 200, 400, 400] + [401] * 8


def secrets(stack: Stack) -> dict[str, str]:
    """Name -> what must not be told."""
    folder = stack.root / "secrets"
    lines = (folder / "tls/current/tls.key").read_text().splitlines()
    found = {
        "upstream key": (folder / "upstream_key").read_text().strip(),
        "API key": stack.target().key,
        "TLS key": "".join(lines[1:-1]),  # as one line, as it would be in an environment
        **{f"TLS key, line {number}": line for number, line in enumerate(lines[1:-1]) if len(line) > 30},
        "wrong key": WRONG_KEY, "prompt": PROMPT, "query": QUERY, "cookie": COOKIE,
    }  # fmt: skip
    assert lines[0] == "-----BEGIN PRIVATE KEY-----" and all(len(text) > 20 for text in found.values())
    return found


def test_nothing_that_is_told_about_a_running_stack_holds_a_secret(stack: Stack) -> None:
    places = {**told_by_us(stack), **told_by_docker(stack)}
    silent = {place for place, text in places.items() if not text.strip()}
    assert not silent, silent
    assert not leaks(places, secrets(stack))


def test_the_search_finds_a_secret_in_every_place_where_one_is_planted(stack: Stack) -> None:
    """A service that leaks, added to the same project: without it the test above might look at nothing."""
    hidden = secrets(stack)
    upstream, key, tls = hidden["upstream key"], hidden["API key"], hidden["TLS key, line 0"]
    image = f"flashbox-test/planted:{os.getpid()}"
    stub = yaml.safe_load((stack.root / "config/images.yaml").read_text())["stub"]
    (stack.root / "Dockerfile.planted").write_text(
        f"FROM {stub['repository']}:{stub['tag']}\nENV HIDDEN={upstream}\nENTRYPOINT []\n"
    )
    docker("build", "-q", "-t", image, "-f", str(stack.root / "Dockerfile.planted"), str(stack.root / "config/envoy"))
    encoded = base64.b64encode(b"a=" + key.encode()).decode()
    (stack.root / "planted.yaml").write_text(yaml.safe_dump({"services": {"planted": {
        "image": image, "user": "0:0", "network_mode": "none", "environment": {"LEAK": key}, "labels": {"leak": tls},
        "command": ["sh", "-c", f"echo {encoded}; sleep 600; echo {upstream}"],
        "healthcheck": {"test": ["CMD", "cat", f"/mnt/{tls}/leak"], "start_interval": "100ms", "start_period": "1m"},
        "volumes": [f"{stack.root}:/mnt/{tls}:ro"],
    }}}))  # fmt: skip
    (stack.root / "leak").write_text(upstream)
    (stack.root / "run/leak").write_text(key)
    stack.extra_env["COMPOSE_FILE"] = "compose.yaml:run/engines.yaml:planted.yaml"
    try:
        stack.compose("up", "-d", "--wait", "planted")
        places = told_by_docker(stack)
        found = leaks(places, hidden)
        built = docker("image", "inspect", "--format", "{{.Id}}", image)
    finally:
        stack.compose("rm", "-sf", "planted", check=False)
        docker("rmi", "-f", image, check=False)
        del stack.extra_env["COMPOSE_FILE"]
        (stack.root / "run/leak").unlink()
    assert found >= {
        ("planted environment", "API key"), ("planted environment", "upstream key"),
        ("planted labels", "TLS key, line 0"), ("planted mounts", "TLS key, line 0"),
        ("planted command", "API key"), ("planted command", "upstream key"), ("planted processes", "upstream key"),
        ("planted health log", "upstream key"), ("planted log", "API key"), ("planted inspect", "TLS key, line 0"),
        (f"{built} image", "upstream key"), (f"{built} history", "upstream key"), ("file run/leak", "API key"),
        ("compose config", "API key"), ("compose config, JSON", "TLS key, line 0"),
    }, found  # fmt: skip
    assert {place for place, _ in found} <= {place for place in places if place.startswith((built, "planted "))} | {
        "file run/leak", "compose config", "compose config, JSON",
    }  # fmt: skip
