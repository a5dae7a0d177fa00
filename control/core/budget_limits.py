"""run/budget/limits.json: tokens per minute and streams of everybody, and of keys that have their own.

The budget service takes it up within a second; a key table that names new keys is published after it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from control.core.header import json_with_note
from control.core.model import ApiKey
from control.core.policies import Governance

LIMITS_PATH = "run/budget/limits.json"


def limits_json(rules: Governance, keys: Sequence[ApiKey]) -> str:
    """The text of the file; the same content has the same version."""
    content = {
        "max_stream_s": rules.max_stream_s,
        "observe": rules.observe,
        "default": {"tpm": rules.tokens_per_minute, "streams": rules.streams},
        "keys": {key.name: own for key in sorted(keys, key=lambda key: key.name) if (own := _own(key))},
    }
    version = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json_with_note({"version": version, **content})


def _own(key: ApiKey) -> dict[str, int]:
    """What the key does not share with everybody; 0 is no limit."""
    return {name: value for name, value in (("tpm", key.tpm), ("streams", key.streams)) if value is not None}


def is_counted(key: ApiKey, rules: Governance) -> bool:
    """Whether a limit of tokens or streams is in force for the key: without one nobody is asked."""
    tpm = rules.tokens_per_minute if key.tpm is None else key.tpm
    streams = rules.streams if key.streams is None else key.streams
    return bool(tpm or streams)
