"""Keys: shown once, kept as digests, published alone and judged first. Smoke: a key of its own, and none left."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from control.adapters import envoy, files
from control.commands import keys as keys_command
from control.commands import smoke
from control.core import keys, limits
from control.core.errors import FlashboxError
from control.steps import access, published
from control.steps.undo import surely
from tests.unit.world import Operator, event, gateway

STUB = ("up", "--profile", "stub")
AUTH = "run/envoy/dynamic/ecds_auth.yaml"


def _add(operator: Operator, name: str = "me") -> str:
    result = operator.types("keys", "add", name, "--owner", "tests")
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_a_key_is_shown_once_and_only_its_digest_is_kept(operator: Operator) -> None:
    operator.types("init", "--profile", "stub")
    key = _add(operator)
    digest = hashlib.sha256(key.encode()).hexdigest()
    assert digest in operator.text(AUTH)
    for path in operator.folder.rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes(), path
    assert key not in operator.types("keys", "list").output


def test_adding_a_key_replaces_the_key_files_and_nothing_else(operator: Operator) -> None:
    operator.types("init", "--profile", "stub")
    (operator.folder / "config/stack.yaml").write_text("gateway: {idle_timeout_s: 77}\n")
    before = {p: p.read_bytes() for p in operator.folder.rglob("*") if p.is_file()}
    _add(operator)
    changed = {str(p.relative_to(operator.folder)) for p, text in before.items() if p.read_bytes() != text}
    assert changed - {"run/.publish.lock"} == {AUTH, "secrets/api-keys.json"}


def test_the_key_file_keeps_mode_0600(operator: Operator) -> None:
    operator.types("init", "--profile", "stub")
    _add(operator)
    mode = stat.S_IMODE((operator.folder / "secrets/api-keys.json").stat().st_mode)
    assert mode == 0o600


def test_a_revoked_key_is_gone_from_the_gateways_file(operator: Operator) -> None:
    operator.types("init", "--profile", "stub")
    digest = hashlib.sha256(_add(operator).encode()).hexdigest()
    assert operator.types("keys", "revoke", "me").exit_code == 0
    assert digest not in operator.text(AUTH)
    assert json.loads(operator.types("keys", "list", "--json").stdout) == []


def test_a_key_may_end_and_may_be_for_one_model(operator: Operator) -> None:
    operator.types("init", "--profile", "stub")
    words = ("--owner", "tests", "--expires", "2030-01-31", "--model", "deepseek-v4-flash")
    assert operator.types("keys", "add", "me", *words).exit_code == 0
    (listed,) = json.loads(operator.types("keys", "list", "--json").stdout)
    assert (listed["expires"], listed["expired"]) == ("2030-01-31T23:59:59Z", False)
    assert listed["models"] == ["deepseek-v4-flash"]
    assert 'expires = 1896134399, models = "deepseek-v4-flash"' in operator.text(AUTH)
    assert "2030-01-31T23:59:59Z" in operator.types("keys", "list").stdout


def test_limits_of_a_key_are_in_the_gateways_file_at_once_and_default_gives_them_back(operator: Operator) -> None:
    operator.types("init", "--profile", "stub")
    _add(operator)
    before = operator.text(AUTH)
    assert operator.types("keys", "limits", "me", "--rps", "3", "--rpm", "0").exit_code == 0
    assert 'limits = LIMITS["3/0"]' in operator.text(AUTH)
    assert operator.types("keys", "limits", "me", "--rps", "default", "--rpm", "default").exit_code == 0
    assert operator.text(AUTH) == before


BUDGETS = "run/budget/limits.json"


def test_a_budget_of_a_key_is_in_the_budget_services_file_at_once_and_default_gives_it_back(operator: Operator) -> None:
    operator.types("init", "--profile", "stub")
    _add(operator)
    before = operator.text(BUDGETS), operator.text(AUTH)
    assert operator.types("keys", "limits", "me", "--tpm", "6000", "--streams", "0").exit_code == 0
    assert json.loads(operator.text(BUDGETS))["keys"] == {"me": {"tpm": 6000, "streams": 0}}
    (listed,) = json.loads(operator.types("keys", "list", "--json").stdout)
    assert (listed["tpm"], listed["streams"], listed["requests_per_second"]) == (6000, 0, None)
    row = next(line for line in operator.types("keys", "list").stdout.splitlines() if line.startswith("me "))
    assert row.split()[-4:] == ["policy", "policy", "6000", "none"]
    assert operator.types("keys", "limits", "me", "--tpm", "default", "--streams", "default").exit_code == 0
    assert (operator.text(BUDGETS), operator.text(AUTH)) == before


def test_limits_are_published_before_the_table_that_makes_the_gateway_ask_for_them(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.types("init", "--profile", "stub")
    seen: list[str] = []
    publish = files.publish

    def noted(path: Path, text: str, *rest: Any) -> None:
        seen.append(path.name)
        publish(path, text, *rest)

    monkeypatch.setattr(files, "publish", noted)
    for words in ("add me --owner tests --tpm 5", "limits me --tpm 0 --streams 0", "limits me --tpm 7", "revoke me"):
        seen.clear()
        assert operator.types("keys", *words.split()).exit_code == 0
        assert [name for name in seen if name in ("limits.json", "ecds_auth.yaml")] == ["limits.json", "ecds_auth.yaml"]


def test_a_new_key_may_have_limits_of_its_own_from_the_start(operator: Operator) -> None:
    operator.types("init", "--profile", "stub")
    words = ("--owner", "tests", "--rps", "3", "--tpm", "500", "--streams", "2")
    assert operator.types("keys", "add", "me", *words).exit_code == 0
    (listed,) = json.loads(operator.types("keys", "list", "--json").stdout)
    told = [listed[name] for name in ("requests_per_second", "requests_per_minute", "tpm", "streams")]
    assert told == [3, None, 500, 2]
    assert json.loads(operator.text(BUDGETS))["keys"] == {"me": {"tpm": 500, "streams": 2}}


def test_each_limit_of_a_key_has_an_option_and_each_option_a_limit() -> None:
    assert list(keys_command.LIMITS) == list(keys.OPTIONS)
    assert list(keys.OPTIONS.values()) == list(limits.OF_A_KEY)


def test_a_rotated_key_shows_the_new_one_once_and_the_old_one_counts_on(operator: Operator) -> None:
    operator.types("init", "--profile", "stub")
    old = _add(operator)
    result = operator.types("keys", "rotate", "me")
    new = result.stdout.strip()
    assert result.exit_code == 0 and new.startswith("fb-") and new != old
    digests = [hashlib.sha256(key.encode()).hexdigest() for key in (old, new)]
    assert [operator.text(AUTH).count(digest) for digest in digests] == [1, 1]
    (listed,) = json.loads(operator.types("keys", "list", "--json").stdout)
    assert listed["key_id"] == digests[1][:12] and listed["former"][0]["key_id"] == digests[0][:12]
    assert "me (former)" in operator.types("keys", "list").stdout
    assert operator.types("keys", "rotate", "me", "--keep", "0").exit_code == 0
    assert not any(digest in operator.text(AUTH) for digest in digests)


def test_what_envoy_refuses_changes_neither_file(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    operator.types("init", "--profile", "stub")
    before = operator.text(AUTH), operator.text("secrets/api-keys.json")

    def refuse(files: object) -> None:
        raise FlashboxError("ecds_auth.yaml: Envoy refuses it", "a reason")

    monkeypatch.setattr(envoy, "validate", refuse)
    result = operator.types("keys", "add", "me", "--owner", "tests")
    assert result.exit_code == 1
    assert "fb-" not in result.output
    assert (operator.text(AUTH), operator.text("secrets/api-keys.json")) == before


def test_a_key_added_before_anything_is_rendered_counts_from_the_first_up(operator: Operator) -> None:
    result = operator.types("keys", "add", "early", "--owner", "tests")
    assert result.exit_code == 0
    assert "next `python ctl.py up`" in result.stderr
    operator.types(*STUB)
    assert hashlib.sha256(result.stdout.strip().encode()).hexdigest() in operator.text(AUTH)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("keys", "add", "me", "--owner", "again"), "exists"),
        (("keys", "revoke", "mee"), "did you mean me?"),
        (("keys", "add", "a b", "--owner", "x"), "name:"),
        (("keys", "add", "ok", "--owner", 'quo"te'), "owner:"),
        (("keys", "add", "ok"), "--owner"),
        (("keys", "add", "ok", "--owner", "x", "--expires", "2020-01-01"), "--expires: expected a time to come"),
        (("keys", "add", "ok", "--owner", "x", "--model", "gpt"), "--model gpt: not served here"),
        (("keys", "limits", "me"), "expected --rps N or --rpm N or --tpm N or --streams N, found none"),
        (("keys", "limits", "me", "--rps", "-1"), "--rps: expected a number"),
        (("keys", "limits", "me", "--tpm", "1e6"), "--tpm: expected a number from 1 to 1000000000"),
        (("keys", "limits", "me", "--streams", "many"), "--streams: expected a number"),
        (("keys", "add", "ok", "--owner", "x", "--streams", "-1"), "--streams: expected a number"),
        (("keys", "limits", "mee", "--rps", "1"), "did you mean me?"),
        (("keys", "rotate", "mee"), "did you mean me?"),
        (("keys", "rotate", "me", "--keep", "1"), "--keep: expected a time such as"),
    ],
)
def test_bad_names_are_refused_with_the_reason(operator: Operator, words: tuple[str, ...], expected: str) -> None:
    operator.types("init", "--profile", "stub")
    _add(operator)
    result = operator.types(*words)
    assert result.exit_code == 2
    assert expected in result.stderr


def test_smoke_prints_the_answer_and_leaves_no_key(operator: Operator) -> None:
    operator.types(*STUB)
    before = operator.types("keys", "list", "--json").stdout
    result = operator.types("smoke")
    assert result.exit_code == 0, result.output
    assert result.stdout == "Hello there\n"
    assert "7 tokens" in result.stderr
    assert operator.types("keys", "list", "--json").stdout == before
    asked = operator.world.asked[0]  # type: ignore[attr-defined]
    assert asked["headers"]["Authorization"].startswith("Bearer fb-")
    assert asked["body"]["model"] == "deepseek-v4-flash" and asked["body"]["stream"] is True


def test_smoke_uses_the_operators_own_key(operator: Operator) -> None:
    operator.types(*STUB)
    operator.environ["FLASHBOX_API_KEY"] = "fb-mine"
    operator.types("smoke")
    assert operator.world.asked[0]["headers"]["Authorization"] == "Bearer fb-mine"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("answer", "status", "expected"),
    [
        ([b'{"error": {"message": "no replica is ready"}}'], 503, "no replica is ready (request req-1)"),
        ([event("Hel")], 200, "without [DONE]"),
        ([b'data: {"error": {"message": "engine died"}}\n\n'], 200, "engine died"),
        ([b"<html>not ours</html>"], 502, "not ours"),
    ],
)
def test_smoke_tells_what_went_wrong_and_still_leaves_no_key(
    operator: Operator, answer: list[bytes], status: int, expected: str
) -> None:
    operator.types(*STUB)
    with gateway(answer, status) as (address, _):
        operator.world.address = address
        result = operator.types("smoke")
    assert result.exit_code == 1
    assert expected in result.stderr
    assert json.loads(operator.types("keys", "list", "--json").stdout) == []


def test_smoke_without_a_gateway_says_up(operator: Operator) -> None:
    operator.types("init", "--profile", "stub")
    result = operator.types("smoke")
    assert result.exit_code == 1
    assert "python ctl.py up" in result.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
@pytest.mark.parametrize("moment", ["stored", "asked"])
def test_a_smoke_that_is_ended_by_a_signal_leaves_no_key(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, number: int, code: int, moment: str
) -> None:
    operator.types(*STUB)

    def ended(*_: object) -> None:
        assert len(json.loads(operator.text("secrets/api-keys.json"))["keys"]) == 1
        os.kill(os.getpid(), number)

    if moment == "stored":
        monkeypatch.setattr(access, "_await_accepted", ended)
    else:
        monkeypatch.setattr(smoke, "_stream", ended)
    result = operator.types("smoke")
    assert result.exit_code == code, result.output
    assert json.loads(operator.types("keys", "list", "--json").stdout) == []
    assert '"keys": []' in operator.text("secrets/api-keys.json")


def test_a_signal_in_the_middle_of_putting_things_back_does_not_stop_it() -> None:
    done: list[int] = []

    def action() -> None:
        done.append(1)
        if len(done) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        surely(action)
    assert len(done) == 2


def test_a_lost_list_of_keys_is_not_replaced_by_an_empty_one(operator: Operator) -> None:
    operator.types("up", "--profile", "stub")
    assert operator.types("keys", "add", "one", "--owner", "me").exit_code == 0
    auth = "run/envoy/dynamic/ecds_auth.yaml"
    before = operator.text(auth)
    (operator.folder / "secrets/api-keys.json").unlink()
    for words in (
        ("init",), ("render",), ("up", "--profile", "stub"), ("keys", "add", "two", "--owner", "me"),
    ):  # fmt: skip
        result = operator.types(*words)
        assert result.exit_code == 3, (words, result.output)
        assert "secrets/api-keys.json is missing" in result.stderr and f"rm {auth}" in result.stderr
    assert operator.text(auth) == before
    assert not (operator.folder / "secrets/api-keys.json").exists()
    (operator.folder / auth).unlink()
    assert operator.types("init", "--profile", "stub").exit_code == 0


def test_a_missing_list_is_made_when_the_gateway_lists_no_key(operator: Operator) -> None:
    operator.types("init", "--profile", "stub")
    (operator.folder / "secrets/api-keys.json").unlink()
    assert operator.types("init", "--profile", "stub").exit_code == 0
    assert (operator.folder / "secrets/api-keys.json").exists()


NO_REPLICA = b'{"error": {"message": "no replica is ready", "code": "no_replica"}}'
BAD_KEY = b'{"error": {"message": "unknown key", "code": "invalid_api_key"}}'


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ((503, NO_REPLICA), ("the gateway answered 503", "503 no_replica: no replica is ready")),
        ((401, BAD_KEY), ("does not accept a new key", "401 invalid_api_key: unknown key")),
        ((502, b"<html>"), ("the gateway answered 502", "<html>")),
    ],
)
def test_smoke_says_what_the_gateway_answered_last_to_its_new_key(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, models: tuple[int, bytes], expected: tuple[str, ...]
) -> None:
    operator.types(*STUB)
    monkeypatch.setattr(access, "TAKEN_UP_S", 0.1)
    with gateway(models=models) as (address, _):
        operator.world.address = address
        result = operator.types("smoke")
    assert result.exit_code == 1
    assert all(words in result.stderr for words in expected), result.stderr
    assert json.loads(operator.types("keys", "list", "--json").stdout) == []


@pytest.mark.parametrize("key", ["fb-mine\n", "fb mine", "fb-schlüssel", " ", "fb-\x7f"])
def test_a_key_of_the_environment_that_cannot_be_sent_is_a_usage_error_that_names_the_variable(
    operator: Operator, key: str
) -> None:
    operator.types(*STUB)
    operator.environ["FLASHBOX_API_KEY"] = key
    result = operator.types("smoke")
    assert result.exit_code == 2
    assert "FLASHBOX_API_KEY" in result.stderr and "mine" not in result.stderr


def test_a_refused_key_of_the_environment_is_told_with_where_it_came_from(operator: Operator) -> None:
    operator.types(*STUB)
    operator.environ["FLASHBOX_API_KEY"] = "fb-mine"
    with gateway([BAD_KEY], 401) as (address, _):
        operator.world.address = address
        result = operator.types("smoke")
    assert result.exit_code == 1
    assert "unknown key" in result.stderr and "FLASHBOX_API_KEY" in result.stderr
    assert "fb-mine" not in result.stderr


@pytest.mark.parametrize("inside", ["no file\n", "0" * 64 + "\n"])
def test_a_gateway_that_sees_another_folder_fails_the_change_and_says_restart(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    operator.types(*STUB)
    _add(operator)
    monkeypatch.setattr(published, "SEEN_S", 0.0)
    operator.world.old_mount = inside
    added = operator.types("keys", "add", "other", "--owner", "tests")
    revoked = operator.types("keys", "revoke", "me")
    for result in (added, revoked, operator.types("smoke")):
        assert result.exit_code == 1
        assert "does not see the published keys" in result.stderr
        assert "python ctl.py restart gateway" in result.stderr
    assert added.stdout.startswith("fb-"), "the key is stored, so it is shown all the same"
    assert [key["name"] for key in json.loads(operator.types("keys", "list", "--json").stdout)] == ["other"]


def test_a_change_of_keys_waits_for_a_mount_that_shows_it_late(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.types(*STUB)
    monkeypatch.setattr(published, "LOOK_EVERY_S", 0.0)
    seen = iter([False, False, True])
    monkeypatch.setattr(published, "gateway_sees", lambda _: next(seen))
    _add(operator)
    assert next(seen, None) is None


def test_whether_a_gateway_sees_the_keys_is_unknown_when_none_runs(operator: Operator) -> None:
    operator.types(*STUB)
    control = operator.world.control
    assert control is not None and published.gateway_sees(control) is True
    operator.world.status["gateway"] = "exited"
    assert published.gateway_sees(control) is None
