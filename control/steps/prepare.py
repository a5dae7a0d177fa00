"""From settings to files: secrets once, rendering always the same, judged by the real Envoy before anybody reads it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping, Sequence

from control.adapters import envoy
from control.adapters.workspace import AUTH, ENVOY, STACK_YAML, STAMP, UPSTREAM_KEY
from control.context import Control
from control.core import key_file, settings_docs, wiring
from control.core.budget_limits import LIMITS_PATH
from control.core.endpoints import EDS_PATH, eds
from control.core.envoy_files import BOOTSTRAP_PATH
from control.core.errors import PreflightRefused, UsageError
from control.core.gateway_changes import START_PATHS
from control.core.model import ApiKey, Plan, Rendering, Replica
from control.core.planning import plan_capacity
from control.core.rendering import changed, diff, input_digests, render, stale, stamp
from control.steps import certificates

WELL_FORMED = re.compile(r"[\x21-\x7e]{16,256}")  # one word that a header can carry; a line end breaks the header
LISTED = re.compile(r'^\s*\["[0-9a-f]{64}"\] = ', re.MULTILINE)  # a digest in the gateway's table


def initialise(control: Control) -> list[str]:
    """Make what is missing and belongs to the operator from then on; the paths that were made."""
    _refuse_damaged_secrets(control)
    workspace, service = control.workspace, control.settings.service
    owner = (service.uid, service.gid)
    made = [STACK_YAML] if workspace.create(STACK_YAML, settings_docs.stack_yaml()) else []
    if workspace.make_secret(UPSTREAM_KEY, secrets.token_urlsafe(32), owner):
        made.append(UPSTREAM_KEY)
    if workspace.make_secret(wiring.API_KEYS_FILE, key_file.dump(()), owner):
        made.append(wiring.API_KEYS_FILE)
    return made


def stored_keys(control: Control) -> list[ApiKey]:
    text = control.workspace.text(wiring.API_KEYS_FILE)
    if text is None:
        _refuse_lost_keys(control)
        return []
    return list(key_file.parse(text, wiring.API_KEYS_FILE))


def _refuse_damaged_secrets(control: Control) -> None:
    """Before anything is touched: a secret that is there and cannot be right is never replaced behind its owner."""
    try:
        key = control.workspace.text(UPSTREAM_KEY)
    except UsageError:  # in no encoding that a key has
        key = ""
    if key is not None and not WELL_FORMED.fullmatch(key):
        raise PreflightRefused(
            f"{UPSTREAM_KEY}: expected one word of 16 to 256 printable characters, found {_shape(key)}",
            "gateway and replicas know each other by it; with a damaged one every request is refused",
            f"delete it (rm {UPSTREAM_KEY}), run `python ctl.py init`, then restart everything: "
            "python ctl.py down, python ctl.py up",
        )
    if control.workspace.text(wiring.API_KEYS_FILE) is None:
        _refuse_lost_keys(control)


def _shape(key: str) -> str:
    """What a damaged key looks like, without a character of it."""
    if not key.strip():
        return "an empty or unreadable file"
    return f"{len(key)} characters" + (", with space or line ends among them" if re.search(r"\s", key) else "")


def _refuse_lost_keys(control: Control) -> None:
    """The file of the keys is gone while the gateway lists some: an empty list would lock every client out."""
    listed = len(LISTED.findall(control.workspace.text(AUTH) or ""))
    if listed:
        raise PreflightRefused(
            f"{wiring.API_KEYS_FILE} is missing, and {AUTH} lists {listed} keys",
            "an empty list in their place would shut out every client that has one",
            f"restore the file from a backup; or start afresh: rm {AUTH}, then run the command again",
        )


def rendering(control: Control, plan: Plan, keys: Sequence[ApiKey] | None = None) -> Rendering:
    """Every file of this plan; with `keys` instead of the stored ones if given."""
    known = stored_keys(control) if keys is None else keys
    return render(control.settings, plan, known, control.image_refs, control.workspace.sources())


def validate(files: Mapping[str, str]) -> None:
    """Let the real binary judge Envoy's files, every xDS file folded in."""
    envoy.validate({path: text for path, text in files.items() if path.startswith(ENVOY)})


def publish(control: Control, plan: Plan) -> tuple[Rendering, list[str]]:
    """Render and judge, then replace what differs, Envoy's files in their order. The files, and those that changed."""
    workspace = control.workspace
    with workspace.publishing("render"):
        rendered = rendering(control, plan)
        on_disk = _on_disk(control, rendered)
        if changed(rendered, on_disk):
            validate(rendered)
        if warning := certificates.publish(control):
            control.console.note(f"warning  {warning}")
        replaced = workspace.publish(rendered)
        workspace.remove(stale(rendered, on_disk))
        inputs = input_digests(control.settings, plan, stored_keys(control), control.image_refs, workspace.sources())
        workspace.write(STAMP, stamp(rendered, inputs))
    return rendered, replaced


def _on_disk(control: Control, rendered: Rendering) -> dict[str, str | None]:
    """What is there now: the rendering's own paths, and files of an older rendering."""
    own = control.workspace.on_disk(tuple(rendered))
    return {**control.workspace.rendered(), **own}


def difference(control: Control, plan: Plan) -> str:
    """What `publish` would change, as a diff; empty when nothing."""
    rendered = rendering(control, plan)
    return diff(rendered, _on_disk(control, rendered))


def told(rendered: Rendering, replaced: Sequence[str]) -> str:
    """`9 files in run/, 3 changed`."""
    return f"{len(rendered)} files, {len(replaced)} changed" if replaced else f"{len(rendered)} files, none changed"


def needs_gateway_restart(replaced: Collection[str]) -> bool:
    """Envoy reads these when it starts; everything else is taken up while it runs."""
    return not set(START_PATHS).isdisjoint(replaced)


def publish_endpoints(control: Control, replicas: Sequence[Replica], draining: Collection[str] = ()) -> None:
    """Tell the gateway which replicas there are and which of them leave. Dumped from data, so it needs no judge."""
    with control.workspace.publishing("endpoints"):
        control.workspace.write(EDS_PATH, eds(replicas, draining))


def change_keys(control: Control, keys: Sequence[ApiKey]) -> bool:
    """Store the keys and hand their digests to the gateway; False if nothing is rendered yet that could take them.

    Only the files of the keys are replaced; Envoy's is judged together with those that the gateway reads now.
    The caller holds the publishing lock, since it read the keys it changed.
    """
    workspace, service = control.workspace, control.settings.service
    handed = _files_of_keys(control, keys) if workspace.text(BOOTSTRAP_PATH) is not None else {}
    if handed:
        validate({**workspace.envoy_files(), AUTH: handed[AUTH]})
    workspace.write_secret(wiring.API_KEYS_FILE, key_file.dump(keys), (service.uid, service.gid))
    workspace.publish(handed)
    return bool(handed)


def _files_of_keys(control: Control, keys: Sequence[ApiKey]) -> Rendering:
    """What carries keys: their limits, and the gateway's table, which `publish` puts last. Nothing without a plan."""
    try:
        rendered = rendering(control, plan_capacity(control.settings, control.host, control.facts), keys)
    except PreflightRefused:
        return {}
    return {path: rendered[path] for path in (LIMITS_PATH, AUTH)}
