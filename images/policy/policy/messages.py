"""Envoy's messages, taken apart and put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.type.v3 import http_status_pb2
from google.protobuf import struct_pb2

AUTH = "flashbox.auth"  # what the gateway knows of the caller
NAMESPACE = "flashbox.request"  # what it is told of the request
AFFINITY, SESSION = "x-flashbox-affinity", "x-session-id"


@dataclass(frozen=True)
class Head:
    """What the service needs of a request's headers."""

    path: str  # without the query
    request_id: str
    encoding: str  # content-encoding, lower case; "" for none
    media_type: str  # content-type without parameters, lower case
    length: int | None  # content-length
    models: frozenset[str] | None  # that the key may ask for; None: any
    session: str | None  # what the client calls it
    ended: bool  # there is no body

    @classmethod
    def read(cls, request: ext_proc.ProcessingRequest) -> Head:
        """From the first message of a call."""
        found = {
            header.key: (header.raw_value.decode("latin-1") or header.value)
            for header in request.request_headers.headers.headers
        }
        length = found.get("content-length", "")
        encoding = found.get("content-encoding", "").strip().lower()
        return cls(
            path=found.get(":path", "").partition("?")[0],
            request_id=found.get("x-request-id", ""),
            encoding="" if encoding == "identity" else encoding,
            media_type=found.get("content-type", "").partition(";")[0].strip().lower(),
            length=int(length) if length.isascii() and length.isdigit() else None,
            models=_models(request),
            session=found.get(SESSION) or None,
            ended=request.request_headers.end_of_stream,
        )


def _models(request: ext_proc.ProcessingRequest) -> frozenset[str] | None:
    auth = request.metadata_context.filter_metadata
    if AUTH not in auth:
        return None
    names = frozenset(filter(None, auth[AUTH].fields["models"].string_value.split(",")))
    return names or None


def facts(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Dynamic metadata; what is None is left out."""
    made = struct_pb2.Struct()
    made.update({NAMESPACE: {name: value for name, value in values.items() if value is not None}})
    return made


def headers(metadata: struct_pb2.Struct, length: int | None, affinity: str | None) -> ext_proc.ProcessingResponse:
    """Let the headers go; with `length` the body is another than the client sent, and plain."""
    answer = ext_proc.HeadersResponse()
    change = answer.response.header_mutation
    if affinity is not None:
        change.set_headers.append(_header(AFFINITY, affinity))
    if length is not None:
        change.remove_headers.append("content-encoding")
        change.set_headers.append(_header("content-length", str(length)))
    return ext_proc.ProcessingResponse(request_headers=answer, dynamic_metadata=metadata)


def _header(name: str, value: str) -> base_pb2.HeaderValueOption:
    return base_pb2.HeaderValueOption(
        header=base_pb2.HeaderValue(key=name, raw_value=value.encode()),
        append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
    )


def piece(data: bytes, last: bool) -> ext_proc.ProcessingResponse:
    """Bytes of the body for the engine."""
    answer = ext_proc.ProcessingResponse()
    streamed = answer.request_body.response.body_mutation.streamed_response
    streamed.body = data
    streamed.end_of_stream = last
    return answer


def trailers() -> ext_proc.ProcessingResponse:
    """Let the trailers go."""
    return ext_proc.ProcessingResponse(request_trailers=ext_proc.TrailersResponse())


def refusal(status: int, body: bytes, rule: str, retry_after: int, metadata: struct_pb2.Struct) -> Any:
    """The answer to the client, at once; `details` is how the gateway knows that it is ours."""
    change = ext_proc.HeaderMutation(set_headers=[_header("content-type", "application/json")])
    if retry_after:
        change.set_headers.append(_header("retry-after", str(retry_after)))
    answer = ext_proc.ImmediateResponse(
        status=http_status_pb2.HttpStatus(code=status), headers=change, body=body, details=f"policy_refused_{rule}"
    )
    return ext_proc.ProcessingResponse(immediate_response=answer, dynamic_metadata=metadata)
