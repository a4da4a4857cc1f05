"""Beyond the eight cases: each rail, other operations, reductions in switches. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath

import msgspec

from syntony.audit.check import Check
from syntony.audit.checks.nccl import InNetwork, Operations, RailBalance
from syntony.audit.nccl.diagnosis import SPREAD, floor_of
from syntony.audit.nccl.judge import NcclRun
from syntony.audit.nccl.plan import NcclJob
from syntony.audit.result import Result, Status, Suspect
from syntony.errors import UsageError

EVEN_RAILS = 0.95
"""Slowest rail over the mean, or one rail over the median: NVIDIA's rail test."""
OPERATIONS = {"all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1 / 8, "sendrecv": 1 / 8}
"""Operation to its share of the all-reduce's floor: what all NICs of a host limit, or one does."""
Start = Callable[[NcclJob], NcclRun]
"""Runs a job over the fleet."""
_SLOWEST = ("-a", "3")
"""nccl-tests then reports the longest time of all ranks and groups instead of their mean."""


def together(job: NcclJob) -> NcclJob:
    """All rails at once, each a group of its own."""
    split = {"NCCL_TESTS_SPLIT": f"MOD {job.gpus}"}
    return msgspec.structs.replace(job, environment={**job.environment, **split})


def alone(job: NcclJob, rail: int) -> NcclJob:
    """One GPU of each host, and with it the NIC next to it."""
    chosen = {"CUDA_VISIBLE_DEVICES": str(rail)}
    return msgspec.structs.replace(job, gpus=1, environment={**job.environment, **chosen})


def rails(job: NcclJob, start: Start, subject: str) -> Iterator[Result]:
    """Two runs; if they say that the rails are uneven, one more for each rail."""
    check = RailBalance()
    split = together(job)
    mean, slowest = start(split), start(msgspec.structs.replace(split, more=_SLOWEST))
    if mean.output is None or slowest.output is None:
        yield _trouble(check, subject, mean if mean.output is None else slowest)
        return
    usual, worst = mean.output.peak, slowest.output.peak
    share = worst / usual if usual else 0.0
    floor = floor_of(mean.output.device, len(mean.hosts)) if job.gpus == 8 else None
    least = floor.gbytes / job.gpus if floor is not None else 0.0
    good = share >= EVEN_RAILS and worst >= least
    expected = f"≥ {EVEN_RAILS:.0%} of the mean" + (f", ≥ {least:.4g} GB/s" if least else "")
    yield check.result(
        Status.PASS if good else Status.FAIL, subject,
        f"slowest {worst:.4g} GB/s, {share:.0%} of the mean", expected,
        f"{job.gpus} rails at once, mean {usual:.4g} GB/s",
    )  # fmt: skip
    if not good:
        yield from _each(check, {rail: start(alone(job, rail)) for rail in range(job.gpus)})


def _each(check: Check, runs: Mapping[int, NcclRun]) -> Iterator[Result]:
    peaks = {rail: run.output.peak for rail, run in runs.items() if run.output is not None}
    median = statistics.median(peaks.values()) if peaks else 0.0
    for rail, run in runs.items():
        if rail not in peaks:
            yield _trouble(check, f"rail {rail}", run)
        elif peaks[rail] < EVEN_RAILS * median:
            yield check.result(
                Status.FAIL, f"rail {rail}", f"{peaks[rail]:.4g} GB/s alone",
                f"≥ {EVEN_RAILS:.0%} of {median:.4g} GB/s",
                f"GPU {rail} of every host by itself; median of {len(peaks)} rails",
            )  # fmt: skip


def operation(job: NcclJob, name: str) -> NcclJob:
    """The same with another of nccl-tests' programs. Raises `UsageError`."""
    path = PurePosixPath(job.binary)
    if "all_reduce" not in path.name:
        raise UsageError(f"--ops: {path.name} does not give the path of {name}_perf")
    other = str(path.with_name(path.name.replace("all_reduce", name)))
    return msgspec.structs.replace(job, binary=other)


def operations(job: NcclJob, start: Start, subject: str) -> Iterator[Result]:
    """One run of each."""
    for name in OPERATIONS:
        yield _operation(name, start(operation(job, name)), subject)


def _operation(name: str, run: NcclRun, fleet: str) -> Result:
    check, subject = Operations(), f"{fleet}/{name}"
    output = run.output
    if output is None:
        return _trouble(check, subject, run)
    got, checked = f"{output.peak:.4g} GB/s", f"{name}_perf, {len(run.hosts)} hosts"
    if output.wrong:
        return check.result(
            Status.FAIL, subject, f"{output.wrong} wrong elements", "0", checked,
            suspect=Suspect.GPU, meaning="silent data corruption", remedy="see nccl.correct",
        )  # fmt: skip
    floor = floor_of(output.device, len(run.hosts)) if len(run.hosts) > 1 else None
    if floor is None:
        why = f"no floor is known for {output.device or 'this device'} on {len(run.hosts)} hosts"
        return check.result(Status.UNKNOWN, subject, got, evidence=why)
    least = OPERATIONS[name] * floor.gbytes
    status = Status.PASS if output.peak >= least else Status.WARN
    return check.result(
        status, subject, got, f"≥ {least:.4g} GB/s (from {floor.source})", checked
    )  # fmt: skip


def in_network(job: NcclJob, start: Start, subject: str) -> Iterator[Result]:
    """One run without, one with."""
    check = InNetwork()
    off, on = (
        start(msgspec.structs.replace(
            job, environment={**job.environment, "NCCL_COLLNET_ENABLE": word}))
        for word in ("0", "1")
    )  # fmt: skip
    if off.output is None or on.output is None:
        yield _trouble(check, subject, off if off.output is None else on)
        return
    before, after = off.output.peak, on.output.peak
    said = f"{after:.4g} GB/s with, {before:.4g} without"
    if on.log is None or not on.log.reported:
        yield check.result(Status.UNKNOWN, subject, said, evidence="NCCL wrote no log")
    elif not on.log.in_network:
        why = on.log.warnings[0] if on.log.warnings else "NCCL's log reports no CollNet channel"
        yield check.result(Status.FAIL, subject, "not used", "CollNet channels", why)
    else:
        status = Status.PASS if after >= (1 - SPREAD) * before else Status.WARN
        channels = f"{on.log.in_network} CollNet channels"
        yield check.result(status, subject, said, "not slower than without", channels)


def _trouble(check: Check, subject: str, run: NcclRun) -> Result:
    """A run without figures: what broke failed, what could not be started is unknown."""
    return check.result(
        Status.FAIL if run.broke else Status.UNKNOWN, subject, "the run failed",
        evidence=run.trouble,
    )  # fmt: skip
