"""Reach the daemon, or say in words why not. The daemon counts: a client may be there without one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import ParamSpec, TypeVar

import docker
from docker.context import ContextAPI
from docker.errors import DockerException
from requests.exceptions import RequestException

from control.core.errors import FlashboxError, PreflightRefused

P = ParamSpec("P")
T = TypeVar("T")
ANSWER_S = 20  # a daemon that takes longer is not answering
FAILURES = (DockerException, RequestException, OSError)
ABSENT = ("FileNotFoundError", "No such file", "ConnectionRefusedError", "Connection refused")


def connect(environ: Mapping[str, str]) -> docker.DockerClient:
    """A client whose daemon has just answered."""
    where = endpoint(environ)
    try:
        if environ.get("DOCKER_HOST") or not where:
            client = docker.from_env(timeout=ANSWER_S, environment=dict(environ))
        else:
            client = docker.DockerClient(base_url=where, timeout=ANSWER_S)
        client.ping()
    except FAILURES as error:
        raise refusal(error, where) from None
    return client


def endpoint(environ: Mapping[str, str]) -> str | None:
    """Where the command line client would look: DOCKER_HOST, else DOCKER_CONTEXT, else the current context."""
    if environ.get("DOCKER_HOST"):
        return environ["DOCKER_HOST"]
    with suppress(Exception):  # a broken client configuration must not hide a daemon at the default socket
        named = environ.get("DOCKER_CONTEXT")
        context = ContextAPI.get_context(named) if named else ContextAPI.get_current_context()
        return context.Host if context is not None else None
    return None


def refusal(error: Exception, where: str | None) -> PreflightRefused:
    """Why the daemon did not answer."""
    text, place = str(error), where or "its default socket"
    if "Permission denied" in text or "PermissionError" in text:
        return PreflightRefused(
            "the Docker daemon does not let you in",
            f"permission denied on {place}",
            "add yourself to the group docker and log in again (`sudo usermod -aG docker $USER`), or use sudo",
        )
    if "timed out" in text.lower():
        why = f"{place} took more than {ANSWER_S} s"
        return PreflightRefused("the Docker daemon does not answer", why, "see `journalctl -u docker`, then restart it")
    return PreflightRefused(
        "the Docker daemon does not answer",
        f"nothing listens on {place}" if any(word in text for word in ABSENT) else f"{place}: {text}",
        "start it (`sudo systemctl start docker`); `make docker` installs and starts one where there is none",
    )


def in_words(method: Callable[P, T]) -> Callable[P, T]:
    """A daemon that fails in the middle of something is an error in words, not a traceback."""

    @functools.wraps(method)
    def inner(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except FAILURES as error:
            text = getattr(error, "explanation", None) or str(error)
            raise FlashboxError("the Docker daemon refused", str(text), "see `docker ps -a` and its log") from None

    return inner
