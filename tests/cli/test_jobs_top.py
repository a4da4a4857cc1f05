"""`syntony jobs top`: running jobs, the worst first."""

from __future__ import annotations

import json
import random
from typing import Any

import click.testing
import msgspec
import pytest
from tests.workload.stored_rows import bundle, flow, record, steps_of

from syntony.cli import _recording, jobs, root
from syntony.controller.recordings import _parts
from syntony.errors import RemoteError
from syntony.model import MS, S
from syntony.wire.jobs import Jobs, JobsQuery, JobView, Recording, RecordingQuery
from syntony.wire.tables import COLLECTIVE, JOB_FLOW
from syntony.workload import diagnose
from syntony.workload.top import job_line, unknown, worst_first

NOW = 1_700_000_100 * S
SEED = random.randrange(1 << 32)


def recording(late_ns: int) -> Recording:
    draw = random.Random(5)
    found = record(
        {
            COLLECTIVE.name: steps_of(4, 300, {2: late_ns} if late_ns else {}, draw),
            JOB_FLOW.name: [
                flow("h0/a", "h1/a", second, sport=port, rtt_ns=rtt_ns, tx_bps=1e6, job="night")
                for second in range(20)
                for port, rtt_ns in ((1, 20_000), (2, 22_000), (3, 90_000))
            ],
        }
    )
    return Recording(
        manifest=msgspec.json.encode(found.manifest), notes=("left out",),
        rows=tuple(_parts(found)),
    )  # fmt: skip


def view(job: str, running: int = 4, seen_ns: int = NOW) -> JobView:
    return JobView(
        job=job, began_ns=NOW - 90 * S, seen_ns=seen_ns, hosts=("h0",), processes=4,
        running=running, ranks=4, programs=("python",),
    )  # fmt: skip


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Jobs that are slow, well, over, silent, and one of which nothing is recorded."""
    answers = {"slow": recording(30 * MS), "well\x1b[2J": recording(0)}
    asked: list[str] = []

    def ask(_target: object, query: Any, **_: object) -> Any:
        if isinstance(query, JobsQuery):
            found = [*map(view, ("well\x1b[2J", "slow", "bare")), view("over", 0)]
            return Jobs(now_ns=NOW, jobs=(*found, view("silent", 4, NOW - 60 * S)))
        assert isinstance(query, RecordingQuery)
        asked.append(query.job)
        if query.job not in answers:
            raise RemoteError("nothing is known of it")
        return answers[query.job]

    monkeypatch.setattr(_recording, "ask", ask)
    monkeypatch.setattr(jobs, "ask", ask)
    return asked


def run(*words: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(
        root, ["jobs", "top", *words, "--controller", "unix:/nowhere"]
    )


def test_running_jobs_worst_first_as_data(fleet: list[str]) -> None:
    done = run("--json")
    assert done.exit_code == 0
    assert not done.stderr
    slow, well, bare = json.loads(done.stdout)
    assert sorted(fleet) == ["bare", "slow", "well\x1b[2J"]
    assert (slow["job"], slow["verdict"], slow["subject"]) == ("slow", "straggler", "rank 2")
    assert slow["slowest_rank"] == 2
    assert 29e6 < slow["late_ns"] < 31e6
    assert (slow["ranks"], slow["worst_flow"]) == (4, "h0/a:3>h1/a:5000")
    assert (slow["worst_ns"], slow["usual_ns"]) == (45_000, 11_000)
    assert 79e6 < slow["step_ns"] < 81e6
    assert (well["verdict"], well["confidence"], well["error"]) == ("", 0, "")
    assert (bare["job"], bare["error"], bare["step_ns"]) == ("bare", "nothing is known of it", None)


def test_where_the_output_is_no_terminal_once(fleet: list[str]) -> None:
    done = run("--limit", "2")
    assert done.exit_code == 0
    assert len(fleet) == 2
    heads, slow, well = done.stdout.splitlines()
    assert heads.split()[:3] == ["job", "ranks", "step"]
    assert slow.startswith("slow ")
    assert "straggler" in slow
    assert well.startswith("well")
    assert "\x1b" not in done.stdout


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    "words", [("--every", "0s"), ("--every", "soon"), ("--limit", "0"), ("--window", "x")]
)
def test_bad_orders(words: tuple[str, ...]) -> None:
    assert run(*words).exit_code != 0


def test_order_does_not_depend_on_who_is_asked_first() -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    lines = [unknown("z", "no rows")]
    for number in range(8):
        late = {draw.randrange(4): draw.randrange(0, 40) * MS}
        found = bundle(record({COLLECTIVE.name: steps_of(4, 200, late, draw)}))
        lines.append(job_line(f"job{number}", found, diagnose(found)))
    wanted = worst_first(lines)
    assert wanted[-1].job == "z"
    sure = [line.confidence for line in wanted[:-1]]
    assert sure == sorted(sure, reverse=True)
    quiet = [(line.late_ns or 0) / (line.step_ns or 1) for line in wanted[:-1] if not line.verdict]
    assert quiet == sorted(quiet, reverse=True)
    draw.shuffle(lines)
    assert worst_first(lines) == wanted
