"""Failover on a host with more connections than it can look after in a moment."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TypeVar

from syntony.model import MS, S
from syntony.model.paths import FourTuple
from syntony.traffic import events
from syntony.traffic.connection import TAKEN
from syntony.traffic.failover import Failover
from syntony.traffic.instructions import Create, Destroy, Instruction, KernelRefusal
from syntony.traffic.pairs import LocalNic
from syntony.traffic.policy import FailoverMode, Policy

T = TypeVar("T")
POLICY = Policy(mode=FailoverMode.ACT)
NICS = [LocalNic(name=f"nic{rail}", rail=rail, addresses=(f"10.{rail}.0.1",)) for rail in (0, 1)]
TRIES = 4
"""In vain, until the next one waits."""
FLOW = FourTuple("10.0.0.1", 40_000, "10.0.0.2", 5_000)


def joining() -> tuple[Failover, Create]:
    """One connection, whose other rail is being joined since 0."""
    machine = Failover(POLICY, NICS, seed=1)
    machine.handle(events.ConnectionUp(at_ns=0, token=7, flow=FLOW, accepted=False))
    machine.handle(events.JobFound(at_ns=0, token=7, job="train"))
    out = machine.handle(
        events.AddressAnnounced(at_ns=0, token=7, remote_id=2, address="10.1.0.2", port=8_621)
    )
    (create,) = of(Create, out)
    return machine, create


def of(kind: type[T], out: Sequence[Instruction]) -> list[T]:
    return [each for each in out if isinstance(each, kind)]


def up(create: Create, at_ns: int) -> events.SubflowUp:
    return events.SubflowUp(at_ns=at_ns, token=7, flow=create.flow, local_id=32, remote_id=2)


def test_a_join_is_not_in_vain_while_nobody_has_read_that_it_is_up() -> None:
    machine, create = joining()
    late_ns = 10 * POLICY.join_ns
    machine.events_read(POLICY.join_ns // 2)
    assert not of(Destroy, machine.tick(late_ns))
    assert machine.next_due_ns() == late_ns + 1, "to be looked at again when more has been read"
    machine.handle(up(create, late_ns))
    machine.events_read(late_ns)
    assert not of(Destroy, machine.tick(late_ns + 1))


def test_a_join_that_nobody_answers_is_given_up_once_all_was_read() -> None:
    machine, create = joining()
    machine.events_read(POLICY.join_ns)
    assert [each.flow for each in of(Destroy, machine.tick(POLICY.join_ns))] == [create.flow]


def test_the_time_of_a_join_begins_when_the_kernel_has_it() -> None:
    machine, create = joining()
    machine.join_started(create, 1 * S)
    machine.events_read(1 * S + POLICY.join_ns - 1)
    assert not of(Destroy, machine.tick(1 * S + POLICY.join_ns - 1))
    machine.events_read(1 * S + POLICY.join_ns)
    assert of(Destroy, machine.tick(1 * S + POLICY.join_ns))


def test_what_was_given_up_and_then_told_as_up_is_not_taken_for_a_new_one() -> None:
    machine, create = joining()
    machine.tick(POLICY.join_ns)
    machine.handle(up(create, POLICY.join_ns + MS))
    assert create.flow not in machine.connections[7].subflows


def refusals(number: int) -> tuple[Failover, int]:
    """A kernel that refuses every join; how many there were at once."""
    machine, create = joining()
    count = 0
    while True:
        count += 1
        found = of(Create, machine.handle(KernelRefusal(at_ns=S, instruction=create, errno=number)))
        if not found:
            return machine, count
        assert found[0].flow.local_port != create.flow.local_port
        (create,) = found


def test_a_port_that_is_taken_costs_another_draw_and_no_time() -> None:
    machine, count = refusals(errno.EADDRINUSE)
    assert count == TRIES * TAKEN, "but not for ever"
    assert not of(Create, machine.tick(S + POLICY.join_ns - 1))
    assert of(Create, machine.tick(S + POLICY.join_ns))


def test_any_other_refusal_is_a_try_in_vain() -> None:
    machine, count = refusals(errno.ENETUNREACH)
    assert count == TRIES
    assert not of(Create, machine.tick(S + POLICY.join_ns - 1))
    assert of(Create, machine.tick(S + POLICY.join_ns))
