"""Compares two recorded runs of a job: whether they are comparable, and what changed.

Rule 0, compare like with like: operations of the same kind, size and ranks; flows between the same
NICs; links, hosts and GPUs of the same name. A change counts if it exceeds a tenth and the scatter
of both runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony.model import format_bps, format_ns
from syntony.model.names import host_of
from syntony.workload.bundle import NULL, OWN_CLOCKS, Bundle, BundleTable, Floats, Ints
from syntony.workload.diagnose import diagnose
from syntony.workload.grid import MAD_SIGMA
from syntony.workload.schema import CLASS_COLUMNS
from syntony.workload.verdict import Verdict

MIN_RATIO = 1.1
"""Minimum ratio of medians, in either direction, for a change."""
SIGMAS = 4.0
"""Minimum change in standard errors of the difference of medians: hundreds of values are compared,
and none should change by chance."""
MEDIAN_ERROR = 1.2533
"""Ratio of the standard error of a median to that of a mean, for a normal distribution."""
MIN_VALUES = 5
"""Minimum values of each run for a comparison."""
DIGITS = 3
"""Significant digits of the size of an operation: operations with equal digits are the same."""
NOTHING = 1e-9
"""Share of the value after; a smaller value before counts as zero, and no ratio is given."""
NONE = -1.0
"""Key of a size or number of ranks that was not recorded."""
COLUMNS = (
    ("steps", (), "ns", True, ("compute_ns", "comm_ns", "data_ns", "checkpoint_ns")),
    ("flows", ("src", "dst"), "ns", True, ("owd_p50_ns", "credit_blocked_ns", "poll_gap_ns")),
    ("flows", ("src", "dst"), "bit/s", False, ("rate_bps",)),
    ("flows", ("src", "dst"), "", True, ("retransmits",)),
    ("links", ("link",), "bit/s", False, ("speed_bps",)),
    ("links", ("link",), "", True, ("utilisation", "symbol_errors")),
    ("links", ("link",), "ns", True, ("pause_ns",)),
    ("links", ("link",), "GT/s", False, ("pcie_gts",)),
    ("links", ("link",), "lanes", False, ("pcie_width",)),
    ("hosts", ("host",), "ns", True, ("runq_ns", "irq_ns")),
    ("hosts", ("gpu",), "MHz", False, ("sm_clock_mhz",)),
)
"""Table, columns that name a part, unit, whether more is worse, columns that are compared."""


class RunDifference(msgspec.Struct, frozen=True):
    """A value of both runs that differs."""

    measure: str
    subject: str
    unit: str
    before: float
    after: float
    ratio: float | None
    """After divided by before; null if there was nothing before."""
    worse: bool
    values: tuple[int, int]
    """Number of values of each median."""


class RunComparison(msgspec.Struct, frozen=True):
    """The result of a comparison."""

    comparable: bool
    differs: tuple[str, ...]
    """Differences in the setup."""
    sentences: tuple[str, ...]
    changes: tuple[RunDifference, ...]
    """Worst first."""
    appeared: tuple[str, ...]
    """Verdicts of only the second run."""
    gone: tuple[str, ...]
    """Verdicts of only the first run."""


class _Measure(NamedTuple):
    """Values by subject; whether more is worse; the more important ones first."""

    name: str
    unit: str
    more_is_worse: bool
    values: dict[str, Floats]
    weight: int


_Measures = dict[str, _Measure]


def compare(one: Bundle, other: Bundle) -> RunComparison:
    """Changes from one run to the other."""
    setup, hard = _differences(one, other)
    if hard:
        text = f"The runs cannot be compared: {'; '.join(hard)}."
        return RunComparison(False, (*hard, *setup), (text,), (), (), ())
    same_hosts = _hosts(one) == _hosts(other)
    one_clock = OWN_CLOCKS not in {one.manifest.timeline, other.manifest.timeline}
    before, after = ({each.name: each for each in _measures(bundle, same_hosts, one_clock)}
                     for bundle in (one, other))  # fmt: skip
    changes = [change for name in before for change in _changes(before[name], after[name])]
    changes.sort(key=lambda each: (not each.worse, before[each.measure].weight,
                                   -_distance(each)))  # fmt: skip
    first, second = diagnose(one).verdicts, diagnose(other).verdicts
    appeared, gone = _only(second, first), _only(first, second)
    sentences = [_overall(changes, before, after), _worst(changes), _why(appeared, gone)]
    if setup:
        sentences[2] += f" Set up or recorded differently: {'; '.join(setup)}."
    return RunComparison(True, tuple(setup), tuple(sentences), tuple(changes),
                      tuple(map(_named, appeared)), tuple(map(_named, gone)))  # fmt: skip


def _differences(one: Bundle, other: Bundle) -> tuple[list[str], list[str]]:
    """Differences in setup or recording, and those that make the runs incomparable."""
    setup, hard = [], []
    sizes = [_ranks(each) for each in (one, other)]
    if all(sizes) and sizes[0] != sizes[1]:
        hard.append(f"{sizes[0]} ranks against {sizes[1]}")
    ops = [set(_operations(each)) for each in (one, other)]
    if all(ops) and not ops[0] & ops[1]:
        hard.append(f"no operation of the same kind, size and ranks ({min(ops[0])} against"
                    f" {min(ops[1])})")  # fmt: skip
    elif all(ops) and ops[0] != ops[1]:
        setup.append(f"{len(ops[0] ^ ops[1])} kinds of operations are in one run only, left out")
    alone = set(one.tables) ^ set(other.tables)
    if not set(one.tables) & set(other.tables):
        hard.append("no table is in both")
    elif alone:
        setup.append(f"{', '.join(sorted(alone))}: in one run only, not compared")
    if OWN_CLOCKS in {one.manifest.timeline, other.manifest.timeline}:
        setup.append("ranks are not on one clock, operations and lateness are not compared")
    hosts = [_hosts(each) for each in (one, other)]
    if all(hosts) and hosts[0] != hosts[1]:
        setup.append(f"{len(hosts[1] - hosts[0])} of {len(hosts[1])} hosts are others, parts of the"
                     " fabric are not compared")  # fmt: skip
    setup += _classes(one.table("flows"), other.table("flows"))
    return setup, hard


def _ranks(bundle: Bundle) -> int:
    tables = [bundle.table(name) for name in ("collectives", "steps")]
    return len(np.unique(np.concatenate([each.ints("rank") for each in tables])))


def _hosts(bundle: Bundle) -> set[str]:
    names = {str(name) for table in ("collectives", "steps", "hosts")
             for name in bundle.table(table).codes("host").values}  # fmt: skip
    return names | {host_of(str(nic)) for side in ("src", "dst")
                    for nic in bundle.table("flows").codes(side).values}  # fmt: skip


def _classes(one: BundleTable, other: BundleTable) -> list[str]:
    found = []
    for name in CLASS_COLUMNS:
        kinds = [sorted({float(each) for each in np.unique(table.numbers(name))
                         if np.isfinite(each)}) for table in (one, other)]  # fmt: skip
        if all(kinds) and kinds[0] != kinds[1]:
            texts = [" and ".join(f"{value:g}" for value in each[:3]) for each in kinds]
            found.append(f"{name} {texts[0]} against {texts[1]}")
    return found


def _operations(bundle: Bundle) -> dict[str, Ints]:
    """Rows of `collectives` by kind, size and ranks."""
    table = bundle.table("collectives")
    if not table.rows:
        return {}
    ops, sizes, many = table.codes("op"), table.numbers("bytes"), table.numbers("nranks")
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = 10.0 ** (np.floor(np.log10(sizes)) - DIGITS + 1)
        rounded = np.round(sizes / unit) * unit
    rounded[~np.isfinite(rounded)] = NONE
    keys = np.stack([ops.codes, rounded, np.where(np.isfinite(many), many, NONE)])
    found: dict[str, Ints] = {}
    for (op, size, ranks), rows in _grouped(keys):
        name = str(ops.values[int(op)])
        name += f" of {_bytes(size)}" if size != NONE else ""
        name += f" over {ranks:.0f} ranks" if ranks != NONE else ""
        found[name] = np.concatenate((found[name], rows)) if name in found else rows
    return found


def _grouped(keys: NDArray[Any]) -> Iterator[tuple[tuple[Any, ...], Ints]]:
    """Distinct columns of `keys`, (key, rows), and the rows of each."""
    if not keys.shape[1]:
        return
    kinds, number = np.unique(keys, axis=1, return_inverse=True)
    number = number.reshape(-1)
    order = np.argsort(number, kind="stable")
    ends = np.searchsorted(number[order], np.arange(1, kinds.shape[1]))
    for kind, rows in zip(kinds.T, np.split(order, ends), strict=True):
        yield tuple(kind.tolist()), rows


def _bytes(size: float) -> str:
    for unit, limit in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= limit:
            return f"{size / limit:.3g} {unit}"
    return f"{size:.3g} B"


def _measures(bundle: Bundle, by_name: bool, one_clock: bool) -> list[_Measure]:
    """Everything that is compared: parts of the fabric only if hosts are the same, and values that
    need instants of several hosts only if these share one clock."""
    steps = bundle.table("steps")
    length = (steps.ints("end_ns") - steps.ints("begin_ns")).astype(float)
    took, late = _collectives(bundle) if one_clock else ({}, {})
    found = [
        _Measure("step", "ns", True, {"steps": length} if steps.rows else {}, 0),
        _Measure("operation", "ns", True, took, 1), _Measure("lateness", "ns", True, late, 3),
    ]  # fmt: skip
    for table, subjects, unit, more_is_worse, names in COLUMNS:
        rows = bundle.table(table)
        weight = {"steps": 2, "flows": 4}.get(table, 5)
        for name in names:
            compared = by_name or table in {"steps", "flows"}
            values = _by(rows, name, subjects if by_name else ()) if compared else {}
            found.append(_Measure(name, unit, more_is_worse, values, weight))
    return found


def _collectives(bundle: Bundle) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """By operation: time from the last rank's arrival to the last rank's end, and from the first
    rank's arrival to the last's, in ns."""
    table = bundle.table("collectives")
    enqueue, done = table.ints("enqueue_ns"), table.ints("done_ns")
    comms, seqs = table.codes("comm").codes, table.ints("seq")
    took: dict[str, Floats] = {}
    late: dict[str, Floats] = {}
    for name, place in _operations(bundle).items():
        _, number = np.unique(np.stack([comms[place], seqs[place]]), axis=1, return_inverse=True)
        number = number.reshape(-1)
        count = int(number.max()) + 1
        last, first, end = np.zeros(count), np.full(count, np.inf), np.zeros(count)
        offset = int(enqueue[place].min())  # float64 is exact in ns only for differences
        enqueued = (enqueue[place] - offset).astype(float)
        np.maximum.at(last, number, enqueued)
        np.minimum.at(first, number, enqueued)
        whole = np.ones(count, dtype=bool)
        whole[number[done[place] == NULL]] = False
        known = done[place] != NULL
        np.maximum.at(end, number[known], (done[place][known] - offset).astype(float))
        took[name], late[name] = (end - last)[whole], last - first
    return took, late


def _by(table: BundleTable, column: str, keys: tuple[str, ...]) -> dict[str, Floats]:
    """Values of a column by the names in these text columns; all as one if there are none."""
    values = table.numbers(column)
    known = np.flatnonzero(np.isfinite(values))
    names = [table.codes(key) for key in keys]
    if not names:
        return {table.name: values[known]} if len(known) else {}
    known = known[np.all([each.codes[known] >= 0 for each in names], axis=0)]
    codes = np.stack([each.codes[known] for each in names])
    return {" to ".join(str(each.values[code]) for each, code in zip(names, kind, strict=True)):
            values[known[rows]] for kind, rows in _grouped(codes)}  # fmt: skip


def _changes(before: _Measure, after: _Measure) -> Iterator[RunDifference]:
    for subject in sorted(before.values.keys() & after.values.keys()):
        one, other = _known(before.values[subject]), _known(after.values[subject])
        if min(len(one), len(other)) < MIN_VALUES:
            continue
        low, high = float(np.median(one)), float(np.median(other))
        noise = MEDIAN_ERROR * math.hypot(_error(one), _error(other))
        if min(low, high) < 0 or low == high or abs(high - low) <= SIGMAS * noise:
            continue  # below 0: a wrong clock
        ratio = high / low if low > NOTHING * high else None
        if ratio and 1 / MIN_RATIO < ratio < MIN_RATIO:
            continue
        yield RunDifference(before.name, subject, before.unit, low, high,
                     None if ratio is None else round(ratio, 4),
                     (high > low) == before.more_is_worse, (len(one), len(other)))  # fmt: skip


def _distance(change: RunDifference) -> float:
    """Logarithmic distance of the values; infinite from or to zero."""
    return abs(math.log(change.ratio)) if change.ratio else math.inf


def _known(values: Floats) -> Floats:
    kept: Floats = values[np.isfinite(values)]
    return kept


def _error(values: Floats) -> float:
    spread = MAD_SIGMA * float(np.median(np.abs(values - np.median(values))))
    return spread / math.sqrt(len(values))


def _only(verdicts: tuple[Verdict, ...], others: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    known = {(each.fault, each.subjects) for each in others}
    return tuple(each for each in verdicts if (each.fault, each.subjects) not in known)


def _named(verdict: Verdict) -> str:
    return f"{verdict.fault} {' or '.join(verdict.subjects)} ({verdict.confidence:.0%})"


def size(change: RunDifference) -> str:
    """Both values of a change, and their ratio, as text."""
    after, before = (show(each, change.unit) for each in (change.after, change.before))
    times = f", {change.ratio:.2f} times" if change.ratio else ""
    return f"{after} against {before}{times}"


def show(value: float, unit: str) -> str:
    """A value as text."""
    if unit == "ns":
        return format_ns(value)
    return format_bps(value) if unit == "bit/s" else f"{value:.3g} {unit}".rstrip()


def _overall(changes: list[RunDifference], before: _Measures, after: _Measures) -> str:
    change = next((each for each in changes if each.measure == "step"), None)
    if change is not None and change.ratio is not None:
        word = "longer" if change.worse else "shorter"
        return (f"Steps are {word}: {show(change.after, 'ns')} against {show(change.before, 'ns')},"
                f" {change.ratio:.2f} times.")  # fmt: skip
    steps = [each["step"].values.get("steps") for each in (before, after)]
    if any(each is None or not len(each) for each in steps):
        return "Whether steps are longer is not known: one run has none recorded."
    one, other = (float(np.median(each)) for each in steps if each is not None)
    return f"Steps take as long as before: {show(other, 'ns')} against {show(one, 'ns')}."


def _worst(changes: list[RunDifference]) -> str:
    rest = [each for each in changes if each.measure != "step"]
    if not rest:
        return "Nothing else that both runs recorded changed by a tenth or more."
    each = rest[0]
    word = "worst" if each.worse else "largest"
    return f"The {word} of {len(rest)} changes is {each.measure} of {each.subject}: {size(each)}."


def _why(appeared: tuple[Verdict, ...], gone: tuple[Verdict, ...]) -> str:
    if appeared:
        first = appeared[0]
        text = f"Only the second run has {_named(first)}: {first.evidence[0].text}"
        return f"{text} ({len(appeared) - 1} more)." if len(appeared) > 1 else f"{text}."
    if gone:
        return f"Only the first run has {_named(gone[0])}: it is gone."
    return "Neither run has a fault that the other has not."
