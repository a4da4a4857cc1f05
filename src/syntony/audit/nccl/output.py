"""Parses the output of nccl-tests: the JSON file of ``-J`` and the table on standard output. Pure.

The JSON is that of nccl-tests 2.16 and later (src/util.cu, file version 1 and 2): booleans are the
texts ``true`` and ``false``, a number that is none is the text ``nan``.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from syntony.errors import InputError

_NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?")
_COUNT = re.compile(r"\d{1,20}")
_CELLS = 8
"""Time, algorithm and bus bandwidth, and errors: out of place, then in place."""
_DEVIATION = re.compile(r"^#\s+size\s+count\s.*\berror\b", re.MULTILINE)
"""Until 2.11 the column is the largest deviation, not the number of wrong elements."""
_RANK = re.compile(
    r"^#\s+Rank\s+(?P<rank>\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+"
    r"device\s+\d+\s+\[[^\]]*\]\s+(?P<device>.*\S)"
)
_FOOTER = re.compile(r"^#\s+Avg bus bandwidth\s*:\s*(?P<bw>[\d.e+]+|nan)", re.MULTILINE)
_WRONG = re.compile(r"^#\s+Out of bounds values\s*:\s*(?P<count>\d+)", re.MULTILINE)
_MAX_ROWS = 4096


class SizeResult(msgspec.Struct, frozen=True):
    size: int
    """Bytes."""
    out_of_place: float
    """Bus bandwidth in GB/s."""
    in_place: float
    wrong: int | None
    """Elements that are wrong; None if it was not checked."""
    p50_us: float = 0.0
    """Of the iterations (``-I``), out of place; 0 if not reported."""
    p99_us: float = 0.0


class Output(msgspec.Struct, frozen=True):
    """One run, complete to its last line."""

    rows: tuple[SizeResult, ...]
    average: float
    """Bus bandwidth in GB/s over all sizes, as nccl-tests average it."""
    wrong: int | None
    ranks: tuple[tuple[str, str], ...]
    """Host and device of each rank."""
    errors: tuple[str, ...] = ()

    @property
    def peak(self) -> float:
        """Bus bandwidth of the largest message, the better of out of place and in place."""
        last = max(self.rows, key=lambda row: row.size)
        return max(last.out_of_place, last.in_place)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts, in the order of their first rank."""
        return tuple(dict.fromkeys(host for host, _ in self.ranks))

    @property
    def device(self) -> str:
        """The most frequent device: ``NVIDIA H100 80GB HBM3``."""
        often = Counter(device for _, device in self.ranks)
        return often.most_common(1)[0][0] if often else ""

    @property
    def tail(self) -> float:
        """The largest p99 over p50 of any size; 0 if iterations were not reported."""
        return max((row.p99_us / row.p50_us for row in self.rows if row.p50_us), default=0.0)


def parse_output(report: str, said: str) -> Output:
    """The JSON report or, where that is empty (older nccl-tests), the table on standard output.
    Raises `InputError`: neither is one, or it ends before its last line."""
    return parse_report(report) if report.strip() else parse_table(said)


def parse_report(text: str) -> Output:
    """The file that ``-J`` writes. Raises `InputError`: it is not JSON, not of nccl-tests, or
    without results."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("not-nccl-tests", f"the report is not JSON: {error}") from error
    if not isinstance(document, Mapping) or not isinstance(document.get("results"), list):
        raise InputError("not-nccl-tests", "the report has no results")
    rows = tuple(_row(each) for each in document["results"][:_MAX_ROWS])
    config = document.get("config")
    devices = config.get("devices") if isinstance(config, Mapping) else None
    average = document.get("average_bus_bandwidth")
    if not rows or not isinstance(average, Mapping):
        raise InputError("cut-off", "the report ends before its average: the run did not finish")
    bounds = document.get("out_of_bounds")
    counted = [row.wrong for row in rows if row.wrong is not None]
    wrong = _number(bounds.get("count")) if isinstance(bounds, Mapping) else math.nan
    total = None if not counted else max(sum(counted), 0 if math.isnan(wrong) else int(wrong))
    errors = document.get("errors")
    return Output(
        rows=rows,
        average=_number(average.get("bandwidth")),
        wrong=total,
        ranks=tuple(_rank(each) for each in devices) if isinstance(devices, list) else (),
        errors=tuple(str(each)[:200] for each in errors if each)
        if isinstance(errors, list)
        else (),
    )


def parse_table(text: str) -> Output:
    """Standard output of nccl-tests, with NCCL's own log in between. Raises `InputError`: no rows,
    or no last line."""
    rows: list[SizeResult] = []
    ranks: list[tuple[str, str]] = []
    deviates = _DEVIATION.search(text) is not None
    for line in text.splitlines():
        row = _table_row(line)
        if row is not None and len(rows) < _MAX_ROWS:
            rows.append(msgspec.structs.replace(row, wrong=None) if deviates else row)
        elif match := _RANK.match(line):
            ranks.append((match["host"], match["device"]))
    footer, bounds = _FOOTER.search(text), _WRONG.search(text)
    if not rows:
        raise InputError("not-nccl-tests", "no line of results")
    if footer is None:
        raise InputError("cut-off", f"{len(rows)} sizes, then nothing: the run did not finish")
    counted = [row.wrong for row in rows if row.wrong is not None]
    out_of_bounds = int(bounds["count"]) if bounds else 0
    total = max(sum(counted), out_of_bounds) if counted or (deviates and bounds) else None
    return Output(tuple(rows), float(footer["bw"]), total, tuple(ranks))


def _table_row(line: str) -> SizeResult | None:
    """A line of results; nccl-tests before 2.8 print no column for the root."""
    cells = line.split()
    if len(cells) not in {4 + _CELLS, 5 + _CELLS} or not all(map(_COUNT.fullmatch, cells[:2])):
        return None
    values = cells[-_CELLS:]
    if not all(_NUMBER.fullmatch(cell) for cell in values if cell != "N/A"):
        return None
    out, out_wrong, into, in_wrong = (values[at] for at in (2, 3, 6, 7))
    if "N/A" in {out, into}:
        return None
    unchecked = "N/A" in {out_wrong, in_wrong}
    wrong = None if unchecked else int(float(out_wrong) + float(in_wrong))
    return SizeResult(int(cells[0]), float(out), float(into), wrong)


def _row(data: Any) -> SizeResult:
    if not isinstance(data, Mapping):
        raise InputError("not-nccl-tests", "a result is not an object")
    out, into = _part(data.get("out_of_place")), _part(data.get("in_place"))
    wrong = [_number(part["nwrong"]) for part in (out, into) if part.get("nwrong") is not None]
    reported = _part(data.get("out_of_place_per_iter"))
    size = _number(data.get("size"))
    if math.isnan(size) or not (out or into):
        raise InputError("not-nccl-tests", "a result without size or bandwidth")
    return SizeResult(
        size=int(size),
        out_of_place=_number(out.get("bus_bw"), 0.0),
        in_place=_number(into.get("bus_bw"), 0.0),
        wrong=int(sum(wrong)) if wrong and not any(map(math.isnan, wrong)) else None,
        p50_us=_number(reported.get("p50_us"), 0.0),
        p99_us=_number(reported.get("p99_us"), 0.0),
    )


def _part(data: Any) -> Mapping[str, Any]:
    return data if isinstance(data, Mapping) else {}


def _number(value: Any, missing: float = math.nan) -> float:
    """A finite number; `missing` for anything else, the text ``nan`` among it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return missing
    return float(value) if -1e300 < value < 1e300 else missing


def _rank(data: Any) -> tuple[str, str]:
    part = _part(data)
    return str(part.get("hostname", "")), str(part.get("device_info", "")).strip()
