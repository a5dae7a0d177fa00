"""`smoke`: does an answer stream through the gateway?"""

from __future__ import annotations

import time

import click

from control.adapters.gateway_client import GatewayClient
from control.context import Control
from control.options import pass_control
from control.steps import access, ready

PATIENCE_S = 300.0  # without a byte, where the policy decides how long the gateway waits
PROMPT = "Say in one sentence what a gateway does."


@click.command("smoke")
@click.option("--prompt", default=PROMPT, show_default=True, help="What to ask.")
@click.option("--max-tokens", default=64, show_default=True, type=click.IntRange(min=1), help="Longest answer.")
@pass_control
def command(control: Control, prompt: str, max_tokens: int) -> None:
    """Stream one chat completion through the gateway and print it as it arrives.

    Uses FLASHBOX_API_KEY if it is set, else a key of its own that is revoked afterwards.
    """
    client = ready.client_of(control, ready.require_gateway(control))
    with access.key_for(control, client) as key:
        tokens, seconds = _stream(control, client, key, prompt, max_tokens)
    counted = "an unknown number of tokens" if tokens is None else f"{tokens} tokens"
    control.console.say("smoke", f"{counted} streamed by {client.base_url}/v1", seconds)


def _stream(
    control: Control, client: GatewayClient, key: str, prompt: str, max_tokens: int
) -> tuple[int | None, float]:
    begun, tokens = time.monotonic(), None
    settings = control.settings
    for piece in client.stream_chat(
        key, settings.engine.served_model_name, prompt, max_tokens, settings.gateway.idle_timeout_s or PATIENCE_S
    ):
        control.console.piece(piece.text)
        tokens = piece.completion_tokens if piece.completion_tokens is not None else tokens
    control.console.piece("\n")
    return tokens, time.monotonic() - begun
