"""The stand-in has the doors of the server stood in for, no more and no fewer, and guards the same ones."""

from __future__ import annotations

import json
import re

from tests.contract.stub.conftest import StartStub
from tests.contract.stub.recordings import FOLDER

_LINE = re.compile(r"^((?:GET|POST|HEAD)(?:, HEAD)?)\s+(/\S*)$")


def recorded() -> set[tuple[str, str]]:
    """Method and path of every route in the start log of 0.26.0."""
    lines = map(_LINE.match, (FOLDER / "routes.txt").read_text().splitlines())
    return {(method, line[2]) for line in lines if line for method in line[1].split(", ")}


def test_the_routes_are_the_recorded_ones(start_stub: StartStub) -> None:
    stub = start_stub()
    listed = json.loads(stub.request("GET", "/openapi.json")[2])["paths"]
    ours = {(method.upper(), path) for path, methods in listed.items() for method in methods}
    pages = {("GET", "/openapi.json"), ("GET", "/docs"), ("GET", "/docs/oauth2-redirect"), ("GET", "/redoc")}
    pages |= {("HEAD", path) for _, path in pages}
    assert len(recorded()) == 34
    assert ours == recorded() - pages
    assert {stub.request(method, path)[0] for method, path in pages} == {200}


def test_the_key_guards_v1_and_inference_and_nothing_else(start_stub: StartStub) -> None:
    stub = start_stub(VLLM_API_KEY="k")
    for method, path in sorted(recorded()):
        status = stub.request(method, path, "{}" if method == "POST" else None)[0]
        assert (status == 401) == path.startswith(("/v1", "/inference")), (method, path, status)


def test_later_releases_have_more_doors_and_close_some(start_stub: StartStub) -> None:
    newer = ["/v1/systemone", "/v1/messages/render", "/v1/responses/render", "/inference/v1/abort_requests"]
    statuses = {
        release: [start_stub(STUB_RELEASE=release).request("POST", path, "{}")[0] for path in (*newer, "/v1/decisions")]
        for release in ("0.26.0", "0.32.0", "0.33.0")
    }
    assert statuses["0.26.0"] == [404, 404, 405, 404, 404]  # 405: it is a response's id there
    assert statuses["0.32.0"] == [400, 403, 403, 403, 404]
    assert statuses["0.33.0"] == [400, 403, 403, 403, 501]
    opened = start_stub(STUB_RELEASE="0.32.0", STUB_FLAGS="--enable-scale-out")
    assert opened.request("POST", "/v1/chat/completions/render", "{}")[0] == 400
