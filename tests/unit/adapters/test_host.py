"""One look at the machine: what could not be learnt is None, and nothing hangs."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from control.adapters import host
from control.adapters.shell import Completed, Shell
from tests.unit.unprivileged import as_nobody, open_folder


class Answers:
    """A shell that knows a few commands by their first words."""

    def __init__(self, **known: Completed) -> None:
        self.known = known

    def probe(self, args: Sequence[str], **_: object) -> Completed:
        for name, done in self.known.items():
            if name in args or name.replace("_", "-") in args:
                return done
        return Completed(tuple(args), None, err="not here")


def done(out: str, code: int | None = 0, err: str = "") -> Completed:
    return Completed((), code, out, err)


def probe(tmp_path: Path, shell: object, proc: Path = Path("/proc")) -> host.Host:
    return host.probe(tmp_path, shell, proc, tmp_path)  # type: ignore[arg-type]


def test_a_machine_that_answers_nothing_is_all_unknown_and_no_error(tmp_path: Path) -> None:
    seen = probe(tmp_path, Answers(), tmp_path / "no-proc")
    assert (seen.memory_bytes, seen.os, seen.compose_version, seen.ports, seen.subnets) == (None,) * 5


@pytest.mark.parametrize(
    ("said", "expected"),
    [("2.40.3\n", "2.40.3"), ("v2.24.0\n", "2.24.0"), ("2.40.3+ds1-1\n", "2.40.3+ds1-1"), ("", None), ("odd\n", None)],
)
def test_compose_says_its_version_in_more_than_one_way(tmp_path: Path, said: str, expected: str | None) -> None:
    assert probe(tmp_path, Answers(compose=done(said))).compose_version == expected


def test_buildx_says_its_version_in_a_sentence(tmp_path: Path) -> None:
    said = done("github.com/docker/buildx 0.13.1 788433953af10f2a698f5c07611dddce2e08c7a0\n")
    assert probe(tmp_path, Answers(buildx=said)).buildx_version == "0.13.1"


def test_a_hanging_command_has_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("docker", "nvidia-smi"):
        script = tmp_path / "bin" / name
        script.write_text("#!/bin/sh\nexec sleep 600\n")
        script.chmod(0o755)
    asked: list[float | None] = []
    real = Shell.probe

    def impatient(self: Shell, args: Sequence[str], *, timeout_s: float | None = 10.0) -> Completed:
        asked.append(timeout_s)
        return real(self, args, timeout_s=0.2)

    monkeypatch.setattr(Shell, "probe", impatient)
    seen = probe(tmp_path, Shell(tmp_path, {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}))
    assert seen.compose_version is None and seen.inventory.gpus is None
    assert all(limit is not None and limit <= 15 for limit in asked)


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_listening_port_is_seen_with_the_process_that_holds_it(family: int, address: str) -> None:
    with socket.socket(family) as held:
        try:
            held.bind((address, 0))
        except OSError:
            pytest.fail(f"this machine has no {address}")
        held.listen()
        port = held.getsockname()[1]
        uses = [use for use in host.listeners(Path("/proc")) if use.port == port]
    assert [use.address for use in uses] == [address]
    assert uses[0].holder is not None and str(os.getpid()) in uses[0].holder


def test_a_port_whose_process_is_closed_to_us_is_still_seen(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    row = "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n"
    (tmp_path / "net/tcp").write_text("  sl  local_address ...\n" + row)
    (use,) = host.listeners(tmp_path)
    assert (use.address, use.port, use.holder) == ("127.0.0.1", 8000, None)


def test_connections_are_not_taken_for_listeners(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    row = "   0: 0100007F:1F40 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 4711 1\n"
    (tmp_path / "net/tcp").write_text("  sl  local_address ...\n" + row)
    assert host.listeners(tmp_path) == ()


def test_routes_are_subnets_in_use_but_not_the_default_route(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    rows = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    rows += "eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    rows += "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    (tmp_path / "net/route").write_text(rows)
    assert probe(tmp_path, Answers(), tmp_path).subnets == {"172.17.0.0/16": "interface docker0"}


def test_a_folder_that_cannot_be_written_is_named() -> None:
    with open_folder() as root:
        root.chmod(0o777)
        (root / "run").mkdir()
        (root / "run").chmod(0o555)

        def check() -> None:
            assert probe(root, Answers()).unwritable == ("run",)

        as_nobody(check)


def test_an_address_of_this_host_can_be_bound_and_one_of_the_documentation_cannot() -> None:
    assert host.can_bind("127.0.0.1")
    assert not host.can_bind("192.0.2.7")
