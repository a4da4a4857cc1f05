import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.errors import UsageError
from syntony.model import MS, US, NicRef, S, Timeline, format_bps, format_ns, parse_duration_ns
from syntony.model.names import is_name


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("5s", 5 * S),
        ("250ms", 250 * MS),
        ("20us", 20 * US),
        ("20µs", 20 * US),
        ("7ns", 7),
        ("1.5h", 5400 * S),
        ("2m", 120 * S),
        (" 3 min ", 180 * S),
        ("2d", 172_800 * S),
        ("0.5us", 500),
    ],
)
def test_durations(text: str, ns: int) -> None:
    assert parse_duration_ns(text) == ns


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "5 parsecs", "1e9ns", "nan s"])
def test_bad_durations_are_named(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        parse_duration_ns(text)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (-1234, "-1.23 µs"),
        (4_560_000, "4.56 ms"),
        (2 * S, "2 s"),
        (US, "1 µs"),
        (MS, "1 ms"),
        (S, "1 s"),
        (-MS, "-1 ms"),
        (S - 1, "1e+03 ms"),
        (-7, "-7 ns"),
        (999 * S, "999 s"),
        (1000 * S, "16.7 min"),
        (-7200 * S, "-2 h"),
        (71 * 3600 * S, "71 h"),
        (30 * 86_400 * S, "30 d"),
        (2**61, "73.1 years"),
    ],
)
def test_formats(ns: int, text: str) -> None:
    assert format_ns(ns) == text


@pytest.mark.parametrize(
    ("bps", "text"),
    [
        (0, "0 b/s"), (999, "999 b/s"), (1e3, "1 kb/s"), (85_900, "85.9 kb/s"), (1e6, "1 Mb/s"),
        (2.8e6, "2.8 Mb/s"), (1e9, "1 Gb/s"), (400e9, "400 Gb/s"),
    ],
)  # fmt: skip
def test_formats_of_rates(bps: float, text: str) -> None:
    assert format_bps(bps) == text


def test_nic_refs_round_trip() -> None:
    assert str(NicRef.parse("h3/rail0")) == "h3/rail0"


@pytest.mark.parametrize("text", ["h3", "h3/", "/rail0", "h3/rail0/x", "h 3/rail0", "h3/-x", "…/a"])
def test_bad_nic_refs_are_named(text: str) -> None:
    with pytest.raises(UsageError, match="is not a NIC"):
        NicRef.parse(text)


@given(st.text())
def test_names_never_hold_a_path_or_a_space(text: str) -> None:
    if is_name(text):
        assert not set(text) & set("/ \n\t\0'\"$`")


@given(
    offset_ns=st.floats(-1e8, 1e8),
    drift_ppb=st.floats(-1e5, 1e5),
    after_ns=st.integers(-(10**13), 10**13),
)
def test_a_timeline_inverts(offset_ns: float, drift_ppb: float, after_ns: int) -> None:
    ref_ns = 1_700_000_000 * S
    line = Timeline(node="a", ref_ns=ref_ns, offset_ns=offset_ns, drift_ppb=drift_ppb, sigma_ns=1.0)
    local_ns = ref_ns + after_ns
    # The inverse is a first-order one: what it leaves is drift² times the distance.
    left_ns = (drift_ppb * 1e-9) ** 2 * abs(after_ns) + 2
    assert abs(line.to_local_ns(line.to_fleet_ns(local_ns)) - local_ns) <= left_ns
