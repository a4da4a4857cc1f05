"""Plain TCP under failure in the lab: real agents, one ordinary connection, real faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.fleet.failing import Fleet, await_true, four_hosts

pytestmark = pytest.mark.lab

NAME = "t-plain"
STALL_S = 10.0
"""A job that had to wait for the fault's end, or for TCP's own timers, stood still for longer."""


@pytest.fixture(scope="module")
def running() -> Iterator[Fleet]:
    yield from four_hosts(NAME)


@pytest.fixture
def fleet(running: Fleet) -> Fleet:
    running.lab.clear()
    return running


def state(fleet: Fleet, job: str, host: str) -> tuple[str, str]:
    """State and local NIC of the connection's way, as the host's agent reports them."""
    conn = fleet.connections(job).get(host)
    if conn is None:
        return "", ""
    (way,) = conn.subflows
    return way.state, way.path.partition(":")[0].partition("/")[2]


def both(fleet: Fleet, job: str, wanted: tuple[str, str]) -> bool:
    return all(state(fleet, job, host) == wanted for host in ("h0", "h2"))


@pytest.mark.parametrize(
    ("kind", "target", "options"),
    [
        ("link-down", "h0/rail0", {}),
        ("link-down", "h2/rail0", {"side": "leaf"}),
        ("blackhole", "h0/rail0", {}),
        ("blackhole", "h0/rail0", {"direction": "from"}),
    ],
)
def test_a_plain_connection_goes_on_over_the_other_nic_and_returns(
    fleet: Fleet, kind: str, target: str, options: dict[str, str]
) -> None:
    name = f"plain-{kind}-{target.replace('/', '-')}-{'-'.join(options.values())}"
    with fleet.job(name, plain=True) as job:
        await_true(lambda: both(fleet, name, ("plain", "rail0")), "known at both ends")
        fault = fleet.lab.inject(kind, target, options)
        await_true(lambda: both(fleet, name, ("detour", "rail1")), "the detour at both ends")
        fleet.lab.clear(fault.id)
        await_true(lambda: both(fleet, name, ("plain", "rail0")), "back on its own way")
        account = job.steps()
    print(account)
    assert account["longest_s"] < STALL_S
    actions = {row.action for row in fleet.log(name)}
    assert {"detour", "return"} <= actions
