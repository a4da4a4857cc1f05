"""Small rules of the audit, each from both sides."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from tests.audit.paper import DENIED, PaperHost, Text

from syntony.audit.changes import compare
from syntony.audit.check import HostCheck, examine
from syntony.audit.facts import Facts, UnreadableError
from syntony.audit.gids import Gid, Preference, nccl_choice, preference
from syntony.audit.host_log import kernel_log
from syntony.audit.latency import MIN_PAIRS, fit, misplaced_nics
from syntony.audit.parse.kernel_faults import FAULTS
from syntony.audit.parse.kernel_log import Xid
from syntony.audit.result import ComparedValue, Result, Status
from syntony.audit.speed_hunt import MIN_PAIRS as MIN_SPEEDS
from syntony.audit.speed_hunt import Speed, SpeedHunt
from syntony.audit.xid import Action, action_of, latest

# --- what cannot be read, and what there is nothing to say of ---


def test_why_there_is_no_kernel_log_is_said_of_each_source() -> None:
    journal = "journalctl -k -b --no-pager -o short-iso"
    said = {"dmesg": " \n", journal: "-- No entries --"}
    with pytest.raises(UnreadableError) as caught:
        kernel_log(PaperHost(commands=said))
    assert "`dmesg` is empty; `journalctl" in str(caught.value)
    assert str(caught.value).endswith("short-iso` printed no kernel log")
    with pytest.raises(UnreadableError, match="dmesg is not installed; "):
        kernel_log(PaperHost())
    stamped: dict[str, Text] = {"dmesg": DENIED, journal: "[  0.1] Linux"}
    assert kernel_log(PaperHost(commands=stamped)) == "[  0.1] Linux"


@pytest.mark.parametrize(
    ("reads", "status"), [((), Status.SKIP), (("/sys/x",), Status.UNKNOWN)]
)  # fmt: skip
def test_a_check_that_says_nothing_is_skipped_or_blind(
    reads: tuple[str, ...], status: Status
) -> None:
    """Blind where nothing of what it reads is there."""

    class Mute(HostCheck):
        id = "x.mute"

        def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
            return iter(())

    Mute.reads = reads
    (said,) = examine(Mute(), PaperHost())
    assert isinstance(said, Result)
    assert (said.status, said.subject) == (status, "h0")
    assert said.evidence.endswith("nothing here to look at")


# --- what an error asks for ---


@pytest.mark.parametrize(
    ("code", "action"),
    [(31, Action.APPLICATION), (63, Action.APPLICATION), (48, Action.RESET), (95, Action.RESET),
     (79, Action.REBOOT), (54, Action.ISOLATE), (999, Action.UNKNOWN)],
)  # fmt: skip
def test_a_code_asks_for_what_the_catalogue_says(code: int, action: Action) -> None:
    rule = action_of(Xid("0:1", code, False, "recovery action changed from 0x0 (None) to (None)"))
    assert rule.action is action
    assert rule.meaning


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", Action.RESET),
        ("GPU recovery action changed from 0x1 (X) to 0x2 (Node Reboot Required)", Action.REBOOT),
        ("GPU recovery action changed from 0x1 (Reset) to 0x0 (None)", Action.APPLICATION),
        ("something else", Action.RESET),
    ],
)
def test_of_154_the_drivers_own_word_counts(text: str, action: Action) -> None:
    assert action_of(Xid("0:1", 154, False, text)).action is action


@pytest.mark.parametrize(
    ("code", "text", "action"),
    [
        (12028, "SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 3", Action.RESET),
        (12028, "SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 3", Action.WATCH),
        (12028, "no word", Action.RESET),
        (20001, "no word", Action.APPLICATION),
        (20001, "SXid (PCI:0000:c1:00.0): 20001, Fatal, Link 3", Action.RESET),
        (48, "no word", Action.RESET),
    ],
)
def test_a_switch_is_fatal_by_its_own_word_or_unless_known_harmless(
    code: int, text: str, action: Action
) -> None:
    assert action_of(Xid("0:c1", code, True, text)).action is action


def test_the_first_of_each_code_and_device_counts_but_the_last_of_154_and_of_fatal_ones() -> None:
    errors = [
        Xid("a", 31, False, "first"), Xid("a", 31, False, "second"), Xid("b", 31, False, "other"),
        Xid("a", 154, False, "first"), Xid("a", 154, False, "second"),
        Xid("s", 12028, True, "SXid (s): 12028, Non-fatal, 1"),
        Xid("s", 12028, True, "SXid (s): 12028, Fatal, 2"),
        Xid("s", 12028, True, "SXid (s): 12028, Non-fatal, 3"),
    ]  # fmt: skip
    assert [each.text for each in latest(errors)] == [
        "first", "other", "second", "SXid (s): 12028, Fatal, 2"
    ]  # fmt: skip


def test_only_what_a_job_survives_is_not_severe() -> None:
    mild = {fault.name for fault in FAULTS if not fault.severe}
    assert mild == {"out of memory", "file server silent", "transmit timeout", "IOMMU fault"}


# --- which GID NCCL takes ---


def gid(place: int, address: str, version: int | None = 2) -> Gid:
    return Gid(place, ipaddress.IPv6Address(address), version, "eth0")


V4, OTHER_V4 = "::ffff:10.0.0.1", "::ffff:192.0.2.1"
LINK, GLOBAL = "fe80::1", "2001:db8::1"
TABLE = (gid(0, LINK, 1), gid(1, LINK, 2), gid(2, V4, 1), gid(3, V4, 2), gid(4, GLOBAL, 2))


@pytest.mark.parametrize(
    ("table", "want", "place"),
    [
        (TABLE, Preference(), 3),
        (TABLE, Preference(version=1), 2),
        (TABLE, Preference(place=1), 1),
        (TABLE, Preference(place=9), None),
        (TABLE, Preference(family=6), 4),
        (TABLE[:2], Preference(), 0),
        ((), Preference(), None),
        ((gid(3, V4),), Preference(), 3),
        ((gid(0, V4), gid(1, OTHER_V4)), Preference(range="192.0.2.0/24"), 0),
        ((gid(0, LINK), gid(1, V4), gid(2, OTHER_V4)), Preference(range="192.0.2.0/24"), 2),
        ((gid(0, LINK), gid(1, V4)), Preference(range="192.0.2.0/24"), 0),
        ((gid(0, LINK), gid(1, V4)), Preference(range="nonsense"), 1),
        ((gid(0, LINK), gid(1, V4)), Preference(range="2001:db8::/32"), 0),
    ],
)  # fmt: skip
def test_nccls_choice(table: tuple[Gid, ...], want: Preference, place: int | None) -> None:
    found = nccl_choice(table, want)
    assert (None if found is None else found.place) == place


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, Preference()),
        ({"NCCL_IB_GID_INDEX": "3"}, Preference(place=3)),
        ({"NCCL_IB_GID_INDEX": "-1"}, Preference()),
        ({"NCCL_IB_ADDR_FAMILY": "AF_INET6", "NCCL_IB_ROCE_VERSION_NUM": "1"},
         Preference(family=6, version=1)),
        ({"NCCL_IB_ADDR_RANGE": "10.0.0.0/8", "NCCL_IB_ROCE_VERSION_NUM": "x"},
         Preference(range="10.0.0.0/8")),
    ],
)  # fmt: skip
def test_what_a_jobs_environment_tells_nccl(
    environment: dict[str, str], wanted: Preference
) -> None:
    assert preference(environment) == wanted


# --- delay against hops ---


def floors(
    shift: dict[str, float], noise: float = 10.0
) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], float]]:
    """Eight NICs below four leaves: 1 µs, and 500 ns a hop; some are further than they should."""
    draw = random.Random("floors")
    nics = [f"n{k}" for k in range(8)]
    hops = {(a, b): 2 if int(a[1]) // 2 == int(b[1]) // 2 else 4 for a, b in combinations(nics, 2)}
    floor = {
        pair: 1_000 + 500 * count + draw.uniform(-noise, noise)
        + sum(shift.get(nic, 0.0) for nic in pair)
        for pair, count in hops.items()
    }  # fmt: skip
    return hops, floor


def test_the_line_is_found_and_what_is_on_it_is_named_by_nobody() -> None:
    hops, floor = floors({})
    line = fit(hops, floor)
    assert line.per_hop_ns == pytest.approx(500, abs=10)
    assert line.base_ns == pytest.approx(1_000, abs=30)
    assert 0 < line.spread_ns < 10
    assert misplaced_nics(hops, floor) == []


def test_a_nic_that_is_one_hop_further_is_named_with_how_far() -> None:
    hops, floor = floors({"n3": 1_000.0})
    (off,) = misplaced_nics(hops, floor)
    assert (off.nic, off.pairs, off.tested) == ("n3", 7, 7)
    assert off.hops == pytest.approx(2.0, abs=0.3)


def test_too_few_pairs_or_one_class_fix_no_line() -> None:
    hops, floor = floors({})
    near = [pair for pair, count in hops.items() if count == 2]
    far = [pair for pair, count in hops.items() if count == 4]
    enough = [*near[:3], *far[: MIN_PAIRS - 3]]
    assert fit(hops, {pair: floor[pair] for pair in enough})
    for few in (enough[:-1], near, far, [*near[:2], *far]):
        with pytest.raises(ValueError, match="two classes"):
            fit(hops, {pair: floor[pair] for pair in few})


# --- what differs between two runs ---


def said(
    status: Status, got: str = "", subject: str = "h0/nic0", check: str = "be.act.rate"
) -> Any:
    return Result(check=check, status=status, subject=subject, got=got)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (said(Status.PASS), said(Status.FAIL), "worse"),
        (said(Status.WARN), said(Status.UNKNOWN), "worse"),
        (said(Status.FAIL), said(Status.PASS), "better"),
        (said(Status.SKIP), said(Status.PASS), "changed"),
        (said(Status.PASS), said(Status.NOT_COMPARED), "changed"),
        (said(Status.SKIP), said(Status.WARN), "worse"),
        (said(Status.FAIL, "1"), said(Status.FAIL, "2"), "changed"),
        (said(Status.NOT_COMPARED, "1"), said(Status.NOT_COMPARED, "2"), "changed"),
        (said(Status.PASS, "1"), said(Status.PASS, "2"), None),
        (said(Status.UNKNOWN, "1"), said(Status.UNKNOWN, "2"), None),
        (said(Status.FAIL, "1"), said(Status.FAIL, "1"), None),
        (None, said(Status.FAIL), "new"),
        (None, said(Status.PASS), None),
        (said(Status.WARN), None, "gone"),
        (said(Status.SKIP), None, None),
    ],
)
def test_what_is_news_between_two_runs(before: Any, after: Any, change: str | None) -> None:
    there = said(Status.PASS, subject="h0", check="node.gpu-count")
    runs = [[there, each] if each else [there] for each in (before, after)]
    found = compare(*runs)
    assert [each.change for each in found] == ([] if change is None else [change])
    for each in found:
        assert (each.check, each.subject) == ("be.act.rate", "h0/nic0")
        assert each.before == ("" if before is None else f"{before.status} {before.got}".strip())
        assert each.after == ("" if after is None else f"{after.status} {after.got}".strip())


def test_a_host_that_was_not_asked_again_is_one_change_and_worse_comes_first() -> None:
    before = [said(Status.FAIL, subject="h1"), said(Status.WARN, subject="h1", check="x"),
              said(Status.FAIL, subject="h0"), said(Status.PASS, subject="h2")]  # fmt: skip
    after = [said(Status.PASS, subject="h0"), said(Status.FAIL, subject="h2")]
    assert [(each.change, each.subject) for each in compare(before, after)] == [
        ("worse", "h2"), ("gone", "h1"), ("better", "h0")
    ]  # fmt: skip


def test_two_verdicts_of_one_check_on_one_subject_are_told_apart() -> None:
    before = [said(Status.PASS, "a"), said(Status.FAIL, "b")]
    after = [said(Status.PASS, "a"), said(Status.PASS, "b")]
    assert [(each.change, each.before) for each in compare(before, after)] == [("better", "fail b")]


# --- bandwidth ---


def test_a_suspect_is_tested_with_partners_that_are_known_good() -> None:
    hosts = [f"h{k}" for k in range(16)]
    hunt = SpeedHunt(hosts, ["x"], share=0.9)
    planned = {frozenset(pair) for matching in hunt.plan for pair in matching}
    met: set[frozenset[str]] = set()
    while found := hunt.next_round():
        met |= {frozenset(pair) for pair in found}
        assert hunt.planned > hunt.rounds
        hunt.report(
            {p: {"x": Speed(gbps=50 if "h3" in p else 96, line_gbps=100)} for p in found}
        )  # fmt: skip
    assert {pair for pair in met - planned if "h3" in pair}, "others than those of the plan"
    (named,) = hunt.named("x")
    assert named.hosts == ("h3",)
    assert named.against
    assert hunt.tested("x") > len(planned)


def test_what_is_usual_is_the_upper_quartile_of_enough_pairs() -> None:
    hosts = [f"h{k}" for k in range(8)]
    hunt = SpeedHunt(hosts, ["x"], share=0.9)
    pairs = hunt.next_round()
    speeds = dict(zip(pairs, (10.0, 20.0, 30.0, 40.0), strict=True))
    some = list(speeds)[: MIN_SPEEDS - 1]
    hunt.report({pair: {"x": Speed(gbps=speeds[pair])} for pair in some})
    assert hunt.usual("x") is None
    assert hunt.expected("x", Speed(gbps=1.0)) is None
    hunt.report({list(speeds)[-1]: {"x": Speed(why="refused")}})
    assert sorted(hunt.figures("x")) == [10.0, 20.0][: MIN_SPEEDS - 1], "what has none is no figure"
    again = SpeedHunt(hosts, ["x"], share=0.9)
    again.report({pair: {"x": Speed(gbps=speeds[pair])} for pair in pairs})
    assert again.usual("x") == 32.5
    usual = again.expected("x", Speed())
    assert usual is not None
    assert usual[0] == pytest.approx(0.9 * 32.5)
    assert usual[1] == "90% of what good pairs reach"
    assert again.expected("x", Speed(line_gbps=200.0)) == (180.0, "90% of 200 Gb/s")
    assert again.expected("x", Speed(line_gbps=200.0, least_gbps=7.0)) is not None
    requested = SpeedHunt(hosts, ["x"], share=0.9, at_least=33.0)
    assert requested.expected("x", Speed(line_gbps=200.0)) == (33.0, "--at-least")
    assert requested.expected("x", Speed(least_gbps=7.0)) == (7.0, "the same pair's other figure")


@pytest.mark.parametrize(("broke", "blamed"), [(True, True), (False, False)])
def test_a_test_that_was_started_and_failed_counts_as_a_failure(broke: bool, blamed: bool) -> None:
    hosts = [f"h{k}" for k in range(8)]
    hunt = SpeedHunt(hosts, ["x"], share=0.9)
    while found := hunt.next_round():
        bad, good = Speed(why="refused", broke=broke), Speed(gbps=96, line_gbps=100)
        hunt.report({pair: {"x": bad if "h3" in pair else good} for pair in found})
    assert bool(hunt.named("x")) is blamed
    assert hunt.untested("x") == (() if broke else ("h3",))
    assert set(hunt.said["x"].values()) == {"refused"}
