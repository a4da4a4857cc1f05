"""How ranks ended, as the commands show it."""

from __future__ import annotations

import json

import click.testing
import msgspec
import pytest
from tests.workload.dying_ranks import ALL, operations, processes, stuck_ns
from tests.workload.stored_rows import T0, bundle, record

from syntony.cli import _recording, jobs, root
from syntony.controller.recordings import _parts
from syntony.model import S
from syntony.wire.jobs import Jobs, JobView, Recording
from syntony.wire.tables import COLLECTIVE, JOB_PROCESS
from syntony.workload.timeline import trace

JOB = JobView(job="night", began_ns=0, seen_ns=0, hosts=("h0",), processes=4, running=0, ranks=4,
              programs=())  # fmt: skip


def run(monkeypatch: pytest.MonkeyPatch, status: int | None, *words: str) -> str:
    """Rank 3 ends 3 s before the newest report, in no operation."""
    rows = operations(done=ALL)
    now_ns = stuck_ns(rows) + 4 * S
    readings = processes(now_ns, {3: now_ns - 3 * S}, how={3: status})
    found = record({COLLECTIVE.name: rows, JOB_PROCESS.name: readings},
                   seconds=(now_ns - T0) // S, now_ns=now_ns + 30 * S)  # fmt: skip
    said = Recording(
        manifest=msgspec.json.encode(found.manifest), notes=(), rows=tuple(_parts(found))
    )
    monkeypatch.setattr(_recording, "ask", lambda *_words, **_more: said)
    monkeypatch.setattr(jobs, "ask", lambda *_words, **_more: Jobs(now_ns=0, jobs=(JOB,)))
    done = click.testing.CliRunner().invoke(root, [*words, "night", "--controller", "unix:/none"])
    events = [each for each in trace(bundle(found), ()).events if each.get("cat") == "end"]
    assert len(events) == 1
    assert events[0]["name"] in done.stdout
    assert (events[0]["ph"], events[0]["args"]["rank"]) == ("i", 3)
    return done.stdout


@pytest.mark.parametrize("words", [("jobs", "show"), ("why",)])
@pytest.mark.parametrize(
    ("status", "said"),
    [
        (None, "was killed by the kernel for lack of memory"),
        (-9, "was killed by SIGKILL"),
        (1, "ended with exit status 1"),
    ],
)
def test_how_a_rank_ended_is_one_line(
    monkeypatch: pytest.MonkeyPatch, status: int | None, said: str, words: tuple[str, ...]
) -> None:
    (line,) = [each for each in run(monkeypatch, status, *words).splitlines() if said in each]
    assert line.lower().startswith("ended")
    assert "rank 3 on " in line


def test_how_ranks_ended_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    (end,) = json.loads(run(monkeypatch, None, "jobs", "show", "--json"))["ended"]
    assert (end["rank"], end["exit_status"], end["oom_killed"], end["exact"]) == (3, -9, True, True)
