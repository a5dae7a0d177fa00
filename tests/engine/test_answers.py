"""Every recorded request, put to real vLLM now and to the stand-in: both must answer alike, field by field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.contract.stub.recordings import Pair, differences, pairs
from tests.engine.conftest import COMPARED, Started
from tests.engine.real import SERVERS

PAIRS = {pair.id: pair for pair in pairs() if pair.server in SERVERS}
_HERE = Path(__file__)
# Pairs that the stand-in answers otherwise than the recording, each with a reason.
_STUB = _HERE.parents[1] / "contract/stub/not_yet.yaml"
KNOWN: dict[str, str] = {
    **(yaml.safe_load(_STUB.read_text(encoding="utf-8")) or {}),
    **(yaml.safe_load(_HERE.with_name("known.yaml").read_text(encoding="utf-8")) or {}),
}


def put(server: object, pair: Pair) -> tuple[int, dict[str, str], str]:
    status, headers, answer = server.request(pair.method, pair.path, pair.body, pair.request_headers)  # type: ignore[attr-defined]
    found = {name.lower(): value for name, value in headers.items()}
    return status, {name: value for name, value in found.items() if name in pair.headers}, answer.decode()


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_the_stand_in_answers_as_real_vllm_does_now(
    pair: Pair, real_servers: Started, stand_in_servers: Started
) -> None:
    status, headers, answer = put(real_servers(pair.server), pair)
    live = replace(pair, status=status, headers=headers, answer=answer)
    seen = differences(live, *put(stand_in_servers(pair.server), pair))
    COMPARED[f"pairs of server {pair.server}: stand-in against real vLLM"] += 1
    if pair.id in KNOWN and seen:
        COMPARED[f"pairs of server {pair.server}: known to differ, with a reason"] += 1
        return
    assert not seen, "\n".join(seen)


def test_every_known_difference_names_a_pair_and_gives_a_reason() -> None:
    names = yaml.safe_load(_HERE.with_name("known.yaml").read_text(encoding="utf-8")) or {}
    assert [name for name, reason in names.items() if name not in PAIRS or not reason] == []
