"""The control port: faults on demand. It is no part of what is stood in for, so it has a listener of its own."""

from __future__ import annotations

import json

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stub.faults import Faults
from stub.wire import dump


def application(faults: Faults) -> Starlette:
    """GET /faults says what is set, POST /faults changes it."""

    async def look(request: Request) -> Response:
        return Response(dump(faults.state()), media_type="application/json")

    async def change(request: Request) -> Response:
        try:
            refusal = faults.apply(json.loads(await request.body()))
        except ValueError:
            refusal = "the body is no JSON"
        if refusal:
            return Response(dump({"error": refusal}), 400, media_type="application/json")
        return Response(dump(faults.state()), media_type="application/json")

    return Starlette(routes=[Route("/faults", look, methods=["GET"]), Route("/faults", change, methods=["POST"])])
