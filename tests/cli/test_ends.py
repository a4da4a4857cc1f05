"""How ranks ended, as the commands show it."""

from __future__ import annotations

import json
from types import ModuleType

import click.testing
import msgspec
import pytest
from tests.workload.dying_ranks import ALL, operations, processes, stuck_ns
from tests.workload.stored_rows import T0, bundle, record

from syntony.cli import _recording, jobs, root, why
from syntony.controller.recordings import _parts
from syntony.model import S
from syntony.wire.jobs import Jobs, JobView, Recording
from syntony.wire.tables import COLLECTIVE, JOB_PROCESS
from syntony.workload.timeline import trace

JOB = JobView(job="night", began_ns=0, seen_ns=0, hosts=("h0",), processes=4, running=0, ranks=4,
              programs=())  # fmt: skip


def run(
    monkeypatch: pytest.MonkeyPatch,
    status: int | None,
    *words: str,
    later: tuple[int, ...] = (),
    listed: bool = True,
) -> str:
    """Rank 3 ends 3 s before the newest report, in no operation; some others a second later."""
    rows = operations(done=ALL)
    now_ns = stuck_ns(rows) + 4 * S
    ends_ns = {3: now_ns - 3 * S} | dict.fromkeys(later, now_ns - 2 * S)
    readings = processes(now_ns, ends_ns, how=dict.fromkeys(ends_ns, status))
    found = record({COLLECTIVE.name: rows, JOB_PROCESS.name: readings},
                   seconds=(now_ns - T0) // S, now_ns=now_ns + 30 * S)  # fmt: skip
    said = Recording(
        manifest=msgspec.json.encode(found.manifest), notes=(), rows=tuple(_parts(found))
    )
    monkeypatch.setattr(_recording, "ask", lambda *_words, **_more: said)
    monkeypatch.setattr(jobs, "ask", lambda *_words, **_more: Jobs(now_ns=0, jobs=(JOB,)))
    done = click.testing.CliRunner().invoke(root, [*words, "night", "--controller", "unix:/none"])
    events = [each for each in trace(bundle(found), ()).events if each.get("cat") == "end"]
    assert [each["args"]["rank"] for each in events] == [3, *later]
    assert events[0]["ph"] == "i"
    assert (events[0]["name"] in done.stdout) is listed
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


@pytest.mark.parametrize(
    ("module", "most", "words"), [(jobs, "_MOST", ("jobs", "show")), (why, "MOST_ENDS", ("why",))]
)
def test_ends_that_are_not_listed_are_counted(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, most: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(module, most, 1)
    lines = run(monkeypatch, 1, *words, later=(0, 2)).splitlines()
    assert len([each for each in lines if "exit status 1" in each]) == 1
    assert [each.strip(" .") for each in lines if " 2 more, later" in each]


def test_ends_that_are_the_answer_are_not_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said = run(monkeypatch, 0, "why", later=(0, 1, 2), listed=False)
    assert "night has ended: no fault." in said
    assert "Ended:" not in said
