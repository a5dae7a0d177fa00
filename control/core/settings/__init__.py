"""What the operator wants: one tree of settings, each with default, type and help.

Order of strength: these defaults < config/stack.yaml < remembered choices < FLASHBOX__* variables
< `--set`. `control.core.layers` merges them; this package knows only the shape.
Durations end in `_s`, sizes in `_mib` or `_gib`.
"""

from control.core.settings.base import Section
from control.core.settings.engine import Engine, Stub, Weights
from control.core.settings.gateway import Cors, Gateway, Limits, Tls
from control.core.settings.images import Images, ImageSource
from control.core.settings.tree import Autoscaler, Logs, Monitoring, Network, Service, Settings

__all__ = [
    "Autoscaler",
    "Cors",
    "Engine",
    "Gateway",
    "ImageSource",
    "Images",
    "Limits",
    "Logs",
    "Monitoring",
    "Network",
    "Section",
    "Service",
    "Settings",
    "Stub",
    "Tls",
    "Weights",
]
