"""entry.py without Envoy: its configuration, its arguments and what it calls quiet."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from envoy_run.admin import AdminSilent, Quiet
from envoy_run.launch import Config

from control.core import envoy_versions, policies, wiring
from control.core.model import Plan
from control.core.settings import Settings
from tests.sources import SOURCES

STANDARD = "config/policies/standard.yaml"
PATH = Path(__file__).parents[3] / "images" / "gateway" / "entry.py"


@pytest.fixture(scope="module")
def entry() -> ModuleType:
    """The script as a module; it stands in no package."""
    spec = importlib.util.spec_from_file_location("gateway_entry", PATH)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_its_defaults_are_the_paths_and_settings_of_the_product() -> None:
    config = Config()
    assert config.folder == wiring.ENVOY_DIR
    assert config.admin_socket == wiring.GATEWAY_ADMIN_SOCKET
    assert config.secret == f"{wiring.SECRETS_MOUNT}/{wiring.UPSTREAM_KEY}"
    gateway = Settings().gateway
    assert (config.drain_s, config.concurrency) == (gateway.drain_s, gateway.concurrency)
    assert config.max_stream_s == policies.parse(SOURCES[STANDARD], STANDARD).timeouts.max_stream_s


def rendered(folder: Path, files: tuple[str, ...] = ("lds.yaml", "eds.yaml"), **gateway: object) -> Path:
    """entry.json as the product renders it for these settings."""
    settings = Settings.model_validate({"gateway": gateway})
    policy = policies.parse(SOURCES[STANDARD], STANDARD)
    rules = policies.govern(settings, Plan("stub", (), "", ""), policy)
    path = folder / "entry.json"
    path.write_text(
        envoy_versions.entry_json(settings, rules, [envoy_versions.DYNAMIC + name for name in (*files, "../b.yaml")])
    )
    return path


def test_what_is_rendered_is_stronger_than_the_environment(tmp_path: Path) -> None:
    rendered(tmp_path, concurrency=7, max_stream_s=99.5)
    config = Config(folder=str(tmp_path), concurrency=3, drain_s=5.0).rendered()
    assert (config.concurrency, config.max_stream_s, config.drain_s) == (7, 99.5, 5.0)
    assert set(config.dynamic) >= {"lds.yaml", "eds.yaml"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"concurrency": 2}', '{"concurrency": "x", "max_stream_s": 1}'])
def test_rendered_settings_that_make_no_sense_are_an_error_in_words(tmp_path: Path, text: str) -> None:
    (tmp_path / "entry.json").write_text(text)
    with pytest.raises(ValueError, match=r"."):
        Config(folder=str(tmp_path)).rendered()


def test_the_environment_replaces_defaults_and_empty_means_default() -> None:
    given = {"GATEWAY_DRAIN_S": "12.5", "GATEWAY_CONCURRENCY": "8", "GATEWAY_LOG_LEVEL": "", "OTHER": "x"}
    config = Config.read(given)
    assert (config.drain_s, config.concurrency, config.log_level) == (12.5, 8, "warning")


@pytest.mark.parametrize("variable", ["GATEWAY_DRAIN_S", "GATEWAY_CONCURRENCY", "GATEWAY_MAX_STREAM_S"])
def test_a_number_that_is_none_ends_it_before_envoy_starts(
    entry: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str
) -> None:
    monkeypatch.setenv(variable, "soon")
    monkeypatch.setattr(entry.signal, "pthread_sigmask", lambda *_: None)
    assert entry.main([]) == entry.EXIT_NOT_CONFIGURED
    assert '"phase": "failed"' in capsys.readouterr().out


def test_an_argument_that_it_does_not_know_is_a_usage_error(
    entry: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entry.signal, "pthread_sigmask", lambda *_: None)
    assert entry.main(["raedy"]) == entry.EXIT_USAGE
    assert "raedy" in capsys.readouterr().err


def test_what_cannot_be_read_is_listed(tmp_path: Path) -> None:
    for name in ("bootstrap.yaml", "dynamic/lds.yaml", "dynamic/eds.yaml", "b.yaml", "key"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    rendered(tmp_path)
    good = Config(folder=str(tmp_path), secret=str(tmp_path / "key"), envoy=sys.executable).rendered()
    assert good.missing() == []
    (tmp_path / "dynamic" / "eds.yaml").unlink()
    (tmp_path / "dynamic" / "eds.yaml").mkdir()  # what Docker makes of a missing file that is mounted
    assert good.missing() == [str(tmp_path / "dynamic" / "eds.yaml")]
    (tmp_path / "entry.json").unlink()
    bad = Config(folder=str(tmp_path), secret="/no/key", envoy="/no/envoy").rendered()
    assert bad.missing() == [str(tmp_path / "entry.json"), "/no/key", "/no/envoy"]


def after(command: tuple[str, ...], option: str) -> int:
    return int(command[command.index(option) + 1])


def test_no_stream_is_longer_than_the_drain_time_nor_than_the_life_of_the_envoy_before() -> None:
    command = Config(max_stream_s=3600.5).command(epoch=4)
    assert after(command, "--parent-shutdown-time-s") > after(command, "--drain-time-s") > 3600.5
    assert after(command, "--restart-epoch") == 4
    assert "--reject-unknown-dynamic-fields" in command


def test_streams_that_began_under_a_longer_limit_keep_it_through_a_hot_restart() -> None:
    command = Config(max_stream_s=60.0).command(epoch=1, oldest_stream_s=14_400.0)
    assert after(command, "--parent-shutdown-time-s") > 14_400


class FakeAdmin:
    """Answers in turn: requests, unsent bytes and charges that wait to be repeated, or a failure."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)

    def ask(self, method: str, path: str) -> str:
        answer = self._answers.pop(0)
        if not isinstance(answer, tuple):
            raise AdminSilent("x")
        requests, unsent, *charges = answer
        names = zip(("rq_active", "cx_tx_bytes_buffered", "cx_active"), (requests, unsent, 7), strict=True)
        said = "".join(f"http.ingress_http.downstream_{name}: {value}\n" for name, value in names)
        left = [f"cluster.budget_done.circuit_breakers.default.remaining_retries: {20_000 - n}\n" for n in charges]
        return said + "".join(left)


@pytest.mark.parametrize(
    ("answers", "verdicts", "left"),
    [
        ([(0, 0), (0, 0)], [False, True], 0),
        ([(1, 0), (0, 0), (0, 0)], [False, False, True], 0),
        ([(0, 0), (3, 0), (0, 0)], [False, False, False], 0),
        ([(0, 512), (0, 512)], [False, False], 0),  # a slow reader still gets its bytes
        ([(0, 0, 0), (0, 0, 0)], [False, True], 0),
        ([(0, 0, 1), (0, 0, 1), (0, 0, 0), (0, 0, 0)], [False, False, False, True], 0),  # of a request that has ended
        ([(0, 0), "silent", (0, 0), (0, 0)], [False, False, False, True], 0),
        ([(2, 0), "silent"], [False, False], None),  # not learnt is not zero
    ],
)
def test_quiet_is_nothing_in_flight_twice_in_a_row_and_silence_is_not_quiet(
    answers: list[object], verdicts: list[bool], left: int | None
) -> None:
    quiet = Quiet(FakeAdmin(*answers))  # type: ignore[arg-type]
    assert [quiet() for _ in answers] == verdicts
    assert quiet.left == left
