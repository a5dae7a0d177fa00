"""A daemon made of a socket: what it answers, how slowly, and which login it was handed."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import docker
import pytest

from control.adapters.dockerd.registry import Registry
from control.core.errors import UsageError
from control.core.pull_progress import Progress
from control.core.registry_faults import PullFailed

DIGEST = "sha256:" + "1" * 64
PINNED = f"r.example:5000/a/b@{DIGEST}"
LAYER = {"status": "Downloading", "id": "l", "progressDetail": {"current": 5, "total": 10}}


class Daemon(ThreadingHTTPServer):
    """Answers with `status`, then one line a `pause_s`; then hangs if told."""

    daemon_threads = True
    status = 200
    lines: tuple[Any, ...] = ()
    pause_s = 0.0
    hangs = False
    asked: list[tuple[str, dict[str, str]]]


class _Handler(BaseHTTPRequestHandler):
    server: Daemon

    def _answer(self) -> None:
        daemon = self.server
        daemon.asked.append((f"{self.command} {self.path}", dict(self.headers)))
        self.send_response(daemon.status)
        self.end_headers()
        for line in daemon.lines:
            self.wfile.write((line if isinstance(line, str) else json.dumps(line)).encode() + b"\r\n")
            self.wfile.flush()
            time.sleep(daemon.pause_s)
        if daemon.hangs:
            time.sleep(3)

    do_GET = do_POST = _answer

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def listening() -> Iterator[Daemon]:
    server = Daemon(("127.0.0.1", 0), _Handler)
    server.asked = []
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Daemon]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with listening() as server:
        yield server


def registry(daemon: Daemon, auth_file: Path | None = None, silence_s: float = 5.0) -> Registry:
    client = docker.DockerClient(base_url=f"tcp://127.0.0.1:{daemon.server_address[1]}", version="1.44")
    return Registry(client, auth_file, silence_s)


def test_a_tag_is_asked_through_the_daemon_and_a_pull_names_the_digest(daemon: Daemon) -> None:
    daemon.lines = ({"Descriptor": {"digest": DIGEST}},)
    assert registry(daemon).digest("r.example:5000/a/b:1", "thing") == DIGEST
    daemon.lines = (LAYER, {"status": "Pull complete", "id": "l"})
    seen: list[Progress] = []
    registry(daemon).pull(PINNED, "thing", 60, seen.append)
    assert str(seen[-1]) == "1 of 1 layers, 10 B of 10 B"
    (asked, _), (pulled, headers) = daemon.asked
    assert asked == "GET /v1.44/distribution/r.example:5000/a/b:1/json"
    assert pulled == "POST /v1.44/images/create?fromImage=r.example%3A5000%2Fa%2Fb&tag=sha256%3A" + "1" * 64
    assert "X-Registry-Auth" not in headers


@pytest.mark.parametrize(
    ("status", "lines", "kind", "why"),
    [
        (404, ({"message": "manifest unknown"},), "missing", "manifest unknown"),
        (500, ({"message": "dial tcp: connect: connection refused"},), "gone", "connection refused"),
        (500, ("not JSON",), "refused", "500 not JSON"),
        (200, (LAYER, {"error": "no space left on device"}), "disk", "no space left on device"),
        (200, (LAYER, "{broken"), "refused", "the Docker daemon: "),
    ],
)
def test_a_refusal_is_told_before_and_in_the_middle_of_a_pull(
    daemon: Daemon, status: int, lines: tuple[Any, ...], kind: str, why: str
) -> None:
    daemon.status, daemon.lines = status, lines
    with pytest.raises(PullFailed) as caught:
        registry(daemon).pull(PINNED, "thing", 60, lambda _: None)
    assert caught.value.kind == kind and why in caught.value.why


def test_silence_in_the_middle_of_a_pull_ends_it(daemon: Daemon) -> None:
    daemon.lines, daemon.hangs = (LAYER,), True
    with pytest.raises(PullFailed) as caught:
        registry(daemon, silence_s=0.3).pull(PINNED, "thing", 60, lambda _: None)
    assert caught.value.kind == "slow" and "nothing came for 0.3 s" in caught.value.why


def test_a_pull_that_goes_on_for_ever_ends_at_its_limit_and_says_how_far_it_came(daemon: Daemon) -> None:
    daemon.lines, daemon.pause_s = (LAYER,) * 200, 0.05
    with pytest.raises(PullFailed) as caught:
        registry(daemon).pull(PINNED, "thing", 0.4, lambda _: None)
    assert caught.value.kind == "slow" and "0.4 s were not enough: 0 of 1 layers, 5 B of 10 B" in caught.value.why


def test_a_daemon_that_is_gone_is_no_traceback(daemon: Daemon) -> None:
    asked = registry(daemon)
    daemon.shutdown()
    daemon.server_close()
    with pytest.raises(PullFailed) as caught:
        asked.digest("r.example/a:1", "thing")
    assert "the Docker daemon" in caught.value.why


def logins(path: Path, **words: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    auths = {host: {"auth": base64.b64encode(word.encode()).decode()} for host, word in words.items()}
    path.write_text(json.dumps({"auths": auths}))
    return path


def handed(daemon: Daemon) -> dict[str, Any] | None:
    header = daemon.asked[-1][1].get("X-Registry-Auth")
    return json.loads(base64.urlsafe_b64decode(header)) if header else None


def test_the_login_of_the_registry_is_handed_over_and_no_other(daemon: Daemon, tmp_path: Path) -> None:
    daemon.lines = ({"Descriptor": {"digest": DIGEST}},)
    own = logins(tmp_path / "docker/config.json", **{"r.example": "alice:a", "https://index.docker.io/v1/": "hub:h"})
    registry(daemon).digest("r.example/a:1", "x")
    assert (handed(daemon) or {})["username"] == "alice"
    registry(daemon).digest("docker.io/a/b:1", "x")
    assert (handed(daemon) or {})["username"] == "hub"
    registry(daemon).digest("other.example/a:1", "x")
    assert handed(daemon) is None
    named = logins(tmp_path / "named.json", **{"other.example": "bob:b"})
    registry(daemon, named).digest("other.example/a:1", "x")
    assert (handed(daemon) or {})["password"] == "b" and own.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        ("secret", "expected JSON"),
        ("[]", "expected a mapping with auths"),
        ('{"auths": {"r.example": {"auth": "secret!"}}}', "cannot be read"),
    ],
)
def test_a_file_of_logins_that_cannot_be_read_is_told_without_its_content(
    daemon: Daemon, tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "logins.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError) as caught:
        registry(daemon, path).digest("r.example/a:1", "x")
    told = f"{caught.value.what} {caught.value.why} {caught.value.fix}"
    assert words in told and "images.auth_file" in told and "secret" not in told
