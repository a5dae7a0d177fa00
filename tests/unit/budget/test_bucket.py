"""Token buckets: time gives back at the stated rate and no more; debt is allowed and has to be waited for."""

from __future__ import annotations

from budget.core.bucket import UNIT, Bucket
from hypothesis import given
from hypothesis import strategies as st

TPMS = st.integers(1, 10_000_000)
STEPS = st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 300_000)), max_size=20)


@given(TPMS, st.integers(-100_000, 10_000_000), STEPS)
def test_time_never_takes_and_never_gives_more_than_the_rate(
    tpm: int, start: int, steps: list[tuple[int, int]]
) -> None:
    bucket, now = Bucket(0, start), start
    for tokens, passed in steps:
        bucket.take(tokens, tpm, now)
        before = bucket.used
        now += passed
        bucket.settle(tpm, now)
        assert before - passed * tpm <= bucket.used <= before and bucket.used >= 0


@given(TPMS, STEPS)
def test_what_a_key_gets_in_any_time_is_its_budget_its_rate_and_one_last_request(
    tpm: int, steps: list[tuple[int, int]]
) -> None:
    bucket, now, got, last = Bucket(), 0, 0, 0
    for tokens, passed in steps:
        now += passed
        bucket.settle(tpm, now)
        if not bucket.empty(tpm):
            bucket.take(tokens, tpm, now)
            got, last = got + tokens, max(last, tokens)
    assert got * UNIT <= tpm * UNIT + now * tpm + last * UNIT


@given(TPMS, st.integers(0, 50_000_000), st.integers(0, 10_000))
def test_one_millisecond_decides_when_the_wait_is_over(tpm: int, tokens: int, start: int) -> None:
    bucket = Bucket(0, start)
    bucket.take(tokens, tpm, start)
    wait = bucket.wait_ms(tpm)
    assert (wait > 0) == bucket.empty(tpm)
    if wait:
        early = Bucket(bucket.used, bucket.at)
        early.settle(tpm, start + wait - 1)
        assert early.empty(tpm)
        bucket.settle(tpm, start + wait)
        assert not bucket.empty(tpm)


@given(TPMS, st.integers(0, 1_000_000), st.lists(st.integers(0, 100_000), max_size=10))
def test_how_often_somebody_looks_changes_nothing(tpm: int, tokens: int, looks: list[int]) -> None:
    looked, untouched = Bucket(tokens * UNIT, 0), Bucket(tokens * UNIT, 0)
    for moment in sorted(looks):
        looked.settle(tpm, moment)
    end = max(looks, default=0)
    looked.settle(tpm, end)
    untouched.settle(tpm, end)
    assert looked == untouched


def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing() -> None:
    bucket = Bucket(5 * UNIT, 1000)
    bucket.settle(60, 400)
    assert bucket == Bucket(5 * UNIT, 1000)


def test_a_minute_fills_the_bucket_and_debt_takes_longer() -> None:
    bucket = Bucket()
    bucket.take(6411, 6000, 0)
    assert (bucket.balance(6000), bucket.empty(6000)) == (-411, True)
    assert bucket.wait_ms(6000) == 4111  # 100 tokens per second
    assert bucket.full_in_ms(6000) == 64_110
    bucket.settle(6000, 64_110)
    assert bucket.balance(6000) == 6000


def test_the_last_part_of_a_token_is_still_enough_for_one_request() -> None:
    bucket = Bucket(60 * UNIT - 1, 0)
    assert (bucket.balance(60), bucket.empty(60)) == (0, False)
    assert Bucket(60 * UNIT, 0).empty(60)
