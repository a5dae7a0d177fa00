"""Several large uploads at once: one after another, in their order, and small requests pass beside them."""

from __future__ import annotations

import threading

import grpc
import pytest
from policy.config import AT_REST_MIB

from tests.contract.policy.conftest import StartPolicy
from tests.contract.policy.envoy_side import Upload
from tests.contract.policy.process import MIB, Policy, rules
from tests.eventually import eventually

SMALL = b'{"model":"tiny","max_tokens":5}'
# Room for one body of the limit in each worker: what is at rest, small ones, and 9 times 8 MiB.
TIGHT = {"POLICY_MEMORY_MIB": AT_REST_MIB + 2 * 64 + 9 * 8}
LIMIT = 8 * MIB


def body_of(size: int) -> bytes:
    return b'{"model":"tiny","text":"' + b"a" * (size - 26) + b'"}'


@pytest.fixture
def tight(start_policy: StartPolicy) -> Policy:
    """A service with room for one large body at a time, when all is sent to one worker."""
    return start_policy(rules(max_body_bytes=LIMIT), **TIGHT)


def declared(size: int) -> dict[str, str]:
    return {"content-length": str(size)}


def begun(policy: Policy, size: int = LIMIT) -> Upload:
    """An upload that has its place: a few bytes of it are there."""
    upload = policy.caller().upload(declared(size))
    upload.send(body_of(size)[:100])
    eventually(lambda: policy.metric("policy_bytes_held") >= 100, 5)
    return upload


def waiting(policy: Policy, count: int) -> None:
    eventually(lambda: policy.metric("policy_bodies_waiting") == count, 5)


def test_uploads_wait_for_their_place_and_get_it_in_their_order(tight: Policy) -> None:
    caller = tight.caller()
    first = caller.upload(declared(LIMIT))
    first.send(b'{"model":"tiny","text":"' + b"a" * MIB)
    eventually(lambda: tight.metric("policy_bytes_held") > MIB, 5)
    later: list[Upload] = []
    for number in range(3):
        upload = caller.upload(declared(5 * MIB))
        upload.send(body_of(5 * MIB), last=True)
        later.append(upload)
        waiting(tight, number + 1)
    assert tight.metric("policy_bytes_held") < 2 * MIB, "what waits is not read"
    order: list[int] = []
    threads = [threading.Thread(target=lambda n=n: (later[n].wait(), order.append(n))) for n in range(3)]
    for thread in threads:
        thread.start()
    first.send(b'a"}', last=True)
    assert first.wait().status is None
    for thread in threads:
        thread.join(30)
    assert order == [0, 1, 2]
    assert all(upload.wait().body == body_of(5 * MIB) for upload in later)
    eventually(lambda: tight.metric("policy_bytes_held") == 0, 5)


def test_small_requests_pass_while_large_ones_wait(tight: Policy) -> None:
    caller = tight.caller()
    first, second = caller.upload(declared(LIMIT)), caller.upload(declared(LIMIT))
    waiting(tight, 1)
    assert all(caller.ask(SMALL).body == SMALL for _ in range(20))
    assert caller.ask(body_of(MIB - 1)).body == body_of(MIB - 1)
    first.leave()
    second.leave()


def test_an_upload_whose_client_leaves_frees_its_place(tight: Policy) -> None:
    caller = tight.caller()
    first = begun(tight)
    second = caller.upload(declared(LIMIT))
    waiting(tight, 1)
    third = caller.upload(declared(LIMIT))
    waiting(tight, 2)
    second.leave()
    waiting(tight, 1)
    first.leave()
    waiting(tight, 0)
    third.send(body_of(LIMIT), last=True)
    assert third.wait().body == body_of(LIMIT)


def test_a_slow_upload_gives_way_when_another_waits(tight: Policy) -> None:
    slow = begun(tight)
    quick = tight.caller().upload(declared(LIMIT))
    quick.send(body_of(LIMIT), last=True)
    assert quick.wait(30).body == body_of(LIMIT)
    heard = slow.wait()
    assert heard.status == 408 and heard.error["code"] == "upload_too_slow" and heard.set_headers["retry-after"]
    assert tight.metric("policy_uploads_evicted_total") == 1


def test_a_slow_upload_that_nobody_waits_for_is_left_alone(tight: Policy) -> None:
    slow = begun(tight)
    assert not threading.Event().wait(7), "longer than an upload may stand still when others wait"
    slow.send(body_of(LIMIT)[100:], last=True)
    assert slow.wait().body == body_of(LIMIT)


def test_a_wait_that_takes_too_long_is_a_503_with_retry_after(start_policy: StartPolicy) -> None:
    policy = start_policy(rules(max_body_bytes=LIMIT), POLICY_UPLOAD_WAIT_S=0.5, **TIGHT)
    first = begun(policy)
    heard = policy.caller().upload(declared(LIMIT)).wait()
    assert heard.status == 503 and heard.error["code"] == "over_capacity" and heard.set_headers["retry-after"] == "2"
    first.leave()


def test_a_body_that_grows_large_waits_like_one_that_said_so(tight: Policy) -> None:
    first = begun(tight)
    grown = tight.caller().upload()
    grown.send(body_of(3 * MIB), last=True)
    waiting(tight, 1)
    first.leave()
    assert grown.wait().body == body_of(3 * MIB)


def test_more_than_the_memory_allows_is_refused_whatever_the_rules_say(start_policy: StartPolicy) -> None:
    caller = start_policy(rules(max_body_bytes=250 * MIB), **TIGHT).caller()
    heard = caller.upload(declared(LIMIT + 1)).wait()
    assert heard.status == 413 and str(LIMIT) in heard.error["message"]


def test_a_body_whose_document_needs_more_than_its_share_is_a_413(tight: Policy) -> None:
    """Millions of small objects: eight bytes become some hundred."""
    body = b'{"model":"tiny","x":[' + b'{"a":1},' * ((LIMIT - 100) // 8) + b"1]}"
    caller = tight.caller()
    for _ in range(2):
        heard = caller.ask(body)
        assert heard.status in (400, 413) and heard.body
        assert caller.ask(body_of(5 * MIB)).body == body_of(5 * MIB), "another judge has taken over"
        assert caller.ask(body_of(5 * MIB)[:-1] + b',"max_tokens":9000}').error["param"] == "max_tokens"
        assert caller.ask(SMALL).body == SMALL


def test_a_cancelled_call_leaves_nothing_behind(policy: Policy) -> None:
    caller = policy.caller()
    for size in (1000, 3 * MIB):
        for _ in range(5):
            upload = caller.upload(declared(size))
            upload.send(body_of(size)[:500])
            upload.leave()
            with pytest.raises(grpc.RpcError):
                upload.wait()
    eventually(lambda: policy.metric("policy_bytes_held") == 0, 5)
    assert caller.ask(body_of(3 * MIB)).body == body_of(3 * MIB)
