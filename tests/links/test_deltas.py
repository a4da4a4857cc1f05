"""Counters over time: resets, ceilings, what cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.links.counters import EVERY, TABLE, CounterSource, of_source
from syntony.links.deltas import CounterDeltas, CounterOutcome, Delta

WIDE = "net:carrier_down_count"
NARROW = "ib/counters:link_downed"  # stops at 255


def takes(key: str, *steps: tuple[str, int | None]) -> list[Delta]:
    deltas = CounterDeltas()
    return [deltas.take(epoch, {key: value}, EVERY)[key] for epoch, value in steps]


@pytest.mark.parametrize(
    ("key", "steps", "last"),
    [
        (WIDE, [("a", 5)], Delta(None, CounterOutcome.FIRST)),
        (WIDE, [("a", 5), ("a", 9)], Delta(4, CounterOutcome.COUNTED)),
        (WIDE, [("a", 5), ("a", 2)], Delta(2, CounterOutcome.RESET)),
        (WIDE, [("a", 5), ("b", 9)], Delta(9, CounterOutcome.RESET)),
        (WIDE, [("a", 5), ("a", None)], Delta(None, CounterOutcome.UNKNOWN)),
        (WIDE, [("a", 5), ("a", None), ("a", 7)], Delta(2, CounterOutcome.COUNTED)),
        (NARROW, [("a", 250), ("a", 255)], Delta(5, CounterOutcome.SATURATED)),
        (NARROW, [("a", 255), ("a", 255)], Delta(None, CounterOutcome.UNKNOWN)),
        (NARROW, [("a", 255), ("a", 3)], Delta(3, CounterOutcome.RESET)),
        (WIDE, [("a", 5), ("a", 5)], Delta(0, CounterOutcome.COUNTED)),
        (WIDE, [("a", 5), ("b", 3)], Delta(3, CounterOutcome.RESET)),
        (WIDE, [("a", 5), ("b", 3), ("b", 4)], Delta(1, CounterOutcome.COUNTED)),
        (WIDE, [("a", None), ("b", 3)], Delta(None, CounterOutcome.FIRST)),
        (NARROW, [("a", 255)], Delta(None, CounterOutcome.FIRST)),
        (NARROW, [("a", 250), ("a", 254)], Delta(4, CounterOutcome.COUNTED)),
        (NARROW, [("a", 255), ("b", 200)], Delta(200, CounterOutcome.RESET)),
        (NARROW, [("a", 255), ("b", 255)], Delta(255, CounterOutcome.SATURATED)),
    ],
)
def test_one_counter(key: str, steps: list[tuple[str, int | None]], last: Delta) -> None:
    assert takes(key, *steps)[-1] == last


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.sets(st.integers(1, 29)))
def test_nothing_is_counted_twice_or_lost_over_resets(
    increases: list[int], resets: set[int]
) -> None:
    """Whatever a driver's reloads do, the sum of deltas is what really happened."""
    deltas, value, epoch, counted, first = CounterDeltas(), 0, 0, 0, increases[0]
    for at, increase in enumerate(increases):
        if at in resets:
            value, epoch = 0, epoch + 1
        value += increase
        counted += deltas.take(str(epoch), {WIDE: value}, EVERY)[WIDE].increase or 0
    assert counted == sum(increases) - first


def test_the_table_is_complete_and_unambiguous() -> None:
    assert len(EVERY) == len({(row.source, row.name) for row in EVERY.values()})
    assert "rx_prio3_pause" in of_source(CounterSource.ETHTOOL)
    assert all(row.meaning and not row.meaning.endswith(".") for row in TABLE)


@pytest.mark.parametrize(
    ("key", "bits"),
    [("symbol_error", 16), ("link_downed", 8), ("link_error_recovery", 8), ("port_rcv_errors", 16),
     ("excessive_buffer_overrun_errors", 4), ("local_link_integrity_errors", 4),
     ("VL15_dropped", 16), ("port_xmit_discards", 16), ("port_xmit_wait", 32),
     ("port_rcv_constraint_errors", 8)],
)  # fmt: skip
def test_infiniband_counters_stop_at_their_width(key: str, bits: int) -> None:
    """InfiniBand Architecture 1.4, table of PortCounters; the classic ones do not wrap."""
    assert EVERY[f"ib/counters:{key}"].ceiling == 2**bits - 1


def test_priorities_are_written_out_and_only_where_they_are_counted() -> None:
    for way in ("rx", "tx"):
        for suffix in ("pause", "pause_duration"):
            named = {
                name for name in of_source(CounterSource.ETHTOOL) if name.endswith(f"_{suffix}")
            }
            assert {f"{way}_prio{n}_{suffix}" for n in range(8)} <= named
            assert len([name for name in named if name.startswith(f"{way}_prio")]) == 8
    assert EVERY["ethtool:rx_prio5_pause"].meaning.startswith(
        "pause frames received for priority 5"
    )
    assert "ethtool:rx_prioN_pause" not in EVERY
    quiet = {name for name, row in of_source(CounterSource.NET).items() if row.quiet}
    assert quiet == {"carrier_changes", "carrier_up_count"}, "a loss of carrier is never quiet"


def test_pam4_symbol_errors_are_no_reason_for_an_alert() -> None:
    assert EVERY["ib/counters:symbol_error"].quiet
