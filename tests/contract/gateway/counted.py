"""A gateway whose requests are counted: the product's files and services, and stand-ins of the engine as replicas."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from control.core.model import ApiKey
from tests.contract.budget.process import Budget
from tests.contract.gateway.harness import (
    CHAT,
    SOON_S,
    UPSTREAM_KEY,
    Answer,
    Gateway,
    Replica,
    api_key,
    gateway_settings,
)
from tests.contract.policy.process import Policy
from tests.contract.stub.process import Stub
from tests.eventually import eventually
from tests.ports import free_port

T = TypeVar("T")
MODEL = "m"
SAID = [{"role": "user", "content": "Count to one hundred, please"}]
# One request of each API; how long an answer is, and whether it is a stream, a test says.
BODIES: Mapping[str, tuple[Mapping[str, Any], str]] = {
    CHAT: ({"messages": SAID}, "max_tokens"),
    "/v1/completions": ({"prompt": "Once upon a time"}, "max_tokens"),
    "/v1/responses": ({"input": "Once upon a time"}, "max_output_tokens"),
    "/v1/messages": ({"messages": SAID}, "max_tokens"),
}
_STUB = {
    "VLLM_API_KEY": UPSTREAM_KEY,
    "STUB_MODEL": MODEL,
    "STUB_TOKENIZER": "bytes",
    "STUB_MAX_MODEL_LEN": "8192",
    "STUB_MAX_NUM_SEQS": "64",
    "STUB_PREFILL_TOKENS_PER_S": "1e9",
    "STUB_DECODE_TOKENS_PER_S": "500",
}


def secret(name: str) -> str:
    """What the client of this name sends."""
    return f"fb-key-of-{name}"


def limited(name: str, tpm: int | None = 0, streams: int | None = 0) -> ApiKey:
    """The gateway's side of a key; None: what holds for everybody."""
    return replace(api_key(secret(name), name), tpm=tpm, streams=streams)


def body(path: str = CHAT, tokens: int = 20, stream: bool = False, **more: Any) -> dict[str, Any]:
    """A request for an answer of exactly so many tokens."""
    fields, length = BODIES[path]
    return {"model": MODEL, **fields, length: tokens, "ignore_eos": True, "stream": stream, **more}


@dataclass
class Counted(Gateway):
    """Its replicas are stand-ins of the engine, each with a gate of the fake one."""

    stubs: list[Stub] = field(default_factory=list)
    engine: Mapping[str, str] = field(default_factory=dict)

    def start_replicas(self, ready: bool = True) -> None:
        for slot in self.slots:
            log = self.folder / f"{slot.name}.log"
            self.stubs.append(Stub(log, {**_STUB, **self.engine}, host=slot.address, port=self._engine_port))
            self.replicas.append(Replica(slot, free_port(), self._gate_port))
            self.replicas[-1].set_ready(ready)

    def end(self) -> None:
        super().end()
        for stub in self.stubs:
            stub.close()

    @property
    def service(self) -> Budget:
        """The budget service of its own."""
        assert self.budget is not None
        return self.budget

    def set_keys(self, *keys: ApiKey) -> None:
        """As the control program does: limits first, then the keys."""
        self.api_keys = keys
        self.service.publish(self.limits())
        version = json.loads(self.limits())["version"]
        eventually(lambda: self.service.state["limits"]["version"] == version[:64], SOON_S)
        before = self.stat("extension_config_discovery.http_filter.flashbox.auth.config_reload")
        self.publish_keys(*keys)
        eventually(
            lambda: self.stat("extension_config_discovery.http_filter.flashbox.auth.config_reload") > before, SOON_S
        )

    def generated(self) -> int:
        """Tokens by the engines' own counters, prompt and answer."""
        names = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
        return round(sum(stub.metric(name) for stub in self.stubs for name in names))

    def running(self) -> int:
        """Requests in the engines."""
        return round(sum(stub.metric("vllm:num_requests_running") for stub in self.stubs))

    def counted(self, name: str, number: int) -> Any:
        """A key's usage, once so many requests of it have ended."""
        eventually(lambda: self.service.used(name).requests >= number, SOON_S)
        used = self.service.used(name)
        assert used.requests == number, used
        return used

    def leases(self, name: str) -> int:
        """Requests of this key that hold a place."""
        return int(self.service.key(name)["leases"])

    def clients(self, work: Callable[[Clients], Awaitable[T]]) -> T:
        """Let clients work."""

        async def inside() -> T:
            connector, most = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=120)
            async with aiohttp.ClientSession(connector=connector, timeout=most) as session:
                return await work(Clients(session, self.port))

        return asyncio.run(inside())

    def ask_as(self, name: str, path: str = CHAT, **fields: Any) -> Answer:
        """One request of a key."""
        headers = {"content-type": "application/json"}
        return self.ask("POST", path, body(path, **fields), headers=headers, key=secret(name))


class Clients:
    """Requests at the same time."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session, self._port = session, port

    def _post(self, name: str, path: str, content: Mapping[str, Any]) -> Any:
        headers = {"authorization": f"Bearer {secret(name)}"}
        return self._session.post(f"http://127.0.0.1:{self._port}{path}", json=content, headers=headers)

    async def ask(self, name: str, path: str = CHAT, **fields: Any) -> Answer:
        """One request to its end; status 0 if it was broken off before or within."""
        try:
            async with self._post(name, path, body(path, **fields)) as response:
                headers = {key.lower(): value for key, value in response.headers.items()}
                return Answer(response.status, headers, await response.read())
        except aiohttp.ClientError:
            return Answer(0, {}, b"")

    async def many(self, number: int, name: str, every_s: float = 0, **fields: Any) -> list[Answer]:
        """So many requests, begun one after the other."""
        begun = []
        for _ in range(number):
            begun.append(asyncio.ensure_future(self.ask(name, **fields)))
            await asyncio.sleep(every_s)
        return await asyncio.gather(*begun)

    async def leave_after(self, events: int, name: str, path: str = CHAT, **fields: Any) -> None:
        """Read so many events of a stream, then go."""
        seen = 0
        async with self._post(name, path, body(path, stream=True, **fields)) as response:
            async for line in response.content:
                seen += line.startswith(b"data:")
                if seen >= events:
                    break
            response.close()

    async def give_up_after(self, seconds: float, name: str, **fields: Any) -> None:
        """Go without having seen an answer."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.ask(name, **fields), seconds)


@contextmanager
def counted(
    folder: Path, *keys: ApiKey, count: int = 1, engine: Mapping[str, str] | None = None, **settings: Any
) -> Iterator[Counted]:
    """Serves with policy and budget services of its own; `settings` are those of `gateway`."""
    chosen = gateway_settings(**settings)
    chosen = chosen.model_copy(update={"engine": chosen.engine.model_copy(update={"served_model_name": MODEL})})
    gateway = Counted(folder, chosen, count=count, api_keys=keys, engine=engine or {})
    folder.mkdir(exist_ok=True)
    gateway.budget = Budget(folder)
    gateway.budget.publish(gateway.limits())
    gateway.budget.start()
    gateway.policy = Policy(folder / "policy", gateway.policy_rules(), POLICY_MEMORY_MIB=992)
    with gateway.serving():
        yield gateway
