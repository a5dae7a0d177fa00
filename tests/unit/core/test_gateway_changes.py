"""What `gateway apply` makes of a difference."""

from __future__ import annotations

from control.core import gateway_changes as changes
from control.core.endpoints import EDS_PATH
from control.core.envoy_versions import ENTRY_PATH

LDS = "run/envoy/dynamic/lds.yaml"
RULES, LIMITS = "run/policy/rules.json", "run/budget/limits.json"
ENV = "FB_GATEWAY_PORT=8000\nFB_POLICY_IMAGE=p:1\nFB_POLICY_MEMORY_MIB=992\nFB_BUDGET_ADDRESS=a\nFB_STUB_IMAGE=a\n"
BEFORE = {
    ".env": ENV,
    LDS: "a: 1\n",
    RULES: "{}",
    LIMITS: "{}",
    EDS_PATH: "a: 1\n",
    ENTRY_PATH: "{}",
    changes.BOOTSTRAP_PATH: "a: 1\n",
    "run/engines.yaml": "a: 1\n",
}


def found(**after: str) -> changes.Changes:
    return changes.changes({**BEFORE, **{_PATHS[name]: text for name, text in after.items()}}, BEFORE)


_PATHS = {"env": ".env", "lds": LDS, "rules": RULES, "limits": LIMITS, "eds": EDS_PATH, "entry": ENTRY_PATH}
_PATHS |= {"bootstrap": changes.BOOTSTRAP_PATH, "engines": "run/engines.yaml"}


def test_nothing_differs_when_nothing_changed() -> None:
    seen = found()
    assert (seen.files, seen.container, seen.beside, seen.others, seen.diff) == ({}, (), (), (), "")


def test_watched_files_are_live_and_those_of_the_start_are_not() -> None:
    seen = found(lds="a: 2\n", rules="{1}", limits="{1}", entry="{2}", bootstrap="a: 3\n")
    assert set(seen.live) == {LDS, RULES, LIMITS}
    assert set(seen.start) == {ENTRY_PATH, changes.BOOTSTRAP_PATH}
    assert "-a: 1" in seen.diff and "+a: 2" in seen.diff


def test_endpoints_belong_to_others_and_are_left_alone() -> None:
    assert found(eds="a: 2\n").files == {}


def test_what_is_made_into_the_container_is_named_by_its_setting() -> None:
    seen = found(env=ENV.replace("8000", "9000"))
    assert (seen.container, seen.beside) == (("gateway.port: 8000 -> 9000",), ())


def test_the_policy_service_is_made_anew_for_its_memory_and_the_engines_are_not_the_gateways() -> None:
    seen = found(env=ENV.replace("992", "2000").replace("STUB_IMAGE=a", "STUB_IMAGE=b"), engines="a: 2\n")
    assert (seen.container, seen.beside, seen.others) == ((), ("policy",), ("run/engines.yaml",))


def test_both_services_beside_the_gateway_are_made_anew_for_their_image() -> None:
    assert found(env=ENV.replace("p:1", "p:2")).beside == ("policy", "budget")
    assert found(env=ENV.replace("ADDRESS=a", "ADDRESS=b")).beside == ("budget",)


def test_a_difference_shows_ids_instead_of_digests_and_no_private_key() -> None:
    digest = "0123456789ab" + "c" * 52
    pem = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"
    seen = found(lds=f'["{digest}"] = {{}}\n{pem}\n').diff
    assert "0123456789ab..." in seen and digest not in seen and "MHcCAQEE" not in seen


def test_an_envoy_that_was_started_with_other_files_is_told_by_their_digests() -> None:
    state: dict[str, object] = {
        "entry": changes.sha256(BEFORE[ENTRY_PATH]),
        "bootstrap": changes.sha256(BEFORE[changes.BOOTSTRAP_PATH]),
    }
    assert changes.started_with(state, BEFORE)
    assert not changes.started_with({**state, "bootstrap": "0"}, BEFORE)
