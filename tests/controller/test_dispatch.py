"""Requests are bounded in number, time and size, and delay nothing but themselves."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.controller.asking import NOBODY, answer, services_with
from tests.store.rows import T0, fill, probed

from syntony.controller import dispatch
from syntony.controller.access import LOCAL, Caller
from syntony.controller.answers import MAX_LOG_ROWS, MAX_WINDOW_NS
from syntony.controller.dispatch import MAX_WAITING, QUESTIONS, THREADS, Dispatcher, Instant
from syntony.controller.questions import Runs
from syntony.errors import StateError, StoreError, SyntonyError, UsageError
from syntony.model import MS, S
from syntony.store import open_store
from syntony.store.embedded import EmbeddedEngine
from syntony.store.engine import STATEMENT_LIMIT, StatementLimit
from syntony.wire.failover import FailoverLogQuery, FailoverStatus, SwitchCommand
from syntony.wire.probes import Matrix, MatrixCell, MatrixQuery
from syntony.wire.query import Query
from syntony.wire.roles import Identity, Role

AGENT = Caller(Identity(Role.AGENT, "h1"), "ipv4:10.0.0.1:1")


LONG = "SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) = 3"


class StuckStore:
    """Answers nothing until it is let go."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.begun = 0

    def matrix(self, *_: int) -> tuple[()]:
        self.begun += 1
        self.free.wait(300)
        return ()


@pytest.fixture
def stuck() -> Iterator[StuckStore]:
    store = StuckStore()
    yield store
    store.free.set()


def dispatcher(store: object) -> Dispatcher:
    return Dispatcher(services_with(store=store), lambda: Instant(T0, T0))


def test_stuck_questions_leave_threads_to_ingest_and_decisions(stuck: StuckStore) -> None:
    """Forty questions once held every thread of the loop's executor, which ingest waits for."""

    async def play() -> tuple[int, list[str]]:
        requested = dispatcher(stuck)
        tasks = [
            asyncio.create_task(requested.carry_out(MatrixQuery(), NOBODY))
            for _ in range(MAX_WAITING + 8)
        ]
        await asyncio.sleep(0.05)
        done = await asyncio.wait_for(asyncio.to_thread(lambda: 42), 20)
        refused = [str(task.exception()) for task in tasks if task.done()]
        stuck.free.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        again = await requested.carry_out(MatrixQuery(), NOBODY)
        assert again
        requested.close()
        return done, refused

    done, refused = asyncio.run(play())
    assert done == 42
    assert len(refused) == 8
    busy = f"MatrixQuery: the controller is busy with {MAX_WAITING} requests like it; "
    assert set(refused) == {busy + "ask again in a while"}


def test_a_question_ends_with_its_budget_in_one_line(
    stuck: StuckStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = QUESTIONS[MatrixQuery]._replace(budget_ns=50 * MS)
    registry: Any = dispatch.QUESTIONS
    monkeypatch.setitem(registry, MatrixQuery, known)

    async def play() -> None:
        requested = dispatcher(stuck)
        tasks = [requested.carry_out(MatrixQuery(), NOBODY) for _ in range(THREADS + 3)]
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(error, UsageError)
            assert str(error).startswith("MatrixQuery: no answer within 50 ms; ask for a shorter")
        # Those that never had a thread never get one.
        stuck.free.set()
        requested.close()

    asyncio.run(play())
    assert stuck.begun <= THREADS


def test_statements_of_questions_end_and_others_do_not_wait_for_them(tmp_path: Path) -> None:
    engine = EmbeddedEngine(tmp_path / "store")
    ended: list[BaseException] = []
    end_ns = time.monotonic_ns() + S

    def ask() -> None:
        STATEMENT_LIMIT.set(StatementLimit(end_ns))
        for _ in range(2):
            try:
                engine.select(LONG)
            except StoreError as error:
                ended.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    inserted = 0
    while thread.is_alive():
        engine.execute("CREATE TABLE IF NOT EXISTS t (x Int64) ENGINE = Memory")
        engine.execute("INSERT INTO t VALUES (1)")
        inserted += 1
    thread.join()
    assert "TIMEOUT_EXCEEDED" in str(ended[0]) or "Timeout exceeded" in str(ended[0])
    assert str(ended[1]) == "the time for this request is over; ask for a shorter window"
    assert inserted > 2
    assert engine.select("SELECT count() FROM t") == [[inserted]]
    engine.close()
    # What a question reads through its own connection is what was written through the other.
    store = open_store(str(tmp_path / "store"))
    fill(store, [probed("a/n", "b/n")])
    found = answer(services_with(store=store), MatrixQuery(window_ns=60 * S), NOBODY, fleet_ns=T0)
    assert [(cell.src, cell.dst) for cell in found.cells] == [("a/n", "b/n")]
    store.close()


def test_quick_questions_do_not_wait_for_long_ones_nor_do_long_ones_without_end(
    tmp_path: Path,
) -> None:
    engine = EmbeddedEngine(tmp_path / "store")
    failed: list[str] = []

    def ask(limit: StatementLimit, sql: str) -> None:
        STATEMENT_LIMIT.set(limit)
        try:
            engine.select(sql)
        except StoreError as error:
            failed.append(str(error))

    now_ns = time.monotonic_ns()
    long = threading.Thread(target=ask, args=(StatementLimit(now_ns + 6 * S), LONG))
    long.start()
    while not engine._requested[False]._lock.locked():
        time.sleep(0.001)
    for limit in (StatementLimit(now_ns + 60 * S, quick=True), StatementLimit(now_ns + S // 2)):
        each = threading.Thread(target=ask, args=(limit, "SELECT 1"))
        each.start()
        each.join()
    assert long.is_alive()
    assert len(failed) == 1
    assert failed[0].startswith(("the store is busy with another request", "the time for this req"))
    long.join()
    engine.close()


@pytest.mark.parametrize("runs", [Runs.DISK, Runs.STORE])
def test_statements_of_every_question_have_its_budget(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions on incidents read the store, too, on threads for what is quick."""
    limits: list[StatementLimit | None] = []

    def look(*_: object) -> Matrix:
        limits.append(STATEMENT_LIMIT.get())
        return Matrix(cells=())

    known = QUESTIONS[MatrixQuery]._replace(handler=look, runs=runs)
    registry: Any = dispatch.QUESTIONS
    monkeypatch.setitem(registry, MatrixQuery, known)
    before_ns = time.monotonic_ns()
    asyncio.run(dispatcher(None).carry_out(MatrixQuery(), NOBODY))
    (limit,) = limits
    assert limit is not None
    assert limit.quick is (runs is Runs.DISK)
    assert before_ns <= limit.end_ns - known.budget_ns <= time.monotonic_ns()


class _Case(NamedTuple):
    query: Query[Any]
    who: Caller
    line: str


@pytest.mark.parametrize(
    "case",
    [
        _Case(MatrixQuery(window_ns=MAX_WINDOW_NS + 1), NOBODY, "ask for up to 7 days"),
        _Case(MatrixQuery(window_ns=0), NOBODY, "a window of 0 ns"),
        _Case(FailoverLogQuery(limit=MAX_LOG_ROWS + 1), NOBODY, "10001 rows; ask for 1 to 10000"),
        _Case(FailoverLogQuery(limit=0), NOBODY, "0 rows; ask for 1 to 10000"),
        _Case(MatrixQuery(), AGENT, "needs a certificate of role operator or viewer; 'h1' is an a"),
        _Case(SwitchCommand(stopped=True, by="ann"), NOBODY, "needs a certificate of role operato"),
        _Case(
            SwitchCommand(stopped=True, by=" "),
            Caller(Identity(Role.OPERATOR, ""), LOCAL),
            "an order needs the name of its issuer",
        ),
    ],
)
def test_what_may_not_be_asked_is_one_line_and_reaches_nobody(case: _Case) -> None:
    with pytest.raises(SyntonyError, match=case.line) as caught:
        answer(services_with(), case.query, case.who, fleet_ns=T0)
    assert "\n" not in str(caught.value)


def test_every_window_and_limit_is_bounded() -> None:
    for kind, known in QUESTIONS.items():
        names = {field.name for field in msgspec.structs.fields(kind)}
        assert ("window_ns" in names) == bool(known.longest_ns), kind
        assert ("limit" in names) == bool(known.most), kind
        assert (known.budget_ns > 0) == (known.runs is not Runs.ORDERED), kind


def test_a_matrix_of_many_pages_arrives_whole() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed={seed}")
    draw = random.Random(seed)
    cells = tuple(
        MatrixCell(
            src=f"host{draw.randrange(10**6)}/rail{row % 8}", dst="x" * draw.randrange(40),
            paths=16, sent=row, lost=draw.randrange(1 << 60), owd_min_ns=None, owd_p50_ns=None,
            owd_p99_ns=None, clk_err_ns=None, dropped=0,
        )
        for row in range(60_000)
    )  # fmt: skip

    class Store:
        def matrix(self, *_: int) -> tuple[MatrixCell, ...]:
            return cells

    assert answer(services_with(store=Store()), MatrixQuery(), NOBODY, fleet_ns=T0) == Matrix(
        cells=cells
    )


class _Orders:
    """Orders that take as long as a test wants."""

    def __init__(self) -> None:
        self.begun, self.done, self.free = 0, 0, asyncio.Event()

    async def carry_out(self, *_: object) -> FailoverStatus:
        self.begun += 1
        await self.free.wait()
        self.done += 1
        raise StateError("nobody is there to read this")


def test_an_order_is_finished_or_never_begun_if_its_sender_stops_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """gRPC cancels a request whose deadline is over."""

    async def life() -> tuple[int, int, int]:
        orders, one = _Orders(), dispatcher(None)
        questions: dict[Any, Any] = QUESTIONS
        known = QUESTIONS[SwitchCommand]._replace(handler=orders.carry_out)
        monkeypatch.setitem(questions, SwitchCommand, known)
        command, ann = (
            SwitchCommand(stopped=True, by="ann"),
            Caller(Identity(Role.OPERATOR, "ann"), LOCAL),
        )
        waiting = [asyncio.create_task(one.carry_out(command, ann)) for _ in range(3)]
        for each in waiting[:2]:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            each.cancel()
        await asyncio.sleep(0.01)
        while_held = orders.begun
        orders.free.set()
        await asyncio.wait(waiting)
        one.close()
        return while_held, orders.begun, orders.done

    assert asyncio.run(life()) == (1, 2, 2), "the next waits for it; the second never began"
