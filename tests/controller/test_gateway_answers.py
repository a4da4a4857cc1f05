"""Questions to a gateway: what the store knows is answered, for the rest it names the leader."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import Any, cast

import msgspec
import pytest
from tests.controller.test_gateways import Wire, until, welcome
from tests.controller.test_sessions import CERTIFICATE

from syntony.controller import answers, service
from syntony.controller.access import Caller
from syntony.controller.gateway import Gateway
from syntony.controller.questions import QUESTIONS, Runs
from syntony.errors import BusyError, DeniedError, SyntonyError, UsageError
from syntony.model import S
from syntony.store import Store, open_store
from syntony.wire.coding import encode
from syntony.wire.control import ControllerQuery
from syntony.wire.failover import SwitchCommand
from syntony.wire.gateways import FleetNow, ProbeLinks, ProbeLinksRequest
from syntony.wire.jobs import JobReportQuery, Jobs, JobsQuery, RecordingQuery
from syntony.wire.links import LinkHistoryQuery
from syntony.wire.probes import Matrix, MatrixQuery, SeriesQuery
from syntony.wire.query import Failure, Query, decode_answer
from syntony.wire.roles import Identity, Role

NOW_NS = 1_900_000_000 * S
OPERATOR = Caller(Identity(Role.OPERATOR, "ann"), "ipv4:1", CERTIFICATE)
VIEWER = OPERATOR._replace(identity=Identity(Role.VIEWER, "vic"))
GATEWAY = OPERATOR._replace(identity=Identity(Role.GATEWAY, "g"))
AGENT = OPERATOR._replace(identity=Identity(Role.AGENT, "h1"), pem=b"pem")
SHARED = sorted((each for each, known in QUESTIONS.items() if known.shared), key=str)
EXAMPLES: dict[type[Query[Any]], Query[Any]] = {
    SeriesQuery: SeriesQuery(src="a", dst="b"),
    JobsQuery: JobsQuery(window_ns=60 * S),
    LinkHistoryQuery: LinkHistoryQuery(nic="h1/rail0"),
    RecordingQuery: RecordingQuery(job="j", window_ns=60 * S),
    JobReportQuery: JobReportQuery(job="j", window_ns=60 * S),
}
OF_A_JOB: set[type[Query[Any]]] = {RecordingQuery, JobReportQuery}
"""They say so where the store has nothing of it."""


class Fleet:
    """A gateway with a store, and a leader that answers `b"page"`."""

    def __init__(self, store: Store) -> None:
        self.wire = Wire(welcome(3), encode(FleetNow(fleet_ns=NOW_NS)))
        self.gateway = Gateway(("c1:1", "c2:1"), store, self._dial, lambda: 0)

    def _dial(self, address: str) -> Any:
        @contextlib.asynccontextmanager
        async def open_wire() -> Any:
            if address != "c1:1" or self.wire.over.is_set():
                await asyncio.Event().wait()
            yield self.wire

        return open_wire()


def asked(store: Store, query: Query[Any], who: Caller = OPERATOR, *, led: bool = True) -> Any:
    """The decoded answer of a gateway."""

    async def work() -> Any:
        fleet = Fleet(store)
        if not led:
            fleet.wire.over.set()
        running = asyncio.create_task(fleet.gateway.link.run())
        if led:
            await until(lambda: fleet.gateway.fleet_now() is not None)
        try:
            return await fleet.gateway.answer(query, who)
        finally:
            running.cancel()
            fleet.gateway.close()

    return asyncio.run(asyncio.wait_for(work(), 30))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    opened = open_store(str(tmp_path_factory.mktemp("store")))
    yield opened
    opened.close()


@pytest.mark.parametrize("kind", SHARED, ids=lambda each: each.__name__)
@pytest.mark.parametrize("who", [OPERATOR, VIEWER])
def test_what_the_store_knows_needs_no_leader(
    store: Store, kind: type[Query[Any]], who: Caller
) -> None:
    query = EXAMPLES.get(kind) or kind()
    if kind in OF_A_JOB:
        with pytest.raises(UsageError, match="no record of job 'j'"):
            asked(store, query, who)
    else:
        assert asked(store, query, who)


def test_the_window_ends_at_fleet_time(store: Store) -> None:
    (page,) = asked(store, JobsQuery(window_ns=60 * S))
    found = decode_answer(page, Jobs)
    assert isinstance(found, Jobs)
    assert 0 <= found.now_ns - NOW_NS < 60 * S
    (page,) = asked(store, MatrixQuery(window_ns=60 * S))
    assert decode_answer(page, Matrix) == Matrix(cells=())


@pytest.mark.parametrize(
    "query", [ControllerQuery(), SwitchCommand(stopped=True, by="ann", why="w")]
)
def test_for_the_rest_it_names_the_leader(store: Store, query: Query[Any]) -> None:
    with pytest.raises(DeniedError, match="ask the leader, e3 at c1:1"):
        asked(store, query)
    with pytest.raises(DeniedError, match=r"none now \(c1:1, c2:1\)"):
        asked(store, query, led=False)


def test_without_fleet_time_it_does_not_answer_nothing(store: Store) -> None:
    with pytest.raises(BusyError, match="does not know fleet time"):
        asked(store, JobsQuery(window_ns=60 * S), led=False)


def test_roles_are_those_of_the_leader(store: Store) -> None:
    with pytest.raises(DeniedError, match="needs a certificate of role operator"):
        asked(store, SwitchCommand(stopped=True, by="v", why="w"), VIEWER)
    with pytest.raises(DeniedError, match="needs a certificate of role"):
        asked(
            store,
            JobsQuery(window_ns=60 * S),
            OPERATOR._replace(identity=Identity(Role.GATEWAY, "g")),
        )


def test_what_an_agent_asks_is_the_leaders(store: Store) -> None:
    (relayed,) = asked(store, JobsQuery(window_ns=60 * S), AGENT)
    said = msgspec.msgpack.decode(relayed)
    assert (said["query"], said["certificate"]) == (encode(JobsQuery(window_ns=60 * S)), b"pem")


def test_questions_that_need_a_leader_are_not_marked_by_mistake() -> None:
    """What is marked runs where statements end with the budget, and changes nothing."""
    for kind in SHARED:
        assert QUESTIONS[kind].runs is Runs.STORE
        source = inspect.getsource(cast("Any", QUESTIONS[kind].handler))
        assert "services.store" in source
    assert answers.matrix in {QUESTIONS[kind].handler for kind in SHARED}


PROBES = (("h0/n", "h1/n", "h0/n", 40_001), ("h1/n", "h0/n", "h0/n", 40_001))


class KnowsLinks:
    """A leader, as a gateway's requests reach it."""

    def admit(self, who: Caller) -> None:
        assert who is GATEWAY

    async def probe_links(self, request: ProbeLinksRequest) -> ProbeLinks:
        return ProbeLinks(links=tuple(" ".join(each[:2]) for each in request.probes))


def links_of(monkeypatch: pytest.MonkeyPatch, leader: KnowsLinks | bytes | None) -> ProbeLinks:
    """What a gateway's thread gets from its leader; None: there is none; else what it says."""
    monkeypatch.setattr(service, "caller", lambda _context: GATEWAY)

    async def work() -> ProbeLinks:
        fleet = Fleet(cast("Store", None))

        async def ask(data: bytes) -> list[bytes]:
            if isinstance(leader, bytes):
                return [leader]
            served = service.FleetService(cast("Any", leader))
            return [page async for page in served._relay_query(data, None)]

        fleet.wire.ask = ask  # type: ignore[method-assign]
        if leader is None:
            fleet.wire.over.set()
        running = asyncio.create_task(fleet.gateway.link.run())
        if leader is not None:
            await until(lambda: fleet.gateway.link.connected)
        try:
            request = ProbeLinksRequest(probes=PROBES)
            return await asyncio.to_thread(fleet.gateway.link.probe_links, request)
        finally:
            running.cancel()
            fleet.gateway.close()

    return asyncio.run(asyncio.wait_for(work(), 30))


def test_a_gateway_gets_the_links_of_probes_from_its_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert links_of(monkeypatch, KnowsLinks()).links == ("h0/n h1/n", "h1/n h0/n")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (encode(Failure(reason="an unknown kind")), "e3 at c1:1: an unknown kind"),
        (encode(ProbeLinks(links=("a->b",))), "links of 1 probes, 2 were sent"),
        (None, "no leader"),
    ],
)
def test_a_leader_that_does_not_say_the_links_is_an_error(
    monkeypatch: pytest.MonkeyPatch, said: bytes | None, why: str
) -> None:
    with pytest.raises(SyntonyError, match=why):
        links_of(monkeypatch, said)
