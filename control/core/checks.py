"""Everything that must hold before anything is touched, as data. All are run, all are reported."""

from __future__ import annotations

from collections.abc import Sequence

from control.core import check_rules as rules
from control.core.check_model import Check, Finding, Outcome, Report, Situation

__all__ = ["CHECKS", "Check", "Finding", "Report", "Situation", "markdown", "run"]

CHECKS: tuple[Check, ...] = (
    Check(
        id="docker-daemon",
        title="The Docker daemon answers",
        why="Every part of the stack is a container. A docker client alone is not enough.",
        fix="Start it (systemctl start docker); make demo installs one where there is none.",
        severity="fatal",
        test=rules.docker_daemon,
    ),
    Check(
        id="compose-version",
        title="Docker Compose is 2.24 or newer",
        why="Older releases do not know start_interval and `required: false`, or read .env in another way.",
        fix="Install the Compose v2 plugin: apt-get install docker-compose-plugin, or docker-compose on Debian 13.",
        severity="fatal",
        test=rules.compose_version,
    ),
    Check(
        id="buildx",
        title="Images can be built",
        why="The images are built on this host, with secrets that only BuildKit keeps out of their layers.",
        fix="Install the buildx plugin: apt-get install docker-buildx-plugin, or docker-buildx on Debian 13.",
        severity="fatal",
        test=rules.buildx,
    ),
    Check(
        id="gateway-port",
        title="The public port is free",
        why="The gateway publishes gateway.bind:gateway.port; Docker cannot share it with another process.",
        fix="Stop what holds it, or set gateway.port.",
        severity="fatal",
        test=rules.gateway_port,
    ),
    Check(
        id="gateway-bind",
        title="The public address belongs to this host",
        why="Docker publishes the gateway on gateway.bind, which no other host's address can be.",
        fix="Set gateway.bind to 127.0.0.1 (this host only), 0.0.0.0 (everywhere) or an address that ip addr shows.",
        severity="fatal",
        test=rules.gateway_bind,
    ),
    Check(
        id="disk",
        title="There is room for images and logs",
        why="A full disk stops Docker, and with it every container's log.",
        fix="Make room (docker system df shows what Docker holds), or lower logs.max_size_mib and logs.max_files.",
        severity="fatal",
        test=rules.disk,
    ),
    Check(
        id="folder-rights",
        title="The clone's folders can be written",
        why="Commands write run/ and secrets/; a folder that an earlier run as root left behind stops them half-way.",
        fix="sudo chown -R $(id -u):$(id -g) . in the clone, or run as the owner.",
        severity="fatal",
        test=rules.folder_rights,
    ),
    Check(
        id="subnet-free",
        title="The engine network's subnet is free",
        why="Replicas have fixed addresses; an overlap sends their traffic elsewhere or cuts this host off.",
        fix="Set network.engine_subnet to a private range that this host does not use.",
        severity="fatal",
        test=rules.subnet_free,
    ),
    Check(
        id="service-user",
        title="The containers' user can read the secrets",
        why="Files in secrets/ have mode 0600: only their owner reads them, and containers run as service.uid.",
        fix="Run as root, or set service.uid to your own user id.",
        severity="fatal",
        test=rules.service_user,
    ),
    Check(
        id="gpu-present",
        title="The GPUs that were asked for are there",
        why="engine.kind gpu runs vLLM on NVIDIA GPUs.",
        fix=rules.NO_GPU_FIX,
        severity="fatal",
        test=rules.gpu_present,
    ),
    Check(
        id="capacity",
        title="The model fits on the GPUs of this host",
        why="Weights, activations, graphs and a KV cache for at least 8 requests of full length must fit on them.",
        fix="python ctl.py plan shows the sum.",
        severity="fatal",
        test=rules.capacity,
    ),
    Check(
        id="same-kind-running",
        title="No stack of another kind runs",
        why="Replicas of another kind would be replaced, and their requests cut.",
        fix="python ctl.py down first, or keep the kind that runs.",
        severity="fatal",
        test=rules.same_kind_running,
    ),
    Check(
        id="cgroup",
        title="Control groups are known",
        why="CPU and memory limits are cgroup limits; versions 1 and 2 are both fine.",
        fix="Look at docker info, line Cgroup Version.",
        severity="warning",
        test=rules.cgroup,
    ),
    Check(
        id="cpus",
        title="A replica's CPU limit fits this host",
        why="Docker refuses to start a container whose limit is above the number of CPUs.",
        fix="Lower engine.cpus.",
        severity="fatal",
        test=rules.cpus,
    ),
    Check(
        id="memory",
        title="Memory limits fit this host",
        why="When all containers reach their limits together the kernel kills one of them.",
        fix="Lower engine.memory_mib, gateway.memory_mib or engine.replicas.",
        severity="warning",
        test=rules.memory,
    ),
)


def run(checks: Sequence[Check], situation: Situation) -> Report:
    """Run all, stop at none."""
    results = [Finding(check, check.test(situation)) for check in checks]

    def having(outcome: Outcome) -> tuple[Finding, ...]:
        return tuple(result for result in results if result.seen.outcome == outcome)

    return Report(findings=having("found"), could_not_tell=having("unknown"), passed=having("passed"))


def markdown(checks: Sequence[Check] = CHECKS) -> str:
    """docs/checks.md."""
    parts = [
        "# Checks\n\nGenerated from `control/core/checks.py` by `make docs`: edit that, not this.\n\n"
        "`python ctl.py doctor` runs all of them and touches nothing; `up` stops at a fatal finding.\n"
        "A check that cannot be decided says so and stops nothing.\n"
    ]
    for check in checks:
        parts.append(f"\n## {check.id}\n\n{check.title} ({check.severity}).\n\n{check.why}\n\nFix: {check.fix}\n")
    return "".join(parts)
