"""Does the running gateway see what is published? Its mount shows an old folder once run/ was deleted and made anew."""

from __future__ import annotations

import hashlib
import time

from control.adapters.workspace import AUTH, ENVOY
from control.context import Control
from control.core import wiring
from control.core.errors import FlashboxError
from control.steps.ready import GATEWAY

SEEN_S = 5.0  # a rename is seen at once on Linux; a virtual machine's file sharing takes a moment
LOOK_EVERY_S = 0.2
INSIDE = f"{wiring.ENVOY_DIR}/{AUTH.removeprefix(ENVOY)}"
DIGEST = (
    "import hashlib, os, sys; p = sys.argv[1]; "
    "print(hashlib.sha256(open(p, 'rb').read()).hexdigest() if os.path.exists(p) else 'no file')"
)


def gateway_sees(control: Control) -> bool | None:
    """Whether the gateway's container reads the keys that are published; None if none runs or it cannot be asked."""
    try:
        inside = control.dockerd.run_in(GATEWAY, ("python3", "-c", DIGEST, INSIDE))
    except FlashboxError:  # no daemon, so no gateway of ours that we could ask
        return None
    text = control.workspace.text(AUTH)
    if inside is None or text is None:
        return None
    return inside.strip() == hashlib.sha256(text.encode()).hexdigest()


def require_seen(control: Control) -> None:
    """Raise if a gateway runs and keeps reading something else than what is published."""
    end = time.monotonic() + SEEN_S
    while gateway_sees(control) is False:
        if time.monotonic() > end:
            raise FlashboxError(
                "the running gateway does not see the published keys",
                "its container reads another run/envoy: run/ was deleted and made anew while it ran;\n"
                "until it restarts it goes by the keys that it had",
                "python ctl.py restart gateway",
            )
        time.sleep(LOOK_EVERY_S)
