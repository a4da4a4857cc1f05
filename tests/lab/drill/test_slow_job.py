"""From a slow-job trial to its claims; and the drill itself, with a real job, in a lab."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest

from syntony import cli
from syntony.errors import MissingError
from syntony.lab.commands import flow_shaper_end, flow_shaper_lines
from syntony.lab.drill.report import save
from syntony.lab.drill.slow_job import FlowSeries, JudgedAnswer, NamedFlow, SlowTrial, is_named
from syntony.lab.drill.slow_job_report import make_chart, make_report
from syntony.lab.drill.trial import Outage
from syntony.lab.jobs.records import RankDone, RankFailed, Record, StepRecord
from syntony.lab.plan import FabricSpec, make_plan
from syntony.lab.world import unshare_argv
from syntony.model import MS, S

ONE, OTHER = "h0/rail0:1>h3/rail0:2", "h3/rail0:2>h0/rail0:1"
NAMES = (ONE, OTHER)
BEGAN_NS, SLOW_NS, END_NS = 100 * S, 120 * S, 140 * S
SEED = random.randrange(1 << 32)


def verdict(fault: str, *subjects: str) -> NamedFlow:
    return NamedFlow(
        fault=fault, subjects=subjects, confidence=0.9, text="94 µs, its siblings 4 µs"
    )


def look(at_s: float, *verdicts: NamedFlow, worst: str = "") -> JudgedAnswer:
    return JudgedAnswer(at_ns=round(at_s * S), verdicts=verdicts, worst=worst)


LOOKS = (
    look(105),
    look(119, worst=ONE),
    look(122, worst="h1/rail0:1>h2/rail0:2"),
    look(124.5, worst=OTHER),
    look(128, verdict("slow-flow", OTHER), worst=OTHER),
    look(130, verdict("slow-flow", ONE), verdict("slow-flow", OTHER), worst=ONE),
)


def records() -> list[Record]:
    found: list[Record] = []
    for step in range(400):
        start_ns = BEGAN_NS + step * 100 * MS
        for rank in range(4):
            took_ns = (40 if start_ns >= SLOW_NS and rank == 3 else 5) * MS
            found.append(
                StepRecord(
                    rank=rank, step=step, start_ns=start_ns, end_ns=start_ns + took_ns, wrong=0
                )
            )
    return [*found, *(RankDone(rank=rank, at_ns=END_NS + S, steps=400) for rank in range(4))]


def series(flow: str, slow_ns: float) -> FlowSeries:
    at_ns = tuple(range(BEGAN_NS, END_NS, S))
    delays = tuple(slow_ns if each > SLOW_NS else 4_000.0 for each in at_ns)
    return FlowSeries(flow=flow, at_ns=at_ns, delay_ns=(None, *delays[1:]))


TRIAL = SlowTrial(
    job="all-to-all",
    ranks=4,
    names=NAMES,
    began_ns=BEGAN_NS,
    outage=Outage(
        kind="flow-rate", target="h0/rail0", requested_ns=SLOW_NS - 50 * MS, began_ns=SLOW_NS,
        ended_ns=END_NS,
    ),
    ended_ns=END_NS,
    looks=LOOKS,
    flows=(
        series(ONE, 94_000.0), series(OTHER, 60_000.0), series("h1/rail0:1>h2/rail0:2", 4_000.0),
    ),
    finished=True,
    records=tuple(records()),
)  # fmt: skip


def test_times_count_from_when_the_flow_was_slow() -> None:
    found = make_report(TRIAL)
    assert (found.quiet_looks, found.quiet_verdicts, found.others) == (2, (), ())
    assert (found.detected_s, found.named_s) == (4.5, 8.0)
    assert found.verdict == f"slow-flow {OTHER}: 94 µs, its siblings 4 µs"
    assert (found.slow_ms, found.siblings_ms) == (0.094, 0.004)
    assert (found.step_before_ms, found.step_slow_ms) == (5.0, 40.0)
    assert (found.flows, found.wrong, found.lost, found.held) == (3, 0, 0, True)


BAD: list[tuple[str, SlowTrial]] = [
    (
        "named while quiet",
        msgspec.structs.replace(
            TRIAL, looks=(look(105, verdict("straggler", "rank 1")), *LOOKS[1:])
        ),
    ),
    ("never named", msgspec.structs.replace(TRIAL, looks=LOOKS[:4])),
    (
        "another named beside it",
        msgspec.structs.replace(TRIAL, looks=(*LOOKS, look(135, verdict("contention", "a->b")))),
    ),
    ("did not end", msgspec.structs.replace(TRIAL, finished=False)),
    (
        "a wrong result",
        msgspec.structs.replace(
            TRIAL,
            records=(*TRIAL.records, StepRecord(rank=0, step=9, start_ns=0, end_ns=1, wrong=2)),
        ),
    ),
    (
        "a connection lost",
        msgspec.structs.replace(
            TRIAL,
            records=(
                *TRIAL.records,
                RankFailed(rank=0, at_ns=1, step=9, error="x", connection_lost=True),
            ),
        ),
    ),
]


@pytest.mark.parametrize("trial", [each for _, each in BAD], ids=[name for name, _ in BAD])
def test_what_did_not_go_as_claimed_is_said(trial: SlowTrial) -> None:
    assert not make_report(trial).held


@pytest.mark.parametrize(
    ("verdicts", "named"),
    [
        ((), False),
        ((verdict("slow-flow", ONE),), True),
        ((verdict("slow-flow", ONE), verdict("slow-flow", "h1/rail0:1>h2/rail0:2")), False),
        ((verdict("contention", ONE),), False),
        ((verdict("undetermined", ONE),), False),
    ],
)
def test_a_flow_is_named_by_its_name_and_class_alone(
    verdicts: tuple[NamedFlow, ...], named: bool
) -> None:
    assert is_named(look(1, *verdicts), NAMES) is named


def test_files(tmp_path: Path) -> None:
    made = make_report(TRIAL)
    report = save(made, make_chart(TRIAL, made), TRIAL, tmp_path)
    assert {Path(each).suffix for each in report.files} == {".png", ".svg", ".json"}
    assert ONE in (tmp_path / "slow-job.svg").read_text().replace("&gt;", ">")
    again = msgspec.json.decode((tmp_path / "slow-job.trial.json").read_bytes(), type=SlowTrial)
    assert make_report(again) == make_report(TRIAL)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "3mbit"), "less than 2.5mbit"),
        (("--to", "slow"), "not a rate"),
        (("--quiet", "0s"), "up to an hour"),
        (("--limit", "2h"), "up to an hour"),
        (("--lab", "no-such-lab"), "no-such-lab"),
    ],
)
def test_bad_orders_are_one_line(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = words if words[0] != "--lab" else (*words, "--job", "builtin-all-to-all")
    assert cli.run(["lab", "drill", "slow-job", *given]) != 0
    printed = capsys.readouterr()
    assert said in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out


def test_one_flow_is_shaped_by_its_ports_over_either_family() -> None:
    port = make_plan(FabricSpec()).link("h0/rail0").a
    lines = flow_shaper_lines(port, 3, (40_000, 29_600), 2_000_000)
    matches = [line for line in lines if line.startswith("filter")]
    assert ["protocol ip " in matches[0], "protocol ipv6 " in matches[1]] == [True, True]
    for line in matches:
        assert "sport 40000 0xffff" in line
        assert "dport 29600 0xffff" in line
        assert line.endswith("flowid 103:2")
    assert "rate 2000000bit" in lines[2]
    assert flow_shaper_end(port, 3) == "qdisc del dev rail0 parent 1:1 handle 103:"


@pytest.mark.lab
def test_a_slow_flow_is_named_while_its_job_runs(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        unshare_argv()
    except MissingError as error:
        pytest.skip(f"no lab here: {error}: this drill is NOT tested")
    words = ("slow-job", "--job", "builtin-all-to-all", "--quiet", "5s", "--limit", "5m", "--json")
    cli.run(["lab", "drill", *words])
    found = json.loads(capsys.readouterr().out)
    print(found)
    assert found["named_s"] is not None
    assert found["verdict"].startswith("slow-flow h")
    assert (found["flows"], found["wrong"], found["lost"], found["ended"]) == (12, 0, 0, True)
    assert found["slow_ms"] > 10 * found["siblings_ms"]
