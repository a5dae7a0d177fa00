"""Clients' keys: granted and taken away live, one writer at a time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone

from control.adapters.gateway_client import Answer, GatewayClient, Refused
from control.context import Control
from control.core import keys as api_keys
from control.core import moments
from control.core.errors import FlashboxError, UsageError
from control.core.model import ApiKey
from control.steps import prepare, published
from control.steps.undo import surely

TAKEN_UP_S = 10.0  # Envoy reads a new key file in well under a second
SMOKE_OWNER = "ctl.py smoke"
SMOKE_LASTS = "1h"
ENVIRONMENT_KEY = "FLASHBOX_API_KEY"
NO_LIMITS: Mapping[str, str | None] = {}


def change(control: Control, how: Callable[[Sequence[ApiKey]], Sequence[ApiKey]]) -> bool:
    """Read, change and publish the keys under the lock; False if no gateway can take them up yet."""
    with control.workspace.publishing("keys"):
        return prepare.change_keys(control, how(prepare.stored_keys(control)))


def grant(
    control: Control,
    name: str,
    owner: str,
    expires: str | None = None,
    models: Sequence[str] = (),
    typed: Mapping[str, str | None] = NO_LIMITS,
) -> tuple[str, bool]:
    """A new key, and whether the gateway has been handed its digest; `typed`: as in `limit`."""
    api_keys.require_served(models, [control.settings.engine.served_model_name])
    time_now = now()
    rights = api_keys.Rights(moments.ahead(expires, time_now, "--expires") if expires else None, tuple(models))
    own = api_keys.limits_of(typed) if any(words is not None for words in typed.values()) else {}
    key, created = _drawn(), moments.text(time_now)
    return key, change(
        control, lambda known: api_keys.limit(api_keys.add(known, name, owner, key, created, rights), name, own)
    )


def rotate(control: Control, name: str, keep: str) -> tuple[str, bool]:
    """A new key under a name that has one, and whether the gateway has been handed its digest."""
    key, time_left = _drawn(), moments.span(keep, "--keep")
    return key, change(control, lambda known: api_keys.rotate(known, name, key, now(), time_left))


def limit(control: Control, name: str, typed: Mapping[str, str | None]) -> bool:
    """Limits of one key's own, option -> what was typed; False if no gateway can take them up yet."""
    changed = api_keys.limits_of(typed)
    return change(control, lambda known: api_keys.limit(known, name, changed))


def now() -> datetime:
    return datetime.now(timezone.utc)


def _drawn() -> str:
    return api_keys.new_key(secrets.token_bytes(api_keys.RANDOM_BYTES))


@contextmanager
def key_for(control: Control, client: GatewayClient) -> Iterator[str]:
    """The operator's own key, or one that lives as long as the block."""
    own = control.environ.get(ENVIRONMENT_KEY)
    if own:
        with _naming_its_origin(own):
            yield own
        return
    name = f"smoke-{secrets.token_hex(4)}"
    try:
        key, _ = grant(control, name, SMOKE_OWNER, SMOKE_LASTS)  # a kill -9 leaves it, and it ends by itself
        published.require_seen(control)
        _await_accepted(client, key)
        yield key
    finally:
        surely(lambda: _forget(control, name))


@contextmanager
def _naming_its_origin(key: str) -> Iterator[None]:
    """The operator's own key: what is wrong with it is told with the place it came from, and never with the key."""
    if not all("!" <= letter <= "~" for letter in key):
        found = "a line break, a space or a character outside ASCII"
        fix = f"set it to the key as `keys add` printed it, or unset {ENVIRONMENT_KEY}: smoke then makes a key"
        raise UsageError(f"the variable {ENVIRONMENT_KEY} holds no API key", f"expected fb-..., found {found}", fix)
    try:
        yield
    except Refused as refused:
        if refused.status != 401:
            raise
        why = f"{refused.why}\nthe key is from the variable {ENVIRONMENT_KEY}, id {api_keys.digest(key)[:12]}"
        fix = f"`python ctl.py keys list` shows the ids that count; unset {ENVIRONMENT_KEY}: smoke then makes a key"
        raise FlashboxError(refused.what, why, fix) from None


def _forget(control: Control, name: str) -> None:
    """Revoke a key that may have been stored before the command was interrupted."""
    if any(key.name == name for key in prepare.stored_keys(control)):
        change(control, lambda known: [key for key in known if key.name != name])


def _await_accepted(client: GatewayClient, key: str) -> None:
    end = time.monotonic() + TAKEN_UP_S
    while (answer := client.models(key)).status != 200:
        if time.monotonic() > end:
            raise _not_accepted(answer)
        time.sleep(0.05)


def _not_accepted(answer: Answer) -> FlashboxError:
    """What the gateway said last: only a 401 is about the key."""
    what = f"the gateway answered {answer.status}" if answer.status else "the gateway does not answer"
    if answer.status == 401:
        what = "the gateway does not accept a new key"
    why = f"/v1/models still answers {answer} after {TAKEN_UP_S:.0f} s"
    return FlashboxError(what, why, "python ctl.py status; python ctl.py logs gateway")
