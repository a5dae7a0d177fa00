"""What a registry's refusal means: the daemon's words, sorted into what happened and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from control.core.errors import FlashboxError

Kind = Literal[
    "certificate", "plain-http", "digest", "limit", "disk", "credentials", "missing", "slow", "gone", "refused"
]

# In this order: an expired certificate is also a failed request, a refused login also an image that is not found.
_SIGNS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("certificate", ("x509:", "failed to verify certificate", "tls: unknown certificate", "tls: bad certificate")),
    ("plain-http", ("server gave http response to https client",)),
    (
        "digest",
        ("verification failed for digest", "digest mismatch", "digest verification", "unexpected commit digest"),
    ),
    ("limit", ("toomanyrequests", "rate limit")),
    ("disk", ("no space left on device", "disk quota exceeded")),
    ("gone", ("no such host", "server misbehaving", "temporary failure in name resolution")),
    (
        "credentials",
        (
            "unauthorized",
            "no basic auth credentials",
            "authentication required",
            "access denied",
            "denied:",
            "401",
            "403",
        ),
    ),
    (
        "missing",
        ("manifest unknown", "name unknown", "not found", "repository name not known", "no match for platform"),
    ),
    ("slow", ("timeout", "timed out", "deadline exceeded")),
    ("gone", ("connection refused", "no route to host", "network is unreachable", "connection reset", "eof")),
)


def _said(signs: tuple[str, ...]) -> re.Pattern[str]:
    """Signs as words of their own: a port (54403), a host or an image's name (geofence, a/timeout) says nothing."""
    return re.compile(rf"(?<![\w/-])(?:{'|'.join(map(re.escape, signs))})(?![\d/-])")


_MEANING: tuple[tuple[Kind, re.Pattern[str]], ...] = tuple((kind, _said(signs)) for kind, signs in _SIGNS)
_WHAT: Mapping[Kind, str] = {
    "certificate": "the Docker daemon does not trust the certificate of {registry}",
    "plain-http": "{registry} speaks plain HTTP, and the Docker daemon expects TLS",
    "digest": "{image} is not the image that was expected",
    "limit": "{registry} has had enough requests for now",
    "disk": "there is no room for {image}",
    "credentials": "{registry} does not let you have {image}",
    "missing": "{registry} does not have {image}",
    "slow": "{registry} did not bring {image} in time",
    "gone": "{registry} does not answer",
    "refused": "{image} could not be pulled",
}
_FIX: Mapping[Kind, str] = {
    "plain-http": 'Give the registry a certificate; or add it to "insecure-registries" in /etc/docker/daemon.json and '
    "restart the daemon.",
    "digest": "Find out why before anything else: somebody replaced what the tag stood for, or the registry is broken. "
    "If the new image is meant: python ctl.py images pull --renew {name}",
    "limit": "Log in (docker login {registry}), wait, or set images.mirror.",
    "disk": "Make room where Docker keeps images (docker system df; docker image prune).",
    "credentials": "docker login {registry}, or name a file with the login in images.auth_file; "
    "look at the spelling of the image too: many registries say the same of an image that they do not have.",
    "missing": "Look at the tag in config/images.yaml and at images.mirror; `images verify` shows the full name.",
    "slow": "Try again: layers that are whole are kept. images.pull_timeout_s and images.silence_s are the limits.",
    "gone": "Check the network, HTTPS_PROXY of the Docker daemon, and images.mirror.",
    "refused": "The daemon's log says more (journalctl -u docker).",
}
_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


class PullFailed(FlashboxError):
    """A registry did not hand over an image. `kind` says what it was; the reason is the daemon's own words."""

    def __init__(self, kind: Kind, what: str, why: str, fix: str) -> None:
        super().__init__(what, why, fix)
        self.kind = kind


def kind_of(text: str) -> Kind:
    """What the daemon's words mean."""
    lower = text.lower()
    return next((kind for kind, said in _MEANING if said.search(lower)), "refused")


def registry_of(reference: str) -> str:
    """`localhost:5000/a/b:c` -> `localhost:5000`; a name without a registry is Docker Hub's."""
    first, slash, _ = reference.partition("/")
    return first if slash and (first == "localhost" or "." in first or ":" in first) else "docker.io"


def explain(text: str, reference: str, name: str, kind: Kind | None = None) -> PullFailed:
    """The daemon's words as an error with a way out. `name`: the image in config/images.yaml."""
    kind, registry = kind or kind_of(text), registry_of(reference)
    words = {"image": reference, "registry": registry, "name": name}
    fix = _trust(registry) if kind == "certificate" else _FIX[kind].format_map(words)
    return PullFailed(kind, f"{name}: {_WHAT[kind].format_map(words)}", text, fix)


def _trust(registry: str) -> str:
    """Certificates are the daemon's business: it reads them from folders of its own, and not our settings."""
    ours = "images.ca_file is for builds and does not reach the daemon."
    if registry in _HUB:
        return (
            "Put your company's CA among those of the daemon's machine (/usr/local/share/ca-certificates/NAME.crt, "
            f"then update-ca-certificates) and restart the daemon: for Docker Hub it reads no other place. {ours}"
        )
    return (
        f"Put the CA that signed it at /etc/docker/certs.d/{registry}/ca.crt on the daemon's machine (rootless: "
        f"~/.config/docker/certs.d/{registry}/ca.crt); no restart is needed. {ours}"
    )
