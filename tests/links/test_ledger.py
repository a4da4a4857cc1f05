"""Two witnesses of one truth: events and counters together count each flap once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.links.deltas import CounterOutcome
from syntony.links.kernel_log import classify
from syntony.links.ledger import DOWN_COUNT, LinkLedger
from syntony.links.ports import LinkRate, PortState
from syntony.links.roles import LinkRole
from syntony.links.snapshot import PortSnapshot
from syntony.model import S

CRC = "net/statistics:rx_crc_errors"
UP = PortSnapshot(
    name="eth0",
    netdev="eth0",
    rdma="",
    link_layer="Ethernet",
    driver="mlx5_core",
    role=LinkRole.COMPUTE,
    state=PortState.ACTIVE,
    rate=LinkRate(100.0, None, ""),
    epoch="boot/1",
    counters={DOWN_COUNT: 3},
)


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["event", "sweep", "nobody"]))))
def test_each_flap_is_counted_once(steps: list[tuple[int, str]]) -> None:
    """However events and sweeps alternate, and whatever events are merged or missed."""
    ledger, down, noted = LinkLedger(), 3, 0
    ledger.sweep(0, [UP])
    for at, (flaps, witness) in enumerate(steps, start=1):
        down += flaps
        if witness == "event":
            noted += sum(
                note.losses for note in ledger.carrier(at, "eth0", down, carrier=flaps == 0)
            )
        elif witness == "sweep":
            snapshot = UP._replace(counters={DOWN_COUNT: down})
            noted += sum(note.losses for note in ledger.sweep(at, [snapshot]).notes)
    end = len(steps) + 1
    notes = ledger.sweep(end, [UP._replace(counters={DOWN_COUNT: down})]).notes
    noted += sum(note.losses for note in notes)
    assert noted == down - 3
    assert ledger.total_flaps("eth0") == down - 3


def test_a_driver_reload_is_said_and_counts_go_on() -> None:
    ledger = LinkLedger()
    ledger.sweep(0, [UP])
    sweep = ledger.sweep(S, [UP._replace(epoch="boot/2", counters={DOWN_COUNT: 1})])
    assert [note.kind for note in sweep.notes] == ["reset", "carrier"]
    assert ledger.total_flaps("eth0") == 1


@pytest.mark.parametrize(("shown", "losses"), [(0, 0), (2, 2), (3, 3), (9, 9)])
def test_all_that_a_new_counter_shows_happened_since_the_reload(shown: int, losses: int) -> None:
    ledger = LinkLedger()
    ledger.sweep(0, [UP])
    notes = ledger.sweep(S, [UP._replace(epoch="boot/2", counters={DOWN_COUNT: shown})]).notes
    assert sum(note.losses for note in notes) == losses
    assert ledger.total_flaps("eth0") == losses
    notes = ledger.sweep(2 * S, [UP._replace(epoch="boot/2", counters={DOWN_COUNT: 10})]).notes
    assert sum(note.losses for note in notes) == 10 - shown


def test_events_say_which_way_and_only_what_is_news() -> None:
    ledger = LinkLedger()
    ledger.sweep(0, [UP])
    (lost,) = ledger.carrier(1, "eth0", 4, carrier=False)
    assert (lost.kind, lost.losses, lost.before, lost.after) == ("carrier", 1, "up", "down")
    assert lost.detail == "carrier lost"
    assert ledger.carrier(2, "eth0", 4, carrier=False) == []
    (gained,) = ledger.carrier(3, "eth0", 4, carrier=True)
    assert (gained.losses, gained.before, gained.after, gained.remedy) == (0, "down", "up", "")
    (merged,) = ledger.carrier(4, "eth0", 6, carrier=True)
    assert (merged.losses, merged.after) == (2, "up")
    assert merged.detail == "carrier lost 2 times"
    assert ledger.sweep(5, [UP._replace(counters={DOWN_COUNT: 6})]).notes == []
    assert ledger.total_flaps("eth0") == 3


def test_what_is_known_of_ports_that_are_there_and_of_no_others() -> None:
    crc, bytes_in = "net/statistics:rx_crc_errors", "net/statistics:rx_bytes"
    ledger = LinkLedger()
    other = UP._replace(name="eth1")
    ledger.sweep(0, [UP._replace(counters={crc: 5, bytes_in: 5}), other])
    ledger.carrier(1, "eth9", 0, carrier=True)
    assert {port.name for port in ledger.snapshots()} == {"eth0", "eth1"}
    for at, value in ((1, 7), (2, 12)):
        ledger.sweep(at, [UP._replace(counters={crc: value, bytes_in: value}), other])
    assert ledger.totals("eth0") == {crc: 7, bytes_in: 7}
    assert [ledger.unreadable(port) for port in ("eth0", "eth1", "eth9")] == [0, 0, 0]
    lost = UP._replace(counters={crc: None, bytes_in: 12})
    assert [row.reading for row in ledger.sweep(3, [lost]).counters] == [CounterOutcome.UNKNOWN]
    assert ledger.unreadable("eth0") == 1
    assert ledger.sweep(4, [lost]).counters == [], "said once"
    (row,) = ledger.sweep(5, [UP._replace(counters={crc: 20})]).counters
    assert (row.port, row.counter, row.increase) == ("eth0", crc, 8)
    assert ledger.unreadable("eth0") == 0
    assert [row.increase for row in ledger.sweep(6, [lost]).counters] == [0], "said again"
    assert [ledger.totals("eth9"), ledger.unreadable("eth9"), ledger.total_flaps("eth9")] == [
        {}, 0, 0,
    ]  # fmt: skip


def test_a_clear_of_counters_is_not_a_reload() -> None:
    ledger = LinkLedger()
    ledger.sweep(0, [UP])
    assert [note.kind for note in ledger.sweep(1, [UP]).notes] == []
    cleared = ledger.sweep(2, [UP._replace(counters={DOWN_COUNT: 1})])
    assert [(note.kind, note.losses) for note in cleared.notes] == [("carrier", 1)]
    assert cleared.counters[0].reading is CounterOutcome.RESET


def test_a_driver_reload_that_an_event_told_first_is_counted_once() -> None:
    ledger = LinkLedger()
    ledger.sweep(0, [UP])
    ledger.carrier(1, "eth0", 2, carrier=False)
    sweep = ledger.sweep(S, [UP._replace(epoch="boot/2", counters={DOWN_COUNT: 2})])
    assert [note.kind for note in sweep.notes] == ["reset"]
    assert ledger.total_flaps("eth0") == 2


def _rails(first: int, second: int, down: tuple[int, int], errors: int = 0) -> list[PortSnapshot]:
    """Two rails: the interfaces that have their names, and what each interface has counted."""
    counts = {1: down[0], 2: down[1]}
    return [
        UP._replace(
            name=f"rail{rail}",
            epoch=f"boot/{interface}",
            counters={DOWN_COUNT: counts[interface], CRC: errors * interface},
        )
        for rail, interface in enumerate((first, second))
    ]


@pytest.mark.parametrize("told", ["before", "after", "never"])
@pytest.mark.parametrize("down", [(1, 3), (3, 1), (2, 2)])
def test_rails_that_are_swapped_have_not_flapped(down: tuple[int, int], told: str) -> None:
    """Each has counted what it has, under whatever name; twice swapped and back."""
    ledger = LinkLedger()
    ledger.sweep(0, _rails(1, 2, down, 500))

    def tell(at_ns: int, *interfaces: int) -> None:
        for rail, interface in enumerate(interfaces):
            count = down[interface - 1]
            assert not ledger.carrier(
                at_ns, f"rail{rail}", count, carrier=False, ifindex=interface
            ), (at_ns, rail)

    tell(1, 1, 2)
    for times, interfaces in enumerate([(2, 1), (1, 2)] * 2, start=1):
        if told == "before":
            tell(times * S, *interfaces)
        sweep = ledger.sweep(times * S + 1, _rails(*interfaces, down, 500))
        assert (sweep.notes, sweep.counters) == ([], [])
        if told == "after":
            tell(times * S + 2, *interfaces)
    assert [ledger.total_flaps(f"rail{rail}") for rail in (0, 1)] == [0, 0]
    # One that is lost after a swap is its name's.
    lost = (down[0], down[1] + 1)
    notes = ledger.sweep(9 * S, _rails(2, 1, lost, 500)).notes
    assert [(note.port, note.losses) for note in notes] == [("rail0", 1)]


def test_an_event_of_another_interface_counts_from_the_next_sweep() -> None:
    ledger = LinkLedger()
    ledger.sweep(0, [UP])
    ledger.carrier(1, "eth0", 3, carrier=True, ifindex=5)
    assert ledger.carrier(2, "eth0", 1, carrier=True, ifindex=6) == []
    notes = ledger.sweep(3, [UP._replace(epoch="boot/2", counters={DOWN_COUNT: 1})]).notes
    assert [(note.kind, note.losses) for note in notes] == [("reset", 0), ("carrier", 1)]
    (note,) = ledger.carrier(4, "eth0", 2, carrier=False, ifindex=6)
    assert note.losses == 1


def test_a_port_that_disappears() -> None:
    ledger = LinkLedger()
    ledger.sweep(0, [UP])
    (note,) = ledger.sweep(S, []).notes
    assert (note.port, note.after) == ("eth0", "absent")
    assert "PCIe" in note.remedy
    assert ledger.sweep(2 * S, []).notes == []


def test_infiniband_without_an_interface_counts_by_its_own_counter() -> None:
    key = "ib/counters:link_downed"
    port = UP._replace(name="mlx5_0:1", netdev="", counters={key: 254})
    ledger = LinkLedger()
    ledger.sweep(0, [port])
    sweep = ledger.sweep(S, [port._replace(counters={key: 255})])
    assert [note.losses for note in sweep.notes] == [1]
    assert sweep.counters[0].reading is CounterOutcome.SATURATED
    after = ledger.sweep(2 * S, [port._replace(counters={key: 255})])
    assert [row.reading for row in after.counters] == [CounterOutcome.UNKNOWN]
    assert ledger.sweep(3 * S, [port._replace(counters={key: 255})]).counters == []


def test_a_degraded_link_is_told_with_its_speeds() -> None:
    ledger = LinkLedger()
    ledger.sweep(0, [UP])
    (note,) = ledger.sweep(S, [UP._replace(rate=LinkRate(50.0, None, ""))]).notes
    assert (note.kind, note.detail) == ("state", "100 Gb/s → 50 Gb/s")


def test_traffic_is_not_kept_and_errors_are() -> None:
    keys = {"net/statistics:rx_bytes": 0, "net/statistics:rx_crc_errors": 0}
    ledger = LinkLedger()
    ledger.sweep(0, [UP._replace(counters=dict(keys))])
    sweep = ledger.sweep(S, [UP._replace(counters=dict.fromkeys(keys, 9))])
    assert [(row.counter, row.increase) for row in sweep.counters] == [
        ("net/statistics:rx_crc_errors", 9)
    ]


@pytest.mark.parametrize(("device", "port"), [("eth0", "eth0"), ("eth7", "")])
def test_a_drivers_message_goes_to_its_port(device: str, port: str) -> None:
    ledger = LinkLedger()
    ledger.sweep(0, [UP])
    finding = classify(f"NETDEV WATCHDOG: {device} (mlx5_core): transmit queue 7 timed out")
    assert finding is not None
    note = ledger.kernel(S, finding)
    assert note.port == port
    assert device in note.detail
