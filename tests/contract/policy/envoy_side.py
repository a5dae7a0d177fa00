"""Envoy's side of external processing (FULL_DUPLEX_STREAMED): what it sends for a request, what it is told."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc
from google.protobuf import json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc

PIECE = 64 << 10


@dataclass
class Heard:
    """What Envoy is told about one request."""

    status: int | None = None  # of a refusal; None: it goes on
    body: bytes = b""  # of the refusal, or what the engine gets
    pieces: int = 0
    ended: bool = False  # the engine is told that the body is over
    trailers: bool = False
    set_headers: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    details: str = ""

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found


def headers_message(path: str, headers: Mapping[str, str], ended: bool, models: str | None) -> Any:
    """The first message of a call."""
    message = ext_proc.ProcessingRequest()
    pairs = {":method": "POST", ":path": path, "x-request-id": "req-1", "content-type": "application/json", **headers}
    for name, value in pairs.items():
        message.request_headers.headers.headers.append(base_pb2.HeaderValue(key=name, raw_value=value.encode()))
    message.request_headers.end_of_stream = ended
    if models is not None:
        message.metadata_context.filter_metadata["flashbox.auth"].update({"models": models})
    return message


def body_message(data: bytes, last: bool) -> Any:
    """A piece of the body."""
    return ext_proc.ProcessingRequest(request_body=ext_proc.HttpBody(body=data, end_of_stream=last))


TRAILERS = ext_proc.ProcessingRequest(request_trailers=ext_proc.HttpTrailers())


def heard(answers: Iterator[Any]) -> Heard:
    """Everything that is said, put together."""
    found, parts = Heard(), []
    for answer in answers:
        if answer.HasField("dynamic_metadata"):
            found.facts = json_format.MessageToDict(answer.dynamic_metadata).get("flashbox.request", {})
        kind = answer.WhichOneof("response")
        if kind == "immediate_response":
            refused = answer.immediate_response
            found.status, found.body, found.details = refused.status.code, refused.body, refused.details
            _note_headers(found, refused.headers)
            return found
        if kind == "request_headers":
            _note_headers(found, answer.request_headers.response.header_mutation)
        elif kind == "request_body":
            piece = answer.request_body.response.body_mutation.streamed_response
            parts.append(piece.body)
            found.pieces += 1
            found.ended = piece.end_of_stream
        elif kind == "request_trailers":
            found.trailers = True
    found.body = b"".join(parts)
    return found


def _note_headers(found: Heard, change: Any) -> None:
    found.removed += change.remove_headers
    for option in change.set_headers:
        found.set_headers[option.header.key] = option.header.raw_value.decode()


class Upload:
    """A request whose bytes come when the test says so."""

    def __init__(self, stub: Any, first: Any) -> None:
        self._sent: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sent.put(first)
        self.call = stub.Process(iter(self._sent.get, None))
        self.result: Heard | None = None
        self.failed: grpc.RpcError | None = None
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            self.result = heard(self.call)
        except grpc.RpcError as error:
            self.failed = error

    def send(self, data: bytes, last: bool = False) -> None:
        """A piece of the body."""
        for at in range(0, max(1, len(data)), PIECE):
            self._sent.put(body_message(data[at : at + PIECE], last and at + PIECE >= len(data)))

    def leave(self) -> None:
        """The client is gone."""
        self.call.cancel()
        self._sent.put(None)

    def close(self) -> None:
        """Envoy has nothing more to say."""
        self._sent.put(None)

    def wait(self, within_s: float = 30) -> Heard:
        """What Envoy was told in the end."""
        self._thread.join(within_s)
        self._sent.put(None)
        if self.failed is not None:
            raise self.failed
        assert self.result is not None, "no answer yet"
        return self.result


class Caller:
    """A connection to one worker."""

    def __init__(self, port: int) -> None:
        options = [("grpc.max_receive_message_length", 16 << 20), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options)
        self._stub = external_processor_pb2_grpc.ExternalProcessorStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def serving(self) -> bool:
        """What Envoy's health check learns."""
        try:
            answer = self._health.Check(health_pb2.HealthCheckRequest(), timeout=2)
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def ask(
        self,
        body: bytes | None,
        path: str = "/v1/chat/completions",
        headers: Mapping[str, str] | None = None,
        piece: int = PIECE,
        trailers: bool = False,
        models: str | None = None,
    ) -> Heard:
        """One whole request."""

        def messages() -> Iterator[Any]:
            yield headers_message(path, headers or {}, body is None, models)
            for at in range(0, max(1, len(body)), piece) if body is not None else ():
                yield body_message(body[at : at + piece], at + piece >= len(body) and not trailers)
            if trailers:
                yield TRAILERS

        return heard(self._stub.Process(messages(), timeout=120))

    def upload(self, headers: Mapping[str, str] | None = None, path: str = "/v1/chat/completions") -> Upload:
        """A request that goes on."""
        return Upload(self._stub, headers_message(path, headers or {}, False, None))

    def close(self) -> None:
        self._channel.close()
