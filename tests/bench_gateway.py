"""`make bench-gateway`: what the whole chain of the gateway costs, against the same replica asked directly.

The product's own configuration, policy service and entry.py on loopback, in front of fake replicas; prints Markdown.
Ratios are of one run; on a shared machine only they and the medians mean something.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from control.core.policy_memory import memory_mib
from tests.bench_events import SMALL, Timed, per_event, percentile
from tests.contract.budget.process import Budget
from tests.contract.gateway.counted import limited, secret
from tests.contract.gateway.harness import CHAT, KEY, Gateway, api_key, gateway_settings
from tests.contract.policy.process import Policy
from tests.eventually import eventually

MIB = 1 << 20
# Keys that the budget service is not asked about, and about which it is.
ASKERS = (("a key without a budget", KEY), ("a key with tokens and streams", secret("counted")))
KEYS = tuple(f"fb-test-key-{number}" for number in range(5))


def first_byte(gateway: Gateway, rounds: int = 600) -> list[str]:
    """One small request after the other, direct, with a key of each kind; until the first byte of the answer's body."""
    slot = gateway.slots[0]
    through = ("127.0.0.1", gateway.port)
    rows = (("", KEY), *ASKERS)
    targets = [((slot.address, gateway._engine_port), KEY), *((through, key) for _, key in ASKERS)]
    connections = [(http.client.HTTPConnection(*target, timeout=30), key) for target, key in targets]
    body, found = json.dumps({**SMALL, "stream": True}), [[] for _ in rows]  # type: ignore[var-annotated]
    for _ in range(rounds):
        for (connection, key), times in zip(connections, found, strict=True):
            begin = time.perf_counter()
            headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
            connection.request("POST", CHAT, body, headers)
            answer = connection.getresponse()
            answer.read(1)
            times.append(1000 * (time.perf_counter() - begin))
            assert answer.read().rstrip().endswith(b"[DONE]"), answer.status
    direct, *others = (times[50:] for times in found)
    return [_row(f"first byte, ms, {name}", direct, times) for (name, _), times in zip(ASKERS, others, strict=True)]


def _row(name: str, direct: Sequence[float], through: Sequence[float]) -> str:
    cells = [f"{percentile(times, share):.2f}" for share in (0.5, 0.99) for times in (direct, through)]
    added = [percentile(through, share) - percentile(direct, share) for share in (0.5, 0.99)]
    return f"| {name} | {' | '.join(cells)} | p50 +{added[0]:.2f}, p99 {added[1]:+.2f} |"


async def _gaps(url: str, streams: int, tokens: int) -> tuple[list[float], int]:
    """The gaps between events of many streams at once, in ms, and how many streams were whole."""
    gaps: list[float] = []
    whole = 0

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        nonlocal whole
        headers = {"authorization": f"Bearer {KEYS[number % len(KEYS)]}"}
        body = {**SMALL, "max_tokens": tokens, "stream": True}
        async with session.post(url + CHAT, json=body, headers=headers) as answer:
            last, text = 0.0, b""
            async for piece in answer.content.iter_any():
                now = time.perf_counter()
                if last:
                    gaps.append(1000 * (now - last))
                last, text = now, piece
            whole += text.rstrip().endswith(b"[DONE]")

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(300)) as session:
        await asyncio.gather(*(one(session, number) for number in range(streams)))
    return gaps, whole


def between_events(gateway: Gateway, streams: int, tokens: int) -> str:
    """Direct, through, direct, through: the gaps of all rounds."""
    direct = f"http://{gateway.slots[0].address}:{gateway._engine_port}"
    through = f"http://127.0.0.1:{gateway.port}"
    found: dict[str, list[float]] = {direct: [], through: []}
    wholes = 0
    for url in (direct, through, direct, through):
        gaps, whole = asyncio.run(_gaps(url, streams, tokens))
        found[url] += gaps
        wholes += whole if url == through else 0
    row = [f"{percentile(found[url], share):.2f}" for share in (0.5, 0.99) for url in (direct, through)]
    ratio = percentile(found[through], 0.5) / percentile(found[direct], 0.5)
    said = f"p50 x {ratio:.3f}; {wholes} of {2 * streams} whole"
    return f"| between events, ms ({streams} streams, {len(KEYS)} keys) | {' | '.join(row)} | {said} |"


def _upload(port: int, size: int, answers: list[int]) -> None:
    head = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"'
    tail = b'"}]}'
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.putrequest("POST", CHAT)
    for name, value in (
        ("authorization", f"Bearer {KEY}"),
        ("content-type", "application/json"),
        ("content-length", str(size)),
    ):
        connection.putheader(name, value)
    connection.endheaders(head)
    left, piece = size - len(head) - len(tail), b"x" * MIB
    while left:
        connection.send(piece[:left])
        left -= min(left, MIB)
    connection.send(tail)
    answers.append(connection.getresponse().status)


def _peak_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) // 1024


def large_uploads(gateway: Gateway, size: int = 250 * 1_000_000) -> str:
    """Three at once, while six streams run: their largest gap, and what Envoy took."""
    answers: list[int] = []
    gaps: list[float] = []

    def watch() -> None:
        gaps.extend(asyncio.run(_gaps(f"http://127.0.0.1:{gateway.port}", 6, 600))[0])  # 12 s

    gateway.publish_replicas([0])
    eventually(lambda: len(gateway.healthy()) == 1, 20)
    watcher = threading.Thread(target=watch)
    watcher.start()
    time.sleep(1)
    # The first replica keeps the streams, the other takes the uploads: reading so much at once would stall its streams.
    gateway.publish_replicas([0, 1], draining=[0])
    eventually(lambda: len(gateway.healthy()) == 1, 20)
    gateway.replicas[1].answer_plainly()
    begin = time.monotonic()
    uploads = [threading.Thread(target=_upload, args=(gateway.port, size, answers)) for _ in range(3)]
    for upload in uploads:
        upload.start()
    for upload in uploads:
        upload.join()
    took = time.monotonic() - begin
    watcher.join()
    envoy = _peak_mib(next(line["envoy_pid"] for line in gateway.lines("entry") if "envoy_pid" in line))
    return (
        f"Three uploads of {size:,} bytes at once, policy strict: answered {sorted(answers)} after {took:.1f} s; "
        f"largest gap of 6 streams (20 ms apart) {max(gaps):.0f} ms; Envoy's peak {envoy} MiB."
    )


def main() -> None:
    """Print the tables."""
    system = f"{platform.machine()}, Linux {platform.release()}, Python {platform.python_version()}"
    print(f"`make bench-gateway`, {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {system}\n")
    with tempfile.TemporaryDirectory(prefix="flashbox-bench-") as name:
        folder = Path(name)
        settings = gateway_settings(policy="strict", limits={n: 0 for n in LIMITS}, max_stream_s=600)
        plain = (api_key(KEY), *(api_key(key, key[3:]) for key in KEYS))
        gateway = Gateway(folder, settings, count=2, api_keys=(*plain, limited("counted", tpm=10**9, streams=1000)))
        gateway.policy = Policy(folder / "policy", gateway.policy_rules(), POLICY_MEMORY_MIB=memory_mib(250 * MIB, 2))
        gateway.budget = Budget(folder)
        gateway.budget.publish(gateway.limits())
        gateway.budget.start()
        with gateway.serving():
            print("| | direct p50 | gateway p50 | direct p99 | gateway p99 | |\n|---|---|---|---|---|---|")
            print(*first_byte(gateway), sep="\n")
            print(between_events(gateway, 20, 200))
            print(between_events(gateway, 200, 100), "\n")
            print(large_uploads(gateway), "\n")
        timed = Timed(folder / "timed", settings, count=1)
        timed.policy = Policy(folder / "timed" / "policy", timed.policy_rules())
        with timed.serving():
            print(per_event(timed))


LIMITS = (
    *("requests_per_second", "requests_per_minute", "ip_requests_per_second", "ip_requests_per_minute"),
    *("tokens_per_minute", "streams"),
)


if __name__ == "__main__":
    main()
