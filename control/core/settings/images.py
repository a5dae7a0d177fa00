"""Settings of images: registries and mirrors, and what builds are made of."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from control.core.settings.base import Seconds, Section

ImageSource = Literal["auto", "build", "pull"]


class Images(Section):
    """Where images come from: registries and mirrors, and what builds are made of."""

    source: ImageSource = Field(
        "auto",
        description="auto: pulled when its registry or the mirror has it, else built; build, pull: only that.",
    )
    sources: dict[str, ImageSource] = Field(
        {}, description="The same for single images, by their names in config/images.yaml: stronger than images.source."
    )
    mirror: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9.-]*(:\d{1,5})?(/[a-z0-9._{}-]+)*$",
        description="Registry, with a path if it has one, that is asked instead of every image's own; {registry} in "
        "the path stands for that one's name. Such as registry.example:5000/hub or mirror.example/{registry}.",
    )
    auth_file: str | None = Field(
        None,
        description="Logins to registries, a file as `docker login` writes it; null takes Docker's own, with its "
        "credential helpers.",
    )
    pull_timeout_s: Seconds = Field(7200.0, description="Longest pull of one image; vLLM's is several GB.")
    silence_s: Seconds = Field(120.0, description="A registry that brings nothing for this long is given up.")

    @field_validator("mirror")
    @classmethod
    def _is_a_registry(cls, value: str | None) -> str | None:
        first = (value or "localhost").partition("/")[0]
        if first != "localhost" and not set(first) & set(".:"):
            raise ValueError("expected a registry with a dot or a port in its name, such as registry.example:5000/hub")
        return value

    debian_mirror: str | None = Field(
        None,
        pattern=r"^https?://\S+$",
        description="Debian mirror of the base image; null takes debootstrap's own. A snapshot freezes every package.",
    )
    debian_security_mirror: str | None = Field(
        None, pattern=r"^https?://\S+$", description="Mirror of the security updates; null takes the mirror's own."
    )
    pip_index_url: str | None = Field(
        None,
        pattern=r"^https?://\S+$",
        description="Python package index of image builds; null takes the host's own pip settings.",
    )
    ca_file: str | None = Field(
        None, description="CA bundle for builds behind a TLS-inspecting proxy; null takes SSL_CERT_FILE."
    )
