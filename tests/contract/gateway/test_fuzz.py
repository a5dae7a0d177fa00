"""Bodies of all kinds against a live gateway: no 5xx, no crash, and exactly the verdicts of the pure rules."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from policy.judge import Rules
from policy.onward import AS_IT_IS, Wishes, plan

from tests.contract.gateway.harness import KEY, Answer, Gateway, answer_of
from tests.contract.gateway.judged import judged
from tests.counts import counts
from tests.fuzz_bodies import bodies

TIMES = counts(1_000, 20_000)
SEED = int(os.environ.get("FLASHBOX_SEED", "5"))
THREADS = 4


class Caller(threading.local):
    """One connection a thread, kept as long as the gateway keeps it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connection: http.client.HTTPConnection | None = None

    def ask(self, path: str, body: bytes) -> Answer:
        """One request; a kept connection may have been closed meanwhile, which is no answer: then once more."""
        for fresh in (False, True):
            if fresh or self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                self.connection.request("POST", path, body, {"authorization": f"Bearer {KEY}"})
                response = self.connection.getresponse()
                answer = answer_of(response)
            except (ConnectionError, http.client.HTTPException):
                if fresh:
                    raise
                continue
            if response.will_close:
                self.connection = None
            return answer
        raise AssertionError("unreachable")


@pytest.fixture(scope="module", params=["standard", "strict"])
def fuzzed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    limits = {name: 0 for name in ("requests_per_second", "requests_per_minute")}
    limits |= {f"ip_{name}": 0 for name in limits}
    with judged(
        tmp_path_factory.mktemp(request.param), policy=request.param, limits=limits, max_body_mib=32
    ) as gateway:
        gateway.replicas[0].answer_plainly()
        yield gateway


@pytest.mark.timeout(3000)
def test_what_passes_the_gateway_the_pure_rules_accept_and_the_other_way_round(fuzzed: Gateway) -> None:
    rules, caller = Rules.parse(json.dumps(fuzzed.policy_rules()).encode()), Caller(fuzzed.port)
    workers = fuzzed.policy.workers() if fuzzed.policy else {}

    def check(case: tuple[str, bytes]) -> tuple[int, str]:
        path, body = case
        verdict, answer = rules.judge(path, body), caller.ask(path, body)
        refused = verdict.violation
        expected = 200 if refused is None else refused.status
        assert answer.status == expected, (path, body[:2000], refused, answer)
        assert answer.status < 500
        change = AS_IT_IS if refused else plan(Wishes(usage=True), path, body, verdict.document)
        sent = body[: change.at] + change.added.encode() + body[change.at :]
        return answer.status, hashlib.sha256(sent).hexdigest()

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(check, bodies(SEED, TIMES)))
    statuses = Counter(status for status, _ in answers)
    assert statuses[200] > TIMES // 20 and statuses[400] > TIMES // 20, statuses  # both were tried
    # What reached the replica is what was sent, byte for byte, with what the service adds in it, and nothing else.
    passed = Counter(digest for status, digest in answers if status == 200)
    reached = Counter(str(seen["sha256"]) for seen in fuzzed.replicas[0].requests if seen["method"] == "POST")
    assert reached == passed
    assert fuzzed.policy is not None and fuzzed.policy.workers() == workers  # nothing crashed
    assert fuzzed.stat("server.live") == 1
