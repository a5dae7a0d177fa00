"""The service's metrics, written by each worker into files that the supervisor adds up."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values

# Seconds: most bodies take less than one, 250 MB a few.
BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Made once in a worker; without a name the values stay in memory (tests)."""

    def __init__(self, name: str | None = None) -> None:
        if name is not None:  # files bear the worker's port, not its pid: one that was restarted goes on counting
            values.ValueClass = values.MultiProcessValue(process_identifier=lambda: name)
        at = CollectorRegistry()
        self.registry = at
        labels = ("route", "verdict", "rule")
        self.requests = Counter(
            "policy_requests", "Requests by verdict: ok, would_refuse, refused.", labels, registry=at
        )
        self.judge_seconds = Histogram(
            "policy_judge_seconds", "Time to judge one body.", ("route",), buckets=BUCKETS, registry=at
        )
        live = {"multiprocess_mode": "livesum", "registry": at}
        self.bytes_held = Gauge("policy_bytes_held", "Bytes of request bodies held now.", **live)
        self.bodies_waiting = Gauge("policy_bodies_waiting", "Large bodies that wait for their place.", **live)
        self.rules_loaded = Gauge(
            "policy_rules_loaded", "Workers with this version of the rules.", ("version",), **live
        )
        self.rules_broken = Gauge("policy_rules_broken", "Workers whose rules.json cannot be used.", **live)
        self.rules_errors = Counter("policy_rules_errors", "Times that rules.json could not be used.", registry=at)
        self.truncated = Counter("policy_truncated_turns", "Turns dropped so that a prompt fits.", registry=at)
        self.not_truncated = Counter(
            "policy_truncate_failures", "Long prompts that passed unchanged.", ("reason",), registry=at
        )
        self.evicted = Counter(
            "policy_uploads_evicted", "Uploads ended since others waited for their place.", registry=at
        )
        self._version: str | None = None

    def rules(self, version: str | None) -> None:
        """The version in force, or None for a file that cannot be used."""
        self.rules_broken.set(version is None)
        if version is None:
            self.rules_errors.inc()
            return
        if self._version is not None:
            self.rules_loaded.labels(self._version).set(0)
        self.rules_loaded.labels(version).set(1)
        self._version = version
