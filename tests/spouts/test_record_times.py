"""Times in the forms of others are the same moments."""

import pytest

from dskype.spouts.record_times import UNITS, time_ms

NOON = 1364817600000


@pytest.mark.parametrize(
    ("value", "unit", "ms"),
    [
        (NOON, "ms", NOON),
        (str(NOON), "ms", NOON),
        (f" {NOON} ", "ms", NOON),
        (NOON // 1000, "s", NOON),
        (NOON / 1000 + 0.123, "s", NOON + 123),
        ("1364817600.5", "s", NOON + 500),
        (NOON * 1000 + 999, "us", NOON),
        (-1, "s", -1000),
        (-1.0, "us", -1),
        ("2013-04-01T12:00:00Z", "iso8601", NOON),
        ("2013-04-01 12:00:00", "iso8601", NOON),
        ("2013-04-01T14:00:00.123456+02:00", "iso8601", NOON + 123),
        ("20130401T120000Z", "iso8601", NOON),
        ("20130401", "iso8601", NOON - 43_200_000),
        ("Mon, 01 Apr 2013 14:00:00 +0200", "rfc2822", NOON),
        ("Mon Apr 01 12:00:00 +0000 2013", "rfc2822", NOON),
        ("Mon, 01 Apr 2013 14:00:00 +0200 (CEST)", "rfc2822", NOON),
        ("01 Apr 2013 07:00 EST", "rfc2822", NOON),
        ("Mon Apr  1 12:00:00 2013", "rfc2822", NOON),
    ],
)
def test_a_time_becomes_milliseconds(value, unit, ms):
    found = time_ms(value, unit)
    assert found == ms and type(found) is int


@pytest.mark.parametrize("value", [NOON, NOON // 1000, NOON * 1000, str(NOON), "2013-04-01T12:00:00Z", "Mon, 01 Apr 2013 12:00:00 GMT", NOON / 1000])
def test_the_unit_auto_sees_what_a_time_is(value):
    assert time_ms(value, "auto") == NOON


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("value", ["", "soon", True, None, [], float("nan"), float("inf"), 10**30, "9" * 50, "2013-13-01"])
def test_what_is_no_time_is_none(value, unit):
    assert time_ms(value, unit) is None


@pytest.mark.parametrize("zone", ["CET", "CEST", "JST", "+02:00", "+2", "GMT+2", "UTC+0200", "PM", "A", "Europe/Zurich"])
def test_a_time_with_an_unknown_zone_is_none(zone):
    for value in (f"Mon, 01 Apr 2013 12:00:00 {zone}", f"Mon Apr 01 12:00:00 {zone} 2013"):
        assert time_ms(value, "rfc2822") is time_ms(value, "auto") is None


@pytest.mark.parametrize(("value", "unit"), [("2013-04-01", "s"), (NOON, "iso8601"), ("Mon, 01 Apr 2013 12:00:00 GMT", "iso8601"), (5, "auto"), ("1", "auto")])
def test_a_time_of_another_unit_is_none(value, unit):
    assert time_ms(value, unit) is None
