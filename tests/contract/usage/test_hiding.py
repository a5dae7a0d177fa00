"""What a client receives that did not ask for usage: byte for byte what the engine would have sent it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

import pytest

from tests.contract.stub.process import Stub
from tests.contract.usage.answers import (
    BODIES,
    BOTH,
    CHAT,
    SAID,
    TEXT,
    direct,
    events,
    joined,
    pieces,
    recorded_pairs,
)
from tests.contract.usage.conftest import Scripted
from tests.counts import SOAK

SIZES = (1, 2, 3, 7, 13, 64, 150, 230)
COUNTS = (2, 3, 5, 100)
# Every place takes minutes: `make soak` has them all, `make test` some, which differ by case.
STRIDE = 1 if SOAK else 11
SOME_SIZES = SIZES if SOAK else (1, 150)
SOME_COUNTS = COUNTS if SOAK else (3,)
RECORDED = {name: (asked, plain) for name, asked, plain in recorded_pairs()}
TOOL = {
    "type": "function",
    "function": {"name": "usage", "parameters": {"type": "object", "properties": {"usage": {"type": "object"}}}},
}
CASES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "chat": (CHAT, BODIES[CHAT]),
    "text": (TEXT, BODIES[TEXT]),
    "one token": (CHAT, {**BODIES[CHAT], "max_tokens": 1}),
    "two choices": (CHAT, {**BODIES[CHAT], "n": 2, "seed": 1, "temperature": 1}),
    "two prompts": (TEXT, {**BODIES[TEXT], "prompt": ["a", "b"]}),
    "echo": (TEXT, {**BODIES[TEXT], "echo": True, "prompt": 'echo, "usage":{"prompt_tokens":1},"choices":[] '}),
    "logprobs": (CHAT, {**BODIES[CHAT], "logprobs": True, "top_logprobs": 2}),
    "text logprobs": (TEXT, {**BODIES[TEXT], "logprobs": 2, "return_token_ids": True}),
    "tools": (CHAT, {"messages": [{"role": "user", "content": "call usage"}], "tools": [TOOL], "max_tokens": 40}),
}  # fmt: skip


@pytest.fixture(params=["plain", "v4", "0.33.0"] if SOAK else ["v4"])
def stub(request: pytest.FixtureRequest, stubs: dict[str, Stub]) -> Stub:
    """Each kind of stand-in."""
    return stubs[request.param]


def pair(stub: Stub, case: str) -> tuple[bytes, bytes, bytes]:
    """One answer with all usage, as asked for with include_usage alone, and without any."""
    path, body = CASES[case]
    asked = {"temperature": 0, **body, "stream": True}
    if case == "tools" and stub.post(path, body)[0] != 200:
        pytest.skip("this engine has no tool parser")
    final = direct(stub, path, {**asked, "stream_options": {"include_usage": True}})
    answers = direct(stub, path, {**asked, "stream_options": BOTH}), final, direct(stub, path, asked)
    order = {"two choices": in_turn, "two prompts": one_after_another}.get(case)
    return tuple(map(order, answers)) if order else answers  # type: ignore[return-value]


def _by_choice(answer: bytes) -> tuple[list[list[bytes]], list[bytes]]:
    """The events of each choice, and those of none: in which order choices take turns differs each time."""
    found: dict[bytes, list[bytes]] = {b"0": [], b"1": [], b"": []}
    for event in events(answer):
        index = re.search(rb'"index":(\d)', event)
        found[index[1] if index else b""].append(event)
    return [found[b"0"], found[b"1"]], found[b""]


def in_turn(answer: bytes) -> bytes:
    choices, rest = _by_choice(answer)
    taken = [event for turn in itertools.zip_longest(*choices, fillvalue=b"") for event in turn]
    return b"".join(taken + rest)


def one_after_another(answer: bytes) -> bytes:
    choices, rest = _by_choice(answer)
    return b"".join(choices[0] + choices[1] + rest)


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("size", SIZES)
def test_a_recorded_stream_in_pieces_of_any_size_is_the_one_without_usage(
    scripted: Scripted, name: str, size: int
) -> None:
    asked, plain = RECORDED[name]
    assert scripted.answer(pieces(asked, size), "all").body == plain


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("count", COUNTS)
def test_a_recorded_stream_with_several_events_at_once_is_the_one_without_usage(
    scripted: Scripted, name: str, count: int
) -> None:
    asked, plain = RECORDED[name]
    assert scripted.answer(joined(asked, count), "all").body == plain


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_stream_split_anywhere_is_the_one_without_usage(scripted: Scripted, name: str) -> None:
    asked, plain = RECORDED[name]
    for at in range(1, len(asked), STRIDE):
        assert scripted.answer([asked[:at], asked[at:]], "all").body == plain, asked[:at][-40:]


@pytest.mark.parametrize("name", RECORDED)
def test_what_a_recorded_stream_cost_is_what_its_final_event_says(scripted: Scripted, name: str) -> None:
    asked, _ = RECORDED[name]
    prompt, completion = map(int, re.findall(rb'"prompt_tokens":(\d+).*?"completion_tokens":(\d+)', asked)[-1])
    for size in SOME_SIZES:
        used = scripted.answer(pieces(asked, size), "all").used
        assert used is not None and not used.estimated
        assert (used.prompt, used.completion, used.total) == (prompt, completion, prompt + completion)


@pytest.mark.parametrize("case", CASES)
def test_an_answer_to_a_client_that_never_asked_has_no_usage(stub: Stub, scripted: Scripted, case: str) -> None:
    asked, _, plain = pair(stub, case)
    assert b'"usage":{' in asked and asked != plain
    scripted.upstream.name = stub.log.stem
    for size in SOME_SIZES:
        assert scripted.answer(pieces(asked, size), "all").body == plain, size
    for count in SOME_COUNTS:
        assert scripted.answer(joined(asked, count), "all").body == plain, count


@pytest.mark.parametrize("case", CASES)
def test_an_answer_to_a_client_that_asked_for_usage_has_exactly_the_final_event(
    stub: Stub, scripted: Scripted, case: str
) -> None:
    asked, final, _ = pair(stub, case)
    for size in SOME_SIZES:
        assert scripted.answer(pieces(asked, size), "chunks").body == final, size
    for count in SOME_COUNTS:
        assert scripted.answer(joined(asked, count), "chunks").body == final, count


@pytest.mark.parametrize("case", CASES)
def test_an_answer_to_a_client_that_asked_for_all_usage_has_it(stub: Stub, scripted: Scripted, case: str) -> None:
    asked, _, _ = pair(stub, case)
    for size in (1, 13, 230):
        assert scripted.answer(pieces(asked, size), "").body == asked, size


@pytest.mark.parametrize("size", SIZES)
def test_lines_may_end_in_carriage_return_and_line_feed(stubs: dict[str, Stub], scripted: Scripted, size: int) -> None:
    asked, _, plain = (text.replace(b"\n", b"\r\n") for text in pair(stubs["plain"], "chat"))
    assert scripted.answer(pieces(asked, size), "all").body == plain


@pytest.mark.parametrize("size", SIZES)
def test_a_stream_that_ends_inside_an_event_keeps_its_beginning(
    stubs: dict[str, Stub], scripted: Scripted, size: int
) -> None:
    asked, _, plain = pair(stubs["plain"], "chat")
    whole = plain.index(b"data: ", 400)  # events before this place are complete in both
    shared = events(asked)[: len(events(plain[:whole]))]
    begun = b"".join(shared) + b'data: {"id":"x","obj'
    assert scripted.answer(pieces(begun, size), "all").body == plain[:whole] + b'data: {"id":"x","obj'


def test_the_last_event_of_a_choice_is_not_lost_when_the_final_event_never_comes(
    stubs: dict[str, Stub], scripted: Scripted
) -> None:
    asked, _, plain = pair(stubs["plain"], "chat")
    cut, expected = b"".join(events(asked)[:-2]), b"".join(events(plain)[:-1])
    mark = re.search(rb',"system_fingerprint":"[^"]*"', expected)
    assert mark and b'"finish_reason":"length"' in expected
    scripted.upstream.name = "says its fingerprint later"
    for size in (1, 64, 10_000):
        assert scripted.answer(pieces(cut, size), "all").body == expected.replace(mark[0], b"")
    assert scripted.answer([asked], "all").body == plain
    for size in (1, 64, 10_000):
        assert scripted.answer(pieces(cut, size), "all").body == expected


ERROR = b'data: {"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError"}}\n\n'


@pytest.mark.parametrize("size", SIZES)
def test_an_error_in_a_stream_goes_through(stubs: dict[str, Stub], scripted: Scripted, size: int) -> None:
    asked, _, plain = pair(stubs["plain"], "chat")
    lost = [b"".join(events(text)[:3]) + ERROR + b"data: [DONE]\n\n" for text in (asked, plain)]
    answer = scripted.answer(pieces(lost[0], size), "all")
    assert answer.body == lost[1]
    assert answer.used is not None and answer.used.completion == 2 and not answer.used.estimated


@pytest.mark.parametrize("size", (1, 64))
def test_comments_that_keep_a_connection_alive_go_through(
    stubs: dict[str, Stub], scripted: Scripted, size: int
) -> None:
    asked, _, plain = pair(stubs["plain"], "chat")
    kept = [b": keep-alive\n\n" + b": keep-alive\n\n".join(events(text)[:4]) for text in (asked, plain)]
    assert scripted.answer(pieces(kept[0], size), "all").body == kept[1]


def _huge(usage: bytes, end: bytes, before: int, after: int) -> bytes:
    """An event with an echoed prompt before its usage and with the prompt's tokens after it."""
    text, tokens = b'x\\"usage\\":{},' * (before // 14), b"7," * (after // 2) + b"7"
    reason = b'"length"' if end else b"null"
    choice = b'{"index":0,"text":"%s","logprobs":null,"finish_reason":%s,"stop_reason":null}' % (text, reason)
    return b'data: {"id":"x","choices":[%s]%s,"prompt_token_ids":[%s]}\n\n' % (choice, usage, tokens)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize(
    "before, after", [(300_000, 0), (300_000, 500), (65_000, 500), (66_000, 2_000), (64_000, 1_000)]
)
def test_events_larger_than_what_is_held_are_without_usage_too(
    scripted: Scripted, before: int, after: int, ends: bool
) -> None:
    usage, mark = b',"usage":{"prompt_tokens":9,"total_tokens":10,"completion_tokens":1}', b',"system_fingerprint":"f"'
    end = mark if ends else b""
    final = b'data: {"id":"x","choices":[]%s%s}\n\ndata: [DONE]\n\n' % (usage, mark)
    asked = _huge(usage, end, before, after) + final
    plain = _huge(end, end, before, after) + b"data: [DONE]\n\n"
    for size in (16_000, 65_537, 1_000_000):
        answer = scripted.answer(pieces(asked, size), "all")
        assert answer.body == plain, size
        assert answer.used is not None and answer.used.total == 10


@pytest.mark.parametrize("after", [64_000, 300_000])
def test_what_comes_after_the_usage_of_an_event_may_be_huge(scripted: Scripted, after: int) -> None:
    usage = b',"usage":{"prompt_tokens":9,"total_tokens":9,"completion_tokens":0}'
    asked, plain = (_huge(given, b"", 1_000, after) + b"data: [DONE]\n\n" for given in (usage, b""))
    for place in range(asked.index(usage) - 5, asked.index(usage) + len(usage) + 5, 7):
        for size in (16_000, 65_536):
            answer = scripted.answer([asked[:place], *pieces(asked[place:], size)], "all")
            assert answer.body == plain, (place, size)
            assert answer.used is not None and answer.used.total == 9


def test_a_name_in_a_text_is_not_a_usage(stubs: dict[str, Stub], scripted: Scripted) -> None:
    said = [{"role": "user", "content": "hi"}]
    plain = direct(stubs["plain"], CHAT, {"messages": said, "max_tokens": 3, "stream": True})
    text = rb'"content":"a,\"usage\":{\"prompt_tokens\":1},\"choices\":[]\",\\"'
    crafted = re.sub(rb'"content":"[^"]+"', lambda _: text, plain)
    assert crafted.count(text) >= 2
    for strip in ("all", "chunks"):
        assert scripted.answer(pieces(crafted, 13), strip).body == crafted
    assert SAID
