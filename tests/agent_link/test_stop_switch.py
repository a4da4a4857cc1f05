"""Which position of the stop switch an agent goes by."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from syntony.agent.steering.switch import FILE, StopSwitch
from syntony.controller.traffic import TrafficService
from syntony.errors import StateError
from syntony.state import ControlState
from syntony.wire.control import Issuer
from syntony.wire.failover import Switch, SwitchCommand

ANN = Issuer("ops ann", "ipv4:10.0.0.1:5000")


def position(epoch: int, at_ns: int, *, stopped: bool = True) -> Switch:
    return Switch(stopped=stopped, at_ns=at_ns, by="ann", epoch=epoch)


@pytest.mark.parametrize(
    ("new", "known", "outranks"),
    [
        ((2, 5), (2, 4), True),
        ((2, 4), (2, 4), False),
        ((2, 3), (2, 4), False),
        ((3, 1), (2, 9), True),  # the clock of the controller before ran ahead
        ((2, 9), (3, 1), False),
        ((0, 5), (3, 4), True),  # of the version before: by its clock
        ((0, 4), (3, 5), False),
        ((3, 5), (0, 4), True),
        ((3, 4), (0, 5), False),
        ((0, 5), (0, 4), True),
        ((0, 4), (0, 4), False),
    ],
)
def test_a_later_controller_outranks_a_clock_that_ran_ahead(
    new: tuple[int, int], known: tuple[int, int], *, outranks: bool
) -> None:
    assert position(*new).outranks(position(*known)) is outranks


def test_a_stop_that_was_not_recorded_ends_by_a_later_start_and_by_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its controller's clock ran a year ahead, and its disk was full."""
    agent = StopSwitch(tmp_path / "agent")
    with ControlState(tmp_path / "state") as state:
        service = TrafficService(state)
        agent.take(service.throw(SwitchCommand(stopped=False, by=""), ANN, 1_000)[0])

        def full(*_: object) -> None:
            raise StateError("disk full")

        with monkeypatch.context() as patched:
            patched.setattr(ControlState, "set_switch", full)
            stop, _, unrecorded = service.throw(SwitchCommand(stopped=True, by=""), ANN, 9_000_000)
        assert unrecorded is not None
        assert agent.take(stop)
        agent.save()
    with ControlState(tmp_path / "state") as state:
        service, agent = TrafficService(state), StopSwitch(tmp_path / "agent")
        assert service.switch is not None
        assert not agent.take(service.switch), "what is recorded is older"
        assert agent.stopped
        start, _, _ = service.throw(SwitchCommand(stopped=False, by=""), ANN, 2_000)
        assert not agent.take(start), "by the clock it may be earlier"
        assert agent.take(msgspec.structs.replace(start, live=True))
        assert not agent.stopped


def test_a_stop_of_a_controller_that_was_replaced_outlasts_the_orders_before_it(
    tmp_path: Path,
) -> None:
    """It did not know yet that it was. Its agent connects to the successor later."""
    agent = StopSwitch(tmp_path)
    unrecorded = msgspec.structs.replace(position(2, 35), recorded=False)
    assert agent.take(unrecorded)
    agent.save()
    agent = StopSwitch(tmp_path)
    assert not agent.take(position(3, 32, stopped=False)), "ordered before the stop"
    assert agent.stopped
    for later in (
        position(3, 36),
        position(3, 36, stopped=False),
        msgspec.structs.replace(position(3, 32), live=True),
    ):
        other = StopSwitch(tmp_path)
        assert other.take(later)
    assert not agent.take(position(1, 99, stopped=False))


def test_an_earlier_stop_does_not_let_a_start_end_a_stop_that_was_not_recorded(
    tmp_path: Path,
) -> None:
    """Three controllers, each replaced without knowing it; the agent finds each one's order when
    it connects."""
    agent = StopSwitch(tmp_path)
    assert agent.take(msgspec.structs.replace(position(2, 35), recorded=False))
    assert not agent.take(position(3, 30))
    assert not agent.take(position(4, 32, stopped=False)), "ordered before the stop"
    assert agent.stopped


def test_the_file_of_the_version_before_is_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"type":"switch","stopped":true,"at_ns":5,"by":"ann"}')
    switch = StopSwitch(tmp_path)
    assert switch.position == position(0, 5)
    assert not switch.take(position(4, 5, stopped=False))
    assert switch.take(position(4, 6, stopped=False))
