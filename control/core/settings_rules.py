"""Rules between settings: each is right alone, and together they contradict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from control.core.settings import Settings

# Two Envoys while one replaces the other, and PID 1: 55 MiB that both share, 19 each with 2 workers, 32 with 64
# (measured, Envoy 1.40), 20 for PID 1; the rest is room for streams.
_GATEWAY_AT_REST_MIB = 160
_WORKERS_OF_A_MIB = 2


@dataclass(frozen=True)
class Contradiction:
    """The setting to change, the settings that make it wrong, and what is wrong."""

    path: str
    because: tuple[str, ...]
    words: str

    def line(self, origins: Mapping[str, str], default: str) -> str:
        """`config/stack.yaml: gateway.tls.key: expected ...`: the nearest place that somebody wrote."""
        places = [origins.get(path, default) for path in (self.path, *self.because)]
        return f"{next((place for place in places if place != default), default)}: {self.path}: {self.words}"


def contradictions(settings: Settings) -> list[Contradiction]:
    """All of them."""
    return [found for rule in _RULES for found in rule(settings)]


def gateway_needs_mib(settings: Settings) -> int:
    """The least memory with which the gateway can be replaced while it runs."""
    return _GATEWAY_AT_REST_MIB + settings.gateway.concurrency // _WORKERS_OF_A_MIB


def _certificate(settings: Settings) -> Iterator[Contradiction]:
    tls = settings.gateway.tls
    if tls.mode != "files":
        return
    for name, value in (("certificate", tls.certificate), ("key", tls.key)):
        if not value.strip():
            words = f'expected the path of a PEM file, since gateway.tls.mode is files, found "{value}"'
            yield Contradiction(f"gateway.tls.{name}", ("gateway.tls.mode",), words)


def _memory(settings: Settings) -> Iterator[Contradiction]:
    needed, found = gateway_needs_mib(settings), settings.gateway.memory_mib
    if found < needed:
        workers = settings.gateway.concurrency
        words = f"expected at least {needed} with gateway.concurrency {workers}, found {found}"
        yield Contradiction("gateway.memory_mib", ("gateway.concurrency",), words)


_RULES: tuple[Callable[[Settings], Iterator[Contradiction]], ...] = (_certificate, _memory)
