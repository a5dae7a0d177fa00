"""Request bodies for every route, good, nearly good and hostile; the same seed makes the same bodies.

`python -m tests.fuzz_bodies SEED COUNT` prints them.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from tests.judging import CHAT, COMPLETIONS, CONTEXT, COUNT, DETOKENIZE, LEAST, MESSAGES, MODEL, RESPONSES, TOKENIZE

Body = dict[str, Any]
WEIGHTS = {CHAT: 10, COMPLETIONS: 5, RESPONSES: 5, MESSAGES: 5, COUNT: 2, TOKENIZE: 2, DETOKENIZE: 2}

# Fields whose values a policy bounds, under every name, sent to every route.
BOUNDED = (
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "temperature", "n", "best_of"),
    *("logprobs", "top_logprobs", "prompt_logprobs"),
)
FIELDS = (
    *BOUNDED,
    *("top_p", "top_k", "min_p", "seed", "stop", "stream", "stream_options", "presence_penalty", "frequency_penalty"),
    *("repetition_penalty", "min_tokens", "logit_bias", "stop_token_ids", "allowed_token_ids", "bad_words", "echo"),
    *("truncate_prompt_tokens", "priority", "ignore_eos", "user", "tools", "tool_choice", "response_format"),
    *("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_json_object", "reasoning_effort"),
    *("chat_template_kwargs", "metadata", "parallel_tool_calls", "model", "messages", "prompt", "input", "tokens"),
    *("system", "thinking", "stop_sequences", "instructions", "reasoning", "text", "store", "suffix", "include"),
    *("service_tier", "add_generation_prompt", "return_token_ids", "cache_salt", "request_id", "vllm_xargs"),
)
UNKNOWN = ("prompt_cache_key", "safety_identifier", "verbosity", "context_management", "betas", "x-a.b c", "ü", "")
NUMBERS: tuple[Any, ...] = (
    *(0, 1, 2, 7, 8, 9, 16, 19, 20, 21, 100, -1, -2, 0.0, -0.0, 0.009, 0.01, 0.5, 1.0, 1.5, 1.999, 2.0, 2.001, 4096.0),
    *(8191, 8192, 8193, 8192.0, 8192.5, CONTEXT - 1, CONTEXT, CONTEXT + 1, float(CONTEXT), CONTEXT + 0.5, 6000.5),
    *(2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 10**30, 1e300, 1e-300, 999_999),
)
ODD: tuple[Any, ...] = (
    *(None, True, False, "", "1000", "0", "auto", "none", "NaN", " ", "\u0000", "\U0001f600", [], {}, [None], [[]]),
    *({"type": "text"}, {"type": "json_object"}, {"include_usage": True}, {"json": ""}, {"json_object": False}, ["a"]),
    *([1, 2], ["", "\n"], {"a": {"b": [1]}}, {"5": 10}, {"type": "json_schema", "json_schema": {"schema": {}}}),
)
TEXTS = (
    "hi",
    "",
    "Grüße, 世界 \U0001f30d",
    'quoted "text" \\ and \t tab',
    "nul \u0000 here",
    "a" * 3000,
    "{}[]{{[",
    "\u2028",
)
# Written instead of a value; none of it survives json.dumps.
LITERALS = (
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "-1e999",
        "9" * 5000,
        "1e5",
        "1E2",
        "0.1e1",
        "01",
        "+1",
        ".5",
        "5.",
        "- 1",
    ),
    *(
        "0x10",
        "1_000",
        "'x'",
        '"\\ud83d"',
        '"\\udc00 start"',
        '"\\u0000"',
        '"\\x41"',
        '"\n"',
        "tru",
        "None",
        "undefined",
    ),
    *("8192.0000000000001", "4.096e3", "131072.0", "1e-400", "-0", "-0.0", '"\\ud83d\\ude00"', "/**/1", "1 2", "[1,]"),
)
MARK = "@literal@"


def bodies(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """`count` requests: path and body."""
    random = Random(seed)
    for _ in range(count):
        path = random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        make = random.choices(list(MAKERS), list(MAKERS.values()))[0]
        yield path, make(random, path)


# ---- whole bodies


def good(random: Random, path: str) -> Body:
    """A body as clients send it, with some optional fields that are right."""
    body = copy.deepcopy(LEAST[path])
    body.update(random.choice(_SHAPES[path])(random))
    for name, value in random.sample(_RIGHT[path], random.randint(0, min(4, len(_RIGHT[path])))):
        body[name] = copy.deepcopy(value)
    if random.random() < 0.3:
        body[random.choice(UNKNOWN)] = random.choice(ODD)
    return _shuffled(random, copy.deepcopy(body))


def _valid(random: Random, path: str) -> bytes:
    return _dumped(random, good(random, path))


def _nearly(random: Random, path: str) -> bytes:
    """One or two fields that are at an end, odd, or of the wrong type."""
    body = good(random, path)
    for _ in range(random.randint(1, 2)):
        name = random.choice(BOUNDED if random.random() < 0.5 else FIELDS)
        body[name] = copy.deepcopy(random.choice(NUMBERS if random.random() < 0.6 else ODD))
    return _dumped(random, _shuffled(random, body))


def _deep_change(random: Random, path: str) -> bytes:
    """Somewhere inside, a value becomes another or goes."""
    body = good(random, path)
    holder: Any = body
    while True:
        places = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not places:
            break
        place = random.choice(places)
        if isinstance(holder[place], (dict, list)) and holder[place] and random.random() < 0.7:
            holder = holder[place]
            continue
        if random.random() < 0.3:
            del holder[place]
        else:
            holder[place] = copy.deepcopy(random.choice(ODD + NUMBERS))
        break
    return _dumped(random, body)


def _lacking(random: Random, path: str) -> bytes:
    body = good(random, path)
    del body[random.choice(list(body))]
    return _dumped(random, body)


def _literal(random: Random, path: str) -> bytes:
    """A value that json.dumps does not write."""
    body = good(random, path)
    body[random.choice(FIELDS)] = MARK
    return _dumped(random, body).replace(json.dumps(MARK).encode(), random.choice(LITERALS).encode())


def _twice(random: Random, path: str) -> bytes:
    """The same key again, as it is or escaped: one of the two is beyond a bound."""
    name, body = random.choice(BOUNDED), good(random, path)
    first, last = random.sample([1, 5, 999_999_999, -7, 0.5, None, "9", 2.5], 2)
    body[name] = first
    text = _dumped(random, body).decode("utf-8", "surrogatepass").rstrip()
    return f"{text[:-1]},{_written(random, name)}:{json.dumps(last)}}}".encode("utf-8", "surrogatepass")


def _escaped(random: Random, path: str) -> bytes:
    """Names in escapes: max\\u005ftokens is max_tokens."""
    body = good(random, path)
    body[random.choice(BOUNDED)] = random.choice(NUMBERS)
    inside = ",".join(f"{_written(random, name, 0.8)}:{json.dumps(value)}" for name, value in body.items())
    return f"{{{inside}}}".encode("utf-8", "surrogatepass")


def _nested(random: Random, path: str) -> bytes:
    depth = random.choice([5, 60, 120, 126, 127, 128, 129, 200, 1000, 5000])
    text = "[" * depth + "]" * depth if random.random() < 0.5 else '{"a":' * depth + "1" + "}" * depth
    body = good(random, path)
    body[random.choice(("metadata", "tools", "x", "chat_template_kwargs", "messages", "input"))] = MARK
    return _dumped(random, body).replace(json.dumps(MARK).encode(), text.encode())


def _bytes(random: Random, path: str) -> bytes:
    """A good body in which bytes go, come, or change."""
    raw = bytearray(_valid(random, path))
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(raw)) if raw else 0
        change = random.randrange(4)
        if change == 0:
            del raw[at:]
        elif change == 1:
            raw[at:at] = random.choice(
                [b"\xff", b"\xc3", b"\xed\xa0\xbd", b"\x00", b'"', b"\\", b"}", b",", b"\xf0\x9f"]
            )
        elif raw:
            raw[at % len(raw)] = random.randrange(256) if change == 2 else random.choice(b'{}[]",:0eE-+.\\')
    return bytes(raw)


def _other_encoding(random: Random, path: str) -> bytes:
    name = random.choice(["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "latin-1"])
    return json.dumps(good(random, path), ensure_ascii=False).encode(name, "replace")


def _no_object(random: Random, path: str) -> bytes:
    whole = [
        b"",
        b" ",
        b"null",
        b"[]",
        b'"x"',
        b"1",
        b"true",
        b"{",
        b"}",
        b"[{}]",
        b"{}",
        b"{}{}",
        b"{} x",
        b"\x00",
        b"NaN",
    ]
    return random.choice([*whole, json.dumps([good(random, path)]).encode(), random.randbytes(random.randint(1, 200))])


def _large(random: Random, path: str) -> bytes:
    """Up to a few hundred kilobytes: of one text, of many items, with the odd field first or last."""
    body = good(random, path)
    name = next(iter(set(body) & {"messages", "prompt", "input", "tokens"}), "x")
    many = random.randint(100, 3000)
    if name == "tokens":
        body[name] = [7] * many
    elif name == "messages":
        body[name] = [{"role": "user", "content": "y" * random.randint(0, 60)}] * many
    else:
        body[name] = "z" * many * 50
    odd = {random.choice(BOUNDED): random.choice(NUMBERS)}
    return _dumped(random, {**odd, **body} if random.random() < 0.5 else {**body, **odd})


Maker = Callable[[Random, str], bytes]
MAKERS: Mapping[Maker, int] = {
    _valid: 20, _nearly: 30, _deep_change: 12, _lacking: 3, _literal: 10, _twice: 5, _escaped: 5, _nested: 4,
    _bytes: 8, _other_encoding: 2, _no_object: 3, _large: 2,
}  # fmt: skip


# ---- writing


def _shuffled(random: Random, body: Body) -> Body:
    names = list(body)
    random.shuffle(names)
    return {name: body[name] for name in names}


def _dumped(random: Random, body: Body) -> bytes:
    """As text, in one of the ways in which clients write."""
    indent = random.choice([None, None, None, 1])
    separators = random.choice([None, (",", ":")])
    text = json.dumps(body, ensure_ascii=random.random() < 0.5, indent=indent, separators=separators)
    return text.encode("utf-8", "surrogatepass") + random.choice([b"", b"", b"\n", b" \r\n\t"])


def _written(random: Random, name: str, escape: float = 0.3) -> str:
    """A key, with some of its characters as escapes."""
    return '"' + "".join(f"\\u{ord(c):04x}" if random.random() < escape else json.dumps(c)[1:-1] for c in name) + '"'


# ---- parts


def _text(random: Random) -> str:
    return random.choice(TEXTS)


def _part(random: Random) -> Body:
    part = random.choice(
        [
            {"type": "text", "text": _text(random)},
            {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ]
    )
    return copy.deepcopy(part)


def _turn(random: Random) -> Body:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"p": "."}'}}
    return copy.deepcopy(
        random.choice(
            [
                {"role": random.choice(["user", "system", "developer"]), "content": _text(random)},
                {"role": "user", "content": [_part(random) for _ in range(random.randint(0, 3))]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "assistant", "content": "ok", "tool_calls": None, "function_call": None, "refusal": None},
                {"role": "tool", "tool_call_id": "c1", "content": random.choice(["", "done"])},
            ]
        )
    )


def _conversation(random: Random) -> Body:
    return {"messages": [*LEAST[CHAT]["messages"], *(_turn(random) for _ in range(random.randint(0, 4)))]}


def _anthropic(random: Random) -> Body:
    blocks = [
        {"type": "text", "text": _text(random), "cache_control": {"type": "ephemeral"}},
        {"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": "."}},
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "x"}]},
    ]
    found: Body = {"messages": [{"role": "user", "content": random.choice(["hi", blocks[:1], blocks[2:], blocks])}]}
    if random.random() < 0.3:
        found["system"] = random.choice(["be brief", [{"type": "text", "text": "be brief"}]])
    return found


def _items(random: Random) -> Body:
    items: list[Body] = [
        {"role": "user", "content": _text(random)},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ]
    return {"input": random.choice(["hi", items[: random.randint(1, 4)]])}


def _prompt(random: Random) -> Body:
    return {"prompt": random.choice(["hi", _text(random) or "x", ["a", "b"], [5, 6, 7], [[5], [6, 7]], ["x"] * 256])}


_SHAPES: Mapping[str, Sequence[Callable[[Random], Body]]] = {
    CHAT: (_conversation,),
    COMPLETIONS: (_prompt,),
    RESPONSES: (_items,),
    MESSAGES: (_anthropic,),
    COUNT: (_anthropic,),
    TOKENIZE: (_conversation, lambda random: {"prompt": _text(random)}),
    DETOKENIZE: (lambda random: {"tokens": [random.randrange(200) for _ in range(random.randint(0, 9))]},),
}
Field = tuple[str, Any]
_DEEP = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "array", "items": {}}}}}}
_COMMON: list[Field] = [
    *[
        ("temperature", 0),
        ("temperature", 1),
        ("temperature", 0.7),
        ("temperature", None),
        ("top_p", 0.9),
        ("top_p", 1),
    ],
    *[("stream", True), ("stream", False), ("stream", None), ("top_k", 40), ("model", MODEL)],
]
_SAMPLING: list[Field] = [
    *[
        ("max_tokens", 8),
        ("max_tokens", 64.0),
        ("max_tokens", None),
        ("max_completion_tokens", 5),
        ("n", 1),
        ("n", 1.0),
    ],
    *[("seed", 1), ("stop", []), ("stop", ["x"]), ("stop", None), ("frequency_penalty", 0.5), ("presence_penalty", -1)],
    *[("response_format", {"type": "json_object"}), ("logit_bias", {"5": 10}), ("user", "u1"), ("min_tokens", 1)],
    *[("structured_outputs", {"choice": ["yes", "no"]}), ("repetition_penalty", 1.1), ("min_p", 0.05)],
    *[("response_format", {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": _DEEP}})],
]
_TOOL = {"type": "function", "function": {"name": "ls", "description": "list", "parameters": _DEEP}}
_RIGHT: Mapping[str, list[Field]] = {
    CHAT: [
        *_COMMON,
        *_SAMPLING,
        *[("logprobs", True), ("top_logprobs", None), ("tools", [_TOOL]), ("tools", []), ("tool_choice", "none")],
        *[("reasoning_effort", "max"), ("chat_template_kwargs", {"thinking": True}), ("parallel_tool_calls", True)],
        *[("metadata", {"a": "b"}), ("store", False), ("service_tier", "auto"), ("echo", False)],
    ],
    COMPLETIONS: [*_COMMON, *_SAMPLING, ("logprobs", 2), ("echo", True), ("best_of", 1), ("suffix", None)],
    RESPONSES: [
        *_COMMON,
        *[
            ("max_output_tokens", 16),
            ("instructions", "be brief"),
            ("store", True),
            ("metadata", {}),
            ("top_logprobs", 3),
        ],
        *[("reasoning", {"effort": "low"}), ("text", {"format": {"type": "text"}}), ("include", []), ("tools", [])],
        *[("tools", [{"type": "function", "name": "f", "parameters": _DEEP}]), ("tool_choice", "auto")],
    ],
    MESSAGES: [
        *_COMMON,
        *[("max_tokens", 1), ("max_tokens", 32), ("stop_sequences", ["x"]), ("metadata", {"user_id": "u"})],
        *[("thinking", {"type": "enabled", "budget_tokens": 1024}), ("tools", [{"name": "f", "input_schema": _DEEP}])],
    ],
    COUNT: [("tools", [{"name": "f", "input_schema": _DEEP}]), ("thinking", None)],
    TOKENIZE: [("add_generation_prompt", True), ("return_token_strs", True), ("model", None)],
    DETOKENIZE: [("model", None)],
}


if __name__ == "__main__":
    for where, what in bodies(int(sys.argv[1]), int(sys.argv[2])):
        print(where, what[:300])
