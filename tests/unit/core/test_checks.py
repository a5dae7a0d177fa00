from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest

from control.core import checks, planning
from control.core.check_model import Finding
from control.core.checks import CHECKS, Situation
from control.core.errors import PreflightRefused
from control.core.gpus import Inventory
from control.core.model import Host, PortUse
from control.core.settings import Engine, Gateway, Service, Settings
from tests.unit.capacity.world import facts, host

GIB = 1024**3
STUB = Settings(engine=Engine(kind="stub"))
GOOD = Host(
    os="Debian GNU/Linux 13 (trixie)",
    cpus=2,
    memory_bytes=8 * GIB,
    euid=0,
    docker_version="28.5.2",
    docker_root="/var/lib/docker",
    cgroup_version="2",
    compose_version="2.40.3",
    buildx_version="0.29.1",
    disk_free_bytes={"/clone": 50 * GIB, "/var/lib/docker": 50 * GIB},
    ports=(PortUse("0.0.0.0", 22, "sshd (process 1)"),),
    bindable=True,
    subnets={"172.17.0.0/16": "docker network bridge", "10.0.0.0/24": "interface eth0"},
    inventory=Inventory(gpus=()),
    images={"flashbox/stub:0.1.0": True},
)
BY_ID = {check.id: check for check in CHECKS}
ASKED = {
    "docker-daemon", "compose-version", "buildx", "gateway-port", "disk", "folder-rights", "subnet-free",
    "service-user", "gpu-present", "same-kind-running", "cgroup",
}  # fmt: skip


def look(check: str, settings: Settings = STUB, **changes: object) -> Finding:
    host = replace(GOOD, **changes)  # type: ignore[arg-type]
    plan = planning.plan_capacity(settings, host) if settings.engine.kind == "stub" else None
    return Finding(BY_ID[check], BY_ID[check].test(Situation(settings, host, plan)))


def outcome(check: str, settings: Settings = STUB, **changes: object) -> str:
    return look(check, settings, **changes).seen.outcome


def test_every_check_of_the_contract_is_there_once_and_complete() -> None:
    assert set(BY_ID) >= ASKED
    assert len(BY_ID) == len(CHECKS)
    for check in CHECKS:
        assert check.title and check.why and check.fix, check.id


def test_on_a_good_host_every_check_passes() -> None:
    report = checks.run(CHECKS, Situation(STUB, GOOD, planning.plan_capacity(STUB, GOOD)))
    assert (report.findings, report.could_not_tell) == ((), ())
    assert report.summary() == f"{len(CHECKS)} passed"


def test_on_a_host_of_which_nothing_is_known_nothing_is_claimed() -> None:
    report = checks.run(CHECKS, Situation(Settings(), Host(docker_error="no such socket"), None))
    found = {finding.check.id for finding in report.findings}
    assert found == {"docker-daemon", "buildx"}
    could_not = {finding.check.id for finding in report.could_not_tell}
    assert could_not == set(BY_ID) - found - {"folder-rights"}


def test_all_checks_run_and_the_report_counts_them() -> None:
    host = replace(GOOD, docker_error="connection refused", cgroup_version="3", cpus=None)
    report = checks.run(CHECKS, Situation(STUB, host, None))
    assert [f.check.id for f in report.fatal] == ["docker-daemon"]
    assert [f.check.id for f in report.warnings] == ["cgroup"]
    assert report.summary() == f"{len(CHECKS) - 4} passed, 1 failed, 1 warning, 2 could not tell"
    data = report.as_data()
    assert len(data) == len(CHECKS)
    assert all((entry["outcome"] == "found") == bool(entry["fix"]) for entry in data)


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("connection refused: /var/run/docker.sock", "systemctl start docker"),
        ("Permission denied: /var/run/docker.sock", "usermod"),
    ],
)
def test_a_silent_daemon_is_told_from_a_forbidden_socket(error: str, fix: str) -> None:
    finding = look("docker-daemon", docker_error=error, docker_version=None)
    assert (finding.seen.outcome, finding.seen.text) == ("found", error)
    assert fix in finding.fix


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.24.0", "passed"), ("v2.40.3", "passed"), ("2.24.0-rc1", "passed"), ("2.40.3-desktop.1", "passed"),
        ("5.0.1", "passed"),
        ("2.23.3", "found"), ("1.29.2", "found"), ("2.9.0", "found"), ("dev", "unknown"),
    ],
)  # fmt: skip
def test_compose_must_be_2_24_or_newer(version: str, expected: str) -> None:
    assert outcome("compose-version", compose_version=version) == expected


def test_a_silent_compose_is_missing_when_the_daemon_answers_and_uncertain_when_not() -> None:
    assert outcome("compose-version", compose_version=None) == "found"
    assert outcome("compose-version", compose_version=None, docker_error="x") == "unknown"


def test_buildx_is_needed_only_while_an_image_is_missing() -> None:
    assert outcome("buildx", buildx_version=None, images={"a": True}) == "passed"
    assert outcome("buildx", buildx_version=None, images={"a": True, "b": False}) == "found"
    assert outcome("buildx", buildx_version=None, images=None) == "found"


@pytest.mark.parametrize(
    ("bind", "address", "meets"),
    [
        ("127.0.0.1", "127.0.0.1", True), ("127.0.0.1", "0.0.0.0", True), ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "::", True), ("127.0.0.1", "::1", False), ("127.0.0.1", "127.0.0.2", False),
        ("::1", "0.0.0.0", False), ("::1", "::1", True), ("::", "0.0.0.0", True), ("0.0.0.0", "10.0.0.1", True),
        ("127.0.0.1", "", True), ("127.0.0.1", "*", True),
    ],
)  # fmt: skip
def test_a_port_is_taken_when_the_addresses_meet(bind: str, address: str, meets: bool) -> None:
    settings = Settings(engine=Engine(kind="stub"), gateway=Gateway(bind=bind))
    assert outcome("gateway-port", settings, ports=(PortUse(address, 8000, "x"),)) == ("found" if meets else "passed")


def test_a_taken_port_is_told_with_its_holder_and_a_way_out() -> None:
    finding = look("gateway-port", ports=(PortUse("0.0.0.0", 8000, "nginx (process 7)"),))
    assert finding.seen.text == "gateway.port: expected 127.0.0.1:8000 to be free, found it held by nginx (process 7)"
    assert "--set gateway.port=8001" in finding.fix
    assert "only root can name" in look("gateway-port", ports=(PortUse("0.0.0.0", 8000, None),)).seen.text


def test_the_stacks_own_gateway_may_hold_the_port_and_another_projects_may_not() -> None:
    own = PortUse("127.0.0.1", 8000, "container flashbox-gateway-1 of project flashbox")
    assert outcome("gateway-port", ports=(own,)) == "passed"
    for holder in (
        "container flashbox2-gateway-1 of project flashbox2",
        "container other-1",
        "docker-proxy (process 3)",
    ):
        assert outcome("gateway-port", ports=(replace(own, holder=holder),)) == "found"


def test_an_address_of_another_host_cannot_be_published() -> None:
    other = Settings(engine=Engine(kind="stub"), gateway=Gateway(bind="192.0.2.7"))
    finding = look("gateway-bind", other, bindable=False)
    assert (finding.seen.outcome, finding.severity) == ("found", "fatal")
    assert "192.0.2.7" in finding.seen.text and "127.0.0.1" in finding.fix
    assert outcome("gateway-bind", bindable=True) == "passed"
    assert outcome("gateway-bind", bindable=None) == "unknown"


def test_port_0_is_never_taken_and_unknown_ports_are_unknown() -> None:
    free = Settings(engine=Engine(kind="stub"), gateway=Gateway(port=0))
    assert outcome("gateway-port", free, ports=None) == "passed"
    assert outcome("gateway-port", ports=None) == "unknown"


def test_docker_needs_room_for_logs_and_for_images_that_are_to_be_built() -> None:
    def docker_has(size: float, built: bool) -> Finding:
        free = {"/clone": GIB, "/var/lib/docker": int(size * GIB)}
        return look("disk", disk_free_bytes=free, images={"a": built})

    logs = 3 * 5 * 50 / 1024  # two replicas and the gateway, five files of 50 MiB each
    assert docker_has(logs + 0.01, built=True).seen.outcome == "passed"
    assert docker_has(logs - 0.01, built=True).seen.outcome == "found"
    short = docker_has(logs + 2.9, built=False)
    assert short.seen.text == "/var/lib/docker: expected 3.7 GiB free, found 3.6 GiB"
    assert docker_has(logs + 3.1, built=False).seen.outcome == "passed"


def test_a_full_clone_is_found_and_a_folder_that_was_not_looked_at_is_unknown() -> None:
    assert "expected 64 MiB free, found 1 MiB" in look("disk", disk_free_bytes={"/clone": 1024**2}).seen.text
    assert outcome("disk", disk_free_bytes={"/clone": GIB}) == "unknown"
    assert outcome("disk", disk_free_bytes={"/clone": GIB, "/var/lib/docker": None}) == "unknown"
    assert outcome("disk", disk_free_bytes={}, docker_root=None) == "unknown"


def test_folders_that_cannot_be_written_are_named_with_the_user() -> None:
    assert (
        look("folder-rights", unwritable=("run", "secrets"), euid=1000).seen.text
        == "uid 1000 cannot write run, secrets"
    )


@pytest.mark.parametrize("used", ["172.31.78.0/24", "172.31.0.0/16", "172.31.78.128/25", "172.16.0.0/12"])
def test_an_overlapping_subnet_is_told_with_its_user_and_one_that_is_free(used: str) -> None:
    finding = look("subnet-free", subnets={used: "docker network other_default", "10.0.0.0/24": "interface eth0"})
    assert f"{used} (docker network other_default)" in finding.seen.text
    proposed = ipaddress.IPv4Network(finding.fix.partition("engine_subnet=")[2])
    assert not any(proposed.overlaps(ipaddress.IPv4Network(net)) for net in (used, "10.0.0.0/24"))
    assert (
        outcome(
            "subnet-free", Settings.model_validate({"network": {"engine_subnet": str(proposed)}}), subnets={used: "x"}
        )
        == "passed"
    )


def test_the_stacks_own_network_is_no_clash_and_an_interface_on_it_is() -> None:
    assert outcome("subnet-free", subnets={"172.31.78.0/24": "docker network flashbox_engine"}) == "passed"
    assert outcome("subnet-free", subnets={"172.31.78.0/24": "interface eth1"}) == "found"
    assert outcome("subnet-free", subnets={"fd00::/64": "x", "odd": "y"}) == "passed"
    assert outcome("subnet-free", subnets=None) == "unknown"


def test_secrets_must_reach_the_containers_user() -> None:
    assert outcome("service-user", euid=0) == "passed"
    assert outcome("service-user", euid=1001) == "passed"
    assert outcome("service-user", euid=None) == "unknown"
    finding = look("service-user", euid=1000)
    assert "set service.uid to 1000" in finding.fix
    assert (
        outcome("service-user", Settings(engine=Engine(kind="stub"), service=Service(uid=1000)), euid=1000) == "passed"
    )


GPU = Settings(engine=Engine(kind="gpu"))


def test_a_gpu_is_asked_for_only_by_kind_gpu() -> None:
    assert outcome("gpu-present") == "passed"
    eight = look("gpu-present", GPU, inventory=host("dgx-h100"))
    assert (eight.seen.outcome, eight.seen.text) == ("passed", "8 GPUs: NVIDIA H100 80GB HBM3")
    wedged = look("gpu-present", GPU, inventory=Inventory(problem="the driver is wedged"))
    assert (wedged.seen.outcome, wedged.seen.text) == ("unknown", "the driver is wedged")
    missing = look("gpu-present", GPU, inventory=Inventory(gpus=()))
    assert missing.seen.outcome == "found" and "python ctl.py up --profile stub" in missing.fix


def test_what_the_planner_says_is_a_check_of_its_own() -> None:
    assert outcome("capacity") == "passed"
    fits = replace(GOOD, inventory=host("dgx-h100"))
    test = BY_ID["capacity"].test
    seen = test(Situation(GPU, fits, planning.plan_capacity(GPU, fits, facts())))
    assert (seen.outcome, seen.text) == ("passed", "2 replicas of 4 GPUs (NVIDIA H100 80GB HBM3, TP 4), both active")
    one = replace(GOOD, inventory=host("one-gpu"))
    with pytest.raises(PreflightRefused) as refused:
        planning.plan_capacity(GPU, one, facts())
    seen = test(Situation(GPU, one, None, refused.value))
    assert seen.outcome == "found" and "short by" in seen.text and seen.fix == refused.value.fix
    none = replace(GOOD, inventory=Inventory(gpus=()))
    assert test(Situation(GPU, none, None, refused.value)).outcome == "unknown"  # gpu-present says it


def test_replicas_on_gpus_have_no_memory_limit_that_could_exceed_the_host() -> None:
    small = replace(GOOD, inventory=host("dgx-h100"), memory_bytes=2 * GIB)
    plan = planning.plan_capacity(GPU, small, facts())
    assert BY_ID["memory"].test(Situation(GPU, small, plan)).outcome == "passed"


def test_a_stack_of_another_kind_is_told_and_one_of_the_same_kind_is_fine() -> None:
    assert outcome("same-kind-running", running_kind="stub") == "passed"
    elsewhere = look("same-kind-running", running_kind="stub", running_project_dir="/srv/a", clone_dir="/srv/b")
    assert elsewhere.seen.outcome == "found"
    assert "/srv/a" in elsewhere.seen.text and "/srv/b" in elsewhere.seen.text
    assert "project=" in elsewhere.fix
    same = outcome("same-kind-running", running_kind="stub", running_project_dir="/srv/a", clone_dir="/srv/a")
    assert same == "passed"
    other = look("same-kind-running", running_kind="gpu", running_project_dir="/srv/flashbox")
    assert other.seen.text == "engine.kind: expected gpu, which project flashbox runs (from /srv/flashbox), found stub"
    assert "python ctl.py down" in other.fix


@pytest.mark.parametrize(("version", "expected"), [("1", "passed"), ("2", "passed"), ("3", "found"), (None, "unknown")])
def test_both_versions_of_cgroups_are_fine(version: str | None, expected: str) -> None:
    assert outcome("cgroup", cgroup_version=version) == expected


def test_a_cpu_limit_above_the_host_is_found_before_docker_refuses_it() -> None:
    assert outcome("cpus", Settings(engine=Engine(kind="stub", cpus=2.5))) == "found"
    assert outcome("cpus", Settings(engine=Engine(kind="stub", cpus=2))) == "passed"


def test_memory_limits_above_the_host_are_a_warning() -> None:
    finding = look("memory", memory_bytes=3 * GIB - 1)
    assert (finding.seen.outcome, finding.severity) == ("found", "warning")
    assert outcome("memory", memory_bytes=3 * GIB) == "passed"


def test_the_page_of_checks_names_every_check() -> None:
    page = checks.markdown()
    assert all(f"\n## {check.id}\n" in page and check.fix in page for check in CHECKS)
