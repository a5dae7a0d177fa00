"""The certificate that `render` puts where the gateway reads it."""

from __future__ import annotations

import json
import os
import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from control.adapters.certificates import self_signed
from tests.unit.world import Operator

STUB = ("--profile", "stub")
SELF_SIGNED = "gateway: {tls: {mode: self_signed, names: [localhost, 10.0.0.7]}}\n"
FILES = "gateway: {tls: {mode: files, certificate: mine/cert.pem, key: mine/key.pem}}\n"
CURRENT = "secrets/tls/current"


def begin(operator: Operator, text: str) -> None:
    operator.stack_yaml("{}\n")
    assert operator.types("init", *STUB).exit_code == 0
    operator.stack_yaml(text)


def shown(operator: Operator) -> str:
    return operator.text(f"{CURRENT}/tls.crt")


def mine(operator: Operator, days: int = 0) -> str:
    """An operator's own pair, made some days ago; its certificate."""
    pair = self_signed(["llm.example.com"], datetime.now(timezone.utc) - timedelta(days=days))
    folder = operator.folder / "mine"
    folder.mkdir(exist_ok=True)
    (folder / "cert.pem").write_text(pair.certificate)
    (folder / "key.pem").write_text(pair.key)
    return pair.certificate


def test_without_tls_there_is_the_folder_that_is_mounted_and_nothing_in_it(operator: Operator) -> None:
    begin(operator, "{}\n")
    assert list((operator.folder / "secrets/tls").iterdir()) == []
    assert "transport_socket" not in operator.text("run/envoy/dynamic/lds.yaml")


def test_one_of_our_own_is_made_once_and_kept_by_the_same_names(operator: Operator) -> None:
    begin(operator, SELF_SIGNED)
    assert operator.types("render").exit_code == 0
    first = shown(operator)
    assert "transport_socket" in operator.text("run/envoy/dynamic/lds.yaml")
    assert operator.types("render").exit_code == 0
    assert shown(operator) == first
    operator.stack_yaml(SELF_SIGNED.replace("10.0.0.7", "10.0.0.8"))
    assert operator.types("render").exit_code == 0
    assert shown(operator) != first


def test_the_key_is_readable_by_the_containers_user_only_and_the_link_works_from_inside(operator: Operator) -> None:
    begin(operator, SELF_SIGNED)
    old = os.umask(0)
    try:
        operator.types("render")
    finally:
        os.umask(old)
    link = operator.folder / CURRENT
    assert link.is_symlink() and "/" not in os.readlink(link)  # the folder is mounted somewhere else
    for path, mode in ((link, 0o700), (link / "tls.key", 0o600), (link / "tls.crt", 0o644)):
        seen = path.stat()
        assert stat.S_IMODE(seen.st_mode) == mode
        assert os.geteuid() != 0 or (seen.st_uid, seen.st_gid) == (1001, 1001)


def test_a_renewed_pair_of_the_operator_is_taken_by_the_next_render_and_old_ones_go(operator: Operator) -> None:
    begin(operator, FILES)
    for _ in range(4):
        own = mine(operator)
        assert operator.types("render").exit_code == 0
        assert shown(operator) == own
    folders = [path for path in (operator.folder / "secrets/tls").iterdir() if not path.is_symlink()]
    assert len(folders) == 2  # what is shown, and what was shown while Envoy looks


def test_a_certificate_that_ends_soon_is_told(operator: Operator) -> None:
    begin(operator, FILES)
    mine(operator, days=80)
    assert "the certificate for llm.example.com expires in 9 days" in operator.types("render").output


@pytest.mark.parametrize("name", ["cert.pem", "key.pem"])
def test_a_missing_file_is_refused_by_its_name_and_nothing_is_published(operator: Operator, name: str) -> None:
    begin(operator, FILES)
    mine(operator)
    (operator.folder / "mine" / name).unlink()
    before = operator.text("run/envoy/dynamic/lds.yaml")
    result = operator.types("render")
    assert result.exit_code == 2 and f"mine/{name}: no such file" in result.output
    assert operator.text("run/envoy/dynamic/lds.yaml") == before


def test_a_bad_pair_is_refused_and_the_good_one_stays(operator: Operator) -> None:
    begin(operator, FILES)
    good = mine(operator)
    operator.types("render")
    key = Path(operator.folder / "mine/key.pem").read_text()
    mine(operator)
    Path(operator.folder / "mine/key.pem").write_text(key)
    result = operator.types("render")
    assert result.exit_code == 2 and "is not the key of the certificate" in result.output
    assert key.splitlines()[1] not in result.output
    assert shown(operator) == good


def test_status_names_the_https_url_once_tls_is_published(operator: Operator) -> None:
    begin(operator, "{}\n")
    operator.world.status["gateway"] = "running"
    assert json.loads(operator.types("status", "--json").output)["url"].startswith("http://")
    operator.stack_yaml(SELF_SIGNED)
    operator.types("render")
    assert json.loads(operator.types("status", "--json").output)["url"].startswith("https://")
