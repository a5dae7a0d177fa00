"""Asks registries through the daemon, whose proxy and trusted certificates count. Logins enter no command line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import docker
import requests
from docker import auth
from docker.errors import DockerException, NotFound
from requests.exceptions import ConnectionError as Broken
from requests.exceptions import RequestException, Timeout

from control.adapters.dockerd.connection import in_words
from control.core import registry_faults, wiring
from control.core.errors import UsageError
from control.core.image_sources import LocalImage
from control.core.pull_progress import Progress
from control.core.registry_faults import PullFailed

Say = Callable[[Progress], None]


@in_words
def local_image(client: docker.DockerClient, reference: str) -> LocalImage | None:
    """An image that the daemon has, with every digest that registries know it by."""
    try:
        image = client.images.get(reference)
    except NotFound:
        return None
    digests = tuple(str(name).partition("@")[2] for name in image.attrs.get("RepoDigests") or ())
    return LocalImage(str(image.id), digests, (image.labels or {}).get(wiring.CONTENT_LABEL))


@in_words
def name_image(client: docker.DockerClient, reference: str, name: str) -> None:
    """Give an image the name that Compose runs it by."""
    repository, _, tag = name.rpartition(":")
    client.api.tag(reference, repository, tag)


class Registry:
    """One registry's images; `name` is what the image is called in config/images.yaml, for the words of a refusal."""

    def __init__(self, client: docker.DockerClient, auth_file: Path | None, silence_s: float) -> None:
        self._api = client.api
        self._auth_file = auth_file
        self._silence_s = silence_s

    def digest(self, reference: str, name: str) -> str:
        """What the tag stands for now."""
        path = f"distribution/{quote(reference, safe='/:@')}/json"
        answer = self._ask("GET", path, {}, reference, name, self._silence_s)
        with answer:
            descriptor = answer.json().get("Descriptor") or {}
        return str(descriptor.get("digest"))

    def pull(self, reference: str, name: str, limit_s: float, say: Say) -> None:
        """Fetch `repository@digest`; the daemon checks every byte against the digest. Raises PullFailed."""
        repository, _, digest = reference.partition("@")
        begun, progress = time.monotonic(), Progress()
        asked = {"fromImage": repository, "tag": digest}
        with self._ask("POST", "images/create", asked, reference, name, min(self._silence_s, limit_s)) as answer:
            for event in self._events(answer, reference, name):
                progress = progress.after(event)
                if progress.error:
                    raise registry_faults.explain(progress.error, reference, name)
                say(progress)
                if time.monotonic() - begun > limit_s:  # leaving closes the connection, and the daemon gives up
                    why = f"{limit_s:g} s were not enough: {progress} (images.pull_timeout_s)"
                    raise registry_faults.explain(why, reference, name, "slow")

    def _events(self, answer: requests.Response, reference: str, name: str) -> Iterator[Mapping[str, object]]:
        try:
            for line in answer.iter_lines():
                event = json.loads(line) if line.strip() else {}
                yield event if isinstance(event, dict) else {}
        except (RequestException, ValueError) as error:
            raise self._failed(error, reference, name) from None

    def _ask(
        self, method: str, path: str, asked: Mapping[str, str], reference: str, name: str, silence_s: float
    ) -> requests.Response:
        # The SDK's own pull waits for ever, so its session is used directly.
        url = f"{self._api.base_url}/v{self._api.api_version}/{path}"
        headers = self._login(registry_faults.registry_of(reference))
        try:
            answer = self._api.request(
                method, url, params=dict(asked), headers=headers, stream=True, timeout=(silence_s, silence_s)
            )
        except RequestException as error:
            raise self._failed(error, reference, name) from None
        if answer.status_code < 400:
            return answer
        with answer:
            raise registry_faults.explain(_message(answer), reference, name)

    def _failed(self, error: Exception, reference: str, name: str) -> PullFailed:
        silent = isinstance(error, Timeout) or (isinstance(error, Broken) and "timed out" in str(error).lower())
        if silent:
            why = f"nothing came for {self._silence_s:g} s (images.silence_s)"
            return registry_faults.explain(why, reference, name, "slow")
        return registry_faults.explain(f"the Docker daemon: {error}", reference, name, "refused")

    def _login(self, registry: str) -> dict[str, Any]:
        """The header with the login for this registry; none when there is no login."""
        try:
            known = auth.load_config(config_dict=_logins(self._auth_file)) if self._auth_file else auth.load_config()
            login = auth.resolve_authconfig(known, registry)
        except (DockerException, ValueError) as error:
            where = f"images.auth_file {self._auth_file}" if self._auth_file else "Docker's own configuration"
            raise UsageError(f"the login for {registry} cannot be read", f"{where}: {error}", _LOGIN_FIX) from None
        return {"X-Registry-Auth": auth.encode_header(login)} if login else {}


_LOGIN_FIX = "docker login writes such a file: DOCKER_CONFIG=FOLDER docker login REGISTRY, then FOLDER/config.json"


def _logins(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"images.auth_file: {path}: {error.strerror or error}", fix=_LOGIN_FIX) from None
    except ValueError as error:
        # Never the text itself: it is a login.
        raise UsageError(f"images.auth_file: {path}: expected JSON ({error})", fix=_LOGIN_FIX) from None
    if not isinstance(found, dict):
        raise UsageError(f"images.auth_file: {path}: expected a mapping with auths", fix=_LOGIN_FIX)
    return found


def _message(answer: requests.Response) -> str:
    """The daemon's own words."""
    try:
        return str(answer.json()["message"])
    except (ValueError, LookupError, TypeError):
        return f"{answer.status_code} {answer.text.strip() or answer.reason}"
