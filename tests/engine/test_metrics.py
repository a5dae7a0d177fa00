"""After the same requests the metrics pages have the same families, types, texts, labels and buckets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.conftest import COMPARED, Started

OURS = ("vllm:", "http_")  # the others tell of Python and the process
# Their labels are read from this machine or from what the engine happens to be built of.
SETTINGS_AS_LABELS = ("vllm:cache_config_info",)
KEY = {"content-type": "application/json", "authorization": "Bearer k-two"}
CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "ignore_eos": True}
REQUESTS: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
    ("POST", CHAT, ASK),
    ("POST", CHAT, {**ASK, "stream": True}),
    ("POST", CHAT, {**ASK, "stop": ["zzzz"], "n": 2, "temperature": 1}),
    ("POST", CHAT, {**ASK, "max_tokens": -1}),
    ("POST", CHAT, {**ASK, "model": "nope"}),
    ("POST", "/v1/completions", {"prompt": "Hello", "max_tokens": 3, "ignore_eos": True}),
    ("GET", "/v1/models", None),
    ("GET", "/nowhere", None),
)
Families = dict[str, Any]


def families(server: Any) -> Families:
    """Name -> type, help, sample names, label names and label values that are not free."""
    for method, path, body in REQUESTS:
        server.request(method, path, None if body is None else json.dumps(body), KEY)
    page = server.request("GET", "/metrics")[2].decode()
    found: Families = {}
    for family in text_string_to_metric_families(page):
        if not family.name.startswith(OURS):
            continue
        samples = {s.name for s in family.samples}
        labels = {tuple(sorted(s.labels)) for s in family.samples}
        values = {tuple(sorted(s.labels.items())) for s in family.samples}
        found[family.name] = {
            "type": family.type,
            "help": family.documentation,
            "samples": sorted(samples),
            "labels": sorted(labels) if family.name not in SETTINGS_AS_LABELS else [],
            "values": sorted(values) if family.name not in SETTINGS_AS_LABELS else [],
        }
    return found


@pytest.mark.parametrize("letter", ["C", "D"])
def test_the_metrics_page_has_the_families_labels_and_buckets_of_real_vllm(
    letter: str, real_servers: Started, stand_in_servers: Started
) -> None:
    stub, real = families(stand_in_servers(letter)), families(real_servers(letter))
    assert set(stub) == set(real), f"missing {set(real) - set(stub)}, made up {set(stub) - set(real)}"
    wrong = {
        f"{name}.{part}": (stub[name][part], real[name][part])
        for name in real
        for part in real[name]
        if stub[name][part] != real[name][part]
    }
    assert not wrong, "\n".join(f"{name}: stand-in {ours}\n  real {theirs}" for name, (ours, theirs) in wrong.items())
    COMPARED[f"families of metrics of server {letter}: type, help, samples, labels, buckets"] += len(real)
