"""Where a job's flow hangs: asking on more ports, and what is made of the answers."""

from __future__ import annotations

from syntony.model import MS, S
from syntony.traffic.extra_ports import (
    AGAIN_NS,
    MAX_PAIRS,
    PARTIAL_NS,
    PROBING_NS,
    ExtraPortProbing,
)
from syntony.traffic.pairs import PartialPathFailure

PAIR = ("nic0", "10.0.0.2")


def died(
    partial: PartialPathFailure, *flow_ids: int, since_ns: int, at_ns: int
) -> PartialPathFailure:
    for flow_id in flow_ids:
        partial.died(flow_id, since_ns, at_ns)
    return partial


def test_a_starved_peer_is_silent_on_all_flows_alike_though_some_are_called_dead_first() -> None:
    partial = PartialPathFailure()
    for flow_id in range(4):  # four take turns within 15 ms
        partial.answered(flow_id, S + flow_id * 4 * MS)
    died(partial, 0, since_ns=S, at_ns=S + 72 * MS)
    died(partial, 1, since_ns=S + 4 * MS, at_ns=S + 76 * MS)
    assert partial.since_ns is None, "nobody was answered after them"
    assert partial.unsure
    for flow_id in range(4):  # it is back, and answers all that lies in its socket
        partial.answered(flow_id, S + 90 * MS)
    assert partial.since_ns is None
    partial.lives(0)
    partial.lives(1)
    assert not partial.unsure


def test_flows_that_are_answered_well_into_the_silence_of_others_tell_of_a_torn_pair() -> None:
    partial = died(PartialPathFailure(), 0, 1, since_ns=S, at_ns=S + 72 * MS)

    def partial_when(answered_ns: int, *flow_ids: int) -> int | None:
        for flow_id in flow_ids:
            partial.answered(flow_id, answered_ns)
        return partial.since_ns

    assert partial_when(S + 35 * MS, 2) is None
    assert partial_when(S + 36 * MS, 2) == S
    assert partial_when(S + 50 * MS, 0, 1) is None, "one answer is no life, but no silence either"
    assert partial_when(S + 100 * MS, 2) == S + 50 * MS
    partial.keep([1, 2])
    assert partial_when(S + 110 * MS, 2) is None, "one alone may stand in a queue"


def test_a_pair_is_sounded_for_a_moment_and_not_again_at_once() -> None:
    extra_ports = ExtraPortProbing()
    assert extra_ports.begin(PAIR, S)
    assert not extra_ports.begin(PAIR, S + 15 * MS)
    assert extra_ports.suspect == {PAIR}
    assert extra_ports.due_ns() == S + PROBING_NS
    assert not extra_ports.end(S + PROBING_NS - 1, lambda _: True)
    assert extra_ports.end(S + PROBING_NS, lambda _: False)
    assert not extra_ports.suspect | extra_ports.partial
    assert extra_ports.due_ns() is None
    assert not extra_ports.begin(PAIR, S + AGAIN_NS - 1)
    assert extra_ports.begin(PAIR, S + AGAIN_NS)


def test_a_torn_pair_is_asked_on_more_ports_until_it_is_whole() -> None:
    extra_ports = ExtraPortProbing()
    extra_ports.begin(PAIR, S)
    now_ns = S + PROBING_NS
    assert extra_ports.end(now_ns, lambda _: True)
    assert not extra_ports.suspect
    assert extra_ports.partial == {PAIR}
    assert not extra_ports.begin(PAIR, now_ns + AGAIN_NS), "it is asked already"
    assert not extra_ports.end(now_ns + PARTIAL_NS, lambda _: True), "nothing new"
    assert extra_ports.partial == {PAIR}
    assert extra_ports.end(now_ns + 2 * PARTIAL_NS, lambda _: False)
    assert not extra_ports.partial
    assert extra_ports.due_ns() is None


def test_a_host_on_which_everything_hangs_asks_no_more_than_its_share() -> None:
    extra_ports = ExtraPortProbing()
    begun = [extra_ports.begin(("nic0", f"10.0.0.{each}"), S) for each in range(20)]
    assert begun == [True] * MAX_PAIRS + [False] * (20 - MAX_PAIRS)
