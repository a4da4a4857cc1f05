"""The real thing end to end: agents, controller, store and packets in a lab, broken and mended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial

import pytest
from tests.fleet import waiting
from tests.live import LiveLab, live, syntony

from syntony.controller.client import ask
from syntony.errors import MissingError
from syntony.lab.world import unshare_argv
from syntony.model import ClockState, S
from syntony.wire.clocks import ClockQuery
from syntony.wire.links import LinksQuery
from syntony.wire.messages import Fleet, FleetQuery
from syntony.wire.probes import (
    KeysQuery,
    MatrixCell,
    MatrixQuery,
    SeriesPoint,
    SeriesQuery,
)

pytestmark = pytest.mark.lab

HOSTS = ("h0", "h1", "h2", "h3")
PATIENCE_S = 300.0
NAME = "t-fleet"


class LiveFleet:
    """A lab whose daemons answer."""

    def __init__(self, lab: LiveLab) -> None:
        self.lab = lab
        self.target = f"unix:{lab.controller_socket}"

    def clocks(self) -> dict[str, ClockState]:
        return {line.node: line.state for line in ask(self.target, ClockQuery()).timelines}

    def fleet(self) -> Fleet:
        return ask(self.target, FleetQuery())

    def matrix(self, window_ns: int = 5 * S) -> dict[tuple[str, str], MatrixCell]:
        cells = ask(self.target, MatrixQuery(window_ns=window_ns)).cells
        return {(cell.src, cell.dst): cell for cell in cells}

    def series(self, src: str, dst: str, window_ns: int = 60 * S) -> tuple[SeriesPoint, ...]:
        return ask(self.target, SeriesQuery(src=src, dst=dst, window_ns=window_ns)).points

    def synchronized(self) -> bool:
        states = self.clocks()
        return set(states) == set(HOSTS) and set(states.values()) == {ClockState.SYNCHRONIZED}

    def lit(self) -> bool:
        cells = self.matrix(3 * S)
        return bool(cells) and not any(cell.lost for cell in cells.values())

    def rotated(self, before: tuple[int, ...]) -> bool:
        """Whether nobody accepts any of these epochs of keys any more."""
        status = ask(self.target, KeysQuery())
        return status.phase == "steady" and not set(before) & set(status.epochs)


await_true = partial(waiting.await_true, patience_s=PATIENCE_S, pause_s=0.25)


@pytest.fixture(scope="module")
def running() -> Iterator[LiveFleet]:
    try:
        unshare_argv()
    except MissingError as error:
        pytest.skip(f"no lab here: {error}: a live fleet is NOT tested")
    with live(NAME, "--hosts", "4", agents=True) as lab:
        fleet = LiveFleet(lab)
        await_true(fleet.synchronized, "all clocks synchronized")
        yield fleet


@pytest.fixture
def fleet(running: LiveFleet) -> LiveFleet:
    running.lab.clear()
    await_true(running.lit, "a fleet without loss")
    await_true(running.synchronized, "all clocks synchronized")
    return running


def test_every_clock_is_near_the_truth_and_says_how_near(fleet: LiveFleet) -> None:
    def settled() -> bool:
        """The first seconds on a busy machine are known to tens of microseconds, and say so."""
        return all((each.clk_err_ns or S) < 10_000 for each in fleet.lab.truth())

    await_true(settled, "errors of microseconds")
    for truth in fleet.lab.truth():
        assert truth.error_ns is not None
        assert truth.clk_err_ns is not None
        # A wrong sign, unit or instant costs µs to ms; this bound is for a machine at its limits.
        assert abs(truth.error_ns) < 20_000
        assert abs(truth.error_ns) < 10 * truth.clk_err_ns


def test_delays_show_the_topology(fleet: LiveFleet) -> None:
    await_true(
        lambda: [cell.paths for cell in fleet.matrix().values()] == [8] * 48,
        "all 48 directions of 8 NICs on 8 ports each",
    )
    hosts = fleet.lab.status().spec.hosts
    near = {way for way in fleet.matrix() if leaf(way[0], hosts) == leaf(way[1], hosts)}
    assert near

    def shown() -> bool:
        """Two links through one leaf against four through a spine: medians of minima, no absolute
        time; of ten seconds, in which clocks may still converge."""
        cells = fleet.matrix(10 * S)
        far = cells.keys() - near
        return middle([cells[way].owd_min_ns for way in near]) < middle(
            [cells[way].owd_min_ns for way in far]
        )

    await_true(shown, "shorter delays below one leaf than through a spine")


def leaf(nic: str, hosts: int) -> tuple[str, int]:
    host, rail = nic.split("/")
    return rail, int(host[1:]) // (hosts // 2)


def middle(values: list[int | None]) -> int:
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2]


def test_keys_are_rotated_under_load_without_a_lost_probe(fleet: LiveFleet) -> None:
    """Two in a row here; 20 with `bench.key_rotation`."""
    for words in (("probe", "keys", "--rotate"), ("lab", "fault", "key-rotate")):
        before = ask(fleet.target, KeysQuery()).epochs
        began = time.monotonic_ns()
        assert syntony(*words, "--lab", NAME).returncode == 0
        await_true(partial(fleet.rotated, before), "everyone has the new key only")
        window_ns = time.monotonic_ns() - began + 5 * S
    await_true(lambda: bool(fleet.matrix(window_ns)), "rows")
    assert not [cell for cell in fleet.matrix(window_ns).values() if cell.lost]


def test_source_ports_reach_every_spine(fleet: LiveFleet) -> None:
    ways = fleet.lab.paths("h0/rail0", "h3/rail0", range(61_000, 61_008), 8620)
    assert {way.spine for way in ways} == {"spine0", "spine1"}


def test_a_black_hole_darkens_its_nic_and_nothing_else(fleet: LiveFleet) -> None:
    victim = "h2/rail0"
    fleet.lab.inject("blackhole", victim)

    def victim_is_dark() -> bool:
        own = [cell for way, cell in fleet.matrix(3 * S).items() if victim in way]
        return len(own) == 12 and all(map(dark, own))

    await_true(victim_is_dark, "all twelve directions of the victim dark")
    assert not any(cell.lost for way, cell in fleet.matrix(2 * S).items() if victim not in way)
    fleet.lab.clear()
    await_true(fleet.lit, "light again")


@pytest.mark.parametrize(("direction", "victim_sends"), [("to", False), ("from", True)])
def test_a_one_way_black_hole_is_told_by_its_direction(
    fleet: LiveFleet, direction: str, victim_sends: bool
) -> None:
    victim, other = "h1/rail1", "h3/rail1"
    broken = (victim, other) if victim_sends else (other, victim)
    fleet.lab.inject("blackhole", victim, {"direction": direction})
    # Rows of the newest seconds may still be under way: what is not there yet is neither.
    await_true(
        lambda: is_dark(fleet, broken) and is_light(fleet, broken[::-1]),
        "one direction dark and the other light",
    )


def is_dark(fleet: LiveFleet, way: tuple[str, str]) -> bool:
    cell = fleet.matrix(3 * S).get(way)
    return cell is not None and dark(cell)


def is_light(fleet: LiveFleet, way: tuple[str, str]) -> bool:
    cell = fleet.matrix(3 * S).get(way)
    return cell is not None and cell.sent > 0 and cell.lost <= 0.1 * cell.sent


def dark(cell: MatrixCell) -> bool:
    return cell.sent > 0 and cell.lost > 0.9 * cell.sent


def test_loss_is_measured(fleet: LiveFleet) -> None:
    fleet.lab.inject("loss", "h0/rail1", {"percent": "20", "direction": "to"})
    time.sleep(8)
    cells = fleet.matrix(4 * S)
    there = [cell for (_, dst), cell in cells.items() if dst == "h0/rail1"]
    back = [cell for (src, _), cell in cells.items() if src == "h0/rail1"]
    share = sum(cell.lost for cell in there) / sum(cell.sent for cell in there)
    assert 0.1 < share < 0.3
    assert sum(cell.lost for cell in back) < 0.1 * sum(cell.lost for cell in there)


def test_flaps_are_counted_exactly_and_the_port_is_named(fleet: LiveFleet) -> None:
    def counts() -> dict[str, int]:
        answer = ask(fleet.target, LinksQuery())
        return {port.nic: port.flaps for port in answer.ports}

    def kernel() -> int:
        path = "/sys/class/net/rail1/carrier_down_count"
        return int(fleet.lab.run("h1", "cat", path))

    await_true(lambda: len(counts()) == 2 * len(HOSTS), "every port reported")
    before, kernel_before = counts(), kernel()
    fleet.lab.inject("flap", "h1/rail1", {"period": "100ms", "count": "7"})
    await_true(lambda: kernel() >= kernel_before + 7, "seven flaps")
    fleet.lab.clear()
    await_true(lambda: counts()["h1/rail1"] - before["h1/rail1"] >= 7, "seven flaps reported")
    after = counts()
    assert after.pop("h1/rail1") - before.pop("h1/rail1") == kernel() - kernel_before
    assert after == before
    await_true(fleet.lit, "the NIC answers again")


def test_a_killed_agent_comes_back_and_its_seconds_are_in_the_store(fleet: LiveFleet) -> None:
    fleet.lab.inject("agent-kill", "h3", for_ns=3 * S)
    await_true(lambda: not connected(fleet, "h3"), "the agent gone")
    await_true(lambda: connected(fleet, "h3"), "the agent back")
    await_true(fleet.synchronized, "its clock found again")
    await_true(fleet.lit, "light again")


def connected(fleet: LiveFleet, host: str) -> bool:
    return {agent.host: agent.connected for agent in fleet.fleet().agents}[host]


def controller_state(fleet: LiveFleet) -> str:
    return {daemon.name: daemon.state for daemon in fleet.lab.status().daemons}["controller"]


@pytest.mark.parametrize("kind", ["controller-kill", "controller-pause"])
def test_a_controller_that_is_away_loses_no_second(fleet: LiveFleet, kind: str) -> None:
    """20 times, and more than rows, with `bench.control_deaths`."""
    before = fleet.fleet().rows_stored
    fleet.lab.inject(kind, "", for_ns=3 * S)
    await_true(lambda: controller_state(fleet) in {"held", "stopped"}, "the controller away")
    await_true(lambda: not fleet.lab.status().faults, "the fault over")
    await_true(lambda: fleet.fleet().rows_stored > before, "rows after the restart")
    await_true(fleet.synchronized, "clocks after the restart")
    time.sleep(5)
    seconds = {point.ts_ns // S for point in fleet.series("h0/rail0", "h3/rail0", 20 * S)}
    assert seconds == set(range(min(seconds), max(seconds) + 1))


def test_the_command_line_says_the_same(fleet: LiveFleet) -> None:
    done = syntony("probe", "matrix", "--lab", NAME, "--json")
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)
    assert {(cell["src"], cell["dst"]) for cell in cells} == set(fleet.matrix())
    wanted = "src dst over paths sent lost owd_min_ns owd_p50_ns owd_p99_ns clk_err_ns dropped"
    assert set(cells[0]) == set(wanted.split())
    assert "one-way delay, median, µs" in syntony("probe", "matrix", "--lab", NAME).stdout
    status = syntony("clock", "status", "--lab", NAME)
    assert status.returncode == 0, status.stdout


def test_clocks_are_shown_over_time_against_the_truth(fleet: LiveFleet) -> None:
    done = syntony("clock", "history", "--all", "--json", "--lab", NAME)
    assert done.returncode == 0, done.stderr
    samples = json.loads(done.stdout)["samples"]
    assert {sample["node"] for sample in samples} == set(fleet.lab.status().hosts)
    assert any(sample["bound_ns"] for sample in samples)
    done = syntony("clock", "report", "--json", "--since", "30s", "--lab", NAME)
    assert done.returncode == 0, done.stderr
    story = json.loads(done.stdout)
    assert story["known_truth"]
    errors = [
        error for clock in story["clocks"] for error in clock["error_ns"] if error is not None
    ]
    # As above: a wrong sign or instant costs µs to ms.
    assert sorted(map(abs, errors))[len(errors) // 2] < 20_000
    # Raw stamps of clocks that are ms apart, one way and the other.
    raw = story["delays"]["raw_forward_ns"][0], story["delays"]["raw_reverse_ns"][0]
    assert min(raw) < 0 < max(raw)
    pairs = json.loads(syntony("clock", "matrix", "--json", "--lab", NAME).stdout)["pairs"]
    assert len(pairs) == 6


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("probe", "matrix", "--lab", "nope"), "no lab 'nope'"),
        (("probe", "matrix", "--window", "5"), "'5' is not a duration"),
        (("probe", "matrix", "--lab", NAME, "--controller", "x:1"), "--lab or --controller"),
        (("probe", "matrix", "--controller", "127.0.0.1:1"), "needs --ca, --cert and --key"),
        (("probe", "history", "h0", "h1/rail0", "--lab", NAME), "'h0' is not a NIC"),
        (("clock", "history", "h33", "--lab", NAME), "did you mean 'h3'?"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else None,
)
def test_wrong_commands_are_one_clear_line(
    fleet: LiveFleet, words: tuple[str, ...], says: str
) -> None:
    done = syntony(*words)
    assert done.returncode != 0
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout
