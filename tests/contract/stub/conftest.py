"""Stand-ins for tests; each is ended with the test or module that started it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.stub.process import Stub

StartStub = Callable[..., Stub]


@pytest.fixture
def start_stub(tmp_path: Path) -> Iterator[StartStub]:
    """Start stand-ins with settings of the test's choice."""
    started: list[Stub] = []

    def start(wait: bool = True, **environment: object) -> Stub:
        variables = {name: str(value) for name, value in environment.items()}
        stub = Stub(tmp_path / f"stub-{len(started)}.log", variables, wait)
        started.append(stub)
        return stub

    yield start
    for stub in started:
        stub.close()


_TINY = {"STUB_MODEL": "tiny", "STUB_TOKENIZER": "bytes"}
_FAST = {"STUB_PREFILL_TOKENS_PER_S": "1e9", "STUB_DECODE_TOKENS_PER_S": "1e6"}
_PLAIN = {**_TINY, **_FAST, "STUB_MAX_MODEL_LEN": "1024", "STUB_MAX_NUM_SEQS": "2"}
_V4_FLAGS = "--enable-request-id-headers --enable-prompt-tokens-details --enable-server-load-tracking"
_V4 = {
    **_TINY, **_FAST, "STUB_MAX_MODEL_LEN": "2048", "STUB_MAX_NUM_SEQS": "4", "VLLM_API_KEY": "k-two",
    "STUB_MODE": "deepseek_v4", "STUB_FLAGS": _V4_FLAGS,
}  # fmt: skip
# The recorded servers, by their letters in the recordings.
SERVERS = {
    "C": _PLAIN,
    "D": _V4,
    "E": {**_PLAIN, "STUB_RELEASE": "0.32.0"},
    "F": {**_V4, "STUB_RELEASE": "0.32.0", "STUB_FLAGS": f"{_V4_FLAGS} --max-num-queued-reqs 6"},
    "G": {**_PLAIN, "STUB_RELEASE": "0.33.0"},
}
Servers = Callable[[str], Stub]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Stand-ins for the recorded servers, started when they are first asked for."""
    started: dict[str, Stub] = {}
    folder = tmp_path_factory.mktemp("stub")

    def server(letter: str) -> Stub:
        if letter not in started:
            started[letter] = Stub(folder / f"{letter}.log", SERVERS[letter])
        return started[letter]

    yield server
    for stub in started.values():
        stub.close()


@pytest.fixture(scope="session")
def recorded_server(servers: Servers) -> Stub:
    """A stand-in for the recorded server C: its model name, limits and tokenizer, at full speed."""
    return servers("C")


@pytest.fixture(scope="session")
def v4_server(servers: Servers) -> Stub:
    """A stand-in for the recorded server D: DeepSeek V4's prompts and parsers, and an API key."""
    return servers("D")
