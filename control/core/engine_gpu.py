"""The kind `gpu` in Compose's words: vLLM's own image, named GPUs, weights, and a volume of compiled kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from control.core import wiring
from control.core.model import ImageRef, Plan, Replica
from control.core.settings import Settings

if TYPE_CHECKING:
    from control.core.capacity.result import GpuPlan
    from control.core.facts import Release
    from control.core.facts.engines import Build

IMAGE = "engine"  # its name in config/images.yaml
WEIGHTS, CACHE = "weights", "cache"  # volumes of the rendered file
CACHE_OWNER = "cache-owner"
# Pinned memory for NCCL, and stacks of compilers; the daemon of an unprivileged user may not raise them.
_LIMITS = {"memlock": -1, "stack": 67_108_864}


def environment(plan: Plan) -> Mapping[str, str]:
    """The variables of the server."""
    return _planned(plan).serve.environment


def service(plan: Plan, replica: Replica, start_timeout_s: str) -> dict[str, object]:
    """What a replica of this kind has beyond what every replica has."""
    limits = {} if plan.rootless else {"ulimits": dict(_LIMITS)}
    return {
        "command": list(_planned(plan).serve.args),
        "depends_on": {CACHE_OWNER: {"condition": "service_completed_successfully"}},
        "volumes": [f"{WEIGHTS}:{wiring.WEIGHTS_MOUNT}:ro", f"{CACHE}:{wiring.CACHE_HOME}"],
        **limits,
        "healthcheck": {"start_period": f"{start_timeout_s}s"},
        "deploy": {"resources": {"reservations": {"devices": [reservation(replica.gpus)]}}},
    }


def reservation(uuids: Sequence[str]) -> dict[str, object]:
    """The one entry of a Compose device list: named GPUs, never a count."""
    if not uuids or len(set(uuids)) != len(uuids) or any(not u or u != u.strip() or "," in u for u in uuids):
        raise ValueError(f"expected GPU ids, one an item and each once, found {list(uuids)}")
    return {"driver": "nvidia", "device_ids": list(uuids), "capabilities": ["gpu"]}


def cache_owner(settings: Settings) -> dict[str, object]:
    """Gives the new volume, which belongs to root, to the user of the engines; ends at once."""
    owner = f"{settings.service.uid}:{settings.service.gid}"
    return {"command": [owner, wiring.CACHE_HOME], "volumes": [f"{CACHE}:{wiring.CACHE_HOME}"]}


def volumes(settings: Settings, plan: Plan) -> dict[str, object]:
    """Names carry what the content depends on: Compose would ask before it changes a volume that is there."""
    made = _planned(plan)
    where = settings.weights.path
    place = hashlib.sha256(where.encode()).hexdigest()[:8]
    kernels = "-".join((made.case.release.version, f"cu{made.build.cuda}", made.product or "gpu"))
    return {
        WEIGHTS: {
            "name": f"{settings.project}-weights-{place}",
            "driver": "local",
            "driver_opts": {"type": "none", "o": "bind", "device": where},
        },
        CACHE: {"name": f"{settings.project}-cache-{kernels}"},
    }


def image(ref: ImageRef, plan: Plan) -> str:
    """The image of the planned release, built for a CUDA that the driver runs; unplanned: what images.yaml names."""
    if plan.gpu is None:
        return ref.reference
    return f"{ref.repository}:{tag(plan.gpu.case.release, plan.gpu.build)}"


def tag(release: Release, build: Build) -> str:
    """vLLM tags its main image v0.26.0 and another CUDA's v0.26.0-cu129."""
    main = build == release.builds[0]
    return f"v{release.version}" + ("" if main else f"-cu{build.cuda.replace('.', '')}")


def _planned(plan: Plan) -> GpuPlan:
    if plan.gpu is None:
        raise ValueError("expected a plan of kind gpu")
    return plan.gpu
