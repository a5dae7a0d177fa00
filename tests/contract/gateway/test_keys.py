"""Clients' keys: digests, live changes, and a broken file that changes nothing."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.contract.gateway.harness import KEY, MESSAGES, SOON_S, Gateway, api_key
from tests.eventually import eventually
from tests.load import Load, Target

# SHA-256 pads to blocks of 64 bytes: 55, 56 and 64 are where a wrong padding shows.
AGES = (("past", 2020), ("future", 2100))
LENGTHS = (1, 3, 31, 32, 43, 54, 55, 56, 57, 63, 64, 65, 119, 120, 128, 200, 256)


def target(gateway: Gateway, key: str = KEY) -> Target:
    return Target(f"http://127.0.0.1:{gateway.port}/v1", key)


def test_keys_of_every_length_are_told_apart(gateway: Gateway) -> None:
    good = [("key-" + "Az09-_.~" * 40)[:length] for length in LENGTHS]
    gateway.publish_keys(*(api_key(key) for key in good))
    eventually(lambda: gateway.complete(key=good[0]).status == 200, SOON_S)
    assert {key: gateway.complete(key=key).status for key in good} == dict.fromkeys(good, 200)
    near = [key[:-1] + "!" for key in good] + [key + "!" for key in good if len(key) < 256]
    assert {key: gateway.complete(key=key).status for key in near} == dict.fromkeys(near, 401)


@pytest.mark.parametrize("spelling", ["Bearer", "bearer", "BEARER"])
def test_the_word_bearer_is_not_case_sensitive(shared: Gateway, spelling: str) -> None:
    assert shared.complete(key="", headers={"authorization": f"{spelling} {KEY}"}).status == 200


def test_no_keys_at_all_means_nobody_gets_in(gateway: Gateway) -> None:
    gateway.publish_keys()
    eventually(lambda: gateway.complete().status == 401, SOON_S)


def test_keys_come_and_go_live_and_no_stream_is_cut(gateway: Gateway) -> None:
    with Load(target(gateway), streams=20, tokens=150, rate=30) as load:
        load.wait_until_streaming()
        gateway.publish_keys(api_key(KEY), api_key("fb-bobs-key", "bob"))
        eventually(lambda: gateway.complete(key="fb-bobs-key").status == 200, SOON_S)
        load.stop_sending()
        load.wait_until_answered()
        gateway.publish_keys(api_key("fb-bobs-key", "bob"))  # alice's streams were admitted and may end
        eventually(lambda: gateway.complete().status == 401, SOON_S)
        assert gateway.complete(key="fb-bobs-key").status == 200
    assert load.outcomes.streams == {"ok": 20}
    assert set(load.outcomes.requests) == {"ok"}


@pytest.mark.parametrize("broken", ["not: [yaml", "resources: 7\n", "            local KEYS = {"])
def test_a_broken_file_is_refused_and_the_last_good_keys_hold(gateway: Gateway, broken: str) -> None:
    good = gateway.rendered()["ecds_auth.yaml"]
    text = good.replace("local KEYS = {", "local KEYS = {{{") if "KEYS" in broken else broken
    warned = len(gateway.lines("envoy"))
    gateway.publish("ecds_auth.yaml", text)
    eventually(lambda: len(gateway.lines("envoy")) > warned, SOON_S)  # Envoy says why it refuses
    assert gateway.complete().status == 200
    assert gateway.complete(key="wrong").status == 401
    gateway.publish_keys(api_key("fb-next"))  # and the next good file is taken
    eventually(lambda: gateway.complete(key="fb-next").status == 200, SOON_S)


def test_an_edit_in_place_is_not_read_so_that_no_half_file_ever_counts(gateway: Gateway) -> None:
    path = gateway.dynamic / "ecds_auth.yaml"
    path.write_text("half a fi")
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        assert gateway.complete().status == 200


def test_an_expired_key_is_told_so_and_the_others_are_not(gateway: Gateway) -> None:
    past, future = (replace(api_key(name, name), expires=f"{year}-01-31T09:00:00Z") for name, year in AGES)
    gateway.publish_keys(past, future, api_key(KEY))
    eventually(lambda: gateway.complete(key="future").status == 200, SOON_S)
    answer = gateway.complete(key="past")
    assert answer.status == 401
    assert (answer.error["type"], answer.error["code"]) == ("authentication_error", "expired_api_key")
    assert "expired at 2020-01-31 09:00:00 UTC" in answer.error["message"]
    error = gateway.ask("POST", MESSAGES, {}, key="past").messages_error
    assert error["type"] == "authentication_error" and "expired" in error["message"]


def test_a_key_expires_without_a_push(gateway: Gateway) -> None:
    soon = time.gmtime(time.time() + 2)
    key = replace(api_key("short", "short"), expires=time.strftime("%Y-%m-%dT%H:%M:%SZ", soon))
    gateway.publish_keys(key)
    eventually(lambda: gateway.complete().status == 401, SOON_S)  # taken: the key before is gone
    eventually(lambda: gateway.complete(key="short").status == 401, SOON_S)
    assert gateway.complete(key="short").error["code"] == "expired_api_key"


def test_the_log_knows_the_key_by_name_and_id_also_when_it_expired(gateway: Gateway) -> None:
    known, past = api_key("known", "known"), replace(api_key("past", "past"), expires="2020-01-31T09:00:00Z")
    gateway.publish_keys(known, past)
    eventually(lambda: gateway.complete(key="known").status == 200, SOON_S)
    asked = {key.name: gateway.complete(key=key.name).headers["x-request-id"] for key in (known, past)}

    def logged(name: str) -> dict[str, object] | None:
        return next((line for line in gateway.lines("access") if line["request_id"] == asked[name]), None)

    for key, result in ((known, "ok"), (past, "expired_api_key")):
        line = eventually(lambda key=key: logged(key.name), SOON_S)  # type: ignore[misc]
        assert line is not None
        assert (line["auth"], line["key_id"]) == (result, key.key_id)
