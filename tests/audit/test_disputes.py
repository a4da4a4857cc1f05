"""Small fabrics that cannot agree, hosts that are half readable, hunts: what is reported each."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.audit.paper import DENIED, PaperHost, Text, check, port, verdicts, worst

from syntony.audit.cabling import SwitchPlane
from syntony.audit.checks.frontend import _dotted, _is_loopback, records
from syntony.audit.checks.nccl import SlowHost
from syntony.audit.checks.uplinks import Uplinks, _fewest, _spread, _usual
from syntony.audit.hostlist import parse_hosts
from syntony.audit.hunt import Blamed, HuntOutcome
from syntony.audit.nccl.diagnosis import least_hosts
from syntony.audit.nccl.diagnosis import verdicts as hunted
from syntony.audit.report.documents import MAX_TICKET_ROWS, junit, markdown, sentence
from syntony.audit.result import Result, Status, Suspect
from syntony.errors import UsageError


def plane(*rows: str) -> SwitchPlane:
    """A row of digits for each leaf: its links to each spine."""
    links = {
        (f"leaf{k}", f"spine{j}"): tuple(f"p{j}{n}" for n in range(int(count)))
        for k, row in enumerate(rows)
        for j, count in enumerate(row)
        if count != "0"
    }
    spines = tuple(f"spine{j}" for j in range(len(rows[0])))
    leaves = tuple(f"leaf{k}" for k in range(len(rows)))
    return SwitchPlane(leaves, spines, links, used={}, strays={}, down={})


@pytest.mark.parametrize(
    ("rows", "reported"),
    [
        (("22", "22", "22"), []),
        (("22", "22", "21"), [("fail", "leaf2--spine1", "1 links", "2 links")]),
        (("22", "22", "23"), [("fail", "leaf2--spine1", "3 links", "2 links")]),
        # One spine has one link less to all: no leaf is to blame.
        (("2221", "2221", "2221"),
         [("warn", "spine3", "1 links to most switches below", "2 links")]),
        # Three links over two spines, in turns: as even as can be.
        (("21", "12", "21", "12"), []),
        (("21", "12", "21", "11"), [("fail", "leaf3", "2 uplinks", "3 uplinks")]),
        (("11", "22"), [("unknown", "leaf*", "", "")]),
    ],
)  # fmt: skip
def test_links_of_pairs(rows: tuple[str, ...], reported: list[tuple[str, str, str, str]]) -> None:
    found = [
        (r.status.value, r.subject, r.got, r.expected) for r in Uplinks()._matrix(plane(*rows))
    ]
    assert found == reported


def test_pairs_with_the_fewest_links_are_named_where_nobody_can_say_what_is_usual() -> None:
    assert list(_fewest(plane("11", "22"))) == ["leaf0--spine0 1", "leaf0--spine1 1"]
    assert list(_fewest(plane("21", "22"))) == ["leaf0--spine1 1"]
    assert _usual(plane("22", "22", "11")).value == 2
    assert _usual(plane("21", "21", "21", "21")).value != 1


@pytest.mark.parametrize(
    ("rows", "total"),
    [
        (("21", "12", "21", "12"), 3), (("21", "12", "21"), 3), (("22", "22"), None),
        (("21", "21", "21", "21"), None),  # all on one side: that spine has more
        (("30", "03", "30", "03"), None),  # two more than to the other
        (("21", "12", "22", "31"), None),  # as many have four as have three
    ],
)  # fmt: skip
def test_links_that_cannot_divide_evenly(rows: tuple[str, ...], total: int | None) -> None:
    assert _spread(plane(*rows)) == total


def test_an_upper_switch_that_few_are_linked_to() -> None:
    """It serves others, or most of its ports are dark."""
    mine = plane("11", "11", "11", "11")
    for below, subject, status in (
        (("leaf0",), "spine1", "1 of 4"), (("leaf0", "other"), "leaf0--spine1", "1 links"),
    ):  # fmt: skip
        (result,) = Uplinks()._stray(mine, "spine1", below)
        assert (result.status, result.subject) == (Status.FAIL, subject)
        assert status in result.got


# --- hosts ---


@pytest.mark.parametrize(
    ("files", "commands", "bad"),
    [
        ({"/sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0",
          "/sys/class/infiniband_mad/umad0/ibdev": "mlx5_0",
          "/sys/class/infiniband_mad/umad0/port": "1"}, {"dmesg": ""}, set()),
        ({"/sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_9",
          "/sys/class/infiniband_mad/umad0/ibdev": "mlx5_0",
          "/sys/class/infiniband_mad/umad0/port": "2"}, {"dmesg": ""},
         {"fail mlx5_0", "fail umad"}),
        ({"/sys/class/infiniband_mad/abi_version": "5",
          "/sys/class/infiniband_verbs/abi_version": "6"}, {"dmesg": ""},
         {"fail mlx5_0", "fail umad"}),
        ({}, {"dmesg": ""}, {"unknown uverbs", "unknown umad"}),
    ],
)  # fmt: skip
def test_a_device_that_programs_can_open(
    files: Mapping[str, Text], commands: Mapping[str, Text], bad: set[str]
) -> None:
    found = worst("be.init.driver", PaperHost(files, commands, (port(),)))
    assert {each for each in found if "firmware" not in each} == bad
    roce = PaperHost(files, commands, (port(layer="Ethernet"),))
    assert not any("umad" in each for each in worst("be.init.driver", roce)), "InfiniBand's only"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("Supplicant PAE state=AUTHENTICATED", [("pass", "mlx5_0:1", "AUTHENTICATED")]),
        ("x=1\nSupplicant PAE state=HELD\n", [("fail", "mlx5_0:1", "HELD")]),
        ("nothing", [("unknown", "mlx5_0:1", "")]),
        (None, [("unknown", "", "")]),
    ],
)  # fmt: skip
def test_ports_that_must_authenticate(
    text: str | None, reported: list[tuple[str, str, str]]
) -> None:
    files = {"/var/run/wpa_supplicant/eth0": ""}
    commands = {} if text is None else {"wpa_cli -i eth0 status": text}
    ports = (port(netdev="eth0"), port("mlx5_1:1", netdev="eth1"))
    assert verdicts("be.init.auth", PaperHost(files, commands, ports)) == reported
    assert worst("be.init.auth", PaperHost({}, {}, ports)) == {"skip"}


SMI = {"nvidia-smi -q -x": "<nvidia_smi_log><attached_gpus>1</attached_gpus>"
       '<gpu id="00000000:03:00.0"></gpu></nvidia_smi_log>'}  # fmt: skip
GPU_FILES = {"/sys/bus/pci/devices/0000:03:00.0/vendor": "0x10de",
             "/sys/bus/pci/devices/0000:03:00.0/class": "0x030200"}  # fmt: skip


@pytest.mark.parametrize(
    ("states", "status"),
    [
        ({"containerd": "active", "docker": "inactive"}, "fail"),
        ({"containerd": "inactive", "docker": "active"}, "fail"),
        ({"containerd": "inactive", "docker": "inactive"}, "skip"),
        ({}, "unknown"),
    ],
)
def test_a_container_runtime_beside_gpus_wants_the_toolkit(
    states: dict[str, str], status: str
) -> None:
    commands: dict[str, Text] = {f"systemctl is-active {n}": s for n, s in states.items()}
    if not states:
        commands = {"systemctl is-active containerd": DENIED, "systemctl is-active docker": DENIED}
    host = PaperHost(GPU_FILES, {**SMI, **commands, "getenforce": "Enforcing"})
    assert worst("sw.container", host) == {f"{status} toolkit"}
    reported = {
        **commands,
        **SMI,
        "nvidia-ctk --version": "NVIDIA Container Toolkit CLI version 1.17.4",
    }
    assert worst("sw.container", PaperHost(GPU_FILES, reported)) == set()
    reported["nvidia-ctk --version"] = "none"
    assert worst("sw.container", PaperHost(GPU_FILES, reported)) == {"unknown toolkit"}
    assert worst("sw.container", PaperHost({}, commands)) == set(), "no GPU"


def test_five_failed_units_are_named() -> None:
    units = "\n".join(f"u{k}.service loaded failed failed text" for k in range(7))
    listing = "systemctl list-units --failed --plain --no-legend"
    for text, got in ((units, "u0.service u1.service u2.service u3.service u4.service"),
                      ("\n \n", "none")):  # fmt: skip
        result = check("sw.services")._failed(PaperHost({}, {listing: text}))  # type: ignore[attr-defined]
        assert (result.got, result.status) == (got, Status.PASS if got == "none" else Status.WARN)


def test_a_name_that_does_not_resolve_is_a_warning_and_no_getent_is_unknown() -> None:
    names = check("fe.addr")._name  # type: ignore[attr-defined]
    for text, status, got in (
        ("10.9.0.7 STREAM h0\n10.9.0.7 DGRAM\n127.0.1.1 RAW\n", Status.PASS, "10.9.0.7 127.0.1.1"),
        ("127.0.1.1 STREAM h0", Status.WARN, "127.0.1.1"), ("", Status.WARN, ""),
        (DENIED, Status.WARN, "does not resolve"),
    ):  # fmt: skip
        (result,) = names(PaperHost({}, {"getent ahosts h0": text}))
        assert (result.status, result.got) == (status, got)
    assert [_is_loopback(each) for each in ("::1", "127.9.9.9", "10.0.0.1", "x")] == [
        True, True, False, False
    ]  # fmt: skip
    assert records([{"a": 1}, 5, "x"]) == [{"a": 1}]
    assert records({"a": 1}) == []
    assert _dotted("0A0B0C0D") == "13.12.11.10"


# --- hunts and lists ---


@pytest.mark.parametrize(("hosts", "least"), [(2, 2), (7, 2), (8, 4), (100, 4)])
def test_a_test_within_a_fleet_is_of_four_where_half_can_lend_them(hosts: int, least: int) -> None:
    assert least_hosts(hosts) == least


def test_whom_a_hunt_blames() -> None:
    named = [
        Blamed(blame=blame, hosts=hosts, failed=2, passed=1, against=against)
        for blame, hosts, against in (
            (HuntOutcome.HOST, ("h3",), ("h1", "h2")), (HuntOutcome.PAIR, ("h4", "h5", "h6"), ()),
            (HuntOutcome.UNDECIDED, tuple(f"h{k}" for k in range(9)), ()),
        )
    ]  # fmt: skip
    host, pair, rest = hunted(named, 5)
    assert {each.check for each in (host, pair, rest)} == {SlowHost.id}
    assert (host.status, host.subject) == (Status.FAIL, "h3")
    assert "5 rounds" in host.evidence
    assert "h1, h2" in host.evidence
    assert (pair.status, pair.subject, pair.suspect) == (Status.FAIL, "h4..h6", Suspect.FABRIC)
    assert "3 hosts" in pair.evidence
    assert (rest.status, rest.subject) == (Status.UNKNOWN, "h0, h1, h2, h3, h4, h5, h6, h7")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu[08-11]", ("gpu08", "gpu09", "gpu10", "gpu11")), ("a,b a", ("a", "b")),
        ("r[1-2]n[0,2]", ("r1n0", "r1n2", "r2n0", "r2n2")), ("me@h1", ("me@h1",)),
        ("x[7]", ("x7",)), ("a[2-1]", None), ("a[0-100000]", None), ("a[1-]", None),
        ("a[-1]", None), ("a[x-2]", None), ("a[1234567890]", None), (" , ", None),
        ("-oProxy=1", None), ("h_1!", None), ("a[0-999]b[0-100]", None),
        ("a[0-59999],b[0-59999]", None),
    ],
)  # fmt: skip
def test_lists_of_hosts(text: str, hosts: tuple[str, ...] | None) -> None:
    if hosts is None:
        with pytest.raises(UsageError):
            parse_hosts(text)
    else:
        assert parse_hosts(text) == hosts


# --- what a person reads ---


def result(number: int, status: Status = Status.FAIL, **more: str) -> Result:
    reported: dict[str, Any] = {"got": "down", **more}
    return Result(check="be.act.state", status=status, subject=f"h{number}", **reported)


def test_a_ticket_names_so_many_and_counts_the_rest() -> None:
    for count, more in ((MAX_TICKET_ROWS, False), (MAX_TICKET_ROWS + 1, True)):
        text = markdown([result(number) for number in range(count)])
        assert ("… and 1 more" in text) is more
        assert text.count("| fail | h") == MAX_TICKET_ROWS


def test_a_verdict_in_a_line_leaves_out_what_is_not_known() -> None:
    full = result(1, expected="up", evidence="sysfs", meaning="no link", remedy="reseat")
    assert sentence(full) == "got down, expected up; no link; do: reseat; sysfs"
    assert sentence(result(1)) == "got down, expected nothing known"
    assert sentence(result(1, got="", expected="up")) == "got nothing, expected up"
    assert sentence(result(1, got="")) == ""


def test_a_ticket_says_of_what_is_unknown_why_and_escapes_bars() -> None:
    text = markdown([
        result(1, Status.UNKNOWN, got="", evidence="no permission"),
        result(2, Status.UNKNOWN, got="half", evidence="why"), result(3, got="", evidence="seen"),
    ])  # fmt: skip
    assert "| unknown | h1 | be.act.state | no permission |" in text
    assert "| unknown | h2 | be.act.state | half |" in text
    assert "| fail | h3 | be.act.state |   |" in text
    assert "| status | subject" not in markdown([result(1, Status.PASS)])


def test_gpus_without_the_tool_that_measures_them_are_unknown() -> None:
    assert worst("node.gpu-bw", PaperHost(GPU_FILES, SMI)) == {"unknown"}


@pytest.mark.parametrize(
    ("state", "status", "got"),
    [("FAILED", "fail", "10.9.0.1"), ("REACHABLE", "pass", "none failed")],
)
def test_a_gateway_that_does_not_answer_is_named(state: str, status: str, got: str) -> None:
    neighbour = (
        f'[{{"dst": "10.9.0.1", "state": ["{state}"]}}, {{"dst": "x", "state": ["FAILED"]}}]'
    )
    route = "Iface\neth0\t00000000\t0100090A\t3\t0\t0\t0\t00000000\t0"
    host = PaperHost({"/proc/net/route": route}, {"ip -j neigh show": neighbour})
    (result,) = check("fe.addr")._gateways(host)  # type: ignore[attr-defined]
    assert (result.status.value, result.got) == (status, got)


@pytest.mark.parametrize("seed", range(4))
def test_a_suites_counts_are_those_of_its_cases(seed: int) -> None:
    """What is not compared is skipped, too."""
    rng = random.Random(seed)
    statuses = [status for status in Status for _ in range(rng.randint(1, 4))]
    results = [Result(check="sw.os", status=status, subject=f"h{number}")
               for number, status in enumerate(statuses)]  # fmt: skip
    (suite,) = ET.fromstring(junit(results))  # noqa: S314 - our own
    for kind, word in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert suite.attrib[word] == str(len(suite.findall(f"testcase/{kind}"))), f"seed {seed}"
    assert suite.attrib["tests"] == str(len(statuses))
    assert int(suite.attrib["skipped"]) == sum(
        status in {Status.SKIP, Status.NOT_COMPARED} for status in statuses
    ), f"seed {seed}"
