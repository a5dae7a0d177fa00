"""What every group of settings is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# Envoy counts in milliseconds: what is shorter would be none.
Seconds = Annotated[float, Field(ge=0.001, le=86_400, allow_inf_nan=False)]


class Section(BaseModel):
    """A group of settings; unknown names are errors, values are frozen after parsing."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
