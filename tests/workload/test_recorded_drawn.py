"""What another generator drew, taken to rows of the store and back, is judged as it was drawn."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from bench.diagnosis import drawn
from bench.diagnosis.case import Case, bundle_of
from tests.cases import mostly_slow
from tests.workload.stored_rows import Rows, bundle, columns

from syntony.wire.tables import COLLECTIVE, JOB_PROCESS
from syntony.workload import FaultClass, diagnose
from syntony.workload.recorded import SETTLE_NS, recorded

KEPT = {
    "collectives": (
        "comm", "seq", "op", "rank", "host", "enqueue_ns", "done_ns", "bytes", "nranks",
    ),
    "hosts": ("at_ns", "window_ns", "host", "runq_ns"),
}  # fmt: skip
"""What agents tell of these tables."""


def _kept(case: Case, table: str) -> dict[str, list[Any]]:
    """… within the recording."""
    end_ns = case.manifest["end_ns"]
    rows = [
        row
        for row in _each(case, table)
        if (row["enqueue_ns"] if table == "collectives" else row["at_ns"]) < end_ns
        and (row.get("gpu") is None or table == "collectives")
    ]
    return {name: [row.get(name) for row in rows] for name in KEPT[table]} if rows else {}


def _stored(case: Case) -> Rows:
    """A drawn bundle's collectives and hosts as an agent would store them."""
    rows: Rows = {COLLECTIVE.name: [], JOB_PROCESS.name: []}
    for row in _each(case, "collectives"):
        row |= {"ts_ns": row["enqueue_ns"], "done_ns": row["done_ns"] or 0, "ranks": row["nranks"]}
        rows[COLLECTIVE.name].append(row | {"pid": 1, "dropped": 0})
    for row in _each(case, "hosts"):
        if row.get("gpu") is None:
            begun = {"began_ns": case.manifest["begin_ns"]}
            rows[JOB_PROCESS.name].append(row | begun | {"ts_ns": row["at_ns"], "rank": -1})
    return rows


def _until(case: Case, end_ns: int) -> Case:
    """What began before."""
    kept = {}
    for name, table in case.tables.items():
        begun = [at_ns < end_ns for at_ns in table["at_ns" if "at_ns" in table else "enqueue_ns"]]
        kept[name] = {key: list(itertools.compress(values, begun)) for key, values in table.items()}
    return case._replace(tables=kept, manifest=case.manifest | {"end_ns": end_ns})


def _each(case: Case, table: str) -> list[dict[str, Any]]:
    found = case.tables.get(table, {})
    return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]


@pytest.mark.parametrize("seeds", mostly_slow((8, 25), {8}))
@pytest.mark.parametrize("fault", ["straggler", "hang", "host-jitter", ""])
def test_what_another_generator_drew_is_judged_alike_from_the_store(fault: str, seeds: int) -> None:
    """Stored in another form and read back, collectives and hosts say what the bundle said."""
    named = 0
    for case in (drawn.make_case(fault, seed) for seed in range(seeds)):
        some = {name: known for name in KEPT if (known := _kept(case, name))}
        if "collectives" not in some:
            continue
        begin_ns, end_ns = case.manifest["begin_ns"], case.manifest["end_ns"]
        found = recorded("j", columns(_stored(case)), begin_ns, end_ns, end_ns + SETTLE_NS)
        own = bundle_of(_until(case._replace(tables=some), found.manifest["end_ns"]))
        wanted = {(each.fault, each.subjects) for each in diagnose(own).verdicts}
        reported = {(each.fault, each.subjects) for each in diagnose(bundle(found)).verdicts}
        kinds = {FaultClass.STRAGGLER, FaultClass.HANG, FaultClass.HOST_JITTER}
        assert {each for each in reported if each[0] in kinds} == {
            each for each in wanted if each[0] in kinds
        }
        named += bool(reported)
    assert named or not fault
