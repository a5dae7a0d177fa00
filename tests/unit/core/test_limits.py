"""Buckets of limits in exact arithmetic: what any 60 s and any burst admit."""

from __future__ import annotations

from fractions import Fraction

from control.core import limits
from control.core.limits import MOST, UNITS, Bucket

LIMITS = range(1, MOST + 1)


def last_of_a_minute(bucket: Bucket, cost: int) -> int:
    """How many requests of a client that never stops are admitted in the 60 s from idle, both ends included."""
    refill = Fraction(bucket.fill) * 60 / Fraction(str(bucket.interval_s))
    return int((bucket.capacity + refill) // cost)


def comes_before_the_end(bucket: Bucket, cost: int, number: int) -> bool:
    """Whether request `number` of the same client is admitted before 60 s are over."""
    refill = Fraction(bucket.fill) * 60 / Fraction(str(bucket.interval_s))
    return number * cost < bucket.capacity + refill


def test_no_60_seconds_admit_more_than_the_limit_and_the_first_minute_admits_all_of_it() -> None:
    shapes = limits.minutes()
    for limit in LIMITS:
        bucket, cost = shapes[limits.minute_shape(limit)], limits.minute_cost(limit)
        assert last_of_a_minute(bucket, cost) == limit
        assert comes_before_the_end(bucket, cost, limit), limit


def test_a_minute_of_an_address_is_as_strict() -> None:
    for limit in LIMITS:
        bucket = limits.address_minute(limit)
        assert last_of_a_minute(bucket, 1) == limit
        assert comes_before_the_end(bucket, 1, limit), limit


def test_at_once_a_tenth_of_a_minute_is_admitted_and_never_less_than_one_request() -> None:
    shapes = limits.minutes()
    for limit in LIMITS:
        burst = shapes[limits.minute_shape(limit)].capacity // limits.minute_cost(limit)
        assert burst == limits.address_minute(limit).capacity == max(1, limit // 10), limit


def test_a_burst_of_a_second_is_exactly_the_limit() -> None:
    for limit in LIMITS:
        assert limits.SECOND.capacity // limits.second_cost(limit) == limit
        assert limits.address_second(limit).capacity == limit


def test_no_request_costs_more_than_its_bucket_holds_and_envoy_takes() -> None:
    shapes = limits.minutes()
    for limit in LIMITS:
        assert limits.minute_cost(limit) <= shapes[limits.minute_shape(limit)].capacity <= UNITS
        assert 0 < limits.second_cost(limit) <= UNITS == 10**9


def test_the_capacity_alone_tells_the_shapes_of_all_buckets_apart() -> None:
    """auth.lua knows a limit by the capacity that Envoy says."""
    capacities = [limits.SECOND.capacity, *(shape.capacity for shape in limits.minutes().values())]
    assert len(set(capacities)) == len(capacities)
    assert all(shape.fill == UNITS - shape.capacity for shape in limits.minutes().values())


def test_no_limit_still_makes_buckets_that_envoy_accepts() -> None:
    for bucket in (limits.address_second(0), limits.address_minute(0)):
        assert bucket.capacity >= 1 and bucket.fill >= 1
