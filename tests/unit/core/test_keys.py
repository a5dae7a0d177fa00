from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.core import key_file, key_list, keys, moments
from control.core.errors import UsageError
from control.core.model import ApiKey, FormerDigest

CREATED = "2026-01-31T09:00:00Z"
NOW = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)
DIGEST = "0a" * 32
ONE = ApiKey("laptop", "Ana", keys.digest("fb-one"), CREATED)
TWO = ApiKey("ci", "平台组 (R&D), O.K.", keys.digest("fb-two"), CREATED)
FULL = replace(
    TWO,
    expires="2027-01-31T23:59:59Z",
    models=("a/b", "c"),
    requests_per_second=0,
    requests_per_minute=30_000,
    tpm=6000,
    streams=0,
    former=(FormerDigest("0b" * 32, "2026-06-02T12:00:00Z"),),
)


def complaints(text: str) -> list[str]:
    with pytest.raises(UsageError) as caught:
        key_file.parse(text, "secrets/api-keys.json")
    return caught.value.what.split("\n")


def entry(**changes: object) -> dict[str, object]:
    return {"name": "a", "owner": "b", "digest": DIGEST, "created": CREATED, **changes}


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_a_key_is_one_header_word_and_differs_when_the_bytes_do(one: bytes, two: bytes) -> None:
    key = keys.new_key(one)
    assert key.startswith("fb-") and key.isascii() and len(key) == 46
    assert all(c.isalnum() or c in "-_" for c in key)
    assert (key == keys.new_key(two)) == (one == two)


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_too_few_random_bytes_make_no_key(size: int) -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        keys.new_key(bytes(size))


def test_a_digest_is_sha256_in_hex() -> None:
    assert keys.digest("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_what_is_written_is_read_back() -> None:
    assert key_file.parse(key_file.dump([ONE, FULL])) == (ONE, FULL)
    assert key_file.parse(key_file.dump([])) == ()


def test_a_file_from_before_keys_had_rights_is_read_and_written_as_it_was() -> None:
    text = json.dumps({"keys": [entry()]}, indent=2) + "\n"
    (key,) = key_file.parse(text)
    assert (key.expires, key.models, key.requests_per_second, key.requests_per_minute, key.former) == (
        *(None, (), None, None, ()),
    )
    assert key_file.dump([key]) == text


def test_the_file_holds_the_digest_and_never_the_key() -> None:
    key = keys.new_key(bytes(range(32)))
    text = key_file.dump(keys.add((), "a", "b", key, CREATED))
    assert key not in text
    assert hashlib.sha256(key.encode()).hexdigest() in text


def test_adding_keeps_the_others_and_revoking_takes_one() -> None:
    both = keys.add((ONE,), "ci", "x", "fb-x", CREATED)
    assert both[0] == ONE and both[1].name == "ci" and both[1].digest == keys.digest("fb-x")
    assert keys.revoke(both, "ci") == (ONE,)


def test_a_name_that_is_taken_is_refused_with_its_owner_and_the_way_out() -> None:
    with pytest.raises(UsageError) as caught:
        keys.add((ONE,), "laptop", "Bo", "fb-x", CREATED)
    assert caught.value.what == f"name: a key named laptop exists (owner Ana, created {CREATED})"
    assert "keys revoke laptop" in caught.value.fix


def test_revoking_a_name_that_is_none_names_the_likely_one() -> None:
    with pytest.raises(UsageError, match=r"latpop: no key has this name \(did you mean laptop\?\)"):
        keys.revoke((ONE, TWO), "latpop")


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n", 'a"b', "é", "x" * 65, "../a"])
def test_a_name_that_a_log_or_a_shell_would_break_on_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="name: expected up to 64"):
        keys.add((), name, "b", "fb-x", CREATED)


@pytest.mark.parametrize("owner", ["", "  ", 'a"b', "a'b", "a\\b", "a\nb", "a\x1b[0m", "x" * 129, "<b>"])
def test_an_owner_that_needs_escaping_is_refused(owner: str) -> None:
    with pytest.raises(UsageError, match="owner: expected up to 128"):
        keys.add((), "a", owner, "fb-x", CREATED)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'expected {"keys": [...]}, found an empty file'),
        ("{", "expected JSON, found something else (line 1: "),
        ("[" * 100_000, "expected JSON, found something else"),
        ("[]", 'expected {"keys": [...]}, found a list'),
        ('{"key": []}', 'expected {"keys": [...]}, found a mapping of key'),
        ('{"keys": {}}', 'expected {"keys": [...]}'),
        ("k\x00", "this file is UTF-16"),
    ],
)
def test_a_file_that_is_none_of_ours_is_told_and_never_taken_for_no_keys(text: str, words: str) -> None:
    (line,) = complaints(text)
    assert line.startswith(f"secrets/api-keys.json: {words}")


def test_everything_wrong_in_the_file_is_told_at_once_with_its_place() -> None:
    wrong = [
        entry(),
        entry(name="c d", created="yesterday"),
        entry(owner=3),
        entry(nmae="x"),
        {"name": "z"},
        "text",
        entry(digest="fb-secret-key-that-was-pasted"),
    ]
    found = complaints(json.dumps({"keys": wrong}))
    assert 'secrets/api-keys.json: keys[1].name: expected up to 64 letters, digits, dots, - and _, found "c d"' in found
    assert any(".created: expected a UTC time" in line for line in found)
    assert "secrets/api-keys.json: keys[2].owner: expected text, found a single value" in found
    assert "secrets/api-keys.json: keys[3].nmae: unknown field (did you mean name?)" in found
    assert sum(line.startswith("secrets/api-keys.json: keys[4].") and line.endswith("missing") for line in found) == 3
    assert any(line.startswith("secrets/api-keys.json: keys[5]: expected a mapping") for line in found)
    assert "secrets/api-keys.json: keys[6].digest: expected 64 hexadecimal digits, found text of 29 characters" in found
    assert not any("pasted" in line for line in found)


def test_a_name_or_digest_twice_is_told() -> None:
    found = complaints(json.dumps({"keys": [entry(), entry(), entry(name="other", digest="0b" * 32)]}))
    assert found == [
        "secrets/api-keys.json: keys[0], keys[1]: the same name a; keep one",
        "secrets/api-keys.json: keys[0], keys[1]: the same digest; keep one",
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"expires": "2026-02-30T00:00:00Z"}, ".expires: expected a UTC time such as"),
        ({"expires": "2027-01-31"}, ".expires: expected a UTC time such as"),
        ({"expires": 5}, ".expires: expected text, found a single value"),
        ({"created": "2026-13-01T00:00:00Z"}, ".created: expected a UTC time such as"),
        ({"models": "a"}, ".models: expected a list of names, found a single value"),
        ({"models": ["a,b"]}, '.models: expected the `model` that clients name, found "a,b"'),
        ({"models": ["m"] * 51}, ".models: expected up to 50, found 51"),
        ({"requests_per_second": True}, ".requests_per_second: expected an integer, found a single value"),
        ({"requests_per_second": 1.0}, ".requests_per_second: expected an integer, found a single value"),
        ({"requests_per_minute": -1}, ".requests_per_minute: expected an integer from 0 to 30000, found -1"),
        ({"requests_per_minute": 30_001}, ".requests_per_minute: expected an integer from 0 to 30000, found 30001"),
        ({"tpm": -1}, ".tpm: expected an integer from 0 to 1000000000, found -1"),
        ({"tpm": "6000"}, ".tpm: expected an integer, found a single value"),
        ({"streams": 100_001}, ".streams: expected an integer from 0 to 100000, found 100001"),
        ({"streams": True}, ".streams: expected an integer, found a single value"),
        ({"stream": 1}, ".stream: unknown field (did you mean streams?)"),
        ({"expire": None}, ".expire: unknown field (did you mean expires?)"),
        ({"former": {}}, ".former: expected a list of mappings of digest, expires, found a mapping of nothing"),
        ({"former": [{"digest": DIGEST}]}, ".former: expected a list of mappings of digest, expires, found a list"),
        ({"former": [{"digest": "fb-pasted", "expires": CREATED}]},
         ".former[0].digest: expected 64 hexadecimal digits, found text of 9 characters"),
        ({"former": [{"digest": "0c" * 32, "expires": "soon"}]}, ".former[0].expires: expected a UTC time"),
        ({"former": [{"digest": DIGEST, "expires": CREATED}]}, ": the same digest; keep one"),
    ],
)  # fmt: skip
def test_rights_that_cannot_be_meant_are_told(changes: dict[str, object], line: str) -> None:
    (found,) = complaints(json.dumps({"keys": [entry(**changes)]}))
    assert found.startswith(f"secrets/api-keys.json: keys[0]{line}")
    assert "pasted" not in found


def test_a_former_digest_that_is_another_keys_is_told() -> None:
    thief = entry(name="other", digest="0b" * 32, former=[{"digest": DIGEST, "expires": CREATED}])
    assert complaints(json.dumps({"keys": [entry(), thief]})) == [
        "secrets/api-keys.json: keys[0], keys[1]: the same digest; keep one"
    ]


# ---- rights


def test_a_new_key_has_the_rights_it_was_given_each_model_once() -> None:
    rights = keys.Rights("2027-01-31T23:59:59Z", ("m", "n", "m"))
    (key,) = keys.add((), "a", "b", "fb-x", CREATED, rights)
    assert (key.expires, key.models) == ("2027-01-31T23:59:59Z", ("m", "n"))
    with pytest.raises(UsageError, match="models: expected"):
        keys.add((), "a", "b", "fb-x", CREATED, keys.Rights(models=("a b",)))


def test_a_model_that_is_not_served_is_refused_with_the_likely_one() -> None:
    keys.require_served((), ["deepseek-v4-flash"])
    keys.require_served(["deepseek-v4-flash"], ["deepseek-v4-flash"])
    with pytest.raises(UsageError, match=r"--model deepseek: not served here \(did you mean deepseek-v4-flash\?\)"):
        keys.require_served(["deepseek"], ["deepseek-v4-flash"])


def test_limits_change_alone_and_none_gives_them_back() -> None:
    changed = keys.limit((ONE, TWO), "ci", {"requests_per_second": 5})
    assert changed == (ONE, replace(TWO, requests_per_second=5))
    assert keys.limit(changed, "ci", {"requests_per_second": None, "requests_per_minute": 0}) == (
        *(ONE, replace(TWO, requests_per_minute=0)),
    )
    with pytest.raises(UsageError, match="requests_per_minute: expected an integer from 0 to 30000, found 30001"):
        keys.limit((ONE,), "laptop", {"requests_per_minute": 30_001})
    with pytest.raises(UsageError, match=r"labtop: no key has this name \(did you mean laptop\?\)"):
        keys.limit((ONE,), "labtop", {"requests_per_minute": 1})


@pytest.mark.parametrize(("words", "limit"), [("0", 0), ("20", 20), ("30000", 30_000), ("default", None)])
def test_a_limit_is_typed_as_a_number_or_as_default(words: str, limit: int | None) -> None:
    assert keys.limit_of(words, "--rps") == limit


def test_each_option_has_its_own_largest_limit_and_what_was_not_typed_is_left_alone() -> None:
    typed = {"rps": "30000", "rpm": None, "tpm": "1000000000", "streams": "default"}
    assert keys.limits_of(typed) == {"requests_per_second": 30_000, "tpm": 1_000_000_000, "streams": None}
    for option, over in {"rps": 30_001, "rpm": 30_001, "tpm": 1_000_000_001, "streams": 100_001}.items():
        with pytest.raises(UsageError, match=f"--{option}: expected a number from 1 to {over - 1}, 0 for no limit"):
            keys.limits_of({option: str(over)})
    with pytest.raises(UsageError, match="expected --rps N or --rpm N or --tpm N or --streams N, found none"):
        keys.limits_of(dict.fromkeys(typed))


@pytest.mark.parametrize("words", ["", "-1", "1.5", "30001", "many", "²", "1 ", "9" * 5000])
def test_a_limit_that_is_neither_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match=r"--rps: expected a number from 1 to 30000, 0 for no limit, or default"):
        keys.limit_of(words, "--rps")


# ---- rotation


def test_a_rotated_key_has_a_new_digest_and_the_old_one_ends_later() -> None:
    given = replace(ONE, models=("m",), requests_per_second=3, expires="2027-01-01T00:00:00Z")
    (new, other) = keys.rotate((given, TWO), "laptop", "fb-new", NOW, DAY)
    assert other == TWO
    assert new.digest == keys.digest("fb-new") and new.created == moments.text(NOW)
    assert new.former == (FormerDigest(ONE.digest, "2026-06-02T12:00:00Z"),)
    assert replace(new, digest=ONE.digest, created=CREATED, former=()) == given


def test_a_rotation_that_keeps_nothing_ends_every_old_digest_at_once() -> None:
    (new,) = keys.rotate(keys.rotate((ONE,), "laptop", "fb-2", NOW, DAY), "laptop", "fb-3", NOW, timedelta())
    assert new.former == () and new.digest == keys.digest("fb-3")


def test_an_old_digest_never_lives_longer_than_its_key_would_have() -> None:
    (new,) = keys.rotate((replace(ONE, expires="2026-06-01T13:00:00Z"),), "laptop", "fb-new", NOW, DAY)
    assert new.former[0].expires == new.expires == "2026-06-01T13:00:00Z"


def test_several_rotations_keep_each_digest_until_its_own_end_and_no_longer() -> None:
    twice = keys.rotate(keys.rotate((ONE,), "laptop", "fb-2", NOW, DAY), "laptop", "fb-3", NOW + DAY / 2, DAY)
    assert [old.expires for old in twice[0].former] == ["2026-06-02T12:00:00Z", "2026-06-03T00:00:00Z"]
    (later,) = keys.rotate(twice, "laptop", "fb-4", NOW + DAY, DAY)
    assert [old.digest for old in later.former] == [keys.digest("fb-2"), keys.digest("fb-3")]


def test_an_expired_key_is_not_rotated() -> None:
    with pytest.raises(UsageError, match="laptop: this key expired at 2026-06-01T12:00:00Z"):
        keys.rotate((replace(ONE, expires="2026-06-01T12:00:00Z"),), "laptop", "fb-new", NOW, DAY)


def test_a_revoked_key_takes_its_former_digests_along() -> None:
    assert keys.revoke(keys.rotate((ONE,), "laptop", "fb-2", NOW, DAY), "laptop") == ()


# ---- what a list shows


def test_a_list_shows_both_digests_of_a_rotated_key_and_which_are_over() -> None:
    known = (ONE, FULL, replace(ONE, name="old", expires=CREATED, requests_per_second=2))
    laptop, ci, former, old = key_list.rows(known, NOW)
    assert laptop[4:] == ("never", "all", "policy", "policy", "policy", "policy")
    assert ci[4:] == ("2027-01-31T23:59:59Z", "a/b, c", "none", "30000", "6000", "none")
    assert (former[0], former[2], former[4]) == ("ci (former)", "0b" * 6, "2026-06-02T12:00:00Z")
    assert old[4] == f"expired {CREATED}" and old[6] == "2"
    assert all(len(row) == len(key_list.COLUMNS) for row in (laptop, ci, former, old))


def test_the_data_of_a_list_holds_no_whole_digest() -> None:
    (found,) = key_list.data((FULL,), NOW + 2 * DAY)
    assert FULL.digest not in json.dumps(found) and "0b" * 32 not in json.dumps(found)
    assert found["former"] == [{"key_id": "0b" * 6, "expires": "2026-06-02T12:00:00Z", "expired": True}]
    assert (found["expired"], found["models"], found["requests_per_second"]) == (False, ["a/b", "c"], 0)
    assert (found["requests_per_minute"], found["tpm"], found["streams"]) == (30_000, 6000, 0)
