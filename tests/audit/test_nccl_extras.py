"""Rails, other operations, SHARP: judged by figures, and run with stand-in binaries; several local
ranks with real gloo.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.audit.test_nccl import DEVICE, LOG, MPIRUN, TABLE, report

from syntony.audit.nccl.extras import in_network, operation, operations, rails
from syntony.audit.nccl.judge import NcclRun, NcclTerms, judge
from syntony.audit.nccl.log import parse_log
from syntony.audit.nccl.output import parse_output, parse_report
from syntony.audit.nccl.plan import Case, NcclJob, cases
from syntony.audit.result import Result, Status, Suspect
from syntony.cli import run
from syntony.errors import InputError, MissingError, RemoteError, UsageError
from syntony.io.audit.collective import count_gpus, finish, run_torch
from syntony.io.audit.ranks import LocalRanks
from syntony.lab.jobs.torch_build import find_torch

HOSTS = ("gpu000", "gpu001", "gpu002", "gpu003")
JOB = NcclJob(binary="/opt/nccl-tests/all_reduce_perf", launcher="mpirun", gpus=8)
CASE = Case(8, ordered=False)
SHARP = """\
gpu000:101:150 [0] NCCL INFO NCCL version 2.21.5+cuda12.4
gpu000:101:150 [0] NCCL INFO Using network SHARP
gpu000:101:150 [0] NCCL INFO CollNet 00/0 : 8 [receive] via COLLNET/SHARP/0/GDRDMA
gpu000:101:150 [0] NCCL INFO CollNet 01/0 : 8 [send] via COLLNET/SHARP/1/GDRDMA
"""


def done(
    busbw: float, *, log: str = "", wrong: int = 0, device: str = DEVICE, hosts: Any = HOSTS
) -> NcclRun:
    output = parse_report(report(busbw, wrong=wrong, device=device))
    return NcclRun(case=CASE, hosts=hosts, output=output, log=parse_log(log))


BROKEN = NcclRun(case=CASE, hosts=HOSTS, trouble="exit status 3: unhandled cuda error", broke=True)
NOT_STARTED = NcclRun(case=CASE, hosts=HOSTS, trouble="mpirun: No such file")


def rows(results: Iterable[Result]) -> list[tuple[Status, str]]:
    return [(each.status, each.subject) for each in results]


def fleet_with(slow_rail: int | None) -> Any:
    def start(job: NcclJob) -> NcclRun:
        assert job.environment.get("NCCL_TESTS_SPLIT") in {None, "MOD 8"}
        chosen = job.environment.get("CUDA_VISIBLE_DEVICES")
        if chosen is not None:
            assert job.gpus == 1
            return done(20.0 if chosen == str(slow_rail) else 47.0)
        slowest = job.more == ("-a", "3")
        return done(20.0 if slowest and slow_rail is not None else 46.5)

    return start


def test_even_rails_take_two_runs() -> None:
    requested: list[NcclJob] = []

    def start(job: NcclJob) -> NcclRun:
        requested.append(job)
        run_: NcclRun = fleet_with(None)(job)
        return run_

    assert rows(rails(JOB, start, "4 hosts")) == [(Status.PASS, "4 hosts")]
    assert [job.more for job in requested] == [(), ("-a", "3")]


def test_the_slow_rail_is_named() -> None:
    found = list(rails(JOB, fleet_with(5), "4 hosts"))
    assert rows(found) == [(Status.FAIL, "4 hosts"), (Status.FAIL, "rail 5")]
    assert "20 GB/s alone" in found[1].got


def test_rails_that_are_all_slow_are_below_the_floor() -> None:
    found = list(rails(JOB, lambda _: done(20.0), "4 hosts"))
    assert rows(found) == [(Status.FAIL, "4 hosts")]
    assert "42.5 GB/s" in found[0].expected


@pytest.mark.parametrize(("run_", "status"), [(BROKEN, Status.FAIL), (NOT_STARTED, Status.UNKNOWN)])
def test_a_run_without_figures_is_no_pass(run_: NcclRun, status: Status) -> None:
    for extra in (rails, in_network):
        assert rows(extra(JOB, lambda _: run_, "x")) == [(status, "x")]
    assert {s for s, _ in rows(operations(JOB, lambda _: run_, "x"))} == {status}


def test_operations_are_held_against_what_limits_them() -> None:
    reached = {"all_gather": 350.0, "reduce_scatter": 300.0, "alltoall": 44.0, "sendrecv": 20.0}

    def start(job: NcclJob) -> NcclRun:
        return done(reached[Path(job.binary).name.removesuffix("_perf")])

    assert rows(operations(JOB, start, "f")) == [
        (Status.PASS, "f/all_gather"), (Status.WARN, "f/reduce_scatter"),
        (Status.PASS, "f/alltoall"), (Status.WARN, "f/sendrecv"),
    ]  # fmt: skip
    found = list(operations(JOB, lambda _: done(900.0, wrong=1), "f"))
    assert {(each.status, each.suspect) for each in found} == {(Status.FAIL, Suspect.GPU)}
    unknown = operations(JOB, lambda _: done(900.0, device="Other"), "f")
    assert {each.status for each in unknown} == {Status.UNKNOWN}
    assert operation(JOB, "alltoall").binary == "/opt/nccl-tests/alltoall_perf"
    with pytest.raises(UsageError, match="does not give the path"):
        operation(NcclJob(binary="my_test", launcher="none", gpus=1), "alltoall")


@pytest.mark.parametrize(
    ("log", "on", "status"),
    [(SHARP, 420.0, Status.PASS), (SHARP, 200.0, Status.WARN), (LOG, 420.0, Status.FAIL),
     ("", 420.0, Status.UNKNOWN)],
)  # fmt: skip
def test_sharp_is_used_and_helps(log: str, on: float, status: Status) -> None:
    def start(job: NcclJob) -> NcclRun:
        requested = job.environment["NCCL_COLLNET_ENABLE"]
        return done(on, log=log) if requested == "1" else done(365.0, log=LOG)

    (found,) = in_network(JOB, start, "x")
    assert found.status is status, found
    if status is Status.FAIL:
        assert "ibv_modify_qp" in found.evidence  # NCCL's own warning


# --- the whole command, with stand-ins that print recorded outputs ---

STAND_IN = """#!/bin/sh
for word; do test "$take" = 1 && { file=$word; take=; }; test "$word" = -J && take=1; done
echo "$(basename "$0") $NCCL_TESTS_SPLIT $NCCL_COLLNET_ENABLE $*" >> "$REPORTS/asked"
report=good
case "$*" in *"-a 3"*) report=slow-rail;; esac
test -n "$CUDA_VISIBLE_DEVICES" && { report=rail; test "$CUDA_VISIBLE_DEVICES" = 3 && report=slow-rail; }
test -n "$NCCL_TESTS_SPLIT" && test $report = good && report=rail
case "$(basename "$0")" in alltoall_perf|sendrecv_perf) report=rail;; esac
cat "$REPORTS/$report" > "$file"
cat "$REPORTS/log"
test "$NCCL_COLLNET_ENABLE" = 1 && cat "$REPORTS/sharp"
exit 0
"""  # noqa: E501


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")
    texts = {f"{name}_perf": STAND_IN for name in programs} | {"mpirun": MPIRUN}
    for name, text in texts.items():
        file = tmp_path / name
        file.write_text(text)
        file.chmod(0o755)
    for name, busbw in (("good", 365.0), ("rail", 47.0), ("slow-rail", 21.0)):
        (tmp_path / name).write_text(report(busbw))
    (tmp_path / "log").write_text(LOG.partition("gpu001:101:150")[0])
    (tmp_path / "sharp").write_text(SHARP)
    monkeypatch.setenv("REPORTS", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_the_whole_command(stand_ins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--hosts", ",".join(HOSTS), "--qps", "8", "--runs", "1", "--rails", "--ops", "--sharp"]
    assert run(["audit", "nccl", *words, "--json"]) == 2
    reported = json.loads(capsys.readouterr().out)
    found = {(each["check"], each["subject"]): each["status"] for each in reported}
    assert found["nccl.rails", "4 hosts"] == "fail"
    assert found["nccl.rails", "rail 3"] == "fail"
    assert found["nccl.sharp", "4 hosts"] == "pass"
    assert {found["nccl.ops", f"4 hosts/{name}"] for name in ("all_gather", "alltoall")} == {"pass"}
    requested = (stand_ins / "asked").read_text()
    assert "all_reduce_perf MOD 8" in requested
    assert "sendrecv_perf" in requested


@pytest.mark.parametrize(
    "words", [["--local", "2", "--ops"], ["--hosts", "a", "--launcher", "none", "--rails"]]
)
def test_extras_that_make_no_sense_are_one_line(
    words: list[str], stand_ins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", "nccl", *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


# --- hostile logs ---

_SCRAPS = st.lists(
    st.sampled_from([*LOG.splitlines(), *SHARP.splitlines(), *TABLE.splitlines(), "\x00", "ü" * 40,
                     "gpu000:1:1 [0] NCCL INFO Channel 00/0 : 1[1] -> 8[0] via", "NCCL WARN",
                     "gpu000:1:1 [0] NCCL INFO NET/IB : Using " + "[0]a:1/RoCE " * 200,
                     "gpu0:1:1 [0] NCCL INFO CollNet 1/2 : 3 via COLLNET/", "nan", "1e999"]),
    max_size=30,
).map("\n".join)  # fmt: skip


@settings(max_examples=60)
@given(logs=st.lists(_SCRAPS, min_size=8, max_size=8), tables=st.lists(_SCRAPS, max_size=8))
def test_eight_cases_with_hostile_logs_end_in_verdicts(logs: list[str], tables: list[str]) -> None:
    runs = []
    for number, case in enumerate(cases()):
        text = tables[number] if number < len(tables) else TABLE
        log = parse_log(logs[number])
        try:
            output = parse_output("", text)
        except InputError as error:
            runs.append(NcclRun(case=case, hosts=HOSTS, log=log, trouble=str(error)))
            continue
        runs.append(NcclRun(case=case, hosts=HOSTS, output=output, log=log))
    results = {each.check: each for each in judge(runs, NcclTerms())}
    broken = {run_.case.check for run_ in runs if run_.output is None}
    assert all(results[check].status is not Status.PASS for check in broken)
    assert "nccl.diagnosis" in results


# --- several ranks on a host ---


@pytest.fixture(scope="module")
def torch() -> LocalRanks:
    try:
        return LocalRanks(find_torch())
    except MissingError as missing:
        pytest.skip(f"{missing}: ranks on one host are NOT tested")


def test_a_host_has_a_rank_for_each_gpu(torch: LocalRanks) -> None:
    ended = run_torch(CASE, ("a", "b"), torch, (1 << 16, 1 << 16, 2), 90, per_host=2)
    assert ended.trouble == ""
    assert ended.output is not None
    assert [host for host, _ in ended.output.ranks] == ["a", "a", "b", "b"]
    assert ended.output.hosts == ("a", "b")
    assert ended.output.wrong == 0


def test_a_local_rank_that_fails_ends_its_host(torch: LocalRanks) -> None:
    reported = {"SYNTONY_LOCAL_RANKS": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1",
            "SYNTONY_COLLECTIVE_TIMEOUT_S": "1"}  # fmt: skip
    (ended,) = finish([torch.rank("a", ["0", "4", "65536", "65536", "1"], reported)], 60)
    assert ended.trouble.startswith("exit status 1")


def test_gpus_are_counted_by_torch_itself(torch: LocalRanks) -> None:
    assert count_gpus(("a",), torch)["a"] >= 0
    with pytest.raises(RemoteError, match="could not be counted"):
        count_gpus(("a",), LocalRanks("/bin/true"))
