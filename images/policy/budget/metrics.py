"""The service's metrics. Keys are named by their names, which the operator gave; nothing a client says is a label."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from budget.core.counts import KeyState
from budget.core.descriptors import Ended

BUCKETS = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)
KINDS = ("prompt", "completion", "cached", "total")
CHECKS = (
    "Checks: admitted, refused for tokens or streams, or would_tokens, would_streams where limits are only observed."
)
MISSED = "Checks that were read after the gateway had hung up: it has let the request pass, or its client has left."

Gauges = Callable[[], dict[str, tuple[str, float]]]


class Metrics:
    """Counted here as things happen; states are asked for when somebody looks."""

    def __init__(self) -> None:
        at = CollectorRegistry()
        self.registry = at
        self.tokens = Counter(
            "budget_tokens",
            "Tokens of requests that ended, by kind; estimated ones included.",
            ("key", "kind"),
            registry=at,
        )
        self.requests = Counter(
            "budget_requests",
            "Requests that ended (ok, left, cut, refused, failed), refused ones included.",
            ("key", "result"),
            registry=at,
        )
        self.checks = Counter("budget_checks", CHECKS, ("key", "answer"), registry=at)
        self.missed = Counter("budget_missed_checks", MISSED, registry=at)
        self.repeated = Counter("budget_repeated_charges", "Charges that had been counted before.", registry=at)
        self.bad = Counter("budget_bad_descriptors", "Descriptors that said nothing usable.", registry=at)
        self.check_seconds = Histogram("budget_check_seconds", "Time to decide a check.", buckets=BUCKETS, registry=at)

    def ended(self, one: Ended) -> None:
        """A request that ended, counted once."""
        self.requests.labels(one.client, one.result).inc()
        for kind in KINDS:
            self.tokens.labels(one.client, kind).inc(getattr(one, kind))
        if one.estimated:
            self.tokens.labels(one.client, "estimated").inc(one.total)

    def refused(self, key: str) -> None:
        """A request that a limit refused, or that came with a key that is over."""
        self.requests.labels(key, "refused").inc()

    def watch(self, states: Callable[[], list[KeyState]], gauges: Gauges, counters: Gauges) -> None:
        """Where states come from."""
        self.registry.register(States(states, gauges, counters))  # type: ignore[arg-type]


class States:
    """Collector of what is true at the moment."""

    def __init__(self, states: Callable[[], list[KeyState]], gauges: Gauges, counters: Gauges) -> None:
        self._states, self._gauges, self._counters = states, gauges, counters

    def describe(self) -> list[Metric]:
        """Nothing is asked when it is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._by_key()
        for name, (text, value) in self._gauges().items():
            yield GaugeMetricFamily(name, text, value)
        for name, (text, value) in self._counters().items():
            yield CounterMetricFamily(name, text, value)

    def _by_key(self) -> Iterator[Metric]:
        balance = GaugeMetricFamily("budget_balance", "Tokens left; below zero is debt.", labels=("key",))
        tpm = GaugeMetricFamily("budget_limit_tokens", "Tokens per minute; 0 is no limit.", labels=("key",))
        leases = GaugeMetricFamily("budget_leases", "Requests that run now.", labels=("key",))
        streams = GaugeMetricFamily("budget_limit_streams", "Requests at once; 0 is no limit.", labels=("key",))
        for state in self._states():
            if state.tpm:
                balance.add_metric((state.key,), state.balance)
            tpm.add_metric((state.key,), state.tpm)
            leases.add_metric((state.key,), state.leases)
            streams.add_metric((state.key,), state.streams)
        yield from (balance, tpm, leases, streams)
