"""What is known of models, GPUs and vLLM releases; every number with its source. Unknown is None."""

from control.core.facts.engines import EngineFacts, Fault, Flags, Release, Report
from control.core.facts.hardware import GpuFacts, HardwareFacts
from control.core.facts.load import Facts, load, parse_engines, parse_hardware, parse_model
from control.core.facts.model import ModelFacts

__all__ = [
    "EngineFacts",
    "Facts",
    "Fault",
    "Flags",
    "GpuFacts",
    "HardwareFacts",
    "ModelFacts",
    "Release",
    "Report",
    "load",
    "parse_engines",
    "parse_hardware",
    "parse_model",
]
