"""The certificate of the public port: put where the gateway reads it, both files at once, while it runs."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from control.adapters import certificates, files
from control.adapters.certificates import Certificate, Pair
from control.adapters.workspace import CERTIFICATE
from control.context import Control
from control.core import wiring
from control.core.errors import FlashboxError, UsageError

SOON = timedelta(days=30)  # before its end one of ours is replaced, and others are complained about
KEY = f"{wiring.TLS_FOLDER}/{wiring.TLS_CURRENT}/{wiring.TLS_KEY}"


def publish(control: Control) -> str | None:
    """Make the folder, and what is in it right; returns what the operator should know. May be called at any time."""
    service, tls = control.settings.service, control.settings.gateway.tls
    folder, owner = control.root / wiring.TLS_FOLDER, (service.uid, service.gid)
    files.make_folder(folder.parent, 0o700)
    files.make_folder(folder, 0o700, owner)
    if tls.mode == "off":
        return None
    now = datetime.now(timezone.utc)
    if tls.mode == "files":
        pair = Pair(_read(control, tls.certificate), _read(control, tls.key))
        seen = certificates.looked_at(pair, tls.certificate, tls.key, now)
    else:
        pair, seen = _trial(control, now)
    _put(folder, pair, owner)
    return _ends_soon(seen, now) if tls.mode == "files" else None


def _trial(control: Control, now: datetime) -> tuple[Pair, Certificate]:
    """The one that is there, as long as it has the right names and time left; else a new one."""
    names = control.settings.gateway.tls.names
    there = control.workspace.text(CERTIFICATE), control.workspace.text(KEY)
    if there[0] is not None and there[1] is not None:
        pair = Pair(there[0], there[1])
        try:
            seen = certificates.looked_at(pair, CERTIFICATE, KEY, now)
        except UsageError:  # damaged or over: it is ours to replace
            seen = None
        if seen and seen.trial and set(seen.names) == set(names) and seen.expires - now > SOON:
            return pair, seen
    pair = certificates.self_signed(names, now)
    return pair, certificates.looked_at(pair, CERTIFICATE, KEY, now)


def _read(control: Control, path: str) -> str:
    """An operator's file; relative paths are the clone's."""
    try:
        text = files.read(control.root / Path(path).expanduser())
    except PermissionError:
        raise FlashboxError(f"{path}: may not be read", "", "Run this as a user who may read it.") from None
    except IsADirectoryError:
        text = None
    if text is None:
        raise UsageError(
            f"{path}: no such file", "gateway.tls.mode is files", "Correct gateway.tls.certificate and .key."
        )
    return text


def _put(folder: Path, pair: Pair, owner: files.Owner) -> None:
    """Both files in a folder of their own, then the link that the gateway follows is swapped."""
    home = folder / pair.digest
    files.make_folder(home, 0o700, owner)
    files.publish_if_changed(home / wiring.TLS_CERTIFICATE, pair.certificate, 0o644, owner)
    files.publish_if_changed(home / wiring.TLS_KEY, pair.key, 0o600, owner)
    files.restrict(home / wiring.TLS_KEY, 0o600, owner)
    before = files.publish_link(folder / wiring.TLS_CURRENT, home.name)
    files.remove_other_folders(folder, (home.name, before))


def _ends_soon(seen: Certificate, now: datetime) -> str | None:
    left = seen.expires - now
    if left > SOON:
        return None
    return f"the certificate for {', '.join(seen.names)} expires in {left.days} days"
