"""NCCL: outputs and logs as published, the diagnosis matrix, and real runs of a stand-in binary."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.audit.nccl.diagnosis import diagnose, floor_of
from syntony.audit.nccl.judge import NcclRun, NcclTerms, judge
from syntony.audit.nccl.log import parse_log
from syntony.audit.nccl.output import parse_output, parse_report, parse_table
from syntony.audit.nccl.plan import Case, NcclJob, cases, command, flat_order, ordered
from syntony.audit.result import Result, Status
from syntony.cli import run
from syntony.errors import InputError, MissingError, UsageError
from syntony.io.audit.collective import RankCommand, finish, run_torch
from syntony.io.audit.ranks import LocalRanks, SshRanks
from syntony.lab.jobs.torch_build import find_torch

DEVICE = "NVIDIA H100 80GB HBM3"
TABLE = """\
# nccl-tests version 2.17.1 nccl-headers=22809 nccl-library=22809
# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 17179869184 step: 2(factor) warmup iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid   6899 on gpu000 device  0 [0000:04:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   6900 on gpu001 device  1 [0000:05:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1073741824     268435456     float     sum      -1   5502.0  195.16  365.92       0   5498.9  195.26  366.12       0
gpu000:1:1 [0] NCCL INFO Connected all rings
 17179869184    4294967296     float     sum      -1    87040  197.38  370.09       0    86990  197.49  370.30       2
# Out of bounds values : 2 FAILED
# Avg bus bandwidth    : 368.11
#
"""  # noqa: E501
LOG = """\
gpu000:101:101 [0] NCCL INFO NCCL version 2.21.5+cuda12.4
gpu000:101:140 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
gpu001:101:140 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.2<0>
gpu000:101:140 [0] NCCL INFO Using network IB
gpu000:101:140 [0] NCCL INFO NCCL_IB_QPS_PER_CONNECTION set by environment to 4.
gpu000:101:150 [0] NCCL INFO Channel 00/0 : 1[1] -> 8[0] [receive] via NET/IB/0/GDRDMA
gpu000:101:150 [0] NCCL INFO Channel 00/0 : 0[0] -> 9[1] [send] via NET/IB/1
gpu000:101:150 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
gpu001:101:150 [0] misc/ibvwrap.cc:262 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out
"""  # noqa: E501


def report(*busbw: float, wrong: int | None = 0, device: str = DEVICE, ranks: int = 4) -> str:
    """As nccl-tests write it (file version 2)."""
    parts = [
        {"time": 1.0, "alg_bw": bw, "bus_bw": bw, "nwrong": wrong} for bw in busbw
    ]  # fmt: skip
    devices = [
        {"rank": n, "group": 0, "pid": 1, "hostname": f"gpu{n:03}", "device": 0,
         "device_hex": "0000:04:00", "device_info": device}
        for n in range(ranks)
    ]  # fmt: skip
    results = [
        {"size": 1 << (30 + n), "count": 1, "type": "float", "redop": "sum", "root": "    -1",
         "out_of_place": part, "in_place": part, "actual_iterations": 20}
        for n, part in enumerate(parts)
    ]  # fmt: skip
    return json.dumps(
        {
            "version": 2, "nccl_version": 22105, "config": {"ngpus": 1, "devices": devices},
            "results": results, "out_of_bounds": {"count": wrong or 0, "okay": "true"},
            "average_bus_bandwidth": {"bandwidth": sum(busbw) / len(busbw), "okay": "unchecked"},
            "errors": [""],
        }
    )  # fmt: skip


def test_the_table_and_the_report_say_the_same() -> None:
    table = parse_table(TABLE)
    assert [row.out_of_place for row in table.rows] == [365.92, 370.09]
    assert (table.peak, table.average, table.wrong) == (370.30, 368.11, 2)
    assert (table.hosts, table.device) == (("gpu000", "gpu001"), DEVICE)
    reported = parse_report(report(365.0, 370.0))
    assert (reported.peak, reported.wrong, reported.device, len(reported.hosts)) == (
        370.0,
        0,
        DEVICE,
        4,
    )
    assert parse_report(report(1.0, wrong=None)).wrong is None
    assert parse_output("", TABLE) == table


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not-nccl-tests"), ("{", "not-nccl-tests"), ("[]", "not-nccl-tests"),
        ('{"results": 3}', "not-nccl-tests"), ('{"results": []}', "cut-off"),
        (report(1.0).replace("average_bus_bandwidth", "x"), "cut-off"),
        (report(1.0)[:-40], "not-nccl-tests"), (report(1.0).replace("1.0", "inf"), "not-nccl"),
    ],
)  # fmt: skip
def test_a_broken_report_is_named(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_report(text)
    with pytest.raises(InputError, match="not-nccl-tests"):
        parse_table(text)


def test_a_run_without_checks_has_speeds_and_no_count_of_errors() -> None:
    """nccl-tests with `-c 0` print N/A for the count; of a speed it is no result."""
    unchecked = "1073741824 268435456 float sum -1 5502.0 195.16 {} N/A 5498.9 195.26 366.12 N/A\n"
    table = parse_table(unchecked.format("365.92") + "# Avg bus bandwidth : 366.02\n")
    assert (table.peak, table.average, table.wrong) == (366.12, 366.02, None)
    with pytest.raises(InputError, match="no line of results"):
        parse_table(unchecked.format("N/A") + "# Avg bus bandwidth : 366.02\n")


def test_a_table_that_ends_early_is_no_result() -> None:
    with pytest.raises(InputError, match="cut-off"):
        parse_table(TABLE.partition("# Out of")[0])


@settings(max_examples=60)
@given(cut=st.integers(0, 2000), junk=st.text(max_size=9), place=st.integers(0, 2000))
def test_garbled_outputs_end_in_a_result_or_a_named_error(cut: int, junk: str, place: int) -> None:
    for text in (TABLE, report(1.0, 2.0), LOG):
        for garbled in (text[:cut], text[:place] + junk + text[place:]):
            parse_log(garbled)
            for parse in (parse_report, parse_table):
                try:
                    assert parse(garbled).rows
                except InputError:
                    continue


def test_the_log_tells_the_path() -> None:
    log = parse_log(LOG)
    assert log.networks == ("IB",)
    assert log.nics == {"gpu000": ("mlx5_0:1", "mlx5_1:1"), "gpu001": ("mlx5_0:1",)}
    assert log.layers == ("RoCE",)
    assert log.channels == {"NET/IB/GDRDMA": 1, "NET/IB": 1, "P2P/CUMEM/read": 1}
    assert (log.between_hosts, log.direct) == (2, 1)
    assert log.settings == {"NCCL_IB_QPS_PER_CONNECTION": "4"}
    assert log.versions == ("2.21.5",)
    assert "ibv_modify_qp failed" in log.warnings[0]


FLAT, HIER = [frozenset(c for c in cases() if c.ordered is way) for way in (False, True)]
ALL = frozenset(cases())
MATRIX = {
    "nothing low": ((), {}, None),
    "sockets": (ALL, {"sockets": True}, "TCP sockets"),
    "all low": (ALL, {"direct": True}, "a host, its NICs"),
    "all low, no GDR": (ALL, {"direct": False}, "GPUDirect"),
    "flat low": (FLAT, {}, "leaves and spines"),
    "few queue pairs, flat": ({Case(1, False), Case(2, False)}, {}, "ECMP"),
    "few queue pairs, both": ({Case(1, False), Case(1, True)}, {}, "ECMP"),
    "ordered low": (HIER, {}, "not the cabling's"),
    "odd": ({Case(4, False), Case(8, True), Case(8, False)}, {}, "no known pattern"),
}


@pytest.mark.parametrize("name", MATRIX)
def test_the_diagnosis_matrix(name: str) -> None:
    low, more, says = MATRIX[name]
    verdict = diagnose(ALL, frozenset(low), **more)
    assert (verdict is None) if says is None else (verdict is not None and says in verdict.says)


def test_floors_by_node_type_and_number_of_nodes() -> None:
    def gbytes(device: str, nodes: int) -> float | None:
        floor = floor_of(device, nodes)
        return floor.gbytes if floor else None

    assert [gbytes(DEVICE, nodes) for nodes in (1, 2, 3, 4, 900)] == [460, 440, 440, 340, 340]
    assert gbytes("NVIDIA A100-SXM4-80GB", 2) == 185
    assert gbytes("Some Other GPU", 4) is None


def test_orders_and_commands() -> None:
    groups = {f"h{n}": f"leaf{n // 2}" for n in range(6)}
    mixed = ("h4", "h0", "h2", "h1", "h5", "h3")
    assert ordered(mixed, groups) == ("h0", "h1", "h2", "h3", "h4", "h5")
    assert flat_order(mixed, groups) == mixed
    assert flat_order(tuple(groups), groups) == ("h0", "h2", "h4", "h1", "h3", "h5")
    job = NcclJob(binary="all_reduce_perf", launcher="mpirun", gpus=8)
    words = command(Case(4, False), job, ("a", "b"), "r.json")
    assert words[:5] == ("mpirun", "--host", "a:8,b:8", "-np", "16")
    assert "NCCL_IB_QPS_PER_CONNECTION=4" in words
    assert words[-2:] == ("-J", "r.json")
    with pytest.raises(UsageError, match="several hosts"):
        command(Case(1, False), NcclJob(binary="x", launcher="none", gpus=8), ("a", "b"), "r")
    remote = SshRanks("python3", "eth0").rank("u@gpu7", ["0", "2"], {"A": "b; rm -rf /"})
    assert remote.argv[0] == "ssh"
    assert remote.argv[-3:-1] == ("--", "u@gpu7")
    assert "'A=b; rm -rf /'" in remote.argv[-1]


def verdicts(results: tuple[Result, ...]) -> dict[str, Status]:
    return {result.check: result.status for result in results}


def runs(busbw: dict[Case, float], log: str = LOG, wrong: int = 0) -> list[NcclRun]:
    hosts = ("gpu000", "gpu001", "gpu002", "gpu003")
    return [
        NcclRun(
            case=case, hosts=hosts, output=parse_report(report(bw, wrong=wrong)), log=parse_log(log)
        )
        for case, bw in busbw.items()
    ]


def test_verdicts_of_a_good_and_of_a_bad_fleet() -> None:
    clean = "\n".join(
        line for line in LOG.splitlines() if "WARN" not in line and "via NET/IB/1" not in line
    )
    good = judge(
        runs(dict.fromkeys(cases(), 365.0), clean.replace(" [1]mlx5_1:1/RoCE", "")), NcclTerms()
    )
    assert {s for c, s in verdicts(good).items() if c not in {"nccl.path", "nccl.tail"}} == {
        Status.PASS
    }
    low = {case: (190.0 if case.qps == 1 else 365.0) for case in cases()}
    reported = verdicts(judge(runs(low), NcclTerms()))
    assert reported["nccl.1qp"] is reported["nccl.1qp-hier"] is Status.FAIL
    assert reported["nccl.8qp"] is Status.PASS
    assert reported["nccl.diagnosis"] is Status.FAIL
    said = {r.subject: r for r in judge(runs(low), NcclTerms()) if r.check == "nccl.path"}
    assert said["gpu001"].got == "1 NICs"
    wrong = verdicts(judge(runs({Case(1, False): 365.0}, wrong=3), NcclTerms()))
    assert wrong["nccl.correct"] is Status.FAIL
    sockets = verdicts(judge(runs({Case(1, False): 9.0}, LOG.replace("work IB", "work Socket")), NcclTerms()))  # fmt: skip  # noqa: E501
    assert sockets["nccl.path"] is not Status.PASS


def test_without_a_floor_or_an_output_nothing_passes() -> None:
    hosts = ("a", "b", "c", "d")
    odd = NcclRun(case=Case(1, False), hosts=hosts, output=parse_report(report(9.0, device="Odd")))
    assert verdicts(judge([odd], NcclTerms()))["nccl.1qp"] is Status.UNKNOWN
    absent = NcclRun(case=Case(1, False), hosts=hosts, trouble="mpirun: No such file")
    assert verdicts(judge([absent], NcclTerms()))["nccl.1qp"] is Status.UNKNOWN
    hung = NcclRun(case=Case(1, False), hosts=hosts, trouble="no end after 300 s", broke=True)
    reported = verdicts(judge([hung, odd], NcclTerms(floor=1)))
    assert reported["nccl.1qp"] is Status.FAIL
    assert verdicts(judge([hung], NcclTerms()))["nccl.diagnosis"] is Status.UNKNOWN


STAND_IN = """#!/bin/sh
# nccl-tests as recorded: the figure depends on the number of queue pairs.
for word; do test "$take" = 1 && { file=$word; take=; }; test "$word" = -J && take=1; done
case $NCCL_IB_QPS_PER_CONNECTION in 1) cat "$REPORTS/low";; *) cat "$REPORTS/good";; esac > "$file"
cat "$REPORTS/log"
exit ${STAND_IN_EXIT:-0}
"""
MPIRUN = """#!/bin/sh
# A launcher that knows -x, and starts one program.
while :; do case $1 in
-x) export "$2"; shift 2;; --host|-np|--map-by|--bind-to) shift 2;; *) exec "$@";;
esac; done
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("all_reduce_perf", STAND_IN), ("mpirun", MPIRUN)):
        file = tmp_path / name
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "low").write_text(report(185.0, 190.0))
    (tmp_path / "good").write_text(report(360.0, 365.0))
    (tmp_path / "log").write_text(LOG)
    monkeypatch.setenv("REPORTS", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def nccl(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]]]:
    code = run(["audit", "nccl", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


HOSTS = "gpu000,gpu001,gpu002,gpu003"


def test_the_whole_command_with_recorded_outputs(
    stand_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, reported = nccl(capsys, "--hosts", HOSTS, "--runs", "2")
    by_check = {result["check"]: result for result in reported}
    assert code == 2
    assert (by_check["nccl.1qp"]["status"], by_check["nccl.1qp"]["got"]) == ("fail", "190 GB/s")
    assert by_check["nccl.8qp"]["status"] == "pass"
    assert "ECMP" in by_check["nccl.diagnosis"]["meaning"]
    assert by_check["nccl.1qp-hier"]["status"] == "skip"


@pytest.mark.parametrize(
    ("break_it", "status", "why"),
    [
        (lambda d: (d / "good").write_text("{"), "unknown", "not JSON"),
        (lambda d: (d / "good").write_text(""), "unknown", "no line of results"),
        (
            lambda d: (d / "all_reduce_perf").write_text("#!/bin/sh\nexit 3\n"),
            "fail",
            "status 3",
        ),
        (
            lambda d: (d / "all_reduce_perf").write_text("#!/bin/sh\nsleep 60\n"),
            "fail",
            "no end",
        ),
    ],
)
def test_what_goes_wrong_is_never_a_pass(
    break_it: Any, status: str, why: str, stand_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    break_it(stand_in)
    (stand_in / "log").write_text("")
    timeout = "1" if why == "no end" else "600"
    ended, reported = nccl(
        capsys, "--hosts", HOSTS, "--qps", "2", "--runs", "1", "--timeout", timeout
    )  # fmt: skip
    case = next(result for result in reported if result["check"] == "nccl.2qp")
    assert (case["status"], ended) == (status, 2 if status == "fail" else 3)
    assert why in case["evidence"]


def test_the_hunt_names_the_host_that_is_low(
    stand_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stand_in / "mpirun").write_text(
        MPIRUN.replace("--host|", "--host) case $2 in *gpu005*) export BAD=1;; esac; shift 2;; ")
    )
    (stand_in / "all_reduce_perf").write_text(
        STAND_IN.replace("case $NCCL_IB_QPS_PER_CONNECTION in 1)", "case $BAD in 1)")
    )
    hosts = ",".join(f"gpu{n:03}" for n in range(8))
    code, reported = nccl(capsys, "--hosts", hosts, "--qps", "4", "--runs", "1", "--hunt")
    assert code == 2
    hunted = [result for result in reported if result["check"] == "nccl.hunt"]
    assert [(result["subject"], result["suspect"]) for result in hunted] == [("gpu005", "host")]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--hosts", "a", "--local", "2"],
        ["--hosts", "-x"],
        ["--hosts", "@/nonexistent"],
        ["--local", "2", "--engine", "nccl-tests"],
    ],
)
def test_wrong_orders_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "nccl", *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_programs_are_ended_when_one_fails() -> None:
    sleeper = RankCommand(("sleep", "60"), {})
    ended = finish([sleeper, RankCommand(("false",), {})], 30)
    assert ended[1].trouble.startswith("exit status 1")
    assert finish([RankCommand(("nonexistent-program",), {})], 1)[0].started is False


def test_gloo_really_runs_as_a_test_of_the_cpu_fabric() -> None:
    try:
        python = find_torch()
    except MissingError as missing:
        pytest.skip(f"{missing}: a run of gloo is NOT tested")
    where = LocalRanks(python)
    done = run_torch(Case(1, False), ("a", "b"), where, (1 << 16, 1 << 17, 3), 60)
    assert done.trouble == ""
    assert done.output is not None
    assert [row.size for row in done.output.rows] == [1 << 16, 1 << 17]
    assert (done.output.wrong, done.output.hosts) == (0, ("a", "b"))
    assert done.output.peak > 0
    assert done.output.tail >= 1


_OLD = """# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20
#   Rank  0 Pid  23311 on   gpu001 device  0 [0x07] NVIDIA A100-SXM4-40GB
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   536870912     134217728   float     sum   4325.9  124.11  232.70  5e-07   4323.0  124.19  232.86  5e-07
  1073741824     268435456   float     sum   8410.1  127.67  239.38  5e-07   8412.3  127.64  239.32  5e-07
# Out of bounds values : {wrong} {word}
# Avg bus bandwidth    : 236.06
"""  # noqa: E501 - as it is printed


@pytest.mark.parametrize("wrong", [0, 3])
def test_tables_without_a_root(wrong: int) -> None:
    """nccl-tests before 2.8: no column for the root, a deviation instead of a count."""
    output = parse_output("", _OLD.format(wrong=wrong, word="FAILED" if wrong else "OK"))
    assert [row.size for row in output.rows] == [1 << 29, 1 << 30]
    assert output.peak == 239.38
    assert output.wrong == wrong


@given(cells=st.lists(st.text(alphabet="0123456789.e+-NA/ #\t", max_size=8), max_size=16))
def test_tables_of_any_kind(cells: list[str]) -> None:
    with contextlib.suppress(InputError):
        parse_output("", " ".join(cells) + "\n# Avg bus bandwidth : 1")
