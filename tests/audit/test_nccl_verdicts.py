"""From NCCL runs made up by hand to verdicts, each from both sides; amounts near each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from syntony.audit.checks.gpu_speed import _copy_floor
from syntony.audit.majority import Votes
from syntony.audit.nccl.judge import NcclRun, NcclTerms, judge
from syntony.audit.nccl.log import NcclLog
from syntony.audit.nccl.output import Output, SizeResult
from syntony.audit.nccl.plan import Case
from syntony.audit.parse.bandwidth import D2H, H2D, P2P
from syntony.audit.result import Result, Status

H100 = "NVIDIA H100 80GB HBM3"
HOSTS = ("h0", "h1", "h2", "h3")
CASE = Case(qps=4, ordered=False)
P, F, W, U, S = Status.PASS, Status.FAIL, Status.WARN, Status.UNKNOWN, Status.SKIP


def output(busbw: float, *, wrong: int | None = 0, tail: float = 0.0) -> Output:
    row = SizeResult(size=1 << 30, out_of_place=busbw, in_place=busbw / 2, wrong=wrong,
              p50_us=100.0 if tail else 0.0, p99_us=100.0 * tail)  # fmt: skip
    return Output(rows=(row,), average=busbw, wrong=wrong,
                  ranks=tuple((host, H100) for host in HOSTS))  # fmt: skip


def log(
    networks: tuple[str, ...] = ("IB",), channels: Mapping[str, int] | None = None,
    *, nics: int = 8, qps: str = "4", odd: str = "", warnings: tuple[str, ...] = (),
) -> NcclLog:  # fmt: skip
    cards = {host: tuple(f"mlx5_{k}:1" for k in range(nics - (host == odd))) for host in HOSTS}
    reported = {"NET/IB/GDRDMA": 64} if channels is None else channels
    settings = {"NCCL_IB_QPS_PER_CONNECTION": qps} if qps else {}
    return NcclLog(networks, cards, ("IB",), dict(reported), settings, ("2.21.5",), warnings)


def run(busbw: float = 350.0, *, of: NcclLog | None = None, hosts: int = 4, **more: Any) -> NcclRun:
    made = output(busbw, **{k: v for k, v in more.items() if k in {"wrong", "tail"}})
    rest = {k: v for k, v in more.items() if k not in {"wrong", "tail"}}
    return NcclRun(**{"case": CASE, "hosts": HOSTS[:hosts], "output": made, "log": of, **rest})


def reported(*runs: NcclRun, **terms: Any) -> dict[str, Result]:
    return {each.check: each for each in judge(runs, NcclTerms(**terms))}


@pytest.mark.parametrize(
    ("figures", "floor", "status"),
    [
        ((340.0,), None, P), ((339.9,), None, F), ((200.0,), 200.0, P), ((199.9,), 200.0, F),
        ((400.0, 410.0, 420.0), None, P), ((400.0, 410.0, 421.0), None, W),
        ((400.0, 300.0, 500.0), None, W), ((300.0, 300.0, 500.0), None, F),
    ],
)  # fmt: skip
def test_a_case_is_its_median_beside_the_floor_and_its_spread(
    figures: tuple[float, ...], floor: float | None, status: Status
) -> None:
    found = reported(*map(run, figures), floor=floor)
    assert found["nccl.4qp"].status is status
    assert found["nccl.diagnosis"].status is (F if status is F else P)


def test_a_device_without_a_floor_is_unknown_and_small_fleets_are_told() -> None:
    other = output(350.0)
    strange = Output(rows=other.rows, average=350.0, wrong=0, ranks=(("h0", "Other"),))
    found = reported(NcclRun(case=CASE, hosts=HOSTS, output=strange))
    assert found["nccl.4qp"].status is U
    assert "no floor is known for Other on 4 hosts" in found["nccl.4qp"].evidence
    assert reported(run())["nccl.size"].status is P
    assert reported(run(460.0, hosts=3))["nccl.size"].status is W


@pytest.mark.parametrize(
    ("broke", "status"), [(True, F), (False, U)]
)  # a job that hung, and one that could not be started
def test_a_run_without_figures(broke: bool, status: Status) -> None:
    failed = NcclRun(case=CASE, hosts=HOSTS, trouble="exit 9", broke=broke)
    assert reported(failed)["nccl.4qp"].status is status
    assert reported(run(), failed)["nccl.4qp"].status is status
    assert reported(run(), failed)["nccl.4qp"].got == "1 of 2 runs failed"
    assert reported(failed)["nccl.diagnosis"].status is U


@pytest.mark.parametrize(
    ("wrong", "status"), [((0, 0), P), ((0, 1), F), ((None, 0), P), ((None, None), U)]
)
def test_results_are_checked(wrong: tuple[int | None, int | None], status: Status) -> None:
    assert reported(*(run(wrong=each) for each in wrong))["nccl.correct"].status is status


@pytest.mark.parametrize(("tail", "status"), [(0.0, S), (1.19, P), (1.2, W)])
def test_iterations_do_not_straggle(tail: float, status: Status) -> None:
    assert reported(run(), run(tail=tail))["nccl.tail"].status is status


@pytest.mark.parametrize("tails", [(1.05, 1.5), (1.5, 1.05)])
def test_the_worst_run_straggles(tails: tuple[float, float]) -> None:
    result = reported(*(run(tail=tail) for tail in tails))["nccl.tail"]
    assert (result.status, result.got) == (W, "1.50")


PART = {"NET/IB/GDRDMA": 60, "NET/IB": 4}


@pytest.mark.parametrize(
    ("of", "statuses"),
    [
        (None, {S}), (NcclLog((), {}, (), {}, {}, (), ()), {U}), (log(), {P}),
        (log(("Socket",), {"NET/Socket": 9}), {F}), (log(channels={"P2P/CUMEM": 9}), {U}),
        (log(channels=PART), {W}), (log(odd="h2"), {F}), (log(qps="1"), {W}),
        (log(qps=""), {P}), (log(warnings=("ibv_modify_qp failed",)), {W}),
    ],
)  # fmt: skip
def test_the_path_that_nccl_took(of: NcclLog | None, statuses: set[Status]) -> None:
    found = judge([run(of=of)], NcclTerms())
    assert {each.status for each in found if each.check == "nccl.path"} == statuses


def test_nics_are_counted_beside_most_hosts_or_what_is_asked_for() -> None:
    (odd,) = (each for each in judge([run(of=log(odd="h2"))], NcclTerms())
              if each.check == "nccl.path")  # fmt: skip
    assert (odd.subject, odd.got, odd.expected) == ("h2", "7 NICs", "8 NICs")
    requested = [each.subject for each in judge([run(of=log())], NcclTerms(nics=9))
             if each.check == "nccl.path"]  # fmt: skip
    assert requested == list(HOSTS)


@pytest.mark.parametrize(
    ("channels", "says"),
    [
        ({"NET/IB/GDRDMA": 1, "NET/IB": 9}, "a host, its NICs"),
        ({"NET/IB": 9}, "no channel uses GPUDirect"), ({"P2P/CUMEM": 9}, "a host, its NICs"),
        ({"NET/Socket": 9}, "TCP sockets"),
    ],
)  # fmt: skip
def test_what_all_low_means_depends_on_the_channels(channels: dict[str, int], says: str) -> None:
    networks = ("Socket",) if "NET/Socket" in channels else ("IB",)
    found = reported(run(100.0, of=log(networks, channels)))
    assert says in found["nccl.diagnosis"].meaning


# --- copies ---


@pytest.mark.parametrize(
    ("model", "direction", "gbytes"),
    [
        (H100, H2D, 48.0), (H100, D2H, 48.0), (H100, P2P, 335.0),
        ("NVIDIA A100-SXM4-80GB", H2D, 23.0), ("NVIDIA A100-SXM4-80GB", P2P, None),
        ("NVIDIA H100 PCIe", H2D, None), ("NVIDIA H100 NVL", H2D, None), ("Other", H2D, None),
    ],
)  # fmt: skip
def test_floors_of_copies_are_for_modules_on_baseboards(
    model: str, direction: str, gbytes: float | None
) -> None:
    floor = _copy_floor(model, direction)
    assert (None if floor is None else floor.gbytes) == gbytes


# --- amounts near each other ---


def votes(*amounts: float) -> Votes[float]:
    made = Votes[float]()
    for number, amount in enumerate(amounts):
        made.add(f"h{number}", amount)
    return made


@pytest.mark.parametrize(
    ("amounts", "value"),
    [
        ((1, 2, 3, 9, 9), 2.0), ((1, 2, 3.01, 9, 9), None), ((0.99, 2, 3, 9, 9), None),
        ((4, 4, 4), 4.0), ((4, 4), None), ((1, 9, 99), None), ((5, 5, 5, 1, 1, 1), None),
        ((5, 5, 5, 5, 1, 1, 1), 5.0), ((-2, -1, -3), -2.0), ((), None),
    ],
)  # fmt: skip
def test_amounts_as_far_as_the_tolerance_are_near(
    amounts: tuple[float, ...], value: float | None
) -> None:
    assert votes(*amounts).decide_amount(0.5).value == value


def test_what_is_no_amount_decides_no_amount() -> None:
    """One host's program prints a word where the others' print a number: it is only outvoted."""
    mixed = Votes[float | str]()
    reported: tuple[float | str, ...] = (7.0, "N/A", 7.1, 7.0, "N/A")
    for number, amount in enumerate(reported):
        mixed.add(f"h{number}", amount)
    assert mixed.decide_amount(0.1).value == 7.0
    assert mixed.decide_amount(0.1).why == "3 of 5 hosts are within 10 %"


def test_of_amounts_with_as_many_near_the_middle_one_is_taken() -> None:
    assert votes(10, 11, 12, 13, 14).decide_amount(0.5).value == 12
    decision = votes(1, 1, 9, 9).decide_amount(0.1)
    assert (decision.value, decision.disputed) == (None, True)
    assert "9.0 on 2" in decision.why
    assert "1.0 on 2" in decision.why
    assert votes(7, 7).decide_amount(0.1).disputed is False, "two who agree are too few, not split"
