"""A host, NIC or job that the fleet does not know is an answer, not an empty screen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Struct

from syntony.cli import run
from syntony.controller import client
from syntony.model import S
from syntony.wire.fabric import LearntPaths, PathsQuery
from syntony.wire.failover import ConnectionsQuery, FailoverLog, FailoverLogQuery, FleetConnections
from syntony.wire.incidents import IncidentsReply, SilenceAction
from syntony.wire.jobs import Jobs, JobsQuery, JobView
from syntony.wire.links import LinkHistory, LinkHistoryQuery, Links, LinksQuery, LinkStatus
from syntony.wire.messages import AgentStatus, Fleet, FleetQuery, NicInfo
from syntony.wire.probes import Matrix, MatrixQuery, Series, SeriesQuery
from syntony.wire.query import Query
from syntony.wire.queue_pairs import QueuePairs, QueuePairsQuery
from syntony.wire.traffic import MoveList, MovesQuery, Traffic, TrafficQuery

REMOTE = ("--controller", "c:1", "--ca", "a", "--cert", "b", "--key", "c")
PORT = LinkStatus(
    nic="h0/rail0", netdev="rail0", rdma="", link_layer="Ethernet", driver="veth", role="compute",
    state="active", gbps=10.0, flaps=0, last_flap_ns=None, seen_ns=0, watched_ns=0,
    temperature_c=None, rx_dbm=None, bias_ma=None,
)  # fmt: skip
NICS = tuple(
    NicInfo(name=name, rail=0, addresses=(), clock="h0", stamping="kernel", port=1)
    for name in ("rail0", "rail1")
)
AGENT = AgentStatus(
    host="h0", connected=True, nics=NICS, version="1", last_batch_ns=0, batches=0, rows=0,
    dropped=0, probes_per_s=0.0,
)  # fmt: skip
JOB = JobView(
    job="train-7", began_ns=0, seen_ns=0, hosts=(), processes=1, running=1, ranks=0, programs=()
)
EMPTY: dict[type, Struct] = {
    LinkHistoryQuery: LinkHistory(events=(), counters=(), now_ns=0),
    PathsQuery: LearntPaths(paths=()),
    ConnectionsQuery: FleetConnections(hosts=()),
    FailoverLogQuery: FailoverLog(events=()),
    TrafficQuery: Traffic(mode="off", deciding=False, why="", now_ns=1, flows=(), links=()),
    MovesQuery: MoveList(moves=()),
    QueuePairsQuery: QueuePairs(now_ns=0, queue_pairs=(), mismatches=0),
    SeriesQuery: Series(points=()),
    MatrixQuery: Matrix(cells=()),
    FleetQuery: Fleet(agents=(AGENT,), rows_stored=0, probes_per_s=0.0),
    JobsQuery: Jobs(now_ns=0, jobs=(JOB,)),
    SilenceAction: IncidentsReply(incidents=(), silences=(), waiting=0, warning="nothing is so"),
}


@pytest.fixture(autouse=True)
def controller(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(_target: str, query: Query[Any], **_: object) -> Struct:
        if isinstance(query, LinksQuery):
            assert query.window_ns == 86_400 * S, "the window of the history"
            return Links(ports=(PORT,), now_ns=0)
        return EMPTY[type(query)]

    monkeypatch.setattr(client, "ask", ask)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("links history h0/rial0", "no port 'h0/rial0' is known; did you mean 'h0/rail0'?"),
        ("fabric paths h0/rail0 h0/rial1", "no NIC 'h0/rial1' is known; did you mean 'h0/rail1'?"),
        ("probe history h0/rail0 h9/r", "no NIC 'h9/r' is known"),
        ("paths --host hh0", "no agent of 'hh0' has attached to the controller; did you mean 'h0'"),
        ("failover log --host hh0", "no agent of 'hh0' has attached"),
        ("traffic queue-pairs --host hh0", "no agent of 'hh0' has attached"),
        ("agent parts hh0", "no agent of 'hh0' has attached to the controller; did you mean 'h0'"),
    ],
)
def test_a_host_or_nic_that_nobody_knows_is_an_error(
    capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    for more in ((), ("--json",)):
        assert run([*words.split(), *REMOTE, *more]) == 2
        answer = capsys.readouterr()
        assert said in answer.err
        assert answer.out == ""


@pytest.mark.parametrize(
    "words", ["paths", "failover log", "traffic status", "traffic moves", "traffic queue-pairs"]
)
def test_a_job_that_nobody_knows_is_a_warning(
    capsys: pytest.CaptureFixture[str], words: str
) -> None:
    """It may begin later."""
    for job, warned in (("trian-7", True), ("train-7", False), ("", False)):
        assert run([*words.split(), "--job", job, *REMOTE]) == 0
        warning = f"no process of job {job!r} was seen in the last day; did you mean 'train-7'?"
        assert (warning in capsys.readouterr().err) is warned


def test_nothing_about_names_that_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["links", "history", "h0/rail0", *REMOTE]) == 0
    assert "nothing happened to h0/rail0" in capsys.readouterr().out
    assert run(["fabric", "paths", "h0/rail0", "h0/rail1", *REMOTE]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "no such path is traced yet" in said.err
    assert run(["paths", "--host", "h0", *REMOTE]) == 0
    assert "no connection of a managed job" in capsys.readouterr().err


def test_a_silences_warning_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["incidents", "silence", "hh0", "--for", "1h", *REMOTE]) == 0
    assert "warning: nothing is so" in capsys.readouterr().err
    assert run(["incidents", "silence", "hh0", "--for", "1h", "--json", *REMOTE]) == 0
    assert json.loads(capsys.readouterr().out) == {"silences": [], "warning": "nothing is so"}


def test_a_silence_that_begins_later_is_shown_with_its_beginning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hour_ns = 3600 * S
    later = {
        "number": 1, "rule": "*", "subject": "leaf0-1", "first_ns": 8 * hour_ns,
        "last_ns": 9 * hour_ns, "who": "olga", "comment": "firmware",
    }  # fmt: skip
    reply = IncidentsReply(incidents=(), silences=(later,), waiting=0)
    monkeypatch.setitem(EMPTY, SilenceAction, reply)
    assert run(["incidents", "silence", "leaf0-1", "--in", "8h", "--for", "1h", *REMOTE]) == 0
    assert "1970-01-01 08:00:00" in capsys.readouterr().out


def test_a_job_that_cannot_be_shown_has_the_nearest_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["jobs", "show", "trian-7", *REMOTE]) != 0
    assert "'trian-7' was seen in that time; did you mean 'train-7'?" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--list"]])
def test_a_matrix_without_probes_says_so(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["probe", "matrix", "--window", "3s", *words, *REMOTE]) == 0
    said = capsys.readouterr().out
    assert said == "no probe is stored; `syntony agent parts` says what is missing\n"


def test_a_silence_without_a_length_names_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["incidents", "silence", "h0", *REMOTE]) == 2
    assert "incidents silence h3 --for 2h" in capsys.readouterr().err
