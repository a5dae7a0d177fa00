"""Every setting of the gateway changed live: twenty streams in flight, none cut, one set of them older than drain_s."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.counts import counts
from tests.eventually import eventually
from tests.integration.stack import Stack, docker, new_stack
from tests.load import Load

STREAMS, TOKENS = 20, 140  # at 20 tokens/s: seven seconds
LONG = 600  # half a minute
DRAIN_S = 3
NO_LIMITS = {"requests_per_second": 0, "requests_per_minute": 0}


@pytest.fixture(scope="module")
def running() -> Iterator[Stack]:
    """A stack of two replicas whose gateway would wait only three seconds for streams when it stops."""
    with new_stack("apply") as stack:
        stack.settings(
            engine__max_num_seqs=64, gateway__drain_s=DRAIN_S, gateway__limits=NO_LIMITS, stub__decode_tokens_per_s=20
        )
        stack.up()
        stack.target()
        yield stack


@pytest.fixture
def stack(running: Stack) -> Stack:
    running.wait_ready(2)
    return running


def apply(stack: Stack, *assignments: str, within_s: float = 60) -> str:
    words = [word for text in assignments for word in ("--set", text)]
    ran = stack.must("gateway", "apply", "--yes", *words, timeout_s=within_s)
    return ran.err


def entry(stack: Stack) -> dict[str, Any]:
    """What PID 1 of the gateway says."""
    text = docker("exec", stack.container("gateway"), "python3", "/opt/flashbox/gateway/entry.py", "state")
    state: dict[str, Any] = json.loads(text)
    return state


def status(stack: Stack) -> dict[str, Any]:
    seen: dict[str, Any] = json.loads(stack.must("gateway", "status", "--json").out)
    return seen


def alone(stack: Stack) -> None:
    """No Envoy of an earlier hot restart holds a stream."""
    eventually(lambda: not (entry(stack)["previous"] or {"requests": 0})["requests"], 30)


def assert_nothing_was_cut(load: Load) -> None:
    assert dict(load.outcomes.streams) == {"ok": STREAMS}
    assert set(load.outcomes.requests) <= {"ok"}, load.outcomes.failures[:5]


@pytest.mark.parametrize(
    "assignment",
    [
        "gateway.limits.requests_per_second=900",
        "gateway.limits.requests_per_minute=29000",
        "gateway.route_timeout_s=100",
        "gateway.idle_timeout_s=200",
        "gateway.max_requests=500",
        "gateway.mode=observe",
        "gateway.max_body_mib=31",
        "gateway.cors.origins=[https://chat.example.com]",
        "gateway.trusted_proxies=[192.0.2.0/24]",
    ],
)
def test_a_live_setting_is_taken_up_under_streams_and_requests(stack: Stack, assignment: str) -> None:
    pid = entry(stack)["pid"]
    with Load(stack.target(), STREAMS, TOKENS, rate=10) as load:
        load.wait_until_streaming()
        assert "files taken up" in apply(stack, assignment)
    assert_nothing_was_cut(load)
    assert entry(stack)["pid"] == pid
    assert status(stack)["in_step"] == ""
    assert "nothing to apply" in apply(stack)


def test_the_policy_is_changed_under_streams_and_holds_at_once(stack: Stack) -> None:
    with Load(stack.target(), STREAMS, TOKENS) as load:
        load.wait_until_streaming()
        apply(stack, "gateway.policy=strict", "gateway.mode=enforce")
        answer = _complete(stack, temperature=0)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "temperature")
    assert_nothing_was_cut(load)
    assert status(stack)["rules"]["policy"] == "strict"
    apply(stack, "gateway.policy=standard")
    assert _complete(stack, temperature=0).status_code == 200


def _complete(stack: Stack, **fields: object) -> requests.Response:
    target = stack.target()
    body = {**target.body(2, stream=False), **fields}
    return requests.post(f"{target.url}/chat/completions", json=body, headers=target.headers, timeout=30)


def test_a_key_is_added_limited_and_revoked_under_streams(stack: Stack) -> None:
    with Load(stack.target(), STREAMS, TOKENS, rate=10) as load:
        load.wait_until_streaming()
        key = stack.add_key("late")
        headers = {"authorization": f"Bearer {key}"}

        def models() -> int:
            return requests.get(f"{load.target.url}/models", headers=headers, timeout=5).status_code

        eventually(lambda: models() == 200, 10)
        stack.must("keys", "limits", "late", "--rps", "1")
        eventually(lambda: [models() for _ in range(4)].count(429) >= 2, 10)
        stack.must("keys", "revoke", "late")
        eventually(lambda: models() == 401, 10)
    assert_nothing_was_cut(load)


@pytest.mark.parametrize("round_", range(counts(1, 5)))
def test_a_bootstrap_setting_is_taken_up_by_a_hot_restart_under_streams_and_requests(stack: Stack, round_: int) -> None:
    alone(stack)
    before = entry(stack)
    began = time.monotonic()
    with Load(stack.target(), STREAMS, LONG, rate=20) as load:
        load.wait_until_streaming()
        assert "hot restart" in apply(stack, f"gateway.max_connections={4000 + round_}")
        now = entry(stack)
        assert (now["epoch"], now["previous"]["pid"]) == (before["epoch"] + 1, before["pid"])
        refused = stack.ctl("gateway", "apply", "--yes", "--set", f"gateway.max_connections={4100 + round_}")
        assert refused.code == 1 and "still holds" in refused.err, refused.text
        waited = stack.start("gateway", "apply", "--yes", "--wait", "--set", f"gateway.max_connections={4200 + round_}")
    assert_nothing_was_cut(load)
    assert time.monotonic() - began > DRAIN_S  # the streams outlived what a stop would have granted them
    out, _ = waited.communicate(timeout=90)
    assert waited.returncode == 0, out
    assert entry(stack)["epoch"] == before["epoch"] + 2
    assert docker("inspect", "--format", "{{.RestartCount}}", stack.container("gateway")) == "0"
    assert status(stack)["in_step"] == ""


def test_the_longest_stream_is_taken_up_without_a_new_container(stack: Stack) -> None:
    alone(stack)
    container = stack.container("gateway")
    with Load(stack.target(), STREAMS, TOKENS, rate=10) as load:
        load.wait_until_streaming()
        assert "hot restart" in apply(stack, "gateway.max_stream_s=1000", "gateway.concurrency=3")
    assert_nothing_was_cut(load)
    options = json.loads(stack.admin("/server_info"))["command_line_options"]
    assert (options["drain_time"], options["concurrency"]) == ("14401s", 3)  # older streams keep their time
    stack.up("--set", "gateway.max_stream_s=1000", "--set", "gateway.concurrency=3")
    assert stack.container("gateway") == container  # nothing is left for `up` to make anew
    apply(stack)  # what `up` forgot of earlier --set


def test_tls_is_switched_on_and_off_under_streams_and_the_probe_holds(stack: Stack) -> None:
    for mode, scheme in (("self_signed", "https"), ("off", "http")):
        alone(stack)
        target = stack.target()
        with Load(target, STREAMS if target.url.startswith("http:") else 0, TOKENS) as load:
            if load.streams:
                load.wait_until_streaming()
            apply(stack, f"gateway.tls.mode={mode}")
        assert dict(load.outcomes.streams) == ({"ok": STREAMS} if load.streams else {})
        assert stack.url.startswith(f"{scheme}://")
        tried = json.loads(stack.must("probe", "--json").out)
        assert (scheme == "https") == any(one["group"] == "tls" for one in tried)


def test_what_envoy_refuses_at_run_time_is_rolled_back(stack: Stack) -> None:
    template = stack.root / "config/envoy/lds.yaml.j2"
    good, before = template.read_text(), stack.root.joinpath("run/envoy/dynamic/lds.yaml").read_text()
    nowhere = '\n  - "@type": type.googleapis.com/envoy.config.listener.v3.Listener\n    name: nowhere\n'
    nowhere += "    address: {socket_address: {address: 192.0.2.1, port_value: 7777}}\n"
    nowhere += '    filter_chains: [{filters: [{name: echo, typed_config: {"@type": '
    nowhere += "type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}]}]\n"
    try:
        template.write_text(good.rstrip() + nowhere)
        with Load(stack.target(), STREAMS, TOKENS, rate=10) as load:
            load.wait_until_streaming()
            ran = stack.ctl("gateway", "apply", "--yes", timeout_s=60)
        assert ran.code == 1 and "lds.yaml: Envoy refuses it" in ran.err, ran.text
        assert "192.0.2.1" in ran.err  # with Envoy's own words
        assert_nothing_was_cut(load)
        assert stack.root.joinpath("run/envoy/dynamic/lds.yaml").read_text() == before
    finally:
        template.write_text(good)
    assert "nothing to apply" in apply(stack)


def test_an_apply_that_is_killed_is_finished_by_the_next(stack: Stack) -> None:
    alone(stack)
    for number, patience in enumerate((0.7, 1.0, 1.3)):
        assignment = (f"gateway.idle_timeout_s={150 + number}", f"gateway.max_connections={3000 + number}")
        words = [word for text in assignment for word in ("--set", text)]
        process = stack.start("gateway", "apply", "--yes", *words)
        time.sleep(patience)  # wherever it is then
        process.send_signal(signal.SIGKILL)
        process.communicate()
        alone(stack)
        apply(stack, *assignment)
        assert status(stack)["in_step"] == ""
        assert _complete(stack).status_code == 200


def test_what_needs_a_new_container_is_named_and_up_does_it(stack: Stack) -> None:
    ran = stack.ctl("gateway", "apply", "--yes", "--set", "gateway.memory_mib=1024")
    assert ran.code == 3 and "gateway.memory_mib: 2048m -> 1024m" in ran.err, ran.text


def test_the_probe_finds_every_door_closed_and_one_that_is_opened_on_purpose(stack: Stack) -> None:
    green = stack.ctl("probe", "--json")
    assert green.code == 0, [one for one in json.loads(green.out) if not one["passed"]]
    template = stack.root / "config/envoy/rds.yaml.j2"
    good = template.read_text()
    opened = re.sub(r'route\("POST", "/detokenize"[^)]*\)', 'route("GET", "/metrics")', good)
    assert opened != good
    try:
        template.write_text(opened)
        apply(stack)
        red = stack.ctl("probe")
        assert red.code == 1, red.text
        failed = [line for line in red.out.splitlines() if "FAILED" in line]
        assert failed and all("/metrics" in line or "etrics" in line for line in failed), failed
    finally:
        template.write_text(good)
        apply(stack)
    assert not [key for key in json.loads(stack.must("keys", "list", "--json").out) if key["name"] != "tests"]
