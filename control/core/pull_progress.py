"""How far a pull is: the daemon's events, added up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

_DONE = ("Pull complete", "Already exists")
_LOADED = ("Download complete", "Verifying Checksum", "Extracting", *_DONE)
_WAITING = ("Pulling fs layer", "Waiting", "Downloading", "Retrying")
_UNITS = ("B", "KiB", "MiB", "GiB")


@dataclass(frozen=True)
class Layer:
    """One layer of the image: bytes here and bytes in all, as far as the daemon has said."""

    loaded: int = 0
    total: int = 0
    done: bool = False


@dataclass(frozen=True)
class Progress:
    """Everything that was said of one pull."""

    layers: Mapping[str, Layer] = field(default_factory=dict)
    error: str | None = None
    retrying: str = ""  # the daemon's words while it tries a layer again

    def after(self, event: Mapping[str, object]) -> Progress:
        """The progress once this event is added; events that say nothing of a layer change nothing."""
        if event.get("error"):
            detail = event.get("errorDetail")
            text = detail.get("message") if isinstance(detail, Mapping) else None
            return replace(self, error=str(text or event["error"]))
        status, name = str(event.get("status", "")), str(event.get("id", ""))
        if not name or not status.startswith((*_LOADED, *_WAITING)):
            return self
        layer = _layer(self.layers.get(name, Layer()), status, event.get("progressDetail"))
        retrying = status if status.startswith("Retrying") else "" if status == "Downloading" else self.retrying
        return replace(self, layers={**self.layers, name: layer}, retrying=retrying)

    def __str__(self) -> str:
        """`3 of 12 layers, 1.2 of 7.1 GiB`."""
        done = sum(layer.done for layer in self.layers.values())
        loaded, total = (sum(getattr(layer, key) for layer in self.layers.values()) for key in ("loaded", "total"))
        size = f", {_size(loaded)} of {_size(total)}" if total else ""
        again = f" ({self.retrying.lower()})" if self.retrying else ""
        return f"{done} of {len(self.layers)} layers{size}{again}"


def _layer(before: Layer, status: str, detail: object) -> Layer:
    said = detail if isinstance(detail, Mapping) else {}
    if status == "Downloading" and isinstance(said.get("current"), int):
        return replace(before, loaded=int(said["current"]), total=max(before.total, int(said.get("total") or 0)))
    if status.startswith(_LOADED):
        return replace(before, loaded=before.total, done=status in _DONE)
    return before


def _size(count: int) -> str:
    value, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
