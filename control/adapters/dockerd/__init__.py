"""The Docker daemon by its SDK. Typed answers, no parsed text."""

from control.adapters.dockerd.project import Dockerd

__all__ = ["Dockerd"]
