"""Images from a real registry on loopback: what is pulled is what was learnt, and every refusal says what to do.

Docker takes 127.0.0.0/8 for insecure registries without being told, so plain HTTP and any certificate will do there;
the daemon's bridge address is used where the certificate is the point.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from control.context import Control
from control.core.errors import PreflightRefused
from control.steps import images
from tests.integration import registry as real
from tests.integration.stack import Ran, Stack, copy_tree, docker

NAME = f"flashbox-test-{os.getpid()}/thing"
LOCAL = f"{NAME}:1"
BIG = 3_000_000


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, storage: Path) -> Iterator[real.Registry]:
    """A registry that lets everybody in."""
    with real.serve(tmp_path_factory.mktemp("registry"), storage) as running:
        yield running


@pytest.fixture(scope="module")
def locked_door(tmp_path_factory: pytest.TempPathFactory, storage: Path) -> Iterator[real.Registry]:
    """The same images behind a login."""
    with real.serve(tmp_path_factory.mktemp("locked-door"), storage, login=True) as running:
        yield running


@pytest.fixture
def repository(request: pytest.FixtureRequest) -> str:
    """A repository of the test's own in the shared storage."""
    return "tests/" + str(request.node.name).replace("_", "-").partition("[")[0][:60].strip("-")


class Clone:
    """A copy of the tree whose images.yaml has one image more: `thing`."""

    def __init__(self, root: Path) -> None:
        copy_tree(root)
        self.stack = Stack(root, f"flashbox-test-images-{os.getpid()}", extra_env={"DOCKER_CONFIG": str(root / "none")})
        self.root = root
        self._images = (root / "config/images.yaml").read_text()

    def image(self, upstream: str, **more: object) -> None:
        entry = {"repository": NAME, "tag": "1", "upstream": upstream, **more}
        text = yaml.safe_dump({"thing": {key: value for key, value in entry.items() if value}})
        (self.root / "config/images.yaml").write_text(self._images + "\n" + text)

    def pull(self, *args: str, **env: str) -> Ran:
        return self.stack.ctl("images", "pull", "thing", *args, env=env)

    def forget(self) -> None:
        """Remove the image under every name, so that only the registry has it."""
        docker("rmi", "--force", docker("image", "inspect", "--format", "{{.Id}}", LOCAL))

    @property
    def lock(self) -> dict[str, dict[str, str]]:
        path = self.root / "config/images.lock.yaml"
        return yaml.safe_load(path.read_text()) if path.exists() else {}

    def listed(self) -> dict[str, object]:
        rows = json.loads(self.stack.must("images", "list", "--json").out)
        return next(row for row in rows if row["name"] == "thing")


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    made = Clone(tmp_path / "clone")
    yield made
    docker("rmi", "--force", LOCAL, check=False)
    real.forget(f"{real.LOOPBACK}:")


def refused(ran: Ran, *words: str, code: int = 1) -> None:
    assert ran.code == code, ran.text
    for word in words:
        assert word in ran.err, f"{word!r} is not in\n{ran.err}"
    assert docker("image", "ls", "-q", LOCAL) == "", "nothing may have the image's name"


# ---- what is pulled


def test_a_first_pull_learns_the_digest_and_a_second_one_needs_nothing(
    clone: Clone, registry: real.Registry, repository: str
) -> None:
    digest = registry.push(repository, "1", b"one")
    clone.image(f"{registry.address}/{repository}")
    assert clone.listed()["digest"] is None and clone.listed()["present"] is False
    assert "not learnt" in clone.stack.must("images", "list").out
    ran = clone.pull()
    assert ran.code == 0 and digest in ran.err, ran.text
    assert clone.lock[f"{registry.address}/{repository}:1"]["digest"] == digest
    assert clone.listed()["digest"] == digest and clone.listed()["present"] is True
    before = (clone.root / "config/images.lock.yaml").read_text()
    assert clone.pull().code == 0
    assert (clone.root / "config/images.lock.yaml").read_text() == before
    verified = clone.stack.must("images", "verify", "thing").out
    assert "has the locked digest; its tag still stands for it" in verified


def test_a_tag_that_moved_is_told_and_the_locked_image_is_pulled_until_it_is_renewed(
    clone: Clone, registry: real.Registry, repository: str
) -> None:
    old = registry.push(repository, "1", b"old")
    clone.image(f"{registry.address}/{repository}")
    assert clone.pull().code == 0
    identity = docker("image", "inspect", "--format", "{{.Id}}", LOCAL)
    new = registry.push(repository, "1", b"new")
    clone.forget()
    assert clone.pull().code == 0
    assert docker("image", "inspect", "--format", "{{.Id}}", LOCAL) == identity
    assert f"its tag now stands for {new}" in clone.stack.must("images", "verify", "thing").out
    assert clone.pull("--renew").code == 0
    assert old != new == clone.lock[f"{registry.address}/{repository}:1"]["digest"]
    assert docker("image", "inspect", "--format", "{{.Id}}", LOCAL) != identity


def test_a_mirror_is_asked_instead_and_the_lock_keeps_the_image_s_own_name(
    clone: Clone, registry: real.Registry, repository: str
) -> None:
    digest = registry.push(f"hub.example/{repository}", "1", b"mirrored")
    clone.image(f"hub.example/{repository}")
    ran = clone.pull("--set", f"images.mirror={registry.address}/{{registry}}")
    assert ran.code == 0, ran.text
    entry = clone.lock[f"hub.example/{repository}:1"]
    assert entry["digest"] == digest and entry["from"].startswith(registry.address)


def test_an_image_of_ours_comes_from_a_mirror_only_if_it_is_made_of_this_clone_s_files(
    clone: Clone, registry: real.Registry, repository: str
) -> None:
    content = {
        "kind": "dockerfile",
        "context": "images",
        "dockerfile": "images/x/Dockerfile",
        "inputs": ["images/stub"],
    }
    clone.image("", build=content)
    told = clone.pull("--set", "images.sources.thing=pull")
    refused(told, "images.mirror is not set", code=2)
    mirror = ("--set", "images.sources.thing=pull", "--set", f"images.mirror={registry.address}")
    registry.push(NAME, "1", b"foreign", label="flashbox.content=foreign")
    told = clone.pull(*mirror)
    refused(told, "made of other files than this clone", "found foreign")
    wanted = told.err.partition("expected ")[2].partition(",")[0]
    registry.push(NAME, "1", b"ours", label=f"flashbox.content={wanted}")
    assert clone.pull(*mirror, "--renew").code == 0
    assert "made of this clone's files" in clone.stack.must("images", "verify", "thing", *mirror).out


# ---- what is refused


def test_a_wrong_digest_is_refused_with_expected_and_found(
    clone: Clone, registry: real.Registry, repository: str
) -> None:
    old = registry.push(repository, "1", b"old")
    clone.image(f"{registry.address}/{repository}")
    assert clone.pull().code == 0
    new = registry.push(repository, "1", b"new")
    registry.delete(repository, old)
    clone.forget()
    refused(clone.pull(), f"expected {old}, found {new}", "--renew thing")
    assert clone.lock[f"{registry.address}/{repository}:1"]["digest"] == old


def test_a_layer_that_was_tampered_with_is_refused(clone: Clone, registry: real.Registry, repository: str) -> None:
    digest = registry.push(repository, "1", os.urandom(20_000))
    registry.tamper(repository, digest)
    clone.image(f"{registry.address}/{repository}")
    refused(clone.pull(), "is not the image that was expected")
    assert clone.lock == {}


def test_a_missing_tag_is_named(clone: Clone, registry: real.Registry, repository: str) -> None:
    registry.push(repository, "2", b"another tag")
    clone.image(f"{registry.address}/{repository}")
    refused(clone.pull(), f"does not have {registry.address}/{repository}:1", "config/images.yaml")


def test_a_login_comes_from_docker_s_own_configuration_or_a_named_file_and_is_never_shown(
    clone: Clone, registry: real.Registry, locked_door: real.Registry, repository: str, tmp_path: Path
) -> None:
    registry.push(repository, "1", b"secret")
    clone.image(f"{locked_door.address}/{repository}")
    refused(clone.pull(), "does not let you have", f"docker login {locked_door.address}", "images.auth_file")
    wrong = real.login_file(tmp_path / "wrong.json", locked_door.address, password="wrong-horse")
    refused(clone.pull("--set", f"images.auth_file={wrong}"), "does not let you have")
    refused(clone.pull("--set", "images.auth_file=nowhere.json"), "nowhere.json", code=2)
    good = real.login_file(tmp_path / "docker/config.json", locked_door.address)
    for ran in (
        clone.stack.ctl("-v", "images", "pull", "thing", "--set", f"images.auth_file={good}"),
        clone.stack.ctl("-v", "images", "pull", "thing", "--renew", env={"DOCKER_CONFIG": str(good.parent)}),
    ):
        assert ran.code == 0, ran.text
        word = json.loads(good.read_text())["auths"][locked_door.address]["auth"]
        assert real.PASSWORD not in ran.text and word not in ran.text


def test_a_registry_that_is_gone_is_told_at_once(clone: Clone, repository: str) -> None:
    address = f"{real.LOOPBACK}:{real.free_port()}"
    clone.image(f"{address}/{repository}")
    refused(clone.pull(), f"{address} does not answer", "images.mirror")


def test_a_slow_registry_shows_how_far_it_is_and_ends_at_the_limit(
    clone: Clone, registry: real.Registry, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.push(repository, "1", os.urandom(BIG))
    with real.wire(registry.address, bytes_per_s=200_000) as slow:
        clone.image(f"{slow.address}/{repository}")
        begun = time.monotonic()
        ran = clone.pull("--set", "images.pull_timeout_s=8")
        assert time.monotonic() - begun < 60, "the limit ends it"
    refused(ran, "did not bring", "8 s were not enough: 0 of 1 layers", "images.pull_timeout_s")
    assert "pull     thing: 0 of 1 layers, " in ran.err and "of 2.9 MiB" in ran.err, ran.err


def test_a_registry_that_falls_silent_is_given_up(clone: Clone, registry: real.Registry, repository: str) -> None:
    with real.wire(registry.address, bytes_per_s=0) as silent:
        clone.image(f"{silent.address}/{repository}")
        refused(clone.pull("--set", "images.silence_s=2"), "did not bring", "nothing came for 2 s")


def test_a_certificate_that_the_daemon_does_not_trust_is_told_with_the_place_for_the_ca(
    clone: Clone, registry: real.Registry, repository: str, storage: Path, tmp_path: Path
) -> None:
    registry.push(repository, "1", b"behind TLS")
    host = real.bridge_address()
    certificate = real.self_signed(tmp_path / "ca", host)
    with real.serve(tmp_path / "tls", storage, host=host, certificate=certificate) as private:
        clone.image(f"{private.address}/{repository}")
        place = f"/etc/docker/certs.d/{private.address}/ca.crt"
        refused(clone.pull(), "does not trust the certificate", place, "images.ca_file is for builds")
        with real.trusted_by_docker(private.address, certificate[0]):
            ran = clone.pull()
            assert ran.code == 0, ran.text
    real.forget(f"{host}:")


# ---- when a stack needs it


@pytest.fixture
def obtain(clone: Clone) -> Callable[..., images.Obtained]:
    """What `up` does before it starts anything, for the one image."""

    def have(*assignments: str, optional: tuple[str, ...] = ()) -> images.Obtained:
        control = Control(clone.root, clone.stack.env)
        control.assignments = assignments
        return images.obtain(control, [control.image_refs["thing"]], optional)

    return have


def test_auto_pulls_while_the_registry_answers_and_builds_when_it_does_not(
    clone: Clone,
    registry: real.Registry,
    repository: str,
    obtain: Callable[..., images.Obtained],
    capfd: pytest.CaptureFixture[str],
) -> None:
    (clone.root / "images/thing").mkdir()
    (clone.root / "images/thing/Dockerfile").write_text("ARG BASE\nFROM scratch\nCOPY thing/Dockerfile /content\n")
    recipe = {
        "kind": "dockerfile", "context": "images", "dockerfile": "images/thing/Dockerfile", "inputs": ["images/thing"],
        "from": "base",
    }  # fmt: skip
    digest = registry.push(repository, "1", b"upstream")
    clone.image(f"{registry.address}/{repository}", build=recipe)
    assert obtain().text == "thing pulled"
    assert clone.lock[f"{registry.address}/{repository}:1"]["digest"] == digest
    assert obtain().text == "all there"
    clone.forget()
    gone = f"{real.LOOPBACK}:{real.free_port()}"
    clone.image(f"{gone}/{repository}", build=recipe)
    assert obtain().text == "thing built"
    assert f"{gone} does not answer, so it is built here" in capfd.readouterr().err
    assert obtain().text == "all there"
    assert "made of this clone's files" in clone.stack.must("images", "verify", "thing").out


def test_a_required_image_that_cannot_be_had_refuses_and_docker_load_is_the_way(
    clone: Clone, registry: real.Registry, repository: str, obtain: Callable[..., images.Obtained], tmp_path: Path
) -> None:
    registry.push(repository, "1", b"carried over")
    clone.image(f"{registry.address}/{repository}")
    obtain()
    docker("save", "--output", str(tmp_path / "image.tar"), LOCAL)
    clone.forget()
    gone = ("images.mirror=" + f"{real.LOOPBACK}:{real.free_port()}",)
    with pytest.raises(PreflightRefused) as caught:
        obtain(*gone)
    assert caught.value.exit_code == 3 and "docker load" in caught.value.fix and LOCAL in caught.value.what
    docker("load", "--input", str(tmp_path / "image.tar"))
    assert obtain(*gone).text == "all there"


def test_an_optional_image_that_cannot_be_had_is_set_aside_and_named(
    clone: Clone,
    repository: str,
    obtain: Callable[..., images.Obtained],
    capfd: pytest.CaptureFixture[str],
) -> None:
    clone.image(f"{real.LOOPBACK}:{real.free_port()}/{repository}")
    assert [ref.name for ref in obtain(optional=("thing",)).missing] == ["thing"]
    told = capfd.readouterr().err
    assert "thing is left out" in told and "docker load" in told
