"""The daemon: why it does not answer, what runs, and what only it knows of the machine."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, NotFound

from control.adapters.dockerd import Dockerd, connection, machine
from control.core.errors import FlashboxError, PreflightRefused
from control.core.gpus import Gpu, GpuProcess, Inventory
from control.core.model import Host, PortUse
from tests.unit.unprivileged import as_nobody, open_folder
from tests.unit.world import GOOD_HOST

PROJECT = "flashbox"


class FakeContainer:
    """As much of the SDK's container as is used."""

    def __init__(
        self,
        service: str,
        status: str = "running",
        gate: str | None = None,
        ports: Mapping[str, Any] | None = None,
        project: str = PROJECT,
        **attrs: Any,
    ) -> None:
        self.name = f"{project}-{service}-1"
        self.status = status
        self.labels = {"com.docker.compose.project": project, "com.docker.compose.service": service}
        self.labels["com.docker.compose.project.working_dir"] = "/srv/flashbox"
        if service.startswith("engine-"):
            self.labels["flashbox.replica"] = service
            self.labels["flashbox.kind"] = "stub"
        self.attrs: dict[str, Any] = {
            "State": {"Status": status, "ExitCode": 1, "Error": ""},
            "NetworkSettings": {"Ports": dict(ports or {})},
            "Config": {"Env": [], "StopTimeout": 42},
            **attrs,
        }
        self.gate = gate
        self.pids: list[int] = []
        self.calls: list[object] = []

    def exec_run(self, args: list[str], stderr: bool = True) -> tuple[int, bytes]:
        if self.gate is None:
            raise APIError("container is restarting")
        return 0, self.gate.encode()

    def stop(self, timeout: int) -> None:
        self.calls.append(("stop", timeout))

    def kill(self, signal: str) -> None:
        self.calls.append(("kill", signal))

    def top(self) -> dict[str, list[Any]]:
        self.calls.append("top")
        if not self.pids:
            raise APIError("is not running")
        return {"Titles": ["UID", "PID", "CMD"], "Processes": [["1001", str(pid), "vllm"] for pid in self.pids]}

    def remove(self, force: bool = False) -> None:
        self.calls.append("remove")

    def logs(self, tail: int) -> bytes:
        return b"line\nlast \xff line\n"


class FakeClient:
    """As much of the SDK's client as is used."""

    def __init__(self, *containers: FakeContainer, networks: list[Any] | None = None) -> None:
        self.all = list(containers)
        self.containers = SimpleNamespace(list=self._list)
        self.networks = SimpleNamespace(list=lambda **_: list(networks or []))
        self.volumes = SimpleNamespace(list=lambda **_: [])
        self.images = SimpleNamespace(get=self._image)

    def _list(self, all: bool = False, filters: Mapping[str, Any] | None = None, **_: Any) -> list[FakeContainer]:
        wanted = [label.partition("=") for label in (filters or {}).get("label", [])]
        wanted = [w for w in wanted if w[0] != "com.docker.compose.oneoff"]
        found = [c for c in self.all if all or c.status == "running"]
        return [c for c in found if all_match(c.labels, wanted)]

    def _image(self, reference: str) -> object:
        if reference != "flashbox/stub:1":
            raise NotFound("no such image")
        return object()

    def info(self) -> dict[str, str]:
        return {"DockerRootDir": "/", "CgroupVersion": "1", "ServerVersion": "28.0"}


def all_match(labels: Mapping[str, str], wanted: list[tuple[str, str, str]]) -> bool:
    return all(labels.get(name) == value for name, _, value in wanted)


def project(*containers: FakeContainer, **more: Any) -> Dockerd:
    return Dockerd(FakeClient(*containers, **more), PROJECT)  # type: ignore[arg-type]


READY = '{"phase": "ready", "since": 1, "phase_s": 12.5, "loaded": null, "last_error": null}'


def test_states_carry_the_gates_phase_and_replicas_are_in_order() -> None:
    replicas = [FakeContainer(f"engine-{n}", gate=READY) for n in (10, 2)]
    seen = project(*replicas, FakeContainer("gateway"), FakeContainer("engine-0", project="other")).states()
    assert [s.service for s in seen] == ["engine-2", "engine-10", "gateway"]
    assert (seen[0].phase, seen[0].phase_since_s) == ("ready", 12.5)
    assert seen[2].phase is None


@pytest.mark.parametrize("gate", [None, "", "not json", "[]", '{"phase": 3}'])
def test_a_gate_that_says_nothing_sensible_is_unknown(gate: str | None) -> None:
    daemon = project(FakeContainer("engine-0", gate=gate))
    assert daemon.states()[0].phase is None
    assert daemon.gates(["engine-0"]) == {"engine-0": None}


def test_a_container_that_does_not_run_speaks_for_itself() -> None:
    gates = project(FakeContainer("engine-0", status="exited")).gates(["engine-0", "engine-1"])
    assert gates["engine-0"] is not None and gates["engine-0"].phase == "container exited"
    assert gates["engine-0"].last_error == "exit code 1"
    assert gates["engine-1"] is not None and gates["engine-1"].phase == "container missing"


def test_the_gateways_address_is_what_docker_published() -> None:
    ports = {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32768"}], "9901/tcp": None}
    assert project(FakeContainer("gateway", ports=ports)).gateway_address() == ("127.0.0.1", 32768)
    assert project(FakeContainer("gateway", status="exited", ports=ports)).gateway_address() is None
    assert project().gateway_address() is None


def test_log_lines_that_are_no_text_are_shown_as_far_as_they_are() -> None:
    assert project(FakeContainer("gateway")).last_lines("gateway").startswith("line\nlast ")


def test_removal_by_labels_stops_the_gateway_first_with_its_own_grace() -> None:
    order: list[str] = []
    containers = [FakeContainer("engine-0"), FakeContainer("gateway")]
    for container in containers:
        container.stop = lambda timeout, c=container: order.append(f"{c.name} {timeout}")  # type: ignore[method-assign]
    network = SimpleNamespace(name="flashbox_engine", remove=lambda: order.append("network"), attrs={})
    gone = project(*containers, networks=[network]).remove_by_labels()
    assert order == ["flashbox-gateway-1 42", "flashbox-engine-0-1 42", "network"]
    assert gone == ["flashbox-gateway-1", "flashbox-engine-0-1", "flashbox_engine"]


def test_a_daemon_that_fails_in_the_middle_is_an_error_in_words() -> None:
    daemon = project(FakeContainer("gateway"))

    def fail(**_: Any) -> None:
        raise APIError("500 Server Error", explanation="no space left on device")

    daemon.client.containers.list = fail  # type: ignore[method-assign,assignment]
    with pytest.raises(FlashboxError) as caught:
        daemon.states()
    assert "no space left" in caught.value.why


def test_a_published_port_is_held_by_its_container_not_by_the_process_that_forwards_it() -> None:
    ports = {"8000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8000"}]}
    client = FakeClient(FakeContainer("gateway", ports=ports))
    before = dataclasses.replace(
        GOOD_HOST, ports=(PortUse("0.0.0.0", 8000, "docker-proxy (process 5)"), PortUse("127.0.0.1", 22, "sshd"))
    )
    seen = machine.complete(client, before, ())  # type: ignore[arg-type]
    assert seen.ports == (
        PortUse("0.0.0.0", 8000, "container flashbox-gateway-1 of project flashbox"),
        PortUse("127.0.0.1", 22, "sshd"),
    )


def test_the_snapshot_gets_images_networks_room_kind_and_folder() -> None:
    network = SimpleNamespace(
        name="other_net", attrs={"IPAM": {"Config": [{"Subnet": "172.20.0.0/16"}, {"Subnet": "fd00::/64"}]}}
    )
    client = FakeClient(FakeContainer("engine-0"), networks=[network])
    seen = Dockerd(client, PROJECT).complete(
        Host(subnets={"172.20.0.0/16": "interface br-1"}), ("flashbox/stub:1", "x:1")
    )  # type: ignore[arg-type]
    assert seen.images == {"flashbox/stub:1": True, "x:1": False}
    assert seen.subnets == {"172.20.0.0/16": "docker network other_net"}
    assert seen.disk_free_bytes["/"] is not None
    assert (seen.running_kind, seen.running_project_dir) == ("stub", "/srv/flashbox")


def test_no_socket_is_told_with_its_place_and_the_way_to_mend_it(tmp_path: Path) -> None:
    with pytest.raises(PreflightRefused) as caught:
        Dockerd.connect({"DOCKER_HOST": f"unix://{tmp_path}/docker.sock"}, PROJECT)
    assert f"{tmp_path}/docker.sock" in caught.value.why
    assert "make docker" in caught.value.fix


def test_a_socket_nobody_listens_on_is_told(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(PreflightRefused, match="does not answer"):
        Dockerd.connect({"DOCKER_HOST": f"unix://{path}"}, PROJECT)


def test_no_permission_on_the_socket_is_its_own_message() -> None:
    error = connection.refusal(
        Exception("('Connection aborted.', PermissionError(13, 'Permission denied'))"), "unix:///s"
    )
    assert "let you in" in error.what and "/s" in error.why and "group docker" in error.fix
    assert error.exit_code == 3


def test_a_socket_of_another_user_is_refused_in_words() -> None:
    with open_folder() as folder, socket.socket(socket.AF_UNIX) as held:
        path = folder / "docker.sock"
        held.bind(str(path))
        held.listen()
        path.chmod(0)

        def check() -> None:
            with pytest.raises(PreflightRefused, match="let you in"):
                Dockerd.connect({"DOCKER_HOST": f"unix://{path}"}, PROJECT)

        as_nobody(check)


def test_a_broken_docker_host_is_an_error_in_words() -> None:
    with pytest.raises(PreflightRefused):
        Dockerd.connect({"DOCKER_HOST": "nonsense://x"}, PROJECT)


def busy_host(*pids: int) -> Host:
    running = tuple(GpuProcess(pid, "VLLM::Worker", 70_000) for pid in pids)
    return dataclasses.replace(GOOD_HOST, inventory=Inventory(gpus=(Gpu(index=0, uuid="GPU-0", processes=running),)))


def replicas_of(host: Host) -> list[str | None]:
    return [one.replica for gpu in host.inventory.gpus or () for one in gpu.processes or ()]


def test_processes_in_our_own_containers_are_named_and_others_are_not() -> None:
    ours, starting = FakeContainer("engine-1"), FakeContainer("engine-0")
    foreign = FakeContainer("engine-0", project="other")
    ours.pids, foreign.pids = [41207, 41208], [500]
    daemon = project(ours, starting, foreign)
    assert replicas_of(daemon.complete(busy_host(41208, 500, 77))) == ["engine-1", None, None]


def test_nobody_asks_for_processes_while_the_gpus_are_idle() -> None:
    replica = FakeContainer("engine-0")
    replica.pids = [1]
    project(replica).complete(busy_host())
    project(replica).complete(GOOD_HOST)
    assert "top" not in replica.calls


@pytest.mark.parametrize(
    ("options", "rootless"), [(["name=seccomp", "name=rootless"], True), ([], False), (None, False)]
)
def test_a_daemon_of_an_unprivileged_user_is_told_apart(options: list[str] | None, rootless: bool) -> None:
    daemon = project()
    daemon.client.info = lambda: {"SecurityOptions": options}  # type: ignore[method-assign,assignment]
    assert daemon.complete(GOOD_HOST).docker_rootless is rootless


def test_only_running_containers_of_the_project_say_which_clone_they_are_from() -> None:
    here, ended, other = FakeContainer("gateway"), FakeContainer("engine-0", "exited"), FakeContainer("x", project="o")
    ended.labels["com.docker.compose.project.working_dir"] = "/srv/ended"
    other.labels["com.docker.compose.project.working_dir"] = "/srv/other"
    assert project(here, ended, other).folders() == ["/srv/flashbox"]


def test_a_signal_goes_to_a_running_container_only() -> None:
    up, down = FakeContainer("gateway"), FakeContainer("policy", status="exited")
    dockerd = Dockerd(FakeClient(up, down), PROJECT)  # type: ignore[arg-type]
    assert dockerd.signal("gateway", "SIGHUP") and up.calls == [("kill", "SIGHUP")]
    assert not dockerd.signal("policy", "SIGHUP") and down.calls == []
    assert not dockerd.signal("nobody", "SIGHUP")


def test_what_is_published_is_told_for_every_running_container() -> None:
    ports = {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32768"}], "9901/tcp": None}
    containers = (FakeContainer("gateway", ports=ports), FakeContainer("engine-0"), FakeContainer("x", status="exited"))
    dockerd = Dockerd(FakeClient(*containers), PROJECT)  # type: ignore[arg-type]
    assert dockerd.published() == [("engine-0", ""), ("gateway", "127.0.0.1:32768->8000/tcp")]
