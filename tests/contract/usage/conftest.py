"""A gateway in front of an engine that writes what a test says, and one in front of the stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.stub.process import Stub
from tests.contract.usage.gateway import Answer, Gateway
from tests.contract.usage.upstream import Upstream

_STUB = {
    "STUB_MODEL": "tiny",
    "STUB_TOKENIZER": "bytes",
    "STUB_PREFILL_TOKENS_PER_S": "1e9",
    "STUB_DECODE_TOKENS_PER_S": "2000",
    "STUB_MAX_NUM_SEQS": "16",
}


@dataclass
class Scripted:
    """The gateway, and the engine behind it."""

    gateway: Gateway
    upstream: Upstream

    def answer(self, pieces: list[bytes], strip: str) -> Answer:
        """What a client gets of these pieces."""
        self.upstream.set(pieces)
        return self.gateway.send("/", b"{}", self.gateway.headers(strip))


@contextmanager
def scripted_by(folder: Path) -> Iterator[Scripted]:
    """A gateway whose files are in this folder, and an engine that writes what it is told."""
    upstream = Upstream()
    gateway = Gateway(folder, upstream.port)
    yield Scripted(gateway, upstream)
    gateway.end()
    upstream.close()


@pytest.fixture(scope="package")
def _scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    with scripted_by(tmp_path_factory.mktemp("scripted")) as scripted:
        yield scripted


def _no_errors(gateway: Gateway) -> None:
    assert gateway.stat("http.ingress_http.lua.usage.errors") == 0
    assert "usage:" not in gateway.output.read_text()


@pytest.fixture
def scripted(_scripted: Scripted) -> Iterator[Scripted]:
    """An engine that writes what it is told."""
    yield _scripted
    _no_errors(_scripted.gateway)


@pytest.fixture(scope="package")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Stub]]:
    """Stand-ins for plain 0.26.0, for DeepSeek's parsers, and for 0.33.0."""
    folder = tmp_path_factory.mktemp("stubs")
    v4 = {"STUB_MODE": "deepseek_v4", "STUB_FLAGS": "--enable-prompt-tokens-details"}
    kinds = {"plain": _STUB, "v4": {**_STUB, **v4}, "0.33.0": {**_STUB, **v4, "STUB_RELEASE": "0.33.0"}}
    started = {name: Stub(folder / f"{name}.log", values) for name, values in kinds.items()}
    yield started
    for stub in started.values():
        stub.close()


@pytest.fixture(scope="package", params=["plain", "v4", "0.33.0"])
def _fronted(
    request: pytest.FixtureRequest, stubs: dict[str, Stub], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Gateway, Stub]]:
    stub = stubs[request.param]
    gateway = Gateway(tmp_path_factory.mktemp("fronted"), stub.port)
    yield gateway, stub
    gateway.end()


@pytest.fixture
def fronted(_fronted: tuple[Gateway, Stub]) -> Iterator[tuple[Gateway, Stub]]:
    """The stand-in behind the gateway."""
    yield _fronted
    _no_errors(_fronted[0])
