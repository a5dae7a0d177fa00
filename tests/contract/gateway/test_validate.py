"""The real Envoy judges every file, and a refusal names the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from control.adapters.envoy import packaged_binary, validate
from control.core.errors import FlashboxError
from tests.contract.gateway.harness import Gateway, api_key, gateway_settings

# file, what is replaced, by what, words that the refusal must have. One at least for each kind of mistake.
BROKEN = [
    ("bootstrap.yaml", "refresh_interval: 0.25s", "refresh_interval: soon", "overload_manager.refresh_interval"),
    ("bootstrap.yaml", "layered_runtime:", "layerd_runtime:", "layerd_runtime"),
    ("bootstrap.yaml", "dynamic/lds.yaml", "dynamic/other.yaml", "other.yaml"),
    ("cds.yaml", "connect_timeout: 0.25s", "connect_timeout: -1s", "duration"),
    ("cds.yaml", "type: EDS", "type: EDSS", "EDSS"),
    ("cds.yaml", "outlier_detection:", "outlier_detectoin:", "outlier_detectoin"),
    ("cds.yaml", "maglev.v3.Maglev", "maglev.v3.Magleff", "Magleff"),
    ("cds.yaml", "hash_balance_factor: 1", "hash_balance_factor: -1", "hash_balance_factor"),
    ("cds.yaml", "max_retries: 20000", "max_tries: 20000", "max_tries"),
    ("eds.yaml", "port_value: 9100", "port_value: 910000", "65535"),
    ("eds.yaml", "address: 172", "address: host-172", "host-172"),
    ("eds.yaml", "health_check_config", "health_check_conf", "health_check_conf"),
    ("sds.yaml", "generic_secret", "genric_secret", "genric_secret"),
    ("sds.yaml", "secret: {filename", "secret: {filname", "filname"),
    ("lds.yaml", "codec_type: AUTO", "codec_type: AUTOMATIC", "AUTOMATIC"),
    ("lds.yaml", "normalize_path: true", "normalise_path: true", "normalise_path"),
    ("lds.yaml", "response.code == 404", "response.code === 404", "Syntax error"),
    ("lds.yaml", "%PATH(NQ)%", "%PAHT(NQ)%", "PAHT"),
    ("lds.yaml", "apply_on_stream_done: true", "apply_on_stream_end: true", "apply_on_stream_end"),
    ("lds.yaml", "function envoy_on_response", "funktion envoy_on_response", "script load error"),
    ("lds.yaml", "max_request_bytes: 33554432", "max_request_bytes: -1", "max_request_bytes"),
    ("ecds_auth.yaml", "local bit = require", "locl bit = require", "script load error"),
    ("ecds_auth.yaml", "stat_prefix: auth", "stats_prefix: auth", "stats_prefix"),
    ("ecds_limit_ip_second.yaml", "masked_remote_address: {v4", "masked_address: {v4", "masked_address"),
    ("ecds_limit_ip_minute.yaml", "v4_prefix_mask_len: 32", "v4_prefix_mask_len: 33", "32"),
    ("ecds_limit_key_second.yaml", "fill_interval: 1.000s", "fill_interval: 0.010s", "50ms"),
    ("ecds_limit_key_minute.yaml", "hits_addend: {format:", "hits_added: {format:", "hits_added"),
    ("ecds_limit_key_minute.yaml", 'value: "9"', 'value: "8"', "duplicate descriptor"),
    ("rds.yaml", "num_retries: 3", "num_retries: three", "num_retries"),
    ("rds.yaml", "cluster: vllm", "cluster: motor", "motor"),
    ("rds.yaml", "hash_policy: [{header:", "hash_policy: [{heeder:", "heeder"),
    ("rds.yaml", "match: {path:", "match: {paht:", "paht"),
    ("rds.yaml", "denominator: HUNDRED", "denominator: DOZEN", "DOZEN"),
]
LIMITS = ("requests_per_second", "requests_per_minute", "ip_requests_per_second", "ip_requests_per_minute")
# Files that do not fit together: Envoy would wait for ever for what is not there.
MISFITS = [
    ("ecds_auth.yaml", "lua.v3.Lua", "lua.v3.Lau", "lds.yaml"),
    ("cds.yaml", "service_name: vllm", "service_name: motor", "eds.yaml"),
    ("eds.yaml", "cluster_name: vllm", "cluster_name: motor", "cds.yaml"),
    ("sds.yaml", "name: upstream_key", "name: other_key", "lds.yaml"),
    ("lds.yaml", "route_config_name: public", "route_config_name: pubic", "rds.yaml"),
    ("lds.yaml", "- name: flashbox.auth", "- name: flashbox.author", "ecds_auth.yaml"),
    ("ecds_limit_ip_second.yaml", "limit_ip_second\n    typed", "limit_ip\n    typed", "lds.yaml"),
    (
        "lds.yaml",
        "type_urls: [type.googleapis.com/envoy.extensions.filters.http.lua",
        "type_urls: [x",
        "ecds_auth.yaml",
    ),
]


def rendered(tmp_path: Path, **settings: object) -> dict[str, str]:
    """The files of a real installation: nothing of this machine is in them."""
    gateway = Gateway(tmp_path, gateway_settings(**settings), api_keys=(api_key("a"), api_key("b", "b")))
    return {f"run/envoy/{name}": text for name, text in gateway.product().items()}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "max_body_mib": 1024,
            "idle_timeout_s": 0.001,
            "max_stream_s": 86_400,
            "max_connections": 1,
            "max_requests": 1,
        },
        {"trusted_proxies": ["10.0.0.0/8", "2001:db8::/32", "192.168.0.1"], "mode": "observe"},
        {"limits": dict.fromkeys(LIMITS, 30_000), "policy": "strict"},
        {"limits": dict.fromkeys(LIMITS, 1), "policy": "off"},
        *({"affinity": how} for how in ("none", "prefix", "session")),
        {"memory_mib": 128, "idle_timeout_s": 86_400, "max_stream_s": 0.001},
        {"memory_mib": 10_000_000, "max_requests": 2**31 - 1, "max_connections": 2**31 - 1},
    ],
)
def test_what_is_rendered_from_any_settings_is_accepted(tmp_path: Path, settings: dict[str, object]) -> None:
    validate(rendered(tmp_path, **settings))


def test_no_keys_and_ten_thousand_keys_are_accepted(tmp_path: Path) -> None:
    for count in (0, 10_000):
        keys = (replace(api_key(f"key-{n}", f"n{n}"), requests_per_minute=n % 9_999) for n in range(count))
        gateway = Gateway(tmp_path, api_keys=tuple(keys))
        validate(gateway.product())


@pytest.mark.parametrize(("name", "old", "new", "words"), BROKEN)
def test_a_broken_file_is_refused_by_name_with_envoys_own_words(
    tmp_path: Path, name: str, old: str, new: str, words: str
) -> None:
    files = rendered(tmp_path)
    (path,) = [path for path in files if path.endswith(f"/{name}")]
    assert old in files[path], f"{name} has no {old!r}"
    with pytest.raises(FlashboxError) as refusal:
        validate({**files, path: files[path].replace(old, new)})
    said = f"{refusal.value.what}\n{refusal.value.why}"
    assert said.startswith(name), said
    assert words in said
    assert len(said) < 2000, "a sentence, not the whole configuration"


@pytest.mark.parametrize(("name", "old", "new", "other"), MISFITS)
def test_files_that_do_not_fit_together_are_refused_by_both_names(
    tmp_path: Path, name: str, old: str, new: str, other: str
) -> None:
    files = rendered(tmp_path)
    (path,) = [path for path in files if path.endswith(f"/{name}")]
    assert old in files[path], f"{name} has no {old!r}"
    with pytest.raises(FlashboxError) as refusal:
        validate({**files, path: files[path].replace(old, new)})
    assert name in refusal.value.what and other in refusal.value.what


def test_a_binary_that_is_not_there_is_said_and_judges_nothing(tmp_path: Path) -> None:
    with pytest.raises(FlashboxError, match="cannot be checked"):
        validate(rendered(tmp_path), tmp_path / "no-envoy")
    assert packaged_binary().is_file()
