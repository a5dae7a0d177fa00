"""Builds the bundle's images without a container registry; an image whose inputs have not changed is left alone.

An image carries the SHA-256 of everything it was built from as a label. That label, not the build
cache, decides: a second build of an unchanged tree asks Docker once per image and does nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from control.adapters import files
from control.adapters.shell import Shell
from control.core import check_rules, images, wiring
from control.core.errors import FlashboxError, PreflightRefused
from control.core.model import ImageRef
from control.core.settings import Settings

Report = Callable[[str], None]
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
NOT_PACKED = ("dev/*", "proc/*", "sys/*", "var/cache/apt/archives/*.deb")
PIP_VARIABLES = {"PIP_INDEX_URL": "index-url", "PIP_EXTRA_INDEX_URL": "extra-index-url"}


def load(root: Path) -> dict[str, ImageRef]:
    """Every image of config/images.yaml by name."""
    text = files.read(root / "config/images.yaml")
    if text is None:
        raise FlashboxError(
            "config/images.yaml is missing", "it is part of the bundle", "git checkout config/images.yaml"
        )
    return images.parse(text)


def content_hashes(root: Path, refs: Mapping[str, ImageRef]) -> dict[str, str]:
    """What each image that we build should be made of, as one SHA-256 each."""
    hashes: dict[str, str] = {}
    for ref in images.build_order(refs, tuple(refs)):
        parents = [hashes[name] for name in images.parents(ref)]
        hashes[ref.name] = images.content_hash(ref, _digests(root, images.inputs(ref)), parents)
    return hashes


def present_hashes(refs: Mapping[str, ImageRef], shell: Shell) -> dict[str, str | None]:
    """The content label of each image that Docker has; None for one that was not built by us."""
    found: dict[str, str | None] = {}
    template = f'{{{{index .Config.Labels "{wiring.CONTENT_LABEL}"}}}}'
    for name, ref in refs.items():
        done = shell.probe(("docker", "image", "inspect", "--format", template, ref.reference), timeout_s=30)
        if done.ok:
            found[name] = done.out.strip() or None
    return found


def build_all(root: Path, settings: Settings, shell: Shell, report: Report, names: Sequence[str] = ()) -> list[str]:
    """Build what is missing or out of date, in order; return the names of what was built.

    Raises FlashboxError with the last lines of the tool that failed.
    """
    refs = load(root)
    wanted, present = content_hashes(root, refs), present_hashes(refs, shell)
    built: list[str] = []
    for ref in images.build_order(refs, names):
        if present.get(ref.name) == wanted[ref.name]:
            continue
        report(f"{ref.reference}: {'inputs changed' if ref.name in present else 'not there yet'}")
        _build(root, ref, refs, wanted[ref.name], settings, shell)
        built.append(ref.name)
    if built:
        # What the new image replaced has no name any more; one that a container still uses stays.
        shell.probe(("docker", "image", "prune", "--force", "--filter", f"label={wiring.CONTENT_LABEL}"), timeout_s=60)
    return built


def _build(
    root: Path, ref: ImageRef, refs: Mapping[str, ImageRef], content: str, settings: Settings, shell: Shell
) -> None:
    with _build_inputs(settings, shell) as secrets:
        if ref.build["kind"] == "debootstrap":
            with _rootfs(root, ref, settings, shell) as context:
                arguments = {
                    "SUITE": str(ref.build["suite"]),
                    "PACKAGES": " ".join(images.packages(ref)),
                    "SECURITY_MIRROR": settings.images.debian_security_mirror or "",
                }
                shell.run(_buildx(ref, context, context / "Dockerfile", arguments, content, secrets))
        else:
            arguments = {"BASE": refs[str(ref.build["from"])].reference, **images.arguments(ref)}
            context = root / str(ref.build["context"])
            shell.run(_buildx(ref, context, root / str(ref.build["dockerfile"]), arguments, content, secrets))


def _buildx(
    ref: ImageRef,
    context: Path,
    dockerfile: Path,
    arguments: Mapping[str, str],
    content: str,
    secrets: Mapping[str, Path],
) -> tuple[str, ...]:
    # The builder named default is the daemon's own: the only one that sees our base image.
    words = [
        "docker",
        "buildx",
        "build",
        "--builder",
        "default",
        "--progress",
        "plain",
        "--load",
        "--provenance",
        "false",
    ]
    words += ["--tag", ref.reference, "--label", f"{wiring.CONTENT_LABEL}={content}", "--file", str(dockerfile)]
    for name, value in arguments.items():
        words += ["--build-arg", f"{name}={value}"]
    for name in PROXY_VARIABLES:
        if name in os.environ:
            words += ["--build-arg", name]  # by name: the value, which may hold a password, stays out of argv
    for name, path in secrets.items():
        words += ["--secret", f"id={name},src={path}"]
    return (*words, str(context))


@contextmanager
def _rootfs(root: Path, ref: ImageRef, settings: Settings, shell: Shell) -> Iterator[Path]:
    """A build context with rootfs.tar, made by debootstrap; needs root, as chroot does."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise PreflightRefused(
            f"{ref.reference} cannot be built here",
            "it is made with debootstrap, which needs root" if os.geteuid() else "debootstrap is not installed",
            "as root: apt-get install debootstrap && python ctl.py images build",
        )
    with tempfile.TemporaryDirectory(prefix="flashbox-base-") as folder:
        context, tree = Path(folder), Path(folder) / "root"
        if shutil.disk_usage(folder).free < check_rules.BUILD_BYTES:
            raise PreflightRefused(
                f"{folder} has too little room", "a build needs 3 GiB for scratch", "free space, or set TMPDIR"
            )
        mirror = (settings.images.debian_mirror,) if settings.images.debian_mirror else ()
        # debootstrap refuses a scratch folder mounted nodev or noexec in words of its own.
        shell.run(
            ("debootstrap", "--variant=minbase", str(ref.build["suite"]), str(tree), *mirror), env=_debootstrap_env()
        )
        without = (f"--exclude=./{path}" for path in NOT_PACKED)
        shell.run(("tar", "-C", str(tree), "--numeric-owner", *without, "-cf", str(context / "rootfs.tar"), "."))
        shutil.copy(root / "images/base/Dockerfile", context / "Dockerfile")
        (context / ".dockerignore").write_text("*\n!rootfs.tar\n", encoding="utf-8")
        yield context


def _debootstrap_env() -> dict[str, str]:
    # sbin is missing from the path of `su` and cron on Debian, and debootstrap needs it.
    return {"PATH": f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"}


@contextmanager
def _build_inputs(settings: Settings, shell: Shell) -> Iterator[dict[str, Path]]:
    """The CA bundle and pip's settings as build secrets: an index address may hold a password, so never an argument."""
    found: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(prefix="flashbox-build-") as folder:
        ca = settings.images.ca_file or os.environ.get("SSL_CERT_FILE")
        if ca and not Path(ca).is_file():
            raise FlashboxError(
                f"the CA bundle {ca} is not a file", "named by images.ca_file or SSL_CERT_FILE", "mend the path"
            )
        if ca:
            found["ca"] = Path(ca)
        conf = Path(folder) / "pip.conf"
        conf.touch(mode=0o600)
        conf.write_text(_pip_conf(settings, shell), encoding="utf-8")
        found["pip"] = conf
        yield found


def _pip_conf(settings: Settings, shell: Shell) -> str:
    options = {}
    for line in shell.probe(("python3", "-m", "pip", "config", "list"), timeout_s=30).out.splitlines():
        name, _, value = line.partition("=")
        if name.startswith("global.") and name.removeprefix("global.") in (*PIP_VARIABLES.values(), "trusted-host"):
            options[name.removeprefix("global.")] = value.strip("'\"")
    options |= {option: os.environ[name] for name, option in PIP_VARIABLES.items() if name in os.environ}
    if settings.images.pip_index_url:
        options["index-url"] = settings.images.pip_index_url
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in options.items())


def _digests(root: Path, folders: Sequence[str]) -> dict[str, str]:
    """SHA-256 and executable bit of every file below the folders (compiled Python aside)."""
    found: dict[str, str] = {}
    for folder in folders:
        base = root / folder
        for path in sorted(base.rglob("*")) if base.is_dir() else [base]:
            if path.is_file() and "__pycache__" not in path.parts:
                executable = "x" if path.stat().st_mode & 0o100 else "-"
                found[path.relative_to(root).as_posix()] = executable + hashlib.sha256(path.read_bytes()).hexdigest()
    return found
