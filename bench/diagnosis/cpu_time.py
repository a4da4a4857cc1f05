"""CPU time of hosts, which the generators of bundles do not make."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.diagnosis.case import Case, Columns

BUSY = 0.97
"""Share of the time for which threads are ready of a rank that all wait for."""


def with_cpu_time(case: Case, seed: int) -> Case:
    """In two of three cases hosts also say for how long the job's processes ran: a share of the
    time that is the job's own, less where they wait for a core."""
    draw, hosts = random.Random(f"cpu {seed}"), case.tables.get("hosts")
    if hosts is None or "runq_ns" not in hosts or draw.random() < 1 / 3:
        return case
    busy = draw.uniform(0.05, 0.9)
    ran = [None if waited is None else
           busy * draw.lognormvariate(0, 0.1) * width**2 / (width + waited)
           for waited, width in zip(hosts["runq_ns"], hosts["window_ns"], strict=True)]  # fmt: skip
    return _with(case, hosts, cpu_ns=ran)


def crowded(case: Case, seed: int) -> Case:
    """All hosts' cores are shared with 0.2 to 1.5 other threads each, that of a host short of CPU
    with 3 to 12 more, as by a fair scheduler. A rank that all wait for is always ready, others for
    a share of the time. Pollers' gaps are not recorded."""
    draw, hosts = random.Random(f"crowd {seed}"), case.tables.get("hosts")
    if hosts is None or "runq_ns" not in hosts:
        return case
    others, duty, more = draw.uniform(0.2, 1.5), draw.uniform(0.2, 0.6), draw.uniform(3, 12)
    truth, busy = case.truth, _busy(case)
    ran: list[float | None] = []
    waited: list[float | None] = []
    for row, (host, at_ns, width) in enumerate(
        zip(hosts["host"], hosts["at_ns"], hosts["window_ns"], strict=True)
    ):
        if hosts["runq_ns"][row] is None:
            ran.append(None)
            waited.append(None)
            continue
        compete = others * draw.lognormvariate(0, 0.15)
        ready = min(BUSY, duty * (1 + others) * draw.lognormvariate(0, 0.1))
        if host == busy and at_ns >= truth.onset_ns:
            compete, ready = compete + more * (truth.fault == "host-jitter"), BUSY
        ran.append(ready / (1 + compete) * width)
        waited.append(ready * compete / (1 + compete) * width)
    made = _with(case, hosts, cpu_ns=ran, runq_ns=waited)
    flows = {name: each for name, each in made.tables.get("flows", {}).items()
             if name != "poll_gap_ns"}  # fmt: skip
    return made._replace(tables={**made.tables, "flows": flows}) if flows else made


def _busy(case: Case) -> str:
    """The host that all others wait for."""
    if case.truth.fault != "straggler":
        return case.truth.subject
    operations, rank = case.tables["collectives"], int(case.truth.subject.split()[1])
    return str(operations["host"][operations["rank"].index(rank)])


def _with(case: Case, hosts: Columns, **columns: list[float | None]) -> Case:
    return case._replace(tables={**case.tables, "hosts": {**hosts, **columns}})
