"""Talks to the gateway as a client does: health, models, one streamed chat completion."""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from control.core.errors import FlashboxError

CONNECT_S = 5.0


@dataclass(frozen=True)
class Piece:
    """A part of a streamed answer: text, or at the end the number of answer tokens."""

    text: str = ""
    completion_tokens: int | None = None


@dataclass(frozen=True)
class Answer:
    """Status and error object of an answer; no status when nobody answered."""

    status: int | None
    code: str = ""
    message: str = ""

    def __str__(self) -> str:
        words = " ".join(filter(None, (str(self.status), self.code)))
        return (f"{words}: {self.message}" if self.message else words) if self.status else "nothing"


class Refused(FlashboxError):
    """The gateway answered with an error."""

    def __init__(self, status: int, why: str) -> None:
        fix = "see `python ctl.py status` and `python ctl.py logs gateway`"
        super().__init__(f"the gateway answered {status}", why, fix)
        self.status = status


class _Pinned(HTTPAdapter):
    """Speaks only to whom holds one certificate, whatever names are in it and whoever issued it."""

    def __init__(self, certificate: str) -> None:
        self._fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(_first(certificate))).hexdigest()
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(  # type: ignore[no-untyped-call]
            *args, assert_fingerprint=self._fingerprint, **kwargs
        )


def _first(chain: str) -> str:
    """The server's own certificate."""
    return chain[chain.index(ssl.PEM_HEADER) : chain.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)]


class GatewayClient:
    """One gateway, seen from the host. Proxies of the environment are not for it.

    `certificate`: the one that it must show (PEM); without it, what this machine trusts.
    """

    def __init__(self, base_url: str, certificate: str | None = None) -> None:
        self.base_url = base_url
        self._session = requests.Session()
        self._session.trust_env = False
        if certificate is not None:
            self._session.verify = False  # the fingerprint is compared instead
            self._session.mount("https://", _Pinned(certificate))

    def health(self) -> int | None:
        """Status of `/health`; None when nobody answers."""
        return self._get("/health", None).status

    def models(self, key: str) -> Answer:
        """What `/v1/models` answers to this key."""
        return self._get("/v1/models", key)

    def _get(self, path: str, key: str | None) -> Answer:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            got = self._session.get(self.base_url + path, headers=headers, timeout=CONNECT_S)
        except requests.RequestException:
            return Answer(None)
        return Answer(got.status_code) if got.ok else Answer(got.status_code, *_error_in(got.text))

    def stream_chat(self, key: str, model: str, prompt: str, max_tokens: int, silence_s: float) -> Iterator[Piece]:
        """The answer's pieces as they arrive; `silence_s` is the longest wait for the next one."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        url, headers = f"{self.base_url}/v1/chat/completions", {"Authorization": f"Bearer {key}"}
        try:
            with self._session.post(
                url, json=body, headers=headers, stream=True, timeout=(CONNECT_S, silence_s)
            ) as answer:
                if answer.status_code != 200:
                    raise refused(answer.status_code, answer.text, answer.headers.get("x-request-id", ""))
                yield from pieces(answer.iter_lines())
        except requests.RequestException as error:
            raise FlashboxError(
                "the stream from the gateway broke", str(error), "see `python ctl.py logs gateway`"
            ) from None


def pieces(lines: Iterator[bytes]) -> Iterator[Piece]:
    """Server-sent events of a chat stream; an end without `[DONE]` is a cut stream."""
    for line in lines:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        yield _piece(json.loads(data))
    raise FlashboxError("the answer was cut", "the stream ended without [DONE]", "see `python ctl.py logs`")


def _piece(event: dict[str, Any]) -> Piece:
    if "error" in event:
        raise FlashboxError(
            "the engine reported an error in the stream", str(event["error"]), "see `python ctl.py logs`"
        )
    choices, usage = event.get("choices") or [], event.get("usage") or {}
    text = "".join((choice.get("delta") or {}).get("content") or "" for choice in choices)
    return Piece(text, usage.get("completion_tokens"))


def refused(status: int, body: str, request_id: str) -> Refused:
    """The gateway's error object in words."""
    _, message = _error_in(body)
    return Refused(status, f"{message} (request {request_id})" if request_id else message)


def _error_in(body: str) -> tuple[str, str]:
    """Code and message of the error object; of anything else, its beginning."""
    try:
        error = json.loads(body)["error"]
        return str(error.get("code") or ""), str(error["message"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return "", body.strip()[:300] or "no body"
