"""Edges of parsers, tables and votes of the audit: what counts and what only looks alike."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pytest
from tests.audit.fixture_fleet import judge_all
from tests.audit.paper import PaperHost, Text, check, readings, worst
from tests.audit.test_disputes import plane
from tests.audit.test_judge import host

from syntony.audit.cabling import _dark, misplaced_pairs, pattern, port_gap
from syntony.audit.checks.gpu_speed import COPY_FLOORS, GpuBandwidth, _copy_floor
from syntony.audit.checks.hierarchy import _reported
from syntony.audit.facts import UnreadableError
from syntony.audit.judge import Majority, near
from syntony.audit.learn import _one_line, learn
from syntony.audit.nccl.output import parse_report
from syntony.audit.parse.bandwidth import CopyRate
from syntony.audit.parse.kernel_log import Xid
from syntony.audit.parse.nvidia import (
    _is_float,
    _small,
    parse_nvlink_errors,
    parse_nvlink_status,
    parse_query,
)
from syntony.audit.report.documents import page
from syntony.audit.report.ports import port_of, port_rows
from syntony.audit.report.summary import tree
from syntony.audit.result import ComparedValue, HostReport, Result, Status, Suspect
from syntony.audit.spec import EMPTY, Range, every_key, parse_spec
from syntony.audit.xid import Action, action_of
from syntony.config import toml_key, toml_value
from syntony.errors import InputError
from syntony.model.names import natural

# --- what is read ---


@pytest.mark.parametrize(
    ("result", "row"),
    [
        ({"size": 8, "out_of_place": {"bus_bw": 2.0, "nwrong": 0}, "in_place": {"bus_bw": 3}},
         (8, 2.0, 3.0, 0)),
        ({"size": 8, "in_place": {"bus_bw": 3.0}}, (8, 0.0, 3.0, None)),
        ({"size": 8, "out_of_place": {"nwrong": 1}, "in_place": {"nwrong": 2}}, (8, 0.0, 0.0, 3)),
        ({"size": 8, "out_of_place": {"nwrong": "x", "bus_bw": "nan"}}, (8, 0.0, 0.0, None)),
        ({"size": True, "out_of_place": {"bus_bw": 1}}, None), ({"size": 8}, None),
        ({"size": 8, "out_of_place": {}, "in_place": 5}, None), ({"out_of_place": {"a": 1}}, None),
        (5, None),
    ],
)  # fmt: skip
def test_a_result_has_a_size_and_a_bandwidth(result: Any, row: tuple[Any, ...] | None) -> None:
    text = json.dumps({"results": [result], "average_bus_bandwidth": {"bandwidth": 1.0}})
    if row is None:
        with pytest.raises(InputError, match="not-nccl-tests"):
            parse_report(text)
        return
    output = parse_report(text)
    (found,) = output.rows
    assert (found.size, found.out_of_place, found.in_place, found.wrong) == row
    assert output.wrong == row[3]


def report(**more: Any) -> str:
    result = {"size": 8, "out_of_place": {"bus_bw": 2.0, "nwrong": 1}, "in_place": {"nwrong": 1}}
    average = {"bandwidth": 1.5}
    return json.dumps({"results": [result], "average_bus_bandwidth": average, **more})


@pytest.mark.parametrize(
    ("bounds", "wrong"), [(None, 2), ({"count": 1}, 2), ({"count": 9}, 9), ({"count": "x"}, 2)]
)
def test_as_many_are_wrong_as_the_larger_count_tells(bounds: Any, wrong: int) -> None:
    assert parse_report(report(out_of_bounds=bounds)).wrong == wrong
    assert parse_report(report()).average == 1.5
    assert math.isnan(parse_report(report(average_bus_bandwidth={})).average)
    changes: tuple[dict[str, Any], ...] = (
        {"results": []}, {"average_bus_bandwidth": 1}, {"results": 1},
    )  # fmt: skip
    for change in changes:
        with pytest.raises(InputError):
            parse_report(report(**change))


def test_ranks_and_errors_of_a_report() -> None:
    devices = [{"hostname": "h1", "device_info": " H100 "}, 5, {"hostname": "h2"}]
    found = parse_report(report(config={"devices": devices}, errors=["", "e" * 300, None]))
    assert found.ranks == (("h1", "H100"), ("", ""), ("h2", ""))
    assert found.errors == ("e" * 200,)
    assert found.hosts[0] == "h1"
    assert parse_report(report(config=5, errors=5)).ranks == ()


def test_numbers_that_are_longer_than_any_are_cut() -> None:
    assert _small("123456789") == 123_456_789
    assert _small("1234567899") == 123_456_789
    assert _is_float("26.562")
    assert _is_float("26")
    assert not _is_float("26.")
    assert not _is_float("1234567890")
    assert not _is_float("x")


STATUS = """GPU 0: NVIDIA H100 (UUID: GPU-1)
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
GPU 1: NVIDIA H100 (UUID: GPU-2)
\t Link 17: 26.562 GB/s
"""


def test_links_of_each_gpu() -> None:
    first, second = parse_nvlink_status("Link 5: 1 GB/s\n" + STATUS)
    assert (first.gpu, dict(first.rates), first.down) == (0, {0: 26.562}, (1,))
    assert (second.gpu, dict(second.rates), second.down) == (1, {17: 26.562}, ())
    with pytest.raises(UnreadableError):
        parse_nvlink_status("Link 5: 1 GB/s")
    text = "Link 1: Replay Errors: 9\nGPU 3: X (UUID: G)\n\t Link 2: Replay Errors: 4\n"
    assert list(parse_nvlink_errors(text)) == [(3, 2, "Replay", 4)]


ONE = "<nvidia_smi_log><attached_gpus>1</attached_gpus>"


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        (f"{ONE}<gpu id='00000000:3:0'/></nvidia_smi_log>", ["0000:3:0"]),
        ("<nvidia_smi_log><gpu/></nvidia_smi_log>", ["?"]),
        ("<nvidia_smi_log><attached_gpus>2</attached_gpus><gpu/></nvidia_smi_log>", None),
        ("<nvidia_smi_log><attached_gpus>x</attached_gpus><gpu/></nvidia_smi_log>", ["?"]),
        ("<other/>", None), ("<", None), ("<!DOCTYPE x [<!ENTITY a 'b'>]><nvidia_smi_log/>", None),
    ],
)  # fmt: skip
def test_a_whole_document_of_nvidia_smi(text: str, gpus: list[str] | None) -> None:
    if gpus is None:
        with pytest.raises(UnreadableError):
            parse_query(text)
    else:
        assert [gpu.bus for gpu in parse_query(text).gpus] == gpus


@pytest.mark.parametrize(
    ("code", "word"),
    [(13, "illegal access"), (31, "page fault"), (48, "double-bit"), (63, "row was remapped"),
     (64, "recording a row remapping failed"), (74, "NVLink"), (79, "fallen off the bus"),
     (92, "single-bit"), (94, "contained memory error"), (95, "uncontained"), (119, "GSP"),
     (120, "GSP"), (140, "unrecovered ECC"), (143, "initialised"), (999, "an error of")],
)  # fmt: skip
def test_what_a_code_means(code: int, word: str) -> None:
    rule = action_of(Xid("0:1", code, False, "text"))
    assert word in rule.meaning
    assert (rule.action is Action.UNKNOWN) is (code == 999)


def test_a_host_without_gpus_has_no_driver_to_compare() -> None:
    nowhere = {"/sys/bus/pci/devices/0000:04:00.0/vendor": "0x15b3",
               "/sys/bus/pci/devices/0000:04:00.0/class": "0x020700"}  # fmt: skip
    assert worst("sw.driver", PaperHost(nowhere)) == {"skip"}
    amd = {**nowhere, "/sys/bus/pci/devices/0000:03:00.0/vendor": "0x1002",
           "/sys/bus/pci/devices/0000:03:00.0/class": "0x038000",
           "/proc/sys/kernel/osrelease": "6.8.0"}  # fmt: skip
    assert worst("sw.driver", PaperHost(amd)) == {"unknown amd-smi"}
    assert readings("sw.driver", PaperHost(amd)) == {("sw.driver", ""): "in-tree of 6.8.0"}


def test_floors_of_copies_are_of_one_model_and_direction() -> None:
    for floor in COPY_FLOORS:
        assert _copy_floor(f"NVIDIA {floor.device} 80GB", floor.direction) is not None
        assert _copy_floor(f"NVIDIA {floor.device} PCIe", floor.direction) is None
        assert _copy_floor(f"NVIDIA {floor.device} NVL", floor.direction) is None
        assert _copy_floor(f"NVIDIA {floor.device}", "sideways") is None
    assert _copy_floor("Other", COPY_FLOORS[0].direction) is None


def test_a_copy_as_fast_as_its_floor_is_fast_enough() -> None:
    floor = COPY_FLOORS[0]
    speeds = check("node.gpu-bw")
    assert isinstance(speeds, GpuBandwidth)
    for short, status in ((0.0, Status.PASS), (0.01, Status.FAIL)):
        moved = CopyRate(floor.direction, 0, floor.gbytes - short)
        reported = speeds._judged(PaperHost(), (moved,), {0: f"NVIDIA {floor.device}"}, ("nvb",))
        verdicts = [each for each in reported if isinstance(each, Result)]
        assert [each.status for each in verdicts] == [status]
    half = speeds._judged(PaperHost(), (moved,), {0: "NVIDIA A", 1: "NVIDIA A"}, ("nvb",))
    (unknown,) = [each for each in half if isinstance(each, Result)]
    assert unknown.evidence == "nvb saw 1 of 2 GPUs"


# --- votes ---


def test_a_host_with_several_amounts_votes_once_with_their_median() -> None:
    def of(name: str, *values: int) -> HostReport:
        rows = tuple(ComparedValue(check="sw.os", key="mem.total", subject=f"{name}/{k}",
                                   value=value)
                     for k, value in enumerate(values))  # fmt: skip
        return HostReport(host=name, taken_ns=0, readings=rows)

    reports = [of("h0", 999, 1_000, 5_000), of("h1", 1_000), of("h2", 9, 1_000, 1_001, 7_000)]
    found = {(r.subject, r.status) for r in judge_all(reports)}
    assert {at for at, status in found if status is Status.FAIL} == {"h0/2", "h2/0", "h2/3"}
    majority = Majority(EMPTY, 1)
    for each in reports:
        majority.count(each)
    rule = majority.expected("-", "mem.total", "").rule
    assert rule is not None
    assert near(every_key()["mem.total"], 1_000) == rule


@pytest.mark.parametrize(
    ("about", "within", "value", "holds"),
    [(100.0, 0.1, 110, True), (100.0, 0.1, 110.1, False), (100.0, 0.1, 90, True),
     (100.0, 0.1, 89.9, False), (-100.0, 0.1, -110, True), (100.0, 0.1, "100", False),
     (1.0, 0.1, True, False)],
)  # fmt: skip
def test_what_is_about_an_amount(about: float, within: float, value: Any, holds: bool) -> None:
    assert Range(about=about, within=within).holds(value) is holds


@pytest.mark.parametrize(
    ("low", "high", "value", "holds"),
    [(1, 3, 1, True), (1, 3, 3, True), (1, 3, 0, False), (1, 3, 4, False), (None, 3, -9, True),
     (1, None, 99, True), ("1.10.0", None, "1.9.9", False), ("1.9.9", None, "1.10.0", True),
     ("9", None, "10", True), (10, None, "9.5", False),
     # Versions of two parts: CUDA, kernels, toolkits. A bound without quotes is TOML's number.
     ("1.9", None, "1.10", True), ("1.10", None, "1.9", False), (None, "6.8", "6.11", False),
     (12.4, None, "12.10", True), (12.4, None, "12", False), (None, 12.4, "12.10", False),
     # Kernel settings are texts; amounts stay amounts.
     (0, None, "-1", False), ("-1", None, "-2", False), (None, "99", "100", False),
     (2.25, 2.5, 2.3, True), ("2.25", "2.5", 2.3, True), (2.25, None, 2.1, False)],
)  # fmt: skip
def test_what_is_within_bounds(low: Any, high: Any, value: Any, holds: bool) -> None:
    assert Range(min=low, max=high).holds(value) is holds


def test_what_is_learnt_of_roles_that_have_all_hosts_names_no_others() -> None:
    spec = parse_spec({"roles": {"gpu": {"hosts": ["h*"]}}}, "s")
    text = learn([host("h0", "6.8"), host("h1", "6.8")], spec)
    assert "[roles.gpu.expect]" in text
    assert "roles.all" not in text
    mixed = learn([host("h0", "6.8"), host("x1", "6.9")], spec)
    assert "[roles.all.expect]" in mixed
    assert mixed.index('"sw.kernel" = "6.8"') < mixed.index('"sw.kernel" = "6.9"')
    assert toml_key("a-b_9") == "a-b_9"
    assert toml_key("") == '""'
    assert toml_key("a.b") == '"a.b"'
    assert toml_key("é") == '"é"'
    assert toml_value({"min": 1, "max": 2.5}) == "{min = 1, max = 2.5}"
    assert toml_value(["a", True]) == '["a", true]'
    assert _one_line("a\n b\x07 c") == "a b c"


# --- the table of ports ---


def verdict(check: str, subject: str, status: Status = Status.FAIL, **more: str) -> Result:
    return Result(check=check, status=status, subject=subject, **more)  # type: ignore[arg-type]


def test_only_verdicts_on_back_end_ports_make_rows() -> None:
    rows = port_rows([
        verdict("be.act.state", "h1/mlx5_0:1", Status.WARN), verdict("be.act.rate", "h1/mlx5_0:1"),
        verdict("be.act.state", "h1"), verdict("node.pcie", "h1/0000:03:00.0"),
        verdict("be.init.phys", "h0/mlx5_1:1", Status.PASS), verdict("no.such", "h0/mlx5_1:1"),
        verdict("be.gid.same", "h0/mlx5_1:1", Status.SKIP, follows="be.init.phys h0/mlx5_1:1"),
    ])  # fmt: skip
    assert [row.cells() for row in rows] == [
        ("h0", "mlx5_1:1", "pass", "–", "fail", "–"), ("h1", "mlx5_0:1", "–", "fail", "–", "–")
    ]  # fmt: skip
    index = Result(check="be.gid.same", status=Status.PASS, subject="h1/mlx5_0:1", got="3",
                   evidence="be.gid.index: 3 of 3 hosts")  # fmt: skip
    assert [row.cells()[4] for row in port_rows([index])] == ["3 pass"]
    assert port_of(verdict("x", "h1/eth0")) is None
    assert port_of(verdict("x", "mlx5_0:1")) is None


def test_a_page_shows_every_section_and_opens_those_with_failures() -> None:
    text = page([
        verdict("be.act.phys", "h1", Status.PASS), verdict("node.gpu-count", "h2", remedy="a<b"),
        verdict("node.dstate", "h2", Status.WARN),
    ], "T<1>")  # fmt: skip
    assert text.count("<details") == len(tree([verdict("be.act.phys", "h1"),
                                               verdict("node.dstate", "h2")]))  # fmt: skip
    assert text.count("<details open>") == 1
    assert "<h1>T&lt;1&gt;</h1>" in text
    assert "a&lt;b" in text
    assert '<span class="fail">1 fail</span>' in text
    assert "suspect" not in text
    blamed = page([verdict("be.act.phys", "h1", suspect=Suspect.CABLE)], "T")
    assert "<small>(suspect: cable)</small>" in blamed
    assert "nothing was checked" in page([], "T")


@pytest.mark.parametrize("gpus", [0, 1, 3])
def test_gpus_are_counted_on_the_bus(gpus: int) -> None:
    files: dict[str, Text] = {"/sys/bus/pci/devices/0000:04:00.0/vendor": "0x15b3",
                              "/sys/bus/pci/devices/0000:04:00.0/class": "0x020700"}  # fmt: skip
    described = "".join(f"<gpu id='00000000:1{k}:00.0'/>" for k in range(gpus))
    for k in range(gpus):
        files |= {f"/sys/bus/pci/devices/0000:1{k}:00.0/vendor": "0x10de",
                  f"/sys/bus/pci/devices/0000:1{k}:00.0/class": "0x030200"}  # fmt: skip
    text = f"<nvidia_smi_log><attached_gpus>{gpus}</attached_gpus>{described}</nvidia_smi_log>"
    host_ = PaperHost(files, {"nvidia-smi -q -x": text})
    assert readings("node.gpu-count", host_) == {("node.gpu-count", ""): gpus}


# --- names and ports of switches ---


def test_ports_between_uplinks_that_nobody_uses() -> None:
    assert _dark([1, 2, 5], frozenset()) == (3, 4)
    assert _dark([1, 2, 5], frozenset({"4"})) == ()
    assert _dark([1, 2, 3], frozenset()) == ()
    assert _dark([], frozenset()) == ()


@pytest.mark.parametrize(
    ("ports", "dark", "absent"),
    [(("1", "2", "4"), "3", 1), (("1", "2", "3"), "", 0), (("1", "2", "٤"), "", 0),
     (("1", "2", "x"), "", 0), (("1", "3", "5"), "", 0)],
)  # fmt: skip
def test_an_upper_switch_that_all_lack_leaves_a_gap(
    ports: tuple[str, ...], dark: str, absent: int
) -> None:
    lowers, uppers = ("a", "b", "c"), ("s0", "s1", "s3")
    links = {(low, up): (port,) for low in lowers for up, port in zip(uppers, ports, strict=True)}
    gap = port_gap(plane("1")._replace(lowers=lowers, uppers=uppers, links=links))
    assert (gap.dark, gap.perhaps) == (dark, absent)


def test_names_and_pairs() -> None:
    assert sorted(["p10", "p2", "p"], key=natural) == ["p", "p2", "p10"]
    assert pattern(["leaf-01-1", "leaf-02-1"]) == "leaf-*-1"
    assert pattern(["a1", "b1"]) == "a1 and 1 more"
    assert pattern(["a1", "a1x"]) == "a1 and 1 more"
    assert pattern(["a1"]) == "a1"
    assert pattern([]) == ""
    pairs = misplaced_pairs([1, 2, 3, -1], lambda one, other: one == -other)
    assert pairs == [(1, -1), (2,), (3,)]
    some = Counter({("1", "2"): 1, ("", ""): 1})
    assert _reported("missing", some) == "2 missing: port 1 to port 2"
