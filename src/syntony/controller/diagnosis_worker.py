"""A process that evaluates jobs for the controller: rows on standard input, verdicts on standard
output, one job after the other.

python -m syntony.controller.diagnosis_worker

It has a low priority and ends with its input. The evaluation of a large job thus does not use the
controller's interpreter, and can be ended by killing the process.
"""

from __future__ import annotations

import os
import sys
from typing import IO

import msgspec

from syntony.errors import SyntonyError
from syntony.io.bundle_files import arrow_tables, bundle_from_tables
from syntony.wire.job_diagnosis import JobFlow, JobResult, JobRows, JobVerdict
from syntony.workload import diagnose
from syntony.workload.flows import Flows
from syntony.workload.recorded import recorded
from syntony.workload.verdict import FaultClass

LENGTH_BYTES = 4
"""Length of the prefix of each message, most significant byte first."""
NICE = 10
MAX_FLOWS = 2_000
"""Maximum of one job in an answer."""


def evaluate(rows: JobRows) -> JobResult:
    """Evaluate a job by the rules of `syntony why`. Never raises: an error is part of the
    result."""
    try:
        return _evaluate(rows)
    except SyntonyError as error:
        return JobResult(job=rows.job, verdicts=(), flows=(), error=str(error))
    except Exception as error:  # noqa: BLE001 - one job's rows must not end what judges the others
        return JobResult(
            job=rows.job, verdicts=(), flows=(), error=f"{type(error).__name__}: {error}"
        )


def _evaluate(rows: JobRows) -> JobResult:
    found = recorded(rows.job, rows.rows, rows.first_ns, rows.last_ns, rows.now_ns)
    if not found.tables:
        return JobResult(job=rows.job, verdicts=(), flows=())
    bundle = bundle_from_tables(arrow_tables(found.tables), found.manifest)
    verdicts = tuple(
        JobVerdict(
            fault=each.fault,
            subjects=each.subjects,
            hosts=each.blast_radius.hosts,
            confidence=each.confidence,
            onset_ns=each.onset_ns,
            text=each.evidence[0].text,
            action=each.action,
        )
        for each in diagnose(bundle).verdicts
        if each.end_ns is None and each.fault is not FaultClass.UNDETERMINED
    )
    flows: tuple[JobFlow, ...] = ()
    if any(each.fault == FaultClass.SLOW_FLOW for each in verdicts):
        flows = _flows(Flows(bundle.table("flows")), {s for v in verdicts for s in v.subjects})
    return JobResult(job=rows.job, verdicts=verdicts, flows=flows)


def _flows(flows: Flows, first: set[str]) -> tuple[JobFlow, ...]:
    """Flows named in verdicts first, then others as far as there is room."""
    order = sorted(range(len(flows)), key=lambda place: flows.names[place] not in first)
    return tuple(
        JobFlow(
            flow=flows.names[place], src=flows.src[place], dst=flows.dst[place],
            hops=tuple(flows.hops[place]),
        )
        for place in order[:MAX_FLOWS]
    )  # fmt: skip


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Evaluate jobs until the input ends."""
    decode = msgspec.msgpack.Decoder(JobRows).decode
    while len(head := source.read(LENGTH_BYTES)) == LENGTH_BYTES:
        data = source.read(int.from_bytes(head, "big"))
        answer = msgspec.msgpack.encode(evaluate(decode(data)))
        sink.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        sink.flush()


if __name__ == "__main__":
    os.nice(NICE)
    serve(sys.stdin.buffer, sys.stdout.buffer)
