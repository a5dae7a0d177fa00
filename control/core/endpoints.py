"""The replicas as Envoy's endpoint discovery (EDS) reads them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence

import yaml

from control.core import wiring
from control.core.errors import UsageError
from control.core.header import with_header
from control.core.model import Replica

EDS_PATH = "run/envoy/dynamic/eds.yaml"
_ASSIGNMENT = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"


def eds(replicas: Sequence[Replica], draining: Collection[str] = ()) -> str:
    """The file for these replicas; those named in `draining` get no new request and keep their streams.

    Envoy asks each gate itself, so a replica that is listed before it is ready gets nothing.
    """
    unknown = sorted(set(draining) - {replica.name for replica in replicas})
    if unknown:
        listed = ", ".join(replica.name for replica in replicas) or "none"
        raise UsageError(f"{', '.join(unknown)}: no such replica is published", f"Published: {listed}.")
    ordered = sorted(replicas, key=lambda replica: replica.slot)
    assignment = {
        "@type": _ASSIGNMENT,
        "cluster_name": wiring.ENGINE_CLUSTER,
        "endpoints": [{"lb_endpoints": [_endpoint(replica, replica.name in draining) for replica in ordered]}],
    }
    response = {"version_info": _version(assignment), "resources": [assignment]}
    return with_header(yaml.safe_dump(response, sort_keys=False, width=120))


def _endpoint(replica: Replica, draining: bool) -> dict[str, object]:
    entry: dict[str, object] = {
        "endpoint": {
            "address": {"socket_address": {"address": replica.address, "port_value": wiring.ENGINE_PORT}},
            "hostname": replica.name,
            "health_check_config": {"port_value": wiring.GATE_PORT},
        }
    }
    if draining:
        entry["health_status"] = "DRAINING"
    return entry


def _version(content: Mapping[str, object]) -> str:
    """Equal content, equal version: a push of the same file is no change."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
