"""The made-up fleet's jobs and audits; see `tests.console.fleet`."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from syntony.model import S
from syntony.wire.audit import (
    AuditChange,
    AuditPort,
    AuditRunView,
    AuditSection,
    AuditVerdict,
    AuditView,
)
from syntony.wire.jobs import FlowDelays, JobReport, Jobs, JobView, Takeover

HOSTILE = '<img src=x onerror="window.harmed=1">'
"""A job's name that must stay text."""


def jobs(now_ns: int) -> Jobs:
    def job(name: str, running: int, back_s: int) -> JobView:
        return JobView(
            job=name, began_ns=now_ns - 5400 * S, seen_ns=now_ns - back_s * S,
            hosts=("h0", "h1", "h4", "h5"), processes=4, running=running, ranks=4,
            programs=("python3", HOSTILE),
        )  # fmt: skip

    protected = msgspec.structs.replace(
        job("train-7", 4, 1), generation=3, spares=1, replaced=2
    )  # fmt: skip
    found = (protected, job(HOSTILE, 4, 40), job("train-6", 0, 900))
    return Jobs(now_ns=now_ns, jobs=found)


def job_report(now_ns: int, chance: random.Random) -> JobReport:
    begin_ns, windows = now_ns - 120 * S, 120
    slow = [3e7 if each > 70 else 1.2e5 for each in range(windows)]
    flow = "h4/rail1:35362>h5/rail1:32975"

    def line(name: str, delay_ns: float) -> dict[str, Any]:
        return {
            "flow": name, "src": "h4/rail1", "dst": "h5/rail1", "rate_bps": 21e6,
            "in_band_ns": delay_ns, "worst_in_band_ns": delay_ns * 2, "out_of_band_ns": 1.2e5,
            "one_way_ns": delay_ns, "worst_one_way_ns": delay_ns * 2, "one_way_bound_ns": 900.0,
            "one_way_why": "", "probed_one_way_ns": 1.1e5, "retransmits": 12.0,
            "hops": ("h4/rail1->leaf1-1", "leaf1-1->h5/rail1"),
        }  # fmt: skip

    verdict = {
        "class": "slow-flow", "subjects": (flow,), "onset_ns": begin_ns + 70 * S, "end_ns": None,
        "confidence": 0.93, "action": "look at h5/rail1: its cable, then the NIC",
        "evidence": ({"signal": "owd_p50_ns", "text": "in-band delay 30 ms, others 120 µs",
                      "value": 3e7, "baseline": 1.2e5},),
        "alternatives": ({"class": "straggler", "excluded": True,
                          "reason": "its rank is on time when it does not wait for this flow"},
                         {"class": "incast", "excluded": False,
                         "reason": "queues were not measured"}),
        "blast_radius": {"jobs": ("train-7",), "ranks": 4, "hosts": ("h4", "h5"), "gpu_hours": 0.05,
                         "slowdown": 3.4},
        "follows": (),
    }  # fmt: skip
    return JobReport(
        job="train-7", begin_ns=begin_ns, end_ns=now_ns,
        sentences=(
            f"train-7 is slow because of slow-flow: {flow}.",
            "In-band delay 30 ms, others 120 µs; 4 ranks wait; steps take 3.4 times as long.",
            "To do: look at h5/rail1: its cable, then the NIC.",
        ),
        verdicts=(verdict,), flows=(line(flow, 3e7), line("h0/rail0:1>h1/rail0:2", 1.4e5)),
        flows_left_out=0, notes=("hosts: GPUs were not recorded; gpu-throttle, pcie",),
        at_ns=tuple(begin_ns + each * S for each in range(windows)),
        rate_bps=tuple((4e7 if each > 70 else 1.9e8) + chance.gauss(0,
        4e6) for each in range(windows)),
        delays=(
            FlowDelays(flow=flow, in_band_ns=tuple(slow), out_of_band_ns=(1.1e5,) * windows),
            FlowDelays(flow="h0/rail0:1>h1/rail0:2", in_band_ns=(1.4e5,) * windows,
                       out_of_band_ns=(None,) * windows),
        ),
        steps_at_ns=tuple(begin_ns + each * S for each in range(0, windows, 2)),
        steps_ns=tuple(1.4e9 if each > 70 else 4.1e8 for each in range(0, windows, 2)),
        resent=tuple(40.0 if each > 70 else 0.0 for each in range(windows)),
        takeovers=(
            Takeover(ts_ns=begin_ns + 32 * S, what="replaced", rank=3, at="h5", step=41,
                     generation=3, reason="killed by signal 9", worker="spare-2", stall_ns=4 * S),
            Takeover(ts_ns=begin_ns + 33 * S, what="verified", rank=-1, at="h0", step=43,
                     generation=3, reason="", worker="", stall_ns=0),
        ),
    )  # fmt: skip


def audit_view(now_ns: int, hosts: int, waiting: tuple[str, ...]) -> AuditView:
    """The second of two audits, of which so many hosts have not answered."""
    run = AuditRunView(
        order="b" * 32, by="ops (alice)", until_ns=now_ns, hosts=hosts, waiting=len(waiting)
    )
    wrong = AuditVerdict(
        branch="Back-end network", section="Active connections", check="be.act.state",
        status="fail",
        subject="h1/rail1", expected="ACTIVE", got="DOWN",
        evidence="/sys/class/net/rail1/carrier: 0",
        meaning="The port carries nothing.", remedy="Look at the cable and the switch's port.",
        suspect="cable",
    )  # fmt: skip
    software = msgspec.structs.replace(
        wrong, branch="Configuration", section="Software", check="sw.nic-fw", status="warn",
        subject="h3", got="28.39.1002", expected="28.40.1000", evidence="6 of 7 hosts have it",
        suspect="config",
    )  # fmt: skip
    return AuditView(
        runs=(msgspec.structs.replace(run, order="a" * 32, waiting=0), run), order="b" * 32,
        against="a" * 32, taken_ns=now_ns, waiting=waiting,
        sections=(
            AuditSection(branch="Configuration", section="Software",
                         counts={"pass": 31, "warn": 1}, why=""),
            AuditSection(branch="Configuration", section="PCIe", counts={"pass": 16}, why=""),
            AuditSection(branch="Front-end network", section="", counts={"pass": 24}, why=""),
            AuditSection(branch="Back-end network", section="Active connections",
                         counts={"pass": 15, "fail": 1}, why=""),
            AuditSection(branch="NCCL", section="", counts={"skip": 8}, why="not asked for"),
        ),
        verdicts=() if len(waiting) == hosts else (wrong, software), left_out=0,
        ports=(
            AuditPort(host="h1", nic="rail1", initialized="pass", active="fail", gid="pass",
                      connectivity="", gid_index="3"),
        ),
        changes=() if waiting else (
            AuditChange(change="worse", check="be.act.state", subject="h1/rail1",
                        before="pass ACTIVE", after="fail DOWN"),
        ),
    )  # fmt: skip


def cost() -> dict[str, Any]:
    """What failures cost a job of 1,024 GPUs: the published figures."""
    loss = {"gpu_hours_per_month": {"low": 21_845.0, "high": 54_613.0},
            "share": {"low": 0.03, "high": 0.075}, "price_per_month": None}  # fmt: skip
    return {
        "assumed": {"gpus": 1024},
        "restarts_per_year": {"low": 102.4, "high": 256.0},
        "mttf_ns": {"low": 34.2 * 3600 * S, "high": 85.5 * 3600 * S},
        "first_link_failure_ns": 42.8 * 3600 * S,
        "gpu_hours_per_failure": 2560.0,
        "engineer_hours_per_month": {"low": 68.0, "high": 512.0},
        "today": loss,
        "with_syntony": loss | {"share": {"low": 0.027, "high": 0.067}},
        "observed": {"period_ns": 90 * 86_400 * S, "network": 3, "hosts": 1, "other": 0,
                     "per_year": 16.2},
    }  # fmt: skip
