"""The service as a process: ends of every kind, disks and files of every kind, one owner, and what it shows."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from control.core import usage
from tests.contract.budget.process import MESSAGES, OVER, SOON_S, Budget
from tests.eventually import eventually

TODAY_FILES = "*.jsonl"


def balance(budget: Budget, name: str) -> int:
    value = budget.key(name)["balance"]
    assert isinstance(value, int)
    return value


# ---- what it answers


def test_a_budget_that_is_used_up_is_refused_with_a_body_of_its_own(budget: Budget) -> None:
    assert budget.admits("debt", "r1")
    budget.finish("debt", "r1", 60_000)
    answer = budget.check("debt", "r2", MESSAGES)
    assert answer.status == 429 and answer.headers["x-flashbox-limit"] == "tokens_per_minute"
    assert json.loads(answer.body)["request_id"] == answer.headers["request-id"] == "r2"
    assert 530 < int(answer.headers["retry-after"]) <= 541
    assert budget.admits("nobody in particular", "r3")


def test_places_are_exact_and_come_back_with_the_end(budget: Budget) -> None:
    assert [budget.admits("few", f"r{n}") for n in range(5)] == [True] * 4 + [False]
    budget.finish("few", "r0")
    assert budget.admits("few", "r5") and budget.key("few")["leases"] == 4


def test_another_boot_of_a_gateway_frees_what_it_held_and_only_that(budget: Budget) -> None:
    budget.check("few", "r1", boot="one:1")
    budget.check("few", "r2", boot="two:1")
    budget.check("few", "r3", boot="one:2")
    assert budget.key("few")["leases"] == 2


def test_limits_that_are_only_observed_refuse_nobody_and_mark_the_request(budget: Budget) -> None:
    budget.observe(few={"streams": 2}, debt={"tpm": 6000})
    budget.finish("debt", "r0", 60_000)
    told = [budget.check(key, f"{key}{n}") for key in ("few", "debt") for n in range(3)]
    marks = [one.headers.pop("x-flashbox-would-refuse", None) for one in told]
    assert marks == [None, None, "streams", *["tokens_per_minute"] * 3]
    assert all(one.status == 200 and not one.body for one in told)
    names = {name for one in told for name in one.headers}
    assert names == {"content-length", *(f"x-ratelimit-{name}-tokens" for name in ("limit", "remaining", "reset"))}
    assert budget.metric("budget_checks_total", key="few", answer="admitted") == 2
    assert budget.metric("budget_checks_total", key="few", answer="would_streams") == 1
    assert budget.metric("budget_checks_total", key="debt", answer="would_tokens") == 3
    assert budget.metric("budget_requests_total", key="few", result="refused") == 0


def test_what_would_have_been_refused_is_written_down_and_not_owed_after_observing(budget: Budget) -> None:
    budget.observe(debt={"tpm": 6000})
    budget.finish("debt", "r0", 6100)
    for name in ("r1", "r2"):
        budget.check("debt", name)
        budget.finish("debt", name, 60_000)
        budget.finish("debt", name, 60_000)
    assert budget.used("debt").total == 126_100 and balance(budget, "debt") >= -100
    budget.end()
    budget.start()
    assert budget.used("debt").total == 126_100 and balance(budget, "debt") >= -100
    budget.limit(debt={"tpm": 6000})
    eventually(lambda: budget.admits("debt", "r3"), SOON_S)


def test_what_the_gateway_refused_by_itself_is_counted_and_needs_no_end(budget: Budget) -> None:
    who = {"op": "refused", "client": "few", "path": MESSAGES, "key_id": "ab"}
    for n in range(3):
        assert budget.call({**who, "id": f"r{n}", "reason": "limit_key_minute"}).overall_code != OVER
    budget.call({**who, "id": "r3", "reason": "expired_api_key"})
    assert budget.metric("budget_requests_total", key="few", result="refused") == 4
    eventually(lambda: budget.used("few").refused == 4, SOON_S)
    kinds = {(line["why"], line["status"], line["n"], line["route"], line["key_id"]) for line in budget.ledger}
    assert kinds == {("limit_key_minute", 429, 3, MESSAGES, "ab"), ("expired_api_key", 401, 1, MESSAGES, "ab")}
    assert budget.key("few")["leases"] == 0


def test_the_end_of_a_refused_request_is_no_news_but_one_that_passed_all_the_same_is_charged(budget: Budget) -> None:
    budget.finish("debt", "r1", 60_000)
    assert not budget.admits("debt", "r2") and not budget.admits("debt", "r3")
    budget.finish("debt", "r2", 0, status="429", prompt="0", completion="0")
    budget.finish("debt", "r3", 31)  # the gateway did not wait for the answer
    eventually(lambda: budget.used("debt").refused == 2, SOON_S)
    assert (budget.used("debt").requests, budget.used("debt").total) == (4, 60_031)
    assert budget.metric("budget_requests_total", key="debt", result="refused") == 2


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("POST", "/check/v1/chat/completions", {}),
        ("POST", "/check/v1/chat/completions", {"x-client": "few"}),
        ("POST", "/check/v1/chat/completions", {"x-client": "-", "x-request-id": "r"}),
        ("POST", "/v1/chat/completions", {"x-client": "few", "x-request-id": "r"}),
        ("POST", "/check/", {"x-client": "few", "x-request-id": "r", "content-length": "5"}),
        ("POST", "/check/", {"x-client": "few", "x-request-id": "r", "transfer-encoding": "chunked"}),
        ("GET", "/" + "x" * 70_000, {}),
    ],
)
def test_a_question_that_is_not_understood_is_no_refusal(
    budget: Budget, method: str, target: str, headers: dict[str, str]
) -> None:
    assert budget.ask_port(method, target, headers).status == 503  # which is what fails open
    assert budget.admits("few", "r9") and budget.key("few")["leases"] == 1


def test_questions_that_come_in_pieces_or_together_are_all_answered(budget: Budget) -> None:
    lines = "POST /check/v1/chat/completions?a=b HTTP/1.1\r\nHost: b\r\nX-Client: few\r\nX-Request-Id: r{}\r\n\r\n"
    raw = "".join(lines.format(number) for number in range(6)).encode()
    with socket.create_connection(("127.0.0.1", budget.checks), timeout=10) as link:
        for at in range(0, 300):
            link.sendall(raw[at : at + 1])
        link.sendall(raw[300:])
        heard = b""
        while heard.count(b"HTTP/1.1 ") < 6 or not heard.endswith(b"}"):
            heard += link.recv(65536)
    assert heard.count(b"HTTP/1.1 200 OK") == 4 and heard.count(b"HTTP/1.1 429 Too Many Requests") == 2
    assert {line["route"] for line in eventually(lambda: budget.ledger, SOON_S)} == {"/v1/chat/completions"}


def test_who_has_hung_up_before_its_question_is_read_takes_no_place(budget: Budget) -> None:
    budget.send(signal.SIGSTOP)
    for number in range(40):
        with socket.create_connection(("127.0.0.1", budget.checks), timeout=10) as link:
            link.sendall(
                f"POST /check/v1/chat/completions HTTP/1.1\r\nx-client: few\r\nx-request-id: r{number}\r\n\r\n".encode()
            )
    budget.send(signal.SIGCONT)
    eventually(lambda: budget.metric("budget_missed_checks_total") == 40, SOON_S)
    assert budget.key("few")["leases"] == 0
    assert budget.admits("few", "next")


@pytest.mark.parametrize(
    "descriptor", [{}, {"op": "what", "client": "a", "id": "r"}, {"op": "release"}, {"client": "\x00", "id": "\u2028"}]
)
def test_what_it_does_not_understand_passes_and_is_counted(budget: Budget, descriptor: dict[str, str]) -> None:
    assert budget.call(descriptor).overall_code != OVER
    assert budget.metric("budget_bad_descriptors_total") == 1


def test_a_figure_that_is_no_number_charges_the_rest(budget: Budget) -> None:
    budget.finish("debt", "r1", prompt="%DYNAMIC_METADATA(flashbox.usage:prompt)%")
    assert budget.used("debt").total == 31 and budget.metric("budget_bad_descriptors_total") == 1


def test_it_says_that_it_serves(budget: Budget) -> None:
    assert budget.health() == health_pb2.HealthCheckResponse.SERVING
    assert budget.ask_port("GET", "/ready").status == 200
    assert budget.metric("budget_up") == 1
    assert budget.ask("ready").returncode == 0


def test_metrics_name_keys_and_count_each_request_once(budget: Budget) -> None:
    budget.admits("debt", "r1")
    budget.finish("debt", "r1", 100, prompt="60", completion="40", cached="8", estimated="true")
    budget.finish("debt", "r1", 100)
    for kind, tokens in {"prompt": 60, "completion": 40, "cached": 8, "total": 100, "estimated": 100}.items():
        assert budget.metric("budget_tokens_total", key="debt", kind=kind) == tokens
    assert budget.metric("budget_requests_total", key="debt", result="ok") == 1
    assert budget.metric("budget_checks_total", key="debt", answer="admitted") == 1
    assert budget.metric("budget_repeated_charges_total") == 1
    assert 5900 <= budget.metric("budget_balance", key="debt") <= 6000
    assert budget.metric("budget_leases", key="few") == 0
    assert budget.metric("budget_limit_streams", key="few") == 4


@pytest.mark.parametrize(("path", "status"), [("/", 404), ("/state/", 404), ("/usage?x=%00", 200)])
def test_its_page_answers_whatever_is_asked(budget: Budget, path: str, status: int) -> None:
    words = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://127.0.0.1:{budget.page}{path}"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == str(status)
    assert budget.state["serving"]


# ---- the ledger and what the control program reads of it


def test_the_control_program_reads_who_used_what(budget: Budget) -> None:
    budget.finish("debt", "r1")
    budget.finish("few", "r2", 5, model="n", estimated="true")
    for n in range(6):
        budget.admits("few", f"s{n}")
    eventually(lambda: budget.used("few").refused == 2, SOON_S)
    read = usage.read_sums(budget.ask("usage").stdout)
    rows = {row.name: row.amount for row in usage.rows(read.entries, "key")}
    assert read.broken == 0
    assert (rows["debt"].requests, rows["debt"].total, rows["debt"].prompt) == (1, 31, 11)
    assert (rows["few"].requests, rows["few"].refused, rows["few"].estimated) == (3, 2, 5)
    assert {row.name for row in usage.rows(read.entries, "model")} == {"", "m", "n"}
    assert usage.read_sums(budget.ask("usage", "2999-01-01").stdout).entries == ()


def test_usage_is_told_without_a_service_too(budget: Budget) -> None:
    budget.finish("debt", "r1")
    budget.end()
    read = usage.read_sums(budget.ask("usage").stdout)
    assert usage.total(usage.rows(read.entries, "key")).total == 31
    assert budget.ask("state").returncode == 1
    assert budget.ask("usage", "yesterday").returncode == 2


def test_a_client_that_insists_fills_no_disk(budget: Budget) -> None:
    for n in range(200):
        budget.admits("few", f"r{n}")
    eventually(lambda: budget.used("few").refused == 196, SOON_S)
    budget.limit(later={"streams": 1})
    eventually(lambda: "streams" in budget.key("later"), SOON_S)  # and the ledger was tended again
    assert 1 <= len(budget.ledger) <= 20
    assert sum(line["n"] for line in budget.ledger) == 196


# ---- ends


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_balances_ids_and_usage_come_back_after_any_end(budget: Budget, how: signal.Signals) -> None:
    budget.finish("debt", "r1", 60_000)
    budget.admits("few", "r2")
    code = budget.end(how)
    assert code == (0 if how == signal.SIGTERM else -signal.SIGKILL)
    budget.start()
    assert not budget.admits("debt", "r3")
    before = balance(budget, "debt")
    budget.finish("debt", "r1", 60_000)
    assert balance(budget, "debt") >= before, "what the gateway repeats is not charged again"
    assert budget.used("debt").total == 60_000
    assert budget.key("few")["leases"] == 0, "places are forgotten on purpose"
    budget.finish("few", "r2")
    assert [line["id"] for line in budget.ledger if "id" in line] == ["r1", "r2"]


def test_what_only_the_journal_has_gets_into_the_ledger(budget: Budget) -> None:
    budget.finish("debt", "r1")
    budget.finish("debt", "r2")
    budget.end()
    (file,) = (budget.state_folder / "usage").glob(TODAY_FILES)
    first, _ = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + b'{"t":17960')  # killed in the middle of the second line
    shutil.rmtree(budget.state_folder / "usage" / "totals")
    budget.start()
    assert budget.used("debt").total == 62
    budget.end(signal.SIGTERM)
    budget.start()
    assert budget.used("debt").total == 62


def test_sigterm_leaves_sums_that_hold_everything(budget: Budget) -> None:
    budget.finish("debt", "r1")
    budget.end(signal.SIGTERM)
    (kept,) = (budget.state_folder / "usage" / "totals").glob("*.json")
    (file,) = (budget.state_folder / "usage").glob(TODAY_FILES)
    assert json.loads(kept.read_text())["read"] == {file.name: file.stat().st_size}


# ---- one owner


@pytest.fixture
def rival(budget: Budget) -> Iterator[Budget]:
    """Another process for the same folder, not started yet; its ports are its own."""
    other = Budget(budget.folder)
    yield other
    other.end()


def test_a_second_owner_of_the_port_ends_and_touches_nothing(budget: Budget, rival: Budget) -> None:
    budget.finish("debt", "r1")
    files = {path: path.read_bytes() for path in budget.state_folder.rglob("*") if path.is_file()}
    rival.port = budget.port
    assert rival.launch().wait(30) == 1
    (said,) = rival.said("not started")
    assert f"port {budget.port} is taken" in said["error"]
    for path, data in files.items():
        assert path.read_bytes().startswith(data)
    budget.finish("debt", "r2")
    assert budget.used("debt").total == 62


def test_a_second_owner_of_the_volume_ends_though_its_ports_are_free(budget: Budget, rival: Budget) -> None:
    assert rival.launch().wait(30) == 1
    (said,) = rival.said("not started")
    assert str(budget.state_folder) in said["error"] and "in use" in said["error"]
    assert budget.state["serving"]


# ---- limits


def test_limits_change_live_and_balances_stay(budget: Budget) -> None:
    budget.finish("debt", "r1", 60_000)
    budget.limit(debt={"tpm": 100_000}, new={"streams": 1})
    eventually(lambda: budget.key("debt").get("tpm") == 100_000, SOON_S)
    assert 40_000 <= balance(budget, "debt") < 60_000
    assert [budget.admits("new", f"n{n}") for n in range(2)] == [True, False]
    budget.end()
    budget.start()
    assert 40_000 <= balance(budget, "debt") < 80_000, "the journal says so too"


def test_what_a_change_of_limits_forgave_stays_forgiven(budget: Budget) -> None:
    budget.finish("debt", "r1", 60_000)
    for tpm in (0, 6000):
        budget.limit(debt={"tpm": tpm})
        eventually(lambda tpm=tpm: budget.key("debt").get("tpm") == tpm, SOON_S)
    budget.end()
    budget.start()
    assert budget.admits("debt", "r2")


@pytest.mark.parametrize("text", ["", "{", '{"keys": {}}', "[1]"])
def test_broken_limits_leave_the_last_good_ones_also_over_a_restart(budget: Budget, text: str) -> None:
    budget.publish(text)
    eventually(lambda: budget.metric("budget_limits_broken") == 1, SOON_S)
    budget.finish("debt", "r1", 60_000)
    budget.end()
    budget.start()
    assert not budget.admits("debt", "r2")
    eventually(lambda: budget.metric("budget_limits_broken") == 1, SOON_S)
    budget.limit(debt={"tpm": 0})
    eventually(lambda: budget.metric("budget_limits_broken") == 0, SOON_S)
    assert budget.admits("debt", "r3")


def test_without_limits_it_serves_and_counts(tmp_path: Path) -> None:
    service = Budget(tmp_path)
    service.start()
    try:
        assert service.admits("a", "r1")
        service.finish("a", "r1")
        assert service.used("a").total == 31
        assert service.state["limits"]["error"] == "there is no limits.json"
    finally:
        service.end()


# ---- disks


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Budget]:
    """Not started yet."""
    service = Budget(tmp_path)
    service.limit(debt={"tpm": 6000})
    yield service
    service.end()


def test_a_folder_that_cannot_be_written_is_said_and_counting_goes_on(fresh: Budget) -> None:
    fresh.state_folder.write_text("no folder")  # stops root too
    fresh.start()
    fresh.finish("debt", "r1", 60_000)
    assert not fresh.admits("debt", "r2")
    assert fresh.metric("budget_journal_broken") == 1 and fresh.metric("budget_journal_errors_total") >= 1
    assert fresh.metric("budget_ledger_waiting") >= 1
    assert "Not a directory" in fresh.state["journal"]["error"] and fresh.said("journal not written")
    fresh.state_folder.unlink()
    fresh.state_folder.mkdir()
    eventually(lambda: fresh.metric("budget_journal_broken") == 0, SOON_S)
    eventually(lambda: fresh.metric("budget_ledger_waiting") == 0, SOON_S)
    fresh.end()
    fresh.start()
    assert not fresh.admits("debt", "r3")
    assert fresh.used("debt").total == 60_000


def test_a_full_disk_is_said_and_counting_goes_on(fresh: Budget) -> None:
    fresh.start()
    assert fresh.process is not None
    full = (4096, resource.RLIM_INFINITY)  # no file grows above it: to a process, a disk that is full
    resource.prlimit(fresh.process.pid, resource.RLIMIT_FSIZE, full)
    for n in range(40):
        fresh.finish("debt", f"r{n}", 1000)
    assert not fresh.admits("debt", "s1")
    assert fresh.state["journal"]["errors"] >= 1 and fresh.state["ledger"]["waiting"] >= 1
    resource.prlimit(fresh.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    eventually(lambda: fresh.state["journal"]["error"] is None, SOON_S)
    eventually(lambda: fresh.state["ledger"]["waiting"] == 0, SOON_S)
    fresh.end()
    fresh.start()
    assert fresh.used("debt").total == 40_000
    assert balance(fresh, "debt") < -30_000
    fresh.finish("debt", "r39", 1000)
    assert fresh.used("debt").total == 40_000


def test_a_torn_journal_is_read_as_far_as_it_goes(fresh: Budget) -> None:
    fresh.start()
    fresh.finish("debt", "r1", 60_000)
    fresh.end()
    with (fresh.state_folder / "journal").open("ab") as journal:
        journal.write(b'["c",17960831')
    fresh.start()
    assert not fresh.admits("debt", "r2")
    assert fresh.said("journal replayed")[-1]["broken"] == 1
