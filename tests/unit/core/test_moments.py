"""Times as they are typed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.core import moments
from control.core.errors import UsageError

NOW = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)


@given(st.datetimes(min_value=datetime(1000, 1, 1), timezones=st.just(timezone.utc)))
def test_what_is_written_is_read_back_and_sorts_as_text(moment: datetime) -> None:
    whole = moment.replace(microsecond=0)
    assert moments.read(moments.text(whole)) == whole
    assert (moments.text(whole) < moments.text(NOW)) == (whole < NOW)


@pytest.mark.parametrize(
    "text", ["", "2026-01-31", "2026-02-30T00:00:00Z", "2026-1-31T09:00:00Z", "2026-01-31T09:00:00+00:00", "x"]
)
def test_what_is_no_time_of_this_form_is_none(text: str) -> None:
    assert moments.read(text) is None


@pytest.mark.parametrize(
    ("words", "seconds"),
    [("0", 0), ("0h", 0), ("90s", 90), ("5m", 300), ("24h", 86_400), ("30d", 2_592_000), ("1w", 604_800)],
)  # fmt: skip
def test_a_span_is_a_number_with_its_unit(words: str, seconds: int) -> None:
    assert moments.span(words, "--keep") == timedelta(seconds=seconds)


@pytest.mark.parametrize("words", ["", "24", "-1h", "1.5h", "1y", "h", "1h30m", "9999999d", "40000d"])
def test_a_span_that_cannot_be_meant_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match=r"^--keep: expected "):
        moments.span(words, "--keep")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("2027-01-31", "2027-01-31T23:59:59Z"),
        ("2026-06-01", "2026-06-01T23:59:59Z"),
        ("2027-01-31T09:00:00Z", "2027-01-31T09:00:00Z"),
        ("30d", "2026-07-01T12:00:00Z"),
        ("36h", "2026-06-03T00:00:00Z"),
    ],
)
def test_a_time_to_come_is_a_day_a_moment_or_a_span(words: str, text: str) -> None:
    assert moments.ahead(words, NOW, "--expires") == text


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("2026-05-31", "expected a time to come"),
        ("2026-06-01T12:00:00Z", "expected a time to come"),
        ("0", "expected a time to come"),
        ("2027-02-30", "expected a day such as 2027-01-31"),
        ("31.1.2027", "expected a day such as 2027-01-31"),
        ("tomorrow", "expected a day such as 2027-01-31"),
        ("30", "expected a time such as 24h, 30d or 0"),
        ("9999-12-31", "expected a day such as"),
        ("9998-12-31", "expected at most 36500 days"),
    ],
)
def test_a_time_that_cannot_be_meant_is_refused(words: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=f"^--expires: {complaint}"):
        moments.ahead(words, NOW, "--expires")


@given(st.text(max_size=30))
def test_whatever_is_typed_is_a_time_to_come_or_a_usage_error(words: str) -> None:
    try:
        assert moments.ahead(words, NOW, "--expires") > moments.text(NOW)
    except UsageError as error:
        assert error.what.startswith("--expires: ")
