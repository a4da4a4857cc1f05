"""`syntony clock`: what is asked, what is printed, how it ends. The controller is played here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from msgspec import Struct
from tests.view.fleets import T0, line, point, sample

from syntony.cli import run
from syntony.controller import client
from syntony.errors import RemoteError
from syntony.io.clock_page import Reading
from syntony.model import ClockState, S, Timeline, Utc
from syntony.wire import messages as wire
from syntony.wire.clocks import ClockHistory, ClockHistoryQuery, ClockQuery, Clocks
from syntony.wire.coding import encode
from syntony.wire.probes import Matrix, Series, SeriesQuery
from syntony.wire.query import Failure, Query

REMOTE = ("--controller", "c:1", "--ca", "a", "--cert", "b", "--key", "c")
WAY = ("h0/rail0", "h1/rail0")
Said = tuple[int, str, str]


def agent(host: str) -> wire.AgentStatus:
    nic = wire.NicInfo(
        name="rail0", rail=0, addresses=("::1",), clock=host, stamping="kernel", port=1
    )
    return wire.AgentStatus(
        host=host, connected=True, nics=(nic,), version="0", last_batch_ns=0, batches=0, rows=0,
        dropped=0, probes_per_s=0.0,
    )  # fmt: skip


class Controller:
    """Answers from what a test puts here, and remembers what it was asked."""

    def __init__(self) -> None:
        self.lines: tuple[Timeline, ...] = (line("h0"), line("h1", offset_ns=-4e6))
        self.hosts = ["h0", "h1"]
        self.samples = tuple(sample(node, second) for node in ("h0", "h1") for second in range(3))
        self.first_ns = 0
        self.requested: list[Query[Any]] = []
        self.utc: Utc | None = None

    def __call__(self, _target: str, query: Query[Any], **_: object) -> Struct:
        self.requested.append(query)
        match query:
            case ClockQuery():
                return Clocks(timelines=self.lines, utc=self.utc)
            case wire.FleetQuery():
                agents = tuple(map(agent, self.hosts))
                return wire.Fleet(agents=agents, rows_stored=0, probes_per_s=0.0)
            case ClockHistoryQuery():
                found = tuple(s for s in self.samples if query.node in {"", s.node})
                return ClockHistory(samples=found, step_ns=S, first_ns=self.first_ns)
            case SeriesQuery():
                known = (query.src, query.dst) in {WAY, WAY[::-1]}
                points = tuple(point(query.src, query.dst, second, 5) for second in range(3))
                return Series(points=points if known else ())
        return Matrix(cells=())


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    made = Controller()
    monkeypatch.setattr(client, "ask", made)
    return made


@pytest.fixture
def clock(controller: Controller, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def say(*words: str) -> Said:
        code = run(["clock", words[0], *REMOTE, *words[1:]])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return say


def test_status_lists_every_clock_and_agents_without_one(
    controller: Controller, clock: Callable[..., Said]
) -> None:
    assert clock("status")[0] == 0
    controller.hosts.append("h2")
    code, out, err = clock("status")
    assert code == 3
    assert out.splitlines()[1].startswith("h2     UNKNOWN")
    assert "CLOCK UNKNOWN - 2 SYNCHRONIZED, 1 UNKNOWN" in err
    rows = json.loads(clock("status", "--json")[1])
    assert rows[0]["node"] == "h2"
    assert rows[0]["bound_ns"] is None
    by_node = {row["node"]: row for row in rows}
    assert set(by_node) == {"h0", "h1", "h2"}
    assert by_node["h0"]["bound_ns"] == pytest.approx(40.0)
    assert by_node["h0"]["offset_ns"] == -1e6


def test_an_empty_fleet_is_unknown_not_healthy(
    controller: Controller, clock: Callable[..., Said]
) -> None:
    controller.lines, controller.hosts, controller.samples = (), [], ()
    code, out, _ = clock("status", "--check")
    assert (code, out) == (3, "CLOCK UNKNOWN - no clock is known\n")
    assert json.loads(clock("status", "--json")[1]) == []
    assert "fewer than two" in clock("matrix")[1]
    assert json.loads(clock("matrix", "--json")[1])["pairs"] == []
    assert "no clock is known" in clock("watch", "--count", "1")[1]
    code, out, err = clock("history", "h0")
    assert (code, out) == (2, "")
    assert "no clock is known yet" in err
    assert "no clock was stored" in clock("report")[2]


def test_check_is_a_plugin(controller: Controller, clock: Callable[..., Said]) -> None:
    controller.lines = (line("h0"), line("h1", sigma_ns=11.0))
    code, out, _ = clock("status", "--check", "--warn", "30ns", "--critical", "1us")
    assert code == 1
    said = "CLOCK WARNING - 2 SYNCHRONIZED; worst bound 44 ns (h1) | bound=44ns;30;1000\n"
    assert out == said
    code, _, err = clock("status", "--warn", "2us", "--critical", "1us")
    assert code == 2
    assert "--warn 2us is above --critical 1us" in err


def test_a_check_that_cannot_ask_is_unknown_and_says_so_on_stdout(
    clock: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = clock("status", "--check", "--warn", "2us", "--critical", "1us")
    assert (code, out, err) == (3, "CLOCK UNKNOWN - --warn 2us is above --critical 1us\n", "")

    def silent(*_args: object, **_options: object) -> None:
        raise RemoteError("controller gone does not answer")

    monkeypatch.setattr("syntony.cli.clock.ask", silent)
    code, out, err = clock("status", "--check")
    assert (code, out, err) == (3, "CLOCK UNKNOWN - controller gone does not answer\n", "")
    code, out, err = clock("status")
    assert (code, out) == (3, "")
    assert "does not answer" in err


def test_utc(controller: Controller, clock: Callable[..., Said]) -> None:
    code, out, err = clock("utc")
    assert (code, out) == (2, "")
    assert "no anchors" in err
    controller.utc = Utc(
        ref_ns=T0, offset_ns=1500.0, drift_ppb=0.0, error_ns=200.0, confirmed_ns=T0,
        drift_sigma_ppb=0.0, state=ClockState.SYNCHRONIZED, anchors=("h0", "h1"),
        reason="h2 outvoted: off by 10 ms",
    )  # fmt: skip
    code, out, _ = clock("utc")
    assert code == 0
    assert all(word in out for word in ("SYNCHRONIZED", "1.5 µs", "h0, h1", "h2 outvoted"))
    reported = json.loads(clock("utc", "--json")[1])
    assert reported["utc_ns"] - reported["fleet_ns"] == 1500
    assert reported["bound_ns"] >= 200
    held = msgspec.structs.replace(controller.utc, state=ClockState.HOLDOVER, anchors=())
    controller.utc = held
    assert clock("utc")[0] == 1
    assert "none: held" in clock("utc")[1]
    controller.utc = msgspec.structs.replace(held, state=ClockState.UNKNOWN, reason="watching h0")
    code, out, _ = clock("utc")
    assert code == 3
    assert "watching h0" in out
    assert json.loads(clock("utc", "--json")[1])["bound_ns"] is None


def test_matrix(controller: Controller, clock: Callable[..., Said]) -> None:
    found = json.loads(clock("matrix", "--json")[1])
    assert found["pairs"] == [
        {"a": "h0", "b": "h1", "offset_ns": 3_000_000, "bound_ns": pytest.approx(80.0)}
    ]
    assert "3 ms" in clock("matrix", "h0", "h1")[1]
    code, out, err = clock("matrix", "h0", "h11")
    assert (code, out) == (2, "")
    assert "no clock 'h11' in this fleet; did you mean 'h1'?" in err


@pytest.mark.parametrize(("age_s", "said"), [(360, True), (11 * 3600, True), (12 * 3600, False)])
@pytest.mark.parametrize("words", [(), ("--step", "1h"), ("--json",)])
def test_history_of_a_young_fleet_says_for_how_long_there_is_data(
    age_s: int, said: bool, words: tuple[str, ...], controller: Controller,
    clock: Callable[..., Said],
) -> None:  # fmt: skip
    """And its lines are of the time that there is."""
    controller.first_ns = T0 + 2 * S - age_s * S
    code, _, err = clock("history", "h1", "--since", "12h", *words)
    assert code == 0
    spoken = " ".join(err.split())
    assert ("stored for 360 s only, not for 12h" in spoken) == (age_s == 360)
    assert ("stored for" in spoken) == said
    steps = [each.step_ns for each in controller.requested if isinstance(each, ClockHistoryQuery)]
    assert steps[1:] == ([age_s * S // 30] if said and not words else [])


def test_history(controller: Controller, clock: Callable[..., Said]) -> None:
    code, out, _ = clock("history", "h1", "--since", "5m")
    assert (code, len(out.splitlines())) == (0, 4)
    assert controller.requested[-1] == ClockHistoryQuery(
        node="h1", window_ns=300 * S, step_ns=10 * S
    )
    assert len(clock("history", "--all")[1].splitlines()) == 3
    answer = json.loads(clock("history", "h1", "--json")[1])
    assert len(answer["samples"]) == 3
    assert isinstance(controller.requested[-1], ClockHistoryQuery)
    assert controller.requested[-1].step_ns == 0
    assert "did you mean 'h1'?" in clock("history", "hh1")[2]
    controller.samples = ()
    assert "nothing is stored of clock h1 in the last 10m" in clock("history", "h1")[2]
    for words in ((), ("h1", "--all")):
        assert "name a clock, or give --all" in clock("history", *words)[2]


def test_watch_prints_plain_lines_where_there_is_no_terminal(
    controller: Controller, clock: Callable[..., Said]
) -> None:
    controller.lines = (line("h0"), line("h1", state=ClockState.HOLDOVER, reason="no fresh edges"))
    code, out, _ = clock("watch", "--count", "2", "--interval", "100ms")
    assert (code, len(out.splitlines())) == (0, 4)
    assert out.startswith(f"{(T0 - 1e6) / S:.3f} h1 HOLDOVER bound ±40 ns")
    assert out.splitlines()[0].endswith("no fresh edges")
    looks = clock("watch", "--count", "2", "--interval", "100ms", "--json")[1].splitlines()
    assert [len(json.loads(look)) for look in looks] == [2, 2]
    assert "--interval 1ms" in clock("watch", "--interval", "1ms")[2]


def test_a_watch_outlives_its_controller(
    controller: Controller, clock: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says once in each outage that nobody answers, not at each look."""
    outages = iter((False, True, True, False, True))

    def failing(target: str, query: Query[Any], **options: object) -> Struct:
        if isinstance(query, ClockQuery) and next(outages):
            raise RemoteError("no controller answers")
        return controller(target, query, **options)

    monkeypatch.setattr(client, "ask", failing)
    code, out, err = clock("watch", "--count", "5", "--interval", "100ms")
    assert (code, len(out.splitlines())) == (0, 4)
    assert err == "no controller answers; still watching\n" * 2


def test_report_writes_page_pictures_and_data(
    controller: Controller, clock: Callable[..., Said], tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "report"
    code, said, _ = clock("report", "--out", str(out), "--pair", *WAY)
    assert (code, said) == (0, f"{out / 'index.html'}\n")
    names = {f"{name}.{form}" for name in ("clocks", "one-way-delay") for form in ("svg", "png")}
    assert {path.name for path in out.iterdir()} == names | {"index.html", "report.json"}
    data = json.loads((out / "report.json").read_text())
    assert data["fleet"] == "c:1"
    assert data["known_truth"] is False
    assert data["delays"]["raw_forward_ns"] == [5, 5, 5]


def test_report_refuses_what_cannot_be(
    controller: Controller, clock: Callable[..., Said], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert "--out" in clock("report", "--out", str(tmp_path / "file" / "x"))[2]
    assert "h9/n → h1/rail0 is not probed" in clock("report", "--pair", "h9/n", "h1/rail0")[2]
    assert "'h9' is not a NIC" in clock("report", "--pair", "h9", "h1/rail0")[2]


def test_an_older_controller_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = "not a message of this protocol: Invalid value 'clock-history' - at `$.type`"

    class Channel:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            return

        def unary_stream(self, *_: object, **__: object) -> Callable[..., list[bytes]]:
            return lambda *_, **__: [encode(Failure(reason=refusal))]

    monkeypatch.setattr(client, "_channel", lambda *_: Channel())
    with pytest.raises(RemoteError, match="is older than this command") as failed:
        client.ask("unix:/x", ClockHistoryQuery())
    assert "\n" not in str(failed.value)


def test_fleet_time_that_is_unknown_is_no_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading = Reading(None, None, 0, ClockState.UNKNOWN, 0)
    monkeypatch.setattr("syntony.clock.now", lambda: reading)
    assert run(["clock", "now"]) == 3
    assert capsys.readouterr().out == "no fleet time  no bound  UNKNOWN\n"
    known = Reading(10**9, 10**9 + 20, 10**9 + 10, ClockState.SYNCHRONIZED, 0)
    monkeypatch.setattr("syntony.clock.now", lambda: known)
    assert run(["clock", "now"]) == 0
    assert capsys.readouterr().out == "1970-01-01T00:00:01.000000010  ± 10 ns  SYNCHRONIZED\n"


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        (ClockState.UNKNOWN, 3, "no fleet time here"),
        (ClockState.HOLDOVER, 1, "fleet time is HOLDOVER"),
        (ClockState.SYNCHRONIZED, 0, ""),
    ],
)
def test_an_audit_that_runs_it_gets_the_reason_on_stderr(
    state: ClockState,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An audit quotes the first line of a command that fails: of JSON that would be a brace."""
    monkeypatch.setattr("syntony.clock.now", lambda: Reading(None, None, 0, state, 0))
    assert run(["clock", "now", "--json"]) == code
    assert capsys.readouterr().err.startswith(words)
