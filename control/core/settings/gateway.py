"""Settings of the gateway. What is null here is the policy's (config/policies)."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from control.core import limits
from control.core.settings.base import Seconds, Section

POLICIES = ("standard", "strict", "off")
# YAML reads the word off as false.
_Off = BeforeValidator(lambda value: "off" if value is False else value)
PolicyName = Annotated[Literal["standard", "strict", "off"], _Off]
Count = Annotated[int, Field(ge=0, le=limits.MOST)]
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?")
# Labels of letters, digits and hyphens; the first may be *.
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"({_LABEL}|\*(?=\.))(\.{_LABEL})*")


def _is_origin(value: str) -> str:
    if value != "*" and not _ORIGIN.fullmatch(value):
        raise ValueError("expected scheme and host without a path, such as https://chat.example.com, or *")
    return value


def _is_network(value: str) -> str:
    try:
        network = ipaddress.ip_network(value)
    except ValueError:
        raise ValueError("expected a network such as 10.0.0.0/8 or one address") from None
    if network.prefixlen == 0:  # then every client could choose its own address
        raise ValueError("expected the networks of proxies, not every address")
    return str(network)


def _is_host(value: str) -> str:
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        if len(value) > 253 or not _HOST.fullmatch(value):
            raise ValueError("expected a host name such as llm.example.com, or an address") from None
    return value


class Limits(Section):
    """How much one caller may ask. null: the policy's; 0: no limit. Keys may have their own (`keys limits`)."""

    requests_per_second: Count | None = Field(None, description="Requests per second of one key.")
    requests_per_minute: Count | None = Field(None, description="Requests per minute of one key, in any minute.")
    ip_requests_per_second: Count | None = Field(None, description="Requests per second of one client address.")
    ip_requests_per_minute: Count | None = Field(None, description="Requests per minute of one client address.")
    tokens_per_minute: Annotated[int, Field(ge=0, le=limits.MOST_TOKENS)] | None = Field(
        None, description="Tokens per minute of one key, prompt and answer, counted when they were used."
    )
    streams: Annotated[int, Field(ge=0, le=limits.MOST_STREAMS)] | None = Field(
        None, description="Requests of one key at the same time, streams or not."
    )


class Tls(Section):
    """HTTPS on the public port; HTTP/1.1 and HTTP/2 both."""

    mode: Annotated[Literal["off", "self_signed", "files"], _Off] = Field(
        "off", description="off: plain HTTP; self_signed: a certificate of its own, for trial; files: the two below."
    )
    certificate: str = Field("", description="PEM file on the host: the certificate and its chain (mode files).")
    key: str = Field("", description="PEM file on the host: its private key, without a passphrase (mode files).")
    names: list[Annotated[str, AfterValidator(_is_host)]] = Field(
        ["localhost"], min_length=1, max_length=50, description="Host names and addresses of a self-signed certificate."
    )


class Cors(Section):
    """Web pages that may call the API from a browser."""

    origins: list[Annotated[str, AfterValidator(_is_origin)]] = Field(
        [], max_length=50, description="Such as https://chat.example.com; * lets every page in; empty: none."
    )


class Gateway(Section):
    """Envoy, the only door."""

    bind: str = Field("127.0.0.1", description="Host address of the public port; 0.0.0.0 opens it to the network.")
    port: int = Field(8000, ge=0, le=65_535, description="Public port on the host; 0 lets Docker choose a free one.")
    policy: PolicyName = Field(
        "standard", description="Rules for requests: standard (agents work), strict (tight bounds), off (shape only)."
    )
    mode: Literal["enforce", "observe"] = Field(
        "enforce", description="observe: count and log what the policy would refuse, and let it pass."
    )
    on_overflow: Literal["reject", "truncate"] = Field(
        "reject",
        description="A prompt longer than the context: the engine's 400, or drop the oldest turns until it fits.",
    )
    limits: Limits = Limits()
    affinity: Literal["none", "prefix", "session"] | None = Field(
        None,
        description="Turns of one conversation go to one replica, known by its beginning (prefix) or by the header "
        "x-session-id (session); null: prefix with two or more replicas.",
    )
    tls: Tls = Tls()
    cors: Cors = Cors()
    trusted_proxies: list[Annotated[str, AfterValidator(_is_network)]] = Field(
        [],
        max_length=100,
        description="CIDRs of proxies whose X-Forwarded-For counts; empty: the peer's address is the client's.",
    )
    drain_s: Seconds = Field(300.0, description="Longest wait for streams in flight when the gateway stops.")
    max_body_mib: int | None = Field(
        None, ge=1, le=1024, description="Largest request body; a larger one gets 413; null: the policy's."
    )
    route_timeout_s: float | None = Field(
        None, ge=0, le=86_400, description="Longest answer, streams included; 0: none; null: the policy's."
    )
    idle_timeout_s: Seconds | None = Field(
        None, description="A stream or connection without a byte for this long is closed; null: the policy's."
    )
    max_stream_s: Seconds | None = Field(
        None, description="Longest request, upload and stream included; null: the policy's."
    )
    max_connections: int = Field(5000, ge=1, le=2**31 - 1, description="Client connections at the same time.")
    max_requests: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description="Requests on the replicas at the same time; more get 503; null: the policy's.",
    )
    concurrency: int = Field(2, ge=1, le=256, description="Envoy worker threads.")
    memory_mib: int = Field(
        2048, ge=128, description="Memory limit of the gateway container, in MiB; at least 160 and one for two workers."
    )

    @field_validator("bind")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        return str(ipaddress.ip_address(value))
