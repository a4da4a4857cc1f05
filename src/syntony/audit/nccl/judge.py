"""Judges runs of collectives. Pure."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from syntony.audit.check import Check
from syntony.audit.checks.nccl import CasePattern, Correct, Path, Size, Tail
from syntony.audit.nccl.diagnosis import (
    MIN_NODES,
    SPREAD,
    TAIL,
    CaseFigures,
    Floor,
    diagnose,
    floor_of,
    low_cases,
)
from syntony.audit.nccl.log import NcclLog
from syntony.audit.nccl.output import Output
from syntony.audit.nccl.plan import Case
from syntony.audit.registry import every_check
from syntony.audit.result import Result, Status, Suspect


class NcclRun(msgspec.Struct, frozen=True, kw_only=True):
    case: Case
    hosts: tuple[str, ...]
    """In the order of their ranks."""
    output: Output | None = None
    log: NcclLog | None = None
    """None where the engine is not NCCL."""
    trouble: str = ""
    """Why there is no output."""
    broke: bool = False
    """It was started, and failed or hung, as a job would; otherwise it could not be started."""


class NcclTerms(msgspec.Struct, frozen=True, kw_only=True):
    floor: float | None = None
    """GB/s; None: by the node type."""
    nics: int | None = None
    """Expected NICs of each host; None: as most hosts."""
    skipped: Mapping[Case, str] = {}
    """Cases that were not run, and why."""
    subject: str = "fleet"


def judge(runs: Sequence[NcclRun], terms: NcclTerms) -> tuple[Result, ...]:
    """Every NCCL check's verdict."""
    by_case: dict[Case, list[NcclRun]] = defaultdict(list)
    for run in runs:
        by_case[run.case].append(run)
    seen = {
        case: _seen([run.output for run in mine if run.output is not None])
        for case, mine in by_case.items()
        if any(run.output is not None for run in mine)
    }
    outputs = [run.output for run in runs if run.output is not None]
    nodes = max((len(run.hosts) for run in runs), default=0)
    known = _floor(terms, outputs, nodes)
    low = low_cases(seen, known.gbytes if known else None)
    kinds = {check.id: check for check in every_check()}
    results = [
        _case(kinds[case.check](), terms, mine, seen=seen.get(case), floor=known, low=case in low)
        for case, mine in sorted(by_case.items())
    ]
    results += [
        kinds[case.check]().result(Status.SKIP, terms.subject, evidence=why)
        for case, why in terms.skipped.items()
    ]
    results += [
        *_correct(terms, outputs), *_path(terms, runs), *_size(terms, nodes),
        *_tail(terms, outputs), _diagnosis(terms, runs, seen, low),
    ]  # fmt: skip
    return tuple(results)


def _floor(terms: NcclTerms, outputs: Sequence[Output], nodes: int) -> Floor | None:
    if terms.floor is not None:
        return Floor("", 0, terms.floor, "--floor")
    return floor_of(outputs[0].device, nodes) if outputs else None


def _seen(outputs: Sequence[Output]) -> CaseFigures:
    peaks = [output.peak for output in outputs]
    middle = statistics.median(peaks)
    return CaseFigures(middle, (max(peaks) - min(peaks)) / middle if middle else 0.0)


def _case(
    check: Check, terms: NcclTerms, runs: Sequence[NcclRun], *, seen: CaseFigures | None,
    floor: Floor | None, low: bool,
) -> Result:  # fmt: skip
    expected = f"{floor.gbytes:g} GB/s ({floor.source})" if floor else "as the best case"
    troubles = [run for run in runs if run.trouble]
    if seen is None or troubles:
        broke = any(run.broke for run in troubles)
        why = "; ".join(dict.fromkeys(run.trouble for run in troubles))
        return check.result(
            Status.FAIL if broke else Status.UNKNOWN, terms.subject,
            f"{len(troubles)} of {len(runs)} runs failed", expected, why,
            meaning="a job over these hosts fails or hangs as this did" if broke else "",
            remedy="read the error; hunt the host (--hunt)" if broke else "",
        )  # fmt: skip
    got = f"{seen.busbw:.3g} GB/s"
    runs_said = f"{len(runs)} runs, spread {seen.spread:.1%}"
    if low:
        return check.result(Status.FAIL, terms.subject, got, expected, runs_said)
    if floor is None:
        device = next((run.output.device for run in runs if run.output), "") or "this device"
        why = f"no floor is known for {device} on {len(runs[0].hosts)} hosts: give --floor"
        return check.result(Status.UNKNOWN, terms.subject, got, expected, f"{why}; {runs_said}")
    if seen.spread > SPREAD:
        return check.result(
            Status.WARN, terms.subject, got, f"spread of {SPREAD:.0%} at most", runs_said,
            meaning="other traffic, or a path that changes from run to run",
            remedy="run on an idle fabric; look for flapping links",
        )  # fmt: skip
    return check.result(Status.PASS, terms.subject, got, expected, runs_said)


def _correct(terms: NcclTerms, outputs: Sequence[Output]) -> Iterator[Result]:
    counted = [output.wrong for output in outputs if output.wrong is not None]
    if not counted:
        yield Correct().result(Status.UNKNOWN, terms.subject, evidence="no run checked its results")
        return
    wrong = sum(counted)
    said = f"{len(counted)} runs checked"
    status = Status.FAIL if wrong else Status.PASS
    yield Correct().result(status, terms.subject, f"{wrong} wrong elements", 0, said)


def _path(terms: NcclTerms, runs: Sequence[NcclRun]) -> Iterator[Result]:
    check = Path()
    logs = [(run, run.log) for run in runs if run.log is not None]
    if not logs:
        yield check.result(Status.SKIP, terms.subject, evidence="not run with NCCL")
        return
    if not any(log.reported for _, log in logs):
        yield check.result(Status.UNKNOWN, terms.subject, evidence="NCCL wrote no log")
        return
    found = [
        *_networks(check, terms, logs), *_nics(check, terms, logs), *_direct(check, terms, logs),
        *_settings(check, terms, logs),
    ]  # fmt: skip
    if not found:
        log = next(log for _, log in logs if log.reported)
        said = ", ".join(f"{count} × {via}" for via, count in sorted(log.channels.items()))
        found = [check.result(Status.PASS, terms.subject, ", ".join(log.networks), evidence=said)]
    yield from found


_Logs = Sequence[tuple[NcclRun, NcclLog]]


def _networks(check: Check, terms: NcclTerms, logs: _Logs) -> Iterator[Result]:
    if any("Socket" in name for _, log in logs for name in log.networks):
        yield check.result(
            Status.FAIL, terms.subject, "Socket", "IB or a network plugin",
            "NCCL INFO Using network Socket: TCP through the CPU",
            meaning="a tenth of the bandwidth or less, and the CPU is busy with it",
            remedy="see why NET/IB found no device: NCCL_IB_DISABLE, NCCL_IB_HCA, drivers, GIDs",
        )  # fmt: skip
    many = [(run, log) for run, log in logs if len(run.hosts) > 1 and log.reported]
    if many and not any(log.between_hosts for _, log in many):
        yield check.result(
            Status.UNKNOWN, terms.subject, evidence="the log reports no channel between hosts"
        )


def _nics(check: Check, terms: NcclTerms, logs: _Logs) -> Iterator[Result]:
    counts: dict[str, int] = {}
    for _, log in logs:
        counts.update({host: len(nics) for host, nics in log.nics.items()})
    if not counts:
        return
    usual = terms.nics or Counter(counts.values()).most_common(1)[0][0]
    for host, count in sorted(counts.items()):
        if count != usual:
            nics = next(log.nics[host] for _, log in logs if host in log.nics)
            yield check.result(
                Status.FAIL, host, f"{count} NICs", f"{usual} NICs",
                f"NET/IB : Using {', '.join(nics)}", suspect=Suspect.NIC,
                meaning="the whole job runs at this host's share of rails",
                remedy="see be.init.present and be.act.state on this host, then NCCL_IB_HCA",
            )  # fmt: skip


def _direct(check: Check, terms: NcclTerms, logs: _Logs) -> Iterator[Result]:
    between = sum(log.between_hosts for _, log in logs)
    direct = sum(log.direct for _, log in logs)
    sockets = any("Socket" in name for _, log in logs for name in log.networks)
    if between and direct < between and not sockets:
        yield check.result(
            Status.WARN, terms.subject, f"{direct} of {between} channels", "all channels",
            "via NET/IB/…/GDRDMA", suspect=Suspect.HOST,
            meaning="data goes through host memory: about a third of the bandwidth",
            remedy="load nvidia_peermem or use dma-buf; look at pcie.acs and pcie.iommu",
        )  # fmt: skip


def _settings(check: Check, terms: NcclTerms, logs: _Logs) -> Iterator[Result]:
    for case, log in {run.case: log for run, log in logs}.items():
        read = log.settings.get("NCCL_IB_QPS_PER_CONNECTION")
        if log.settings and read != str(case.qps):
            yield check.result(
                Status.WARN, terms.subject, f"{read or 'not set'}", case.qps,
                "NCCL_IB_QPS_PER_CONNECTION as NCCL read it",
                meaning="another setting overrides the test's", remedy="see sw.env (nccl.conf)",
            )  # fmt: skip
    warnings = dict.fromkeys(warning for _, log in logs for warning in log.warnings)
    if warnings:
        yield check.result(
            Status.WARN, terms.subject, f"{len(warnings)} warnings", "none",
            "; ".join(list(warnings)[:5]),
        )  # fmt: skip


def _size(terms: NcclTerms, nodes: int) -> Iterator[Result]:
    enough = nodes >= MIN_NODES
    yield Size().result(
        Status.PASS if enough else Status.WARN, terms.subject, f"{nodes} hosts",
        f"{MIN_NODES} or more",
    )  # fmt: skip


def _tail(terms: NcclTerms, outputs: Iterable[Output]) -> Iterator[Result]:
    tails = [output.tail for output in outputs if output.tail]
    if not tails:
        yield Tail().result(Status.SKIP, terms.subject, evidence="the output reports no iterations")
        return
    worst = max(tails)
    yield Tail().result(
        Status.PASS if worst < TAIL else Status.WARN, terms.subject, f"{worst:.2f}",
        f"below {TAIL}", f"p99 over p50 of the iterations, worst of {len(tails)} runs",
    )  # fmt: skip


def _diagnosis(
    terms: NcclTerms,
    runs: Sequence[NcclRun],
    seen: Mapping[Case, CaseFigures],
    low: frozenset[Case],
) -> Result:
    check = CasePattern()
    if not seen:
        return check.result(Status.UNKNOWN, terms.subject, evidence="no case gave a figure")
    logs = [run.log for run in runs if run.log is not None and run.log.reported]
    between = sum(log.between_hosts for log in logs)
    verdict = diagnose(
        frozenset(seen),
        low,
        sockets=any("Socket" in name for log in logs for name in log.networks),
        direct=sum(log.direct for log in logs) > 0 if between else None,
    )
    table = ", ".join(f"{case.check} {each.busbw:.3g}" for case, each in sorted(seen.items()))
    if verdict is None:
        return check.result(Status.PASS, terms.subject, "no case low", evidence=f"GB/s: {table}")
    return check.result(
        Status.FAIL, terms.subject, f"{len(low)} of {len(seen)} cases low", "none low",
        f"GB/s: {table}", meaning=verdict.says, remedy=verdict.remedy, suspect=verdict.suspect,
    )  # fmt: skip
