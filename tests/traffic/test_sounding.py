"""Where a job's flow hangs: asking on more ports, and what is made of the answers."""

from __future__ import annotations

from syntony.model import MS, S
from syntony.traffic.sounding import AGAIN_NS, ASKS_NS, MOST, TORN_NS, Sounding
from syntony.traffic.torn import Torn

PAIR = ("nic0", "10.0.0.2")


def died(torn: Torn, *flow_ids: int, since_ns: int, at_ns: int) -> Torn:
    for flow_id in flow_ids:
        torn.died(flow_id, since_ns, at_ns)
    return torn


def test_a_starved_peer_is_silent_on_all_flows_alike_though_some_are_called_dead_first() -> None:
    torn = Torn()
    for flow_id in range(4):  # four take turns within 15 ms
        torn.heard(flow_id, S + flow_id * 4 * MS)
    died(torn, 0, since_ns=S, at_ns=S + 72 * MS)
    died(torn, 1, since_ns=S + 4 * MS, at_ns=S + 76 * MS)
    assert torn.since_ns is None, "nobody was answered after them"
    assert torn.unsure
    for flow_id in range(4):  # it is back, and answers all that lies in its socket
        torn.heard(flow_id, S + 90 * MS)
    assert torn.since_ns is None
    torn.lives(0)
    torn.lives(1)
    assert not torn.unsure


def test_flows_that_are_answered_well_into_the_silence_of_others_tell_of_a_torn_pair() -> None:
    torn = died(Torn(), 0, 1, since_ns=S, at_ns=S + 72 * MS)

    def torn_when(answered_ns: int, *flow_ids: int) -> int | None:
        for flow_id in flow_ids:
            torn.heard(flow_id, answered_ns)
        return torn.since_ns

    assert torn_when(S + 35 * MS, 2) is None
    assert torn_when(S + 36 * MS, 2) == S
    assert torn_when(S + 50 * MS, 0, 1) is None, "one answer is no life, but no silence either"
    assert torn_when(S + 100 * MS, 2) == S + 50 * MS
    torn.keep([1, 2])
    assert torn_when(S + 110 * MS, 2) is None, "one alone may stand in a queue"


def test_a_pair_is_sounded_for_a_moment_and_not_again_at_once() -> None:
    sounding = Sounding()
    assert sounding.begin(PAIR, S)
    assert not sounding.begin(PAIR, S + 15 * MS)
    assert sounding.doubted == {PAIR}
    assert sounding.due_ns() == S + ASKS_NS
    assert not sounding.end(S + ASKS_NS - 1, lambda _: True)
    assert sounding.end(S + ASKS_NS, lambda _: False)
    assert not sounding.doubted | sounding.torn
    assert sounding.due_ns() is None
    assert not sounding.begin(PAIR, S + AGAIN_NS - 1)
    assert sounding.begin(PAIR, S + AGAIN_NS)


def test_a_torn_pair_is_asked_on_more_ports_until_it_is_whole() -> None:
    sounding = Sounding()
    sounding.begin(PAIR, S)
    now_ns = S + ASKS_NS
    assert sounding.end(now_ns, lambda _: True)
    assert not sounding.doubted
    assert sounding.torn == {PAIR}
    assert not sounding.begin(PAIR, now_ns + AGAIN_NS), "it is asked already"
    assert not sounding.end(now_ns + TORN_NS, lambda _: True), "nothing new"
    assert sounding.torn == {PAIR}
    assert sounding.end(now_ns + 2 * TORN_NS, lambda _: False)
    assert not sounding.torn
    assert sounding.due_ns() is None


def test_a_host_on_which_everything_hangs_asks_no_more_than_its_share() -> None:
    sounding = Sounding()
    begun = [sounding.begin(("nic0", f"10.0.0.{each}"), S) for each in range(20)]
    assert begun == [True] * MOST + [False] * (20 - MOST)
