from __future__ import annotations

from functools import reduce
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from control.core.pull_progress import Progress

MIB = 1024**2


def after(*events: dict[str, Any]) -> Progress:
    return reduce(lambda progress, event: progress.after(event), events, Progress())


def said(layer: str, status: str, current: int | None = None, total: int | None = None) -> dict[str, Any]:
    detail = {} if current is None else {"current": current, "total": total}
    return {"status": status, "id": layer, "progressDetail": detail}


def test_layers_and_bytes_are_added_up() -> None:
    progress = after(
        {"status": "Pulling from vllm/vllm-openai", "id": "v0.26.0"},
        said("a", "Pulling fs layer"),
        said("b", "Pulling fs layer"),
        said("c", "Already exists"),
        said("a", "Downloading", 1 * MIB, 2 * MIB),
        said("b", "Downloading", 1 * MIB, 6 * MIB),
        said("a", "Verifying Checksum"),
        said("a", "Download complete"),
        said("a", "Extracting", 1, 2 * MIB),
        said("a", "Pull complete"),
    )
    assert str(progress) == "2 of 3 layers, 3.0 MiB of 8.0 MiB"
    assert progress.error is None


def test_a_layer_that_is_tried_again_says_so_until_it_moves() -> None:
    waiting = after(said("a", "Pulling fs layer"), said("a", "Retrying in 5 seconds"))
    assert str(waiting) == "0 of 1 layers (retrying in 5 seconds)"
    assert str(waiting.after(said("a", "Downloading", 1, 10))) == "0 of 1 layers, 1 B of 10 B"


def test_an_error_in_the_stream_is_kept_in_the_daemon_s_words() -> None:
    assert after({"error": "short", "errorDetail": {"message": "long"}}).error == "long"
    assert after({"error": "short"}).error == "short"


EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["Downloading", "Pull complete", "Waiting", "x", ""]),
        "id": st.sampled_from(["a", "b", ""]),
        "progressDetail": st.one_of(
            st.none(), st.fixed_dictionaries({"current": st.integers(0, 99)}, optional={"total": st.integers(0, 99)})
        ),
    },
)


@given(st.lists(EVENTS))
def test_no_event_of_any_order_breaks_the_words(events: list[dict[str, Any]]) -> None:
    progress = after(*events)
    assert " layers" in str(progress)
    assert sum(layer.done for layer in progress.layers.values()) <= len(progress.layers) <= 2
