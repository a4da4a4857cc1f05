"""A stream that is ended for a reason: told once, nothing taken any more, also of a deaf peer."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest
from msgspec import structs
from tests.link import PATIENCE_S, hello

from syntony.controller import sessions
from syntony.controller.hello_check import RefusedError
from syntony.controller.sessions import AgentSession, NewestMessages
from syntony.controller.solve import Solved
from syntony.model import ClockState, S, Timeline, Utc
from syntony.wire.clocks import Timelines
from syntony.wire.enrol import Revocations
from syntony.wire.messages import Ack, Refuse
from syntony.wire.roles import Identity, Role
from syntony.wire.x509 import Certificate, Validity

_NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
CERTIFICATE = Certificate("1f", Identity(Role.AGENT, "h1"), Validity(_NOW, _NOW), ())


def session(*, reads_stored: bool = False, backlog: bool = False) -> AgentSession:
    greeting = structs.replace(hello("h1", "s"), reads_stored=reads_stored, backlog=backlog)
    return AgentSession(greeting, CERTIFICATE)


def test_the_reason_is_all_that_is_delivered() -> None:
    async def reported() -> list[object]:
        one = session()
        one.outbox.acknowledge(1)
        one.end("has been revoked")
        return [message async for message in one.outbox]

    assert asyncio.run(reported()) == [(Refuse(reason="has been revoked"), 0)]


TIMELINES = Timelines(timelines=())
NOTICE = Revocations()


async def _read(box: NewestMessages, most: int) -> list[tuple[object, int]]:
    found = list[tuple[object, int]]()
    async for each in box:
        found.append(each)
        if len(found) == most:
            break
    return found


def _patient() -> NewestMessages:
    """Its agent has been told how far its stream was stored when it attached."""
    box = NewestMessages(patient=True)
    box.acknowledge(3)
    return box


def test_the_first_acknowledgement_goes_by_itself() -> None:
    async def reported() -> list[tuple[object, int]]:
        return await asyncio.wait_for(_read(_patient(), 1), PATIENCE_S)

    assert asyncio.run(reported()) == [(Ack(seq=3), 0)]


def test_an_acknowledgement_goes_beside_the_next_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "ACK_WAIT_S", 3_600.0)

    async def reported() -> list[tuple[object, int]]:
        box = _patient()
        await _read(box, 1)
        box.acknowledge(4)
        box.acknowledge(5)
        assert not await _soon(box)
        box.put(TIMELINES)
        first = await _read(box, 1)
        box.put(TIMELINES)  # has nothing to acknowledge any more
        return first + await _read(box, 1)

    assert asyncio.run(reported()) == [(TIMELINES, 5), (TIMELINES, 0)]


async def _soon(box: NewestMessages) -> bool:
    """Whether there is something to send already."""
    try:
        await asyncio.wait_for(_read(box, 1), 0.05)
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("seq", [4, 3])
def test_without_a_decision_it_goes_by_itself_after_a_while(
    monkeypatch: pytest.MonkeyPatch, seq: int
) -> None:
    """Also where it says the same again: an agent that lost count is waiting for it."""
    monkeypatch.setattr(sessions, "ACK_WAIT_S", 0.01)

    async def reported() -> list[tuple[object, int]]:
        box = _patient()
        await _read(box, 1)
        box.acknowledge(seq)
        return await asyncio.wait_for(_read(box, 1), PATIENCE_S)

    assert asyncio.run(reported()) == [(Ack(seq=seq), 0)]


def test_a_backlog_is_acknowledged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ACK_WAIT_S", 3_600.0)

    async def reported() -> list[tuple[object, int]]:
        box = _patient()
        await _read(box, 1)
        box.acknowledge(3 + sessions.MANY_UNACKED - 1)
        assert not await _soon(box)
        box.acknowledge(3 + sessions.MANY_UNACKED)
        return await asyncio.wait_for(_read(box, 1), PATIENCE_S)

    assert asyncio.run(reported()) == [(Ack(seq=3 + sessions.MANY_UNACKED), 0)]


def test_another_window_is_said_in_an_acknowledgement_of_its_own() -> None:
    """A decision has no field for it."""

    async def reported() -> list[tuple[object, int]]:
        box = _patient()
        await _read(box, 1)
        found = list[tuple[object, int]]()
        for seq, window in ((70, 128), (140, 128), (150, 0)):
            box.acknowledge(seq, window)
            box.put(TIMELINES)
            found += await asyncio.wait_for(_read(box, 1 + (seq != 140)), PATIENCE_S)
        return found

    assert asyncio.run(reported()) == [
        (TIMELINES, 0), (Ack(seq=70, window=128), 0),
        (TIMELINES, 140),
        (TIMELINES, 0), (Ack(seq=150), 0),
    ]  # fmt: skip


def test_what_decides_nothing_acknowledges_nothing() -> None:
    async def reported() -> list[tuple[object, int]]:
        box = _patient()
        box.put(NOTICE)
        return await asyncio.wait_for(_read(box, 2), PATIENCE_S)

    assert asyncio.run(reported()) == [(NOTICE, 0), (Ack(seq=3), 0)]


def test_an_agent_of_the_version_before_reads_acknowledgements_only() -> None:
    async def reported() -> list[tuple[object, int]]:
        box = NewestMessages()
        for seq in (3, 4):
            box.acknowledge(seq)
        box.put(TIMELINES)
        return await asyncio.wait_for(_read(box, 2), PATIENCE_S)

    assert asyncio.run(reported()) == [(TIMELINES, 0), (Ack(seq=4), 0)]


def test_what_is_stored_is_said_before_a_stream_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ACK_WAIT_S", 3_600.0)

    async def reported() -> list[tuple[object, int]]:
        box = _patient()
        await _read(box, 1)
        box.acknowledge(4)
        box.close()
        return [each async for each in box]

    assert asyncio.run(reported()) == [(Ack(seq=4), 0)]


def test_a_peer_that_neither_reads_nor_stops_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "END_GRACE_S", 0.05)

    async def cut() -> tuple[bool, bool]:
        one = session()
        receiving, writing = (asyncio.create_task(asyncio.sleep(60)) for _ in range(2))
        one.tasks = (receiving, writing)
        one.end("has been revoked")
        done, _ = await asyncio.wait({receiving, writing}, timeout=300)
        return receiving in done and receiving.cancelled(), writing in done and writing.cancelled()

    assert asyncio.run(cut()) == (True, True)


@pytest.mark.parametrize("reads_stored", [True, False])
@pytest.mark.parametrize("backlog", [True, False])
def test_who_waits_for_decisions(
    monkeypatch: pytest.MonkeyPatch, *, reads_stored: bool, backlog: bool
) -> None:
    """Neither the version before, nor an agent whose next stream begins when this one ends."""
    monkeypatch.setattr(sessions, "ACK_WAIT_S", 3_600.0)

    async def waits() -> bool:
        box = session(reads_stored=reads_stored, backlog=backlog).outbox
        box.acknowledge(3)
        await _read(box, 1)
        box.acknowledge(4)
        return not await _soon(box)

    assert asyncio.run(waits()) == (reads_stored and not backlog)


def _line(node: str, at_ns: int = 0, **changes: Any) -> Timeline:
    line = Timeline(
        node=node, ref_ns=at_ns, offset_ns=0.0, drift_ppb=0.0, sigma_ns=1.0, drift_sigma_ppb=1.0,
        state=ClockState.SYNCHRONIZED, component="h0",
    )  # fmt: skip
    return structs.replace(line, **changes)


UTC = Utc(
    ref_ns=0, offset_ns=0.0, drift_ppb=0.0, error_ns=1.0, confirmed_ns=0, drift_sigma_ppb=1.0,
    state=ClockState.SYNCHRONIZED,
)  # fmt: skip


CLOCKS = frozenset({"h1", "h2", "h3"})
BOTH = (_line("h1", 9), _line("h2", 9))


@pytest.mark.parametrize(
    ("lines", "common", "clocks"),
    [
        (BOTH, {"step": 1}, CLOCKS),
        (BOTH, {"utc": UTC}, CLOCKS),
        (BOTH[:1], {}, CLOCKS),
        ((BOTH[0], _line("h3", 9)), {}, CLOCKS),
        ((BOTH[0], _line("h2", state=ClockState.DISRUPTED)), {}, CLOCKS),
        ((BOTH[0], _line("h2", epoch=2)), {}, CLOCKS),
        ((BOTH[0], _line("h2", component="h9")), {}, CLOCKS),
        (BOTH, {}, frozenset({"h1"})),
    ],
)
def test_timelines_are_told_with_every_other_solve_and_news_at_once(
    lines: tuple[Timeline, ...], common: dict[str, Any], clocks: frozenset[str]
) -> None:
    async def told() -> list[int]:
        one, found, solved = session(), [], None
        for solve in range(1, 8):
            solved = Solved((_line("h1", solve), _line("h2", solve)), before=solved)
            one.send_timelines(solved, CLOCKS, solve * S)
            if one.outbox._waiting:
                found.append(solve)
                await _read(one.outbox, 1)
        one.send_timelines(Solved(lines, before=solved, **common), clocks, 8 * S)
        known = tuple(line for line in lines if line.node in clocks)
        assert (await _read(one.outbox, 1)) == [(Timelines(timelines=known, **common), 0)]
        return found

    assert asyncio.run(told()) == [1, 3, 5, 7]


def test_news_of_other_clocks_make_no_haste() -> None:
    async def waits() -> bool:
        one = session()
        first = Solved((*BOTH, _line("far", 1)))
        one.send_timelines(first, CLOCKS, 8 * S)
        await _read(one.outbox, 1)
        one.send_timelines(Solved((*BOTH, _line("far", epoch=2)), before=first), CLOCKS, 9 * S)
        return bool(one.outbox._waiting)

    assert not asyncio.run(waits())


def test_a_host_of_whose_clocks_nothing_is_known_is_told_at_the_first_solve_that_says_it() -> None:
    async def told() -> list[tuple[object, int]]:
        one = session()
        nothing = Solved((_line("far", 1),))
        one.send_timelines(nothing, CLOCKS, 8 * S)
        assert not one.outbox._waiting
        one.send_timelines(Solved((_line("far", 1), _line("h1", 2)), before=nothing), CLOCKS, 9 * S)
        return await _read(one.outbox, 1)

    assert asyncio.run(told()) == [(Timelines(timelines=(_line("h1", 2),)), 0)]


@pytest.mark.parametrize(
    ("life", "attempt", "refused"),
    [("a", 2, True), ("a", 3, False), ("a", 4, False), ("b", 2, False), ("", 0, False)],
)
def test_an_older_connection_of_the_same_process_does_not_take_its_place(
    life: str, attempt: int, refused: bool
) -> None:
    """A gateway that has not noticed its end relays it to a new leader, perhaps last."""
    session = AgentSession(structs.replace(hello("h1", "s"), life="a", attempt=3), CERTIFICATE)
    coming = structs.replace(hello("h1", "s"), life=life, attempt=attempt)
    if refused:
        with pytest.raises(RefusedError, match="connection 2 of 'h1': its later connection 3"):
            session.check_newest(coming)
    else:
        session.check_newest(coming)


def test_agents_that_do_not_number_their_connections_take_places_as_they_come() -> None:
    session().check_newest(hello("h1", "other"))
