"""What comes in goes out byte for byte, or is refused with an error that names the field."""

from __future__ import annotations

import gzip
import json
import random
import zlib

import grpc
import pytest
import zstandard

from tests.contract.policy.conftest import StartPolicy
from tests.contract.policy.process import CHAT, MESSAGES, MIB, Policy, rules

SMALL = b'{"model": "tiny",\t"max_tokens":5 , "x":[ 1,2 ]}\n'


def chat(size: int) -> bytes:
    """A body of exactly this many bytes, with text that is not just ASCII."""
    start, end = '{"model":"tiny","text":"ж', '\\u0416"}'
    room = size - len(start.encode()) - len(end)
    text = "".join(random.Random(size).choices("abcdefgh ", k=min(room, 5000)))
    return (start + (text * (room // len(text) + 1))[:room] + end).encode()


@pytest.mark.parametrize("size", [60, 1000, 65_535, 65_536, 65_537, MIB - 1, MIB, MIB + 1, 5 * MIB])
@pytest.mark.parametrize("piece", [16_384, 65_536, 1_000_003])
def test_a_body_arrives_byte_for_byte(policy: Policy, size: int, piece: int) -> None:
    body = chat(size)
    assert len(body) == size
    heard = policy.caller().ask(body, headers={"content-length": str(size)}, piece=piece)
    assert heard.status is None and heard.body == body and heard.ended
    assert heard.set_headers == {} and heard.removed == []


@pytest.mark.parametrize("size", [1000, 3 * MIB])
def test_a_body_without_a_declared_length_arrives_too(policy: Policy, size: int) -> None:
    assert policy.caller().ask(chat(size)).body == chat(size)


def test_a_body_in_single_bytes_arrives(policy: Policy) -> None:
    assert policy.caller().ask(SMALL, piece=1).body == SMALL


def test_trailers_follow_the_body(policy: Policy) -> None:
    heard = policy.caller().ask(SMALL, trailers=True)
    assert heard.body == SMALL and heard.trailers and not heard.ended


def test_the_gateway_is_told_the_facts_of_the_request(policy: Policy) -> None:
    heard = policy.caller().ask(b'{"model":"tiny","max_tokens":7,"stream":true}')
    wanted = {"model": "tiny", "max_tokens": 7, "stream": True, "verdict": "ok", "truncated_turns": 0}
    assert heard.facts == wanted


def test_a_refusal_names_the_field_and_carries_the_request_id(policy: Policy) -> None:
    heard = policy.caller().ask(b'{"model":"tiny","max_tokens":9000}')
    assert heard.status == 400 and heard.error["param"] == "max_tokens" and heard.error["request_id"] == "req-1"
    assert heard.error["type"] == "invalid_request_error"
    assert heard.set_headers == {"content-type": "application/json"}
    assert heard.facts["verdict"] == "refused" and heard.facts["param"] == "max_tokens"
    assert heard.details.startswith("policy_refused_")


def test_a_large_body_is_refused_like_a_small_one(policy: Policy) -> None:
    body = chat(3 * MIB)[:-1] + b',"max_tokens":9000}'
    heard = policy.caller().ask(body)
    assert heard.status == 400 and heard.error["param"] == "max_tokens" and heard.facts["max_tokens"] == 9000


def test_messages_are_refused_in_anthropics_form(policy: Policy) -> None:
    heard = policy.caller().ask(b'{"model":"tiny","max_tokens":9000}', path=f"{MESSAGES}?beta=true")
    assert heard.status == 400
    said = json.loads(heard.body)
    assert said["type"] == "error" and said["error"]["type"] == "invalid_request_error"
    assert said["request_id"] == "req-1"


@pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b'{"model":"tiny"}x', b"\xff\xfe"])
def test_an_empty_or_broken_body_is_a_400(policy: Policy, body: bytes | None) -> None:
    heard = policy.caller().ask(body)
    assert heard.status == 400 and heard.error["message"]


def test_a_model_that_the_key_may_not_ask_for_is_refused(policy: Policy) -> None:
    ask = policy.caller().ask
    assert ask(SMALL, models="").status is None
    assert ask(SMALL, models="other,tiny").status is None
    assert ask(SMALL, models="other").status in (403, 404)


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_types_are_judged(policy: Policy, kind: str) -> None:
    assert policy.caller().ask(SMALL, headers={"content-type": kind}).body == SMALL
    assert policy.caller().ask(b"{", headers={"content-type": kind}).status == 400


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_other_types_are_refused_as_the_engine_refuses_them(policy: Policy, kind: str) -> None:
    heard = policy.caller().ask(SMALL, headers={"content-type": kind})
    assert heard.status == 400 and "application/json" in heard.error["message"]


def test_a_call_that_stops_before_the_body_is_whole_does_not_end_well(policy: Policy) -> None:
    """Envoy might let a request go on when the service says nothing and all is fine."""
    upload = policy.caller().upload()
    upload.send(SMALL)
    upload.close()
    with pytest.raises(grpc.RpcError) as failed:
        upload.wait()
    assert failed.value.code() == grpc.StatusCode.CANCELLED


# ---- compressed


PACKERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
    " GZIP": gzip.compress,
}


@pytest.mark.parametrize("encoding", sorted(PACKERS))
@pytest.mark.parametrize("size", [100, 3 * MIB])
def test_a_compressed_body_is_opened_and_the_headers_say_so(policy: Policy, encoding: str, size: int) -> None:
    packed = PACKERS[encoding](chat(size))
    sent = {"content-encoding": encoding, "content-length": str(len(packed))}
    heard = policy.caller().ask(packed, headers=sent, piece=1000)
    assert heard.status is None and heard.body == chat(size)
    assert heard.removed == ["content-encoding"] and heard.set_headers == {"content-length": str(size)}


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_what_is_compressed_is_judged(policy: Policy, encoding: str) -> None:
    packed = PACKERS[encoding](b'{"model":"tiny","max_tokens":9000}')
    heard = policy.caller().ask(packed, headers={"content-encoding": encoding})
    assert heard.status == 400 and heard.error["param"] == "max_tokens"


def test_identity_is_no_encoding(policy: Policy) -> None:
    heard = policy.caller().ask(SMALL, headers={"content-encoding": "identity"})
    assert heard.body == SMALL and heard.removed == []


@pytest.mark.parametrize("encoding", ["br", "compress", "gzip, gzip", "nonsense"])
def test_an_unknown_encoding_is_a_415_that_names_the_known_ones(policy: Policy, encoding: str) -> None:
    heard = policy.caller().ask(SMALL, headers={"content-encoding": encoding})
    assert heard.status == 415 and heard.error["code"] == "unsupported_encoding"
    assert "gzip, deflate, zstd" in heard.error["message"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("damage", ["cut", "other"])
def test_a_damaged_encoding_is_a_400(policy: Policy, encoding: str, damage: str) -> None:
    packed = PACKERS[encoding](chat(5000))[:-5] if damage == "cut" else SMALL
    heard = policy.caller().ask(packed, headers={"content-encoding": encoding})
    assert heard.status == 400 and heard.error["code"] == "invalid_encoding"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_bomb_is_a_413_and_leaves_nothing_behind(policy: Policy, encoding: str) -> None:
    bomb = PACKERS[encoding](b'{"model":"' + b"a" * (400 * MIB) + b'"}')
    assert len(bomb) < MIB
    heard = policy.caller().ask(bomb, headers={"content-encoding": encoding})
    assert heard.status == 413 and heard.error["code"] == "request_too_large"
    assert policy.caller().ask(SMALL).body == SMALL


# ---- the limit


def test_the_limit_is_right_to_the_byte(start_policy: StartPolicy) -> None:
    caller = start_policy(rules(max_body_bytes=2 * MIB)).caller()
    assert caller.ask(chat(2 * MIB)).body == chat(2 * MIB)
    for declared in ({}, {"content-length": str(2 * MIB + 1)}):
        heard = caller.ask(chat(2 * MIB + 1), headers=declared)
        assert heard.status == 413 and str(2 * MIB) in heard.error["message"]


# ---- observe


def test_observe_lets_through_and_says_what_would_have_been_refused(start_policy: StartPolicy) -> None:
    service = start_policy(rules(mode="observe"))
    for body in (b'{"model":"tiny","max_tokens":9000}', b"{", b"", chat(2 * MIB)[:-1] + b',"max_tokens":9000}'):
        heard = service.caller().ask(body)
        assert heard.status is None and heard.body == body and heard.ended
        assert heard.facts["verdict"] == "would_refuse" and heard.facts["rule"]
    assert service.caller().ask(SMALL).facts["verdict"] == "ok"
    assert service.caller().ask(None).status is None
    assert service.metric("policy_requests_total", verdict="would_refuse", route=CHAT) == 5
    assert service.metric("policy_requests_total", verdict="refused") == 0


def test_observe_still_keeps_keys_to_their_models(start_policy: StartPolicy) -> None:
    service = start_policy(rules(mode="observe"))
    assert service.caller().ask(SMALL, models="other").status in (403, 404)
