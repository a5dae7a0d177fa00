"""Settings of the gateway taken up while it serves: published one by one, confirmed by Envoy, taken back if refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from control.adapters import compose
from control.adapters.workspace import in_order
from control.context import Control
from control.core import envoy_versions, gateway_changes
from control.core.budget_limits import LIMITS_PATH
from control.core.envoy_versions import DYNAMIC, Held
from control.core.errors import FlashboxError, PreflightRefused
from control.core.gateway_changes import POLICY, Changes
from control.core.model import Plan, Rendering
from control.core.rendering import ENV_PATH
from control.steps import certificates, gateway_live, lifecycle, prepare, ready
from control.steps.undo import surely

TAKEN_S = 15.0  # Envoy takes a file up in milliseconds, the policy service in a second
RULES = f"{POLICY}rules.json"


@dataclass
class Applied:
    """What was done."""

    changed: list[str] = field(default_factory=list)
    restarted: bool = False
    others: tuple[str, ...] = ()

    @property
    def anything(self) -> bool:
        return bool(self.changed or self.restarted)


def wanted(control: Control, plan: Plan) -> tuple[Rendering, Changes]:
    """What the settings come to, and how it differs from what is published."""
    rendered = prepare.rendering(control, plan)
    return rendered, gateway_changes.changes(rendered, control.workspace.on_disk(tuple(rendered)))


def refuse_new_container(changes: Changes) -> None:
    """Some settings are made into the container; half of a change is worse than none."""
    if changes.container:
        raise PreflightRefused(
            "\n".join(("a new container of the gateway is needed, so nothing was applied:", *changes.container)),
            "these are fixed when the container is made; all else of the gateway changes while it runs",
            "python ctl.py up (drains the gateway; new requests wait or get 503 until it is back)",
        )


def await_turn(control: Control, rendered: Rendering, wait: bool) -> bool:
    """Whether a hot restart is needed; refuse, or wait, while an earlier one is not over."""
    if gateway_changes.started_with(gateway_live.require_state(control), rendered):
        return False
    gateway_live.await_single(control, wait)
    return True


def apply(control: Control, plan: Plan, shown: Changes) -> Applied:
    """Publish in order, each file confirmed before the next; put the old files back if anything refuses."""
    with control.workspace.publishing("gateway apply"):
        rendered, changes = wanted(control, plan)
        if changes != shown:
            raise FlashboxError("the files changed while you looked at the difference", "", "run the command again")
        restart = await_turn(control, rendered, wait=False)
        again = not_taken(control, rendered)
        if changes.files or again:
            prepare.validate(rendered)
        certificate = control.workspace.certificate()
        if warning := certificates.publish(control):
            control.console.note(f"warning  {warning}")
        renewed = ["the certificate"] if control.workspace.certificate() not in (None, certificate) else []
        todo = {path: rendered[path] for path in in_order({**changes.files, **again})}
        with _taking_back(control, tuple(todo), changes.beside):
            if changes.beside:
                control.workspace.write(ENV_PATH, rendered[ENV_PATH])
                _make_anew(control, changes.beside)
            for path, text in todo.items():
                _publish(control, path, text)
            if restart:
                gateway_live.restart_hot(control)
        return Applied([*renewed, *todo], restart, changes.others)


def not_taken(control: Control, rendered: Rendering) -> dict[str, str]:
    """Published files that Envoy does not go by: a command that was killed, a file that it refused."""
    return envoy_versions.behind(rendered, gateway_live.held(control))


def _publish(control: Control, path: str, text: str) -> None:
    before = gateway_live.held(control) if path.startswith(DYNAMIC) else {}
    control.workspace.replace(path, text)
    if path.startswith(DYNAMIC):
        _confirm(control, path, text, before)
    elif path in _CONFIRMED:
        _confirm_loaded(control, path, gateway_changes.version_of(text))


def _confirm(control: Control, path: str, text: str, before: Mapping[str, Held]) -> None:
    """Wait until Envoy goes by the file."""
    end = time.monotonic() + TAKEN_S
    while not envoy_versions.taken(text, now := gateway_live.held(control)):
        if envoy_versions.refused(text, before, now):
            raise FlashboxError(f"{path}: Envoy refuses it", gateway_live.last_complaint(control), _KEPT)
        if time.monotonic() > end:
            raise FlashboxError(
                f"{path}: Envoy did not take it up", f"it goes by the old one after {TAKEN_S:.0f} s", _RESTART
            )
        time.sleep(gateway_live.LOOK_EVERY_S)


# Files of the services beside the gateway: the service, and what tells the versions that its processes go by.
_CONFIRMED: Mapping[str, tuple[str, Callable[[Control], set[str] | None]]] = {
    RULES: (ready.POLICY, gateway_live.rules_versions),
    LIMITS_PATH: (ready.BUDGET, gateway_live.limits_versions),
}


def _confirm_loaded(control: Control, path: str, version: str) -> None:
    """Wait until every process of the service goes by this version, if the service runs."""
    service, ask = _CONFIRMED[path]
    end = time.monotonic() + TAKEN_S
    while (versions := ask(control)) is not None and not _only(versions, version):
        if time.monotonic() > end:
            known = ", ".join(sorted(versions)) or "none"
            what = f"{path}: {ready.SERVICES[service]} did not take it up"
            raise FlashboxError(what, f"it goes by {known}", f"python ctl.py logs {service}")
        time.sleep(gateway_live.LOOK_EVERY_S)


def _only(versions: set[str], wanted: str) -> bool:
    """Versions are told by their beginning."""
    return len(versions) == 1 and all(version and wanted.startswith(version) for version in versions)


def _make_anew(control: Control, services: Collection[str]) -> None:
    """Containers of services that hold no stream: the size of bodies, say, decides the memory of the policy service."""
    with control.console.step("start", f"{', '.join(services)}: made anew with new settings"):
        name = lifecycle.project(control)
        control.shell.run(compose.up(name, lifecycle.profiles(control.settings), tuple(services), alone=True))
        ready.await_services(control, services)


@contextmanager
def _taking_back(control: Control, paths: tuple[str, ...], beside: Collection[str]) -> Iterator[None]:
    """Whatever goes wrong in the block, the files are again as they were, and the gateway goes by them."""
    paths += (ENV_PATH,) if beside else ()
    old = {path: text for path, text in control.workspace.on_disk(paths).items() if text is not None}

    def restore() -> None:
        for path in reversed([path for path in old if control.workspace.text(path) != old[path]]):
            control.workspace.replace(path, old[path])
        if ENV_PATH in old:
            with suppress(FlashboxError):  # why the change failed is what the operator needs to know
                _make_anew(control, beside)

    try:
        yield
    except FlashboxError as refused:
        surely(restore)
        with suppress(FlashboxError):
            _await_old(control, old)
        why = f"{refused.why}\nthe files are as they were before, and the gateway serves by them"
        raise FlashboxError(refused.what, why, refused.fix) from None
    except BaseException:  # Ctrl-C
        surely(restore)
        raise


def _await_old(control: Control, old: Mapping[str, str]) -> None:
    for path, text in old.items():
        if path.startswith(DYNAMIC):
            _confirm(control, path, text, {})


_KEPT = "correct config/envoy/ or the setting that it uses; python ctl.py logs gateway"
_RESTART = "python ctl.py gateway status; python ctl.py restart gateway"
