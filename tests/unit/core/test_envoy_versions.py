"""A file's own version, and what Envoy's stats say of it."""

from __future__ import annotations

import json

import pytest

from control.core import envoy_versions as versions
from control.core import policies
from control.core.envoy_versions import Held
from control.core.header import HEADER
from control.core.model import Plan
from control.core.rendering import render
from control.core.settings import Settings
from tests.contract.gateway.harness import IMAGES
from tests.sources import SOURCES

TYPE = "type.googleapis.com/envoy."
RDS = versions.versioned(
    f'{HEADER}resources:\n  - {{"@type": {TYPE}config.route.v3.RouteConfiguration, name: public}}\n'
)


def stats(version: str, refused: int = 0, prefix: str = "http.ingress_http.rds.public") -> dict[str, Held]:
    return versions.in_force(
        f'{prefix}.version_text: "{version}"\n{prefix}.update_rejected: {refused}\nother.stat: 1\n'
    )


def test_equal_text_has_an_equal_version_and_other_text_another() -> None:
    assert versions.version(versions.versioned("a: 1\n")) == versions.version(versions.versioned(HEADER + "a: 1\n"))
    assert versions.version(versions.versioned("a: 1\n")) != versions.version(versions.versioned("a: 2\n"))
    assert versions.version("a: 1\n") is None


def test_a_version_of_digits_alone_is_still_text_for_yaml() -> None:
    assert 'version_info: "' in RDS


def test_a_file_is_taken_once_envoy_repeats_its_version() -> None:
    own = versions.version(RDS) or ""
    assert not versions.taken(RDS, stats("0000000000000000"))
    assert versions.taken(RDS, stats(own))
    assert not versions.taken(RDS, stats("", prefix="http.ingress_http.rds.public"))


def test_a_file_is_refused_when_the_count_rose_and_its_version_is_not_in_force() -> None:
    own = versions.version(RDS) or ""
    before = stats("0000000000000000", refused=2)
    assert not versions.refused(RDS, before, stats("0000000000000000", refused=2))
    assert versions.refused(RDS, before, stats("0000000000000000", refused=3))
    assert not versions.refused(RDS, before, stats(own, refused=3))  # an older one was refused, this one is in force


def test_what_belongs_to_another_resource_does_not_count() -> None:
    assert versions.held_of(RDS, stats("x", prefix="http.ingress_http.rds.publication")) == {}
    assert versions.held_of(RDS, stats("x", prefix="listener_manager.lds")) == {}


@pytest.mark.parametrize(
    ("resource", "prefix"),
    [
        (f'"@type": {TYPE}config.listener.v3.Listener, name: a', "listener_manager.lds"),
        (f'"@type": {TYPE}config.cluster.v3.Cluster, name: a', "cluster_manager.cds"),
        (f'"@type": {TYPE}config.endpoint.v3.ClusterLoadAssignment, cluster_name: vllm', "cluster.vllm"),
        (f'"@type": {TYPE}extensions.transport_sockets.tls.v3.Secret, name: upstream_key', "sds.upstream_key"),
        (
            f'"@type": {TYPE}config.core.v3.TypedExtensionConfig, name: flashbox.auth',
            "extension_config_discovery.http_filter.flashbox.auth",
        ),
    ],
)
def test_every_kind_of_file_is_found_in_the_stats(resource: str, prefix: str) -> None:
    text = versions.versioned(f"resources:\n  - {{{resource}}}\n")
    assert set(versions.held_of(text, stats("x", prefix=prefix))) == {prefix}


def test_every_file_that_envoy_watches_is_rendered_with_its_version_and_known_to_pid_1() -> None:
    files = render(Settings.model_validate({"engine": {"kind": "stub"}}), Plan("stub", (), "", ""), (), IMAGES, SOURCES)
    watched = {path: text for path, text in files.items() if path.startswith(versions.DYNAMIC)}
    assert len(watched) >= 6
    assert not [path for path, text in watched.items() if versions.version(text) is None]
    listed = json.loads(files[versions.ENTRY_PATH])["dynamic"]
    assert listed == sorted(path.removeprefix(versions.DYNAMIC) for path in watched)


def test_pid_1_is_told_the_longest_stream_of_the_policy_unless_a_setting_says_otherwise() -> None:
    for given, expected in ((None, 14_400.0), (99.0, 99.0)):
        settings = Settings.model_validate({"engine": {"kind": "stub"}, "gateway": {"max_stream_s": given}})
        rules = policies.govern(settings, Plan("stub", (), "", ""), policies.chosen(settings, SOURCES))
        assert json.loads(versions.entry_json(settings, rules, ()))["max_stream_s"] == expected
