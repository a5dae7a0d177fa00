"""The form that every group of facts shares: closed, frozen, with a source and a date."""

from __future__ import annotations

import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Version = Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
Capability = Annotated[str, Field(pattern=r"^\d+\.\d$")]
Word = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)]


class Group(BaseModel):
    """Names that belong together; a name that is not known is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Sourced(Group):
    """A group of numbers from one source, looked at on one day."""

    source: str = Field(min_length=3)
    checked: datetime.date


def version_key(version: str) -> tuple[int, ...]:
    """`0.26.0` in an order in which 0.9.2 comes before 0.26.0."""
    return tuple(int(part) for part in version.split("."))
