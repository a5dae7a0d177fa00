"""Gateways with the product's own rules behind them, and a stand-in for the service that says what it was told."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tests.contract.gateway.harness import Gateway, gateway_settings
from tests.contract.policy.process import Policy


@contextmanager
def judged(folder: Path, count: int = 1, **settings: Any) -> Iterator[Gateway]:
    """Serves; `settings` are those of `gateway`."""
    gateway = Gateway(folder, gateway_settings(**settings), count=count)
    folder.mkdir(exist_ok=True)
    gateway.policy = Policy(folder / "policy", gateway.policy_rules(), POLICY_MEMORY_MIB=992)
    with gateway.serving():
        yield gateway


class Recorder(external_processor_pb2_grpc.ExternalProcessorServicer):  # type: ignore[misc]
    """Lets everything pass with this metadata, and keeps what it was told."""

    def __init__(self, **metadata: Any) -> None:
        self.told: list[Any] = []
        self._metadata = metadata
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        external_processor_pb2_grpc.add_ExternalProcessorServicer_to_server(self, self._server)
        serving = health.HealthServicer()
        serving.set("", health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(serving, self._server)
        self.ports = tuple(self._server.add_insecure_port("127.0.0.1:0") for _ in range(2))
        self._server.start()

    def Process(self, requests: Any, context: Any) -> Iterator[Any]:
        """Headers, then each piece as it comes."""
        for request in requests:
            self.told.append(request)
            answer = ext_proc.ProcessingResponse()
            if request.HasField("request_headers"):
                answer.request_headers.SetInParent()
                answer.dynamic_metadata.update({"flashbox.request": self._metadata})
            elif request.HasField("request_body"):
                piece = answer.request_body.response.body_mutation.streamed_response
                piece.body, piece.end_of_stream = request.request_body.body, request.request_body.end_of_stream
            yield answer

    def close(self) -> None:
        """End it."""
        self._server.stop(None)
