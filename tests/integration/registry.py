"""A real container registry on this machine, with tiny images in it, and a wire in front of it that can be slow."""

from __future__ import annotations

import base64
import io
import json
import shutil
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import requests
import yaml

from tests.eventually import eventually
from tests.integration.stack import ROOT, docker

USER, PASSWORD = "tests", "correct-horse"
HTPASSWD = f"{USER}:$2b$05$WzET3iP.VkhwvE/2rXPem.BR3kfv2Ae7zaDIOEN8mkGZEbr.R0taW\n"
UNPACKED = ROOT / ".venv/opt/docker-registry/usr/bin/docker-registry"  # tools/setup-registry.sh
LOOPBACK = "127.0.0.1"


def program() -> str:
    found = str(UNPACKED) if UNPACKED.exists() else shutil.which("docker-registry")
    assert found, "no docker-registry: tools/setup-registry.sh fetches it"
    return found


def free_port(host: str = LOOPBACK) -> int:
    with socket.socket() as free:
        free.bind((host, 0))
        return int(free.getsockname()[1])


@dataclass
class Registry:
    """One running registry; `storage` may be shared by several."""

    address: str  # host:port, as images are named
    storage: Path

    def push(self, repository: str, tag: str, content: bytes, label: str = "") -> str:
        """A tiny image from nothing, pushed and then forgotten here, so that a pull must fetch it. Its digest."""
        reference = f"{self.address}/{repository}:{tag}"
        change = ["--change", f"LABEL {label}"] if label else []
        made = subprocess.run(["docker", "import", *change, "-", reference], input=_tar(content), capture_output=True)
        assert made.returncode == 0, made.stderr
        docker("push", "--quiet", reference)
        digest = docker("image", "inspect", "--format", "{{index .RepoDigests 0}}", reference).partition("@")[2]
        docker("rmi", "--force", made.stdout.decode().strip())
        return digest

    def delete(self, repository: str, digest: str) -> None:
        gone = requests.delete(f"http://{self.address}/v2/{repository}/manifests/{digest}", timeout=10)
        assert gone.status_code == 202, gone.text

    def tamper(self, repository: str, digest: str) -> None:
        """Change a byte of the image's layer where it is stored."""
        manifest = json.loads(self._blob(digest).read_bytes())
        layer = self._blob(manifest["layers"][0]["digest"])
        raw = bytearray(layer.read_bytes())
        raw[len(raw) // 2] ^= 0xFF
        layer.write_bytes(raw)

    def _blob(self, digest: str) -> Path:
        name = digest.partition(":")[2]
        return self.storage / f"docker/registry/v2/blobs/sha256/{name[:2]}/{name}/data"


def _tar(content: bytes) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        entry = tarfile.TarInfo("content")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


@contextmanager
def serve(
    folder: Path, storage: Path, host: str = LOOPBACK, login: bool = False, certificate: tuple[Path, Path] | None = None
) -> Iterator[Registry]:
    """Run docker-registry by hand with a configuration of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    address = f"{host}:{free_port(host)}"
    http: dict[str, object] = {"addr": address, "secret": "of-the-tests"}
    config: dict[str, object] = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(storage)}, "delete": {"enabled": True}},
        "http": http,
    }
    if certificate:
        http["tls"] = {"certificate": str(certificate[0]), "key": str(certificate[1])}
    if login:
        (folder / "htpasswd").write_text(HTPASSWD)
        config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program(), "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    try:
        eventually(lambda: process.poll() is None and _listens(address), 15)
        yield Registry(address, storage)
    finally:
        process.terminate()
        process.wait(timeout=10)


def _listens(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=1):
        return True


def login_file(path: Path, address: str, password: str = PASSWORD) -> Path:
    """What `docker login` would write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    word = base64.b64encode(f"{USER}:{password}".encode()).decode()
    path.write_text(json.dumps({"auths": {address: {"auth": word}}}))
    return path


def self_signed(folder: Path, host: str) -> tuple[Path, Path]:
    """A certificate for an address, which is its own CA, and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=flashbox-tests", "-addext", f"subjectAltName=IP:{host}"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return folder / "cert.pem", folder / "key.pem"


def bridge_address() -> str:
    """An address of this machine that Docker does not hold for loopback, where any certificate would do."""
    template = "{{range .IPAM.Config}}{{.Gateway}}{{end}}"
    return docker("network", "inspect", "bridge", "--format", template)


@contextmanager
def trusted_by_docker(address: str, ca: Path) -> Iterator[None]:
    """The CA where the daemon looks for it, as an administrator would put it."""
    folder = Path("/etc/docker/certs.d") / address
    folder.mkdir(parents=True)
    try:
        shutil.copy(ca, folder / "ca.crt")
        yield
    finally:
        shutil.rmtree(folder)
        for parent in (folder.parent, folder.parent.parent):
            with suppress(OSError):
                parent.rmdir()  # only if it is empty, so only if it was ours


class Wire:
    """A TCP proxy on loopback that passes so many bytes a second to the client; at 0 nothing comes back at all."""

    def __init__(self, address: str, bytes_per_s: int) -> None:
        host, _, port = address.partition(":")
        self._target, self._rate, self._open = (host, int(port)), bytes_per_s, True
        self._listener = socket.create_server((LOOPBACK, 0))
        self._sockets: list[socket.socket] = []
        self.address = f"{LOOPBACK}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                if not self._rate:
                    continue  # taken, and never answered
                server = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets.append(server)
            threading.Thread(target=self._pass, args=(client, server, 0), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, self._rate), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, rate: int) -> None:
        size = max(1, rate // 20) if rate else 65_536  # what the client sends is not slowed down
        with suppress(OSError):
            while data := source.recv(size):
                target.sendall(data)
                if rate:
                    time.sleep(len(data) / rate)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._open = False
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.close()


@contextmanager
def wire(address: str, bytes_per_s: int) -> Iterator[Wire]:
    made = Wire(address, bytes_per_s)
    try:
        yield made
    finally:
        made.close()


def forget(prefix: str) -> None:
    """Remove every image whose name begins so."""
    names = docker("image", "ls", "--all", "--digests", "--format", "{{.Repository}} {{.ID}}").splitlines()
    ids = {line.split()[1] for line in names if line.startswith(prefix)}
    for each in ids:
        docker("rmi", "--force", each, check=False)
