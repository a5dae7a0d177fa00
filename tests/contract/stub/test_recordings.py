"""The stand-in answers every recorded request as the recorded server did."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.contract.stub.conftest import Servers
from tests.contract.stub.process import Stub
from tests.contract.stub.recordings import Pair, differences, pairs

NOT_YET: dict[str, str] = yaml.safe_load(Path(__file__).with_name("not_yet.yaml").read_text()) or {}
PAIRS = {pair.id: pair for pair in pairs()}


def seen_differences(stub: Stub, pair: Pair) -> list[str]:
    status, headers, answer = stub.request(pair.method, pair.path, pair.body, pair.request_headers)
    return differences(pair, status, {name.lower(): value for name, value in headers.items()}, answer.decode())


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_a_recorded_request_gets_the_recorded_answer(pair: Pair, servers: Servers) -> None:
    seen = seen_differences(servers(pair.server), pair)
    if pair.id in NOT_YET:
        assert seen, f"{pair.id} matches now: take it out of not_yet.yaml"
    else:
        assert not seen, "\n".join(seen)


def test_every_entry_of_the_not_yet_table_names_a_recorded_pair_and_gives_a_reason() -> None:
    assert [name for name, reason in NOT_YET.items() if name not in PAIRS or not reason] == []


def test_the_pairs_of_three_releases_are_compared() -> None:
    counts = {letter: sum(pair.server == letter for pair in PAIRS.values()) for letter in "CDEFG"}
    assert (counts["C"], counts["D"]) == (254, 254)
    assert all(counts[letter] > 10 for letter in "EFG")
