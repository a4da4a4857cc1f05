"""Two recorded runs of a job: whether they can be compared, and what changed.

Rule 0, compare like with like: operations of the same kind, size and ranks; flows between the same
NICs; links, hosts and GPUs of the same name. A change counts beyond a tenth and beyond what the
scatter of both runs explains.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from syntony.model import format_ns
from syntony.workload.bundle import NULL
from syntony.workload.diagnose import diagnose
from syntony.workload.grid import MAD_SIGMA
from syntony.workload.schema import CLASS_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from syntony.workload.bundle import Bundle, Floats, Table
    from syntony.workload.verdict import Verdict

MIN_RATIO = 1.1
"""Between medians, either way, from which something changed."""
SIGMAS = 4.0
"""Of the standard error of the difference of medians that it must be beyond as well: hundreds of
things are compared, of which none may change by chance."""
MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, for a normal distribution."""
MIN_VALUES = 5
"""Values of each run without which nothing is compared."""
NEAR = 1.01
"""Sizes of operations that are the same: within a hundredth."""


class Change(msgspec.Struct, frozen=True):
    """Something that both runs have, and that is not as it was."""

    measure: str
    subject: str
    unit: str
    before: float
    after: float
    ratio: float
    """After over before."""
    worse: bool
    values: tuple[int, int]
    """How many values each median is of."""


class Comparison(msgspec.Struct, frozen=True):
    """What can be said of two runs."""

    comparable: bool
    differs: tuple[str, ...]
    """What was set up differently."""
    sentences: tuple[str, ...]
    changes: tuple[Change, ...]
    """Worst first."""
    appeared: tuple[str, ...]
    """Verdicts of the second run alone."""
    gone: tuple[str, ...]
    """Verdicts of the first run alone."""


class _Measure(NamedTuple):
    """Values by subject; whether more is worse; what matters first."""

    name: str
    unit: str
    more_is_worse: bool
    values: dict[str, Floats]
    weight: int


def compare(one: Bundle, other: Bundle) -> Comparison:
    """What changed from one run to the other."""
    told, hard = _differences(one, other)
    if hard:
        text = f"The runs cannot be compared: {'; '.join(hard)}."
        return Comparison(False, (*hard, *told), (text,), (), (), ())
    same_hosts = _hosts(one) == _hosts(other)
    before, after = _measures(one, same_hosts), _measures(other, same_hosts)
    order = {measure.name: measure.weight for measure in before}
    changes = [change for a, b in zip(before, after, strict=True) for change in _changes(a, b)]
    changes.sort(key=lambda each: (not each.worse, order[each.measure],
                                   -abs(math.log(each.ratio))))  # fmt: skip
    first, second = diagnose(one).verdicts, diagnose(other).verdicts
    appeared, gone = _only(second, first), _only(first, second)
    sentences = _sentences(changes, before, after, appeared, gone)
    if told:
        sentences = (*sentences[:2], f"{sentences[2]} Set up differently: {'; '.join(told)}.")
    return Comparison(True, tuple(told), sentences, tuple(changes),
                      tuple(map(_named, appeared)), tuple(map(_named, gone)))  # fmt: skip


def _differences(one: Bundle, other: Bundle) -> tuple[list[str], list[str]]:
    """What was set up differently, and what of it makes the runs unlike."""
    told, hard = [], []
    sizes = [_ranks(each) for each in (one, other)]
    if all(sizes) and sizes[0] != sizes[1]:
        hard.append(f"{sizes[0]} ranks against {sizes[1]}")
    ops = [set(_operations(each)) for each in (one, other)]
    if all(ops) and not ops[0] & ops[1]:
        hard.append(f"no operation of the same kind, size and ranks ({_example(ops[0])} against"
                    f" {_example(ops[1])})")  # fmt: skip
    elif all(ops) and ops[0] != ops[1]:
        told.append(f"{len(ops[0] ^ ops[1])} kinds of operations are in one run only, left out")
    if not set(one.tables) & set(other.tables):
        hard.append("no table is in both")
    hosts = [_hosts(each) for each in (one, other)]
    if all(hosts) and hosts[0] != hosts[1]:
        told.append(f"{len(hosts[1] - hosts[0])} of {len(hosts[1])} hosts are others, parts of the"
                    " fabric are not compared")  # fmt: skip
    told += _classes(one.table("flows"), other.table("flows"))
    return told, hard


def _ranks(bundle: Bundle) -> int:
    found = {int(rank) for name in ("collectives", "steps")
             for rank in np.unique(bundle.table(name).ints("rank"))}  # fmt: skip
    return len(found)


def _hosts(bundle: Bundle) -> set[str]:
    names = {str(name) for table in ("collectives", "steps", "hosts")
             for name in bundle.table(table).codes("host").values}  # fmt: skip
    return names | {str(nic).split("/")[0] for side in ("src", "dst")
                    for nic in bundle.table("flows").codes(side).values}  # fmt: skip


def _example(ops: set[str]) -> str:
    return min(ops)


def _classes(one: Table, other: Table) -> list[str]:
    found = []
    for name in CLASS_COLUMNS:
        kinds = [sorted({float(each) for each in np.unique(table.numbers(name))
                         if np.isfinite(each)}) for table in (one, other)]  # fmt: skip
        if all(kinds) and kinds[0] != kinds[1]:
            texts = [" and ".join(f"{value:g}" for value in each[:3]) for each in kinds]
            found.append(f"{name} {texts[0]} against {texts[1]}")
    return found


def _operations(bundle: Bundle) -> dict[str, list[int]]:
    """Rows of `collectives` by kind, size and ranks."""
    table = bundle.table("collectives")
    ops, sizes, many = table.codes("op"), table.numbers("bytes"), table.numbers("nranks")
    found: dict[str, list[int]] = defaultdict(list)
    for row in range(table.rows):
        name = str(ops.at(row))
        if np.isfinite(sizes[row]) and sizes[row] > 0:
            step = round(math.log(float(sizes[row])) / math.log(NEAR))
            name += f" of {_bytes(NEAR**step)}"
        if np.isfinite(many[row]):
            name += f" over {many[row]:.0f} ranks"
        found[name].append(row)
    return found


def _bytes(size: float) -> str:
    for unit, limit in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= limit:
            return f"{size / limit:.3g} {unit}"
    return f"{size:.0f} B"


def _measures(bundle: Bundle, by_name: bool) -> list[_Measure]:
    """Everything that is compared; parts of the fabric only where hosts are the same."""
    steps = bundle.table("steps")
    length = (steps.ints("end_ns") - steps.ints("begin_ns")).astype(float)
    found = [_Measure("step", "ns", True, {"steps": length} if steps.rows else {}, 0)]
    took, late = _collectives(bundle)
    found += [_Measure("operation", "ns", True, took, 1), _Measure("lateness", "ns", True, late, 3)]
    for name in ("compute_ns", "comm_ns", "data_ns", "checkpoint_ns"):
        values = {"steps": steps.numbers(name)} if name in steps else {}
        found.append(_Measure(name, "ns", True, values, 2))
    flows = bundle.table("flows")
    for name, unit, worse in (("owd_p50_ns", "ns", True), ("rate_bps", "bit/s", False),
                              ("credit_blocked_ns", "ns", True), ("poll_gap_ns", "ns", True)):  # fmt: skip
        found.append(
            _Measure(name, unit, worse, _by(flows, name, _between if by_name else _all), 4)
        )
    for table, key, columns in (
        ("links", "link", (("speed_bps", "bit/s", False), ("utilisation", "", True),
                           ("pause_ns", "ns", True), ("pcie_gts", "GT/s", False),
                           ("pcie_width", "lanes", False))),
        ("hosts", "host", (("runq_ns", "ns", True), ("irq_ns", "ns", True))),
        ("hosts", "gpu", (("sm_clock_mhz", "MHz", False),)),
    ):  # fmt: skip
        rows = bundle.table(table)
        for name, unit, worse in columns:
            values = _by(rows, name, _column(key)) if by_name else {}
            found.append(_Measure(name, unit, worse, values, 5))
    return found


def _collectives(bundle: Bundle) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """By operation: from when the last rank came to when the last was done, and from the first
    rank's coming to the last's, in ns."""
    table = bundle.table("collectives")
    enqueue, done = table.ints("enqueue_ns"), table.ints("done_ns")
    comms, seqs = table.codes("comm").codes, table.ints("seq")
    took: dict[str, Floats] = {}
    late: dict[str, Floats] = {}
    for name, rows in _operations(bundle).items():
        place = np.array(rows)
        _, number = np.unique(np.stack([comms[place], seqs[place]]), axis=1, return_inverse=True)
        number = number.reshape(-1)
        count = int(number.max()) + 1
        last, first, end = np.zeros(count), np.full(count, np.inf), np.zeros(count)
        offset = int(enqueue[place].min())  # float64 keeps ns only of differences
        begun = (enqueue[place] - offset).astype(float)
        np.maximum.at(last, number, begun)
        np.minimum.at(first, number, begun)
        whole = np.ones(count, dtype=bool)
        whole[number[done[place] == NULL]] = False
        known = done[place] != NULL
        np.maximum.at(end, number[known], (done[place][known] - offset).astype(float))
        took[name], late[name] = (end - last)[whole], last - first
    return took, late


def _all(_table: Table, _row: int) -> str:
    return "flows"


def _between(table: Table, row: int) -> str:
    return f"{table.codes('src').at(row)} to {table.codes('dst').at(row)}"


def _column(key: str) -> Callable[[Table, int], str | None]:
    def name(table: Table, row: int) -> str | None:
        value = table.codes(key).at(row)
        return None if value is None else str(value)

    return name


def _by(table: Table, column: str, subject: Callable[[Table, int], str | None]
        ) -> dict[str, Floats]:  # fmt: skip
    values = table.numbers(column)
    groups: dict[str, list[float]] = defaultdict(list)
    for row in np.flatnonzero(np.isfinite(values)):
        name = subject(table, int(row))
        if name is not None:
            groups[name].append(float(values[row]))
    return {name: np.array(each) for name, each in groups.items()}


def _changes(before: _Measure, after: _Measure) -> Iterable[Change]:
    for subject in sorted(before.values.keys() & after.values.keys()):
        one, other = _known(before.values[subject]), _known(after.values[subject])
        if min(len(one), len(other)) < MIN_VALUES:
            continue
        low, high = float(np.median(one)), float(np.median(other))
        if low <= 0 or high <= 0:
            continue  # nothing there, or a clock that is wrong: no ratio
        noise = MEDIAN_ERROR * math.hypot(_error(one), _error(other))
        ratio = high / low
        if max(ratio, 1 / ratio) < MIN_RATIO or abs(high - low) <= SIGMAS * noise:
            continue
        yield Change(before.name, subject, before.unit, low, high, round(ratio, 4),
                     (ratio > 1) == before.more_is_worse, (len(one), len(other)))  # fmt: skip


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


def show(value: float, unit: str) -> str:
    """A value for people."""
    if unit == "ns":
        return format_ns(value)
    return f"{value / 1e9:.3g} Gb/s" if unit == "bit/s" else f"{value:.3g} {unit}".rstrip()


def _sentences(changes: list[Change], before: list[_Measure], after: list[_Measure],
               appeared: tuple[Verdict, ...], gone: tuple[Verdict, ...]) -> tuple[str, str, str]:  # fmt: skip
    return _overall(changes, before, after), _worst(changes), _why(appeared, gone)


def _overall(changes: list[Change], before: list[_Measure], after: list[_Measure]) -> str:
    change = next((each for each in changes if each.measure == "step"), None)
    if change is not None:
        word = "longer" if change.worse else "shorter"
        return (f"Steps are {word}: {show(change.after, 'ns')} against {show(change.before, 'ns')},"
                f" {change.ratio:.2f} times.")  # fmt: skip
    if not before[0].values or not after[0].values:
        return "Whether steps are longer is not known: one run has none recorded."
    one, other = (float(np.median(each[0].values["steps"])) for each in (before, after))
    return f"Steps take as long as before: {show(other, 'ns')} against {show(one, 'ns')}."


def _worst(changes: list[Change]) -> str:
    rest = [each for each in changes if each.measure != "step"]
    if not rest:
        return "Nothing else that both runs recorded changed by a tenth or more."
    each = rest[0]
    word = "worst" if each.worse else "largest"
    text = (f"The {word} of {len(rest)} changes is {each.measure} of {each.subject}:"
            f" {show(each.after, each.unit)} against {show(each.before, each.unit)}")  # fmt: skip
    return f"{text}, {each.ratio:.2f} times."


def _why(appeared: tuple[Verdict, ...], gone: tuple[Verdict, ...]) -> str:
    if appeared:
        first = appeared[0]
        text = f"Only the second run has {_named(first)}: {first.evidence[0].text}"
        return f"{text} ({len(appeared) - 1} more)." if len(appeared) > 1 else f"{text}."
    if gone:
        return f"Only the first run has {_named(gone[0])}: it is gone."
    return "Neither run has a fault that the other has not."
