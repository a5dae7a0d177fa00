"""What keys are charged is what the engines counted, over a mixed load on the product's own configuration."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from control.core import usage
from tests.contract.gateway.counted import BODIES, Clients, Counted, body, counted, limited, secret
from tests.contract.gateway.harness import CHAT
from tests.counts import counts
from tests.eventually import eventually

# Twins ask for two answers to one prompt: the engine counts that prompt twice, a key pays for it once.
WHOLE, TWINS, LEFT, GONE = NAMES = ("whole", "twins", "left", "gone")
HALF_A_PERCENT = 0.005
AT_ONCE = 32
# In the stand-in's vocabulary 4.4 characters a token, as English has in those of models: who leaves before the engine
# has named its tokens is charged an estimate from the length of its text.
SENTENCES = (
    "Every token that you receive has gone the way a real one goes. ",
    "Behind these words there is a clock and a queue, and no thought at all. ",
    "If it begins late, other requests were ahead of it in the queue. ",
    "A different prompt, or a different seed, begins at another place. ",
    "You can count the events, cut the line, ask for two hundred answers at once, or stop a replica under load. ",
)
PROMPTS = {CHAT: "messages", "/v1/messages": "messages", "/v1/completions": "prompt", "/v1/responses": "input"}
Work = Callable[[Clients, int], Awaitable[Any]]  # with the gateway's port


@dataclass(frozen=True)
class Sums:
    """Tokens so far."""

    engine: int  # by the engines' own counters, without what they count twice
    charged: int
    by_name: dict[str, usage.Amount]


class Meter:
    """Both sides of the same load."""

    def __init__(self, gateway: Counted) -> None:
        self.gateway, self.sent = gateway, 0

    def read(self) -> Sums:
        """When nothing runs and every request that was sent has been told."""
        gateway = self.gateway
        eventually(lambda: sum(amount.requests for amount in self._told().values()) >= self.sent, 30)
        eventually(lambda: gateway.running() == 0, 30)
        by_name = self._told()
        twice = by_name[TWINS].prompt
        return Sums(gateway.generated() - twice, sum(amount.total for amount in by_name.values()), by_name)

    def _told(self) -> dict[str, usage.Amount]:
        return {name: self.gateway.service.used(name) for name in NAMES}

    def run(self, jobs: Sequence[Work]) -> Sums:
        """What these requests add, so many at once."""
        before = self.read()

        async def all_of_them(clients: Clients) -> None:
            room = asyncio.Semaphore(AT_ONCE)

            async def one(job: Work) -> None:
                async with room:
                    await job(clients, self.gateway.port)

            await asyncio.gather(*map(one, jobs))

        self.sent += len(jobs)
        self.gateway.clients(all_of_them)
        after = self.read()
        return Sums(after.engine - before.engine, after.charged - before.charged, after.by_name)


def prompt(dice: random.Random, path: str) -> dict[str, Any]:
    """Some text, in the form of an API."""
    text = "".join(dice.choices(SENTENCES, k=dice.randint(1, 25)))
    return {PROMPTS[path]: [{"role": "user", "content": text}] if PROMPTS[path] == "messages" else text}


def request(dice: random.Random) -> tuple[str, bool, dict[str, Any]]:
    """Any API, its fields, and whether it asks for two answers, as one in eight does."""
    path = dice.choice(list(BODIES))
    twins = path in (CHAT, "/v1/completions") and dice.random() < 0.25
    return path, twins, {**prompt(dice, path), **({"n": 2, "temperature": 1} if twins else {})}


def read_to_the_end(dice: random.Random) -> Work:
    """A stream or a JSON answer."""
    path, twins, fields = request(dice)
    fields |= {"tokens": dice.randint(5, 150), "stream": dice.random() < 0.7}

    async def ask(clients: Clients, _: int) -> None:
        answer = await clients.ask(TWINS if twins else WHOLE, path, **fields)
        assert answer.status == 200, answer

    return ask


def leave_in_the_middle(dice: random.Random) -> Work:
    """A stream that nobody reads to its end."""
    path, twins, fields = request(dice)
    tokens = dice.randint(20, 150)
    events = dice.randint(2, tokens - 5)
    return lambda clients, _: clients.leave_after(events, TWINS if twins else LEFT, path, tokens=tokens, **fields)


def give_up(dice: random.Random) -> Work:
    """Sent whole, and soon left: before the answer, between its first events, within JSON that is being written."""
    path, wait_s = dice.choice(list(BODIES)), dice.uniform(0, 1)
    content = json.dumps(body(path, dice.randint(50, 150), dice.random() < 0.5, **prompt(dice, path)))
    head = (f"POST {path} HTTP/1.1", "host: gateway", f"authorization: Bearer {secret(GONE)}")
    more = ("content-type: application/json", f"content-length: {len(content)}", "", content)
    raw = "\r\n".join((*head, *more)).encode()

    async def hang_up(_: Clients, port: int) -> None:
        _reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw)
        await writer.drain()
        await asyncio.sleep(wait_s)
        writer.close()

    return hang_up


@pytest.fixture(scope="module")
def meter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meter]:
    """Two engines with a pace of 50 tokens a second, and keys with limits that are never reached."""
    keys = [limited(name, tpm=100_000_000, streams=1000) for name in NAMES]
    engine = {"STUB_TOKENIZER": "pieces", "STUB_DECODE_TOKENS_PER_S": "50", "STUB_MAX_NUM_SEQS": "256"}
    with counted(tmp_path_factory.mktemp("charged"), *keys, count=2, engine=engine) as gateway:
        yield Meter(gateway)


def test_whole_answers_are_charged_exactly_what_the_engines_counted(meter: Meter) -> None:
    dice = random.Random(1)
    found = meter.run([read_to_the_end(dice) for _ in range(counts(40, 1000))])
    print(f"engines {found.engine}, charged {found.charged}")
    assert found.charged == found.engine > 0, found


def test_a_load_with_clients_that_leave_is_charged_within_half_a_percent(meter: Meter) -> None:
    dice = random.Random(2)
    kinds = (read_to_the_end, leave_in_the_middle, give_up)
    jobs = [dice.choices(kinds, weights=(85, 12, 3))[0](dice) for _ in range(counts(60, 3000))]
    found = meter.run(jobs)
    print(f"engines {found.engine}, charged {found.charged}: {found.charged / found.engine - 1:+.3%}; {found.by_name}")
    assert abs(found.charged / found.engine - 1) <= HALF_A_PERCENT, found
