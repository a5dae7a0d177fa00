"""No body makes the stand-in fail in a way of its own: a refusal is an error object, never a broken server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.stub.conftest import Servers
from tests.contract.stub.process import JSON
from tests.counts import counts

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 40)
    | st.floats(width=16)
    | st.sampled_from(["", "x", "auto", "5", "json_schema", "json_object", "text", "user", "array"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "text", "function", "name", "schema", "json_schema", "choice"]),
            inner,
        )
    ),
    max_leaves=6,
)
TOOL = {"type": "function", "name": "f", "function": {"name": "f", "parameters": {"type": "object"}}}
TOOLS = st.lists(VALUES | st.just(TOOL), max_size=2)
MESSAGES = st.lists(st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "name"]), VALUES), max_size=2)
BLOCKS = st.lists(
    st.dictionaries(st.sampled_from(["type", "text", "content", "input", "name"]), VALUES)
    | st.sampled_from([{"type": "text", "text": "x"}, {"type": "tool_use", "name": "f", "input": {}}]),
    max_size=2,
)
TURNS = st.lists(st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "tool"]), "content": BLOCKS}))
FIELDS = [
    "model", "n", "stop", "seed", "temperature", "top_p", "max_tokens", "max_completion_tokens", "tools", "tool_choice",
    "response_format", "structured_outputs", "stream_options", "logprobs", "top_logprobs", "logit_bias", "min_tokens",
    "truncate_prompt_tokens", "prompt_logprobs", "echo", "suffix", "return_token_ids", "request_id", "tokens",
    "reasoning_effort", "chat_template_kwargs", "parallel_tool_calls", "reasoning", "text", "instructions", "metadata",
    "system", "stop_sequences", "thinking", "max_output_tokens", "sampling_params", "token_ids", "include", "store",
]  # fmt: skip
GOOD = {
    "model": "tiny", "messages": [{"role": "user", "content": "use f"}], "prompt": "x", "tokens": [5], "max_tokens": 4,
    "input": "x", "token_ids": [5], "sampling_params": {"max_tokens": 3},
}  # fmt: skip
ODD = st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1, max_size=2)
ODD_LISTS = (
    st.fixed_dictionaries({"messages": MESSAGES | TURNS | VALUES})
    | st.fixed_dictionaries({"prompt": VALUES})
    | st.fixed_dictionaries({"input": MESSAGES | TURNS | VALUES})
    | st.fixed_dictionaries({"tools": TOOLS, "tool_choice": VALUES | st.just("required")})
    | st.fixed_dictionaries({"system": BLOCKS | VALUES})
)
BODIES = (ODD | ODD_LISTS).map(lambda odd: {**GOOD, **odd})
PATHS = st.sampled_from(
    [
        "/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/v1/responses", "/v1/messages",
        "/v1/messages/count_tokens", "/invocations", "/v1/chat/completions/batch", "/v1/chat/completions/render",
        "/inference/v1/generate", "/generative_scoring",
    ]
)  # fmt: skip
AUTHORIZED = {**JSON, "authorization": "Bearer k-two"}


@pytest.mark.parametrize("letter", ["C", "D", "F"])
@given(path=PATHS, body=BODIES | VALUES)
@settings(max_examples=counts(150, 2000), deadline=None, suppress_health_check=list(HealthCheck))
def test_every_body_gets_an_answer_or_an_error_object(letter: str, path: str, body: Any, servers: Servers) -> None:
    status, headers, answer = servers(letter).request("POST", path, json.dumps(body), AUTHORIZED)
    if isinstance(body, dict) and headers["content-type"].startswith("text/event-stream"):
        assert status == 200 and answer.endswith(b"\n\n")
        return
    assert headers["content-type"].startswith("application/json")
    if status != 200:
        found = json.loads(answer)
        if "type" in found:  # Anthropic's shape, where 0.26.0 fails with a 500
            assert (found["type"], list(found["error"])) == ("error", ["type", "message"])
            assert found["error"]["type"] == "internal_error" or status < 500, answer
        else:
            assert list(found["error"]) == ["message", "type", "param", "code"]
            assert status in (400, 403, 404, 501, 503) or not isinstance(body, dict), answer


def test_no_answer_was_a_failure_of_the_stand_in_itself(servers: Servers) -> None:
    assert [letter for letter in "CDF" if "Traceback" in servers(letter).log.read_text()] == []
