"""Check a file of observations: every possible error has a name.

OBS columns: `path_id`, `sent`, `lost`; optionally `owd_p50_ns` and `owd_base_ns` (median one-way
delay now and before; null or NaN where none was measured) and `window`. A numeric window is the
start of a time interval: such windows do not overlap, are evaluated one by one and together, and
give each path its baseline if `owd_base_ns` is missing. Any other window is a label.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.errors import InputError
from syntony.fabric.locate import WindowCounts
from syntony.fabric.tally import Floats, Ints

REQUIRED = ("path_id", "sent", "lost")
OPTIONAL = ("owd_p50_ns", "owd_base_ns", "window")
WHOLE = "all"
"""Name of the window that contains all observations."""
MIN_BASE_WINDOWS = 3
"""A path's own past is its baseline from this number of windows on."""
Column = NDArray[Any]


class ObservedPaths(NamedTuple):
    """Checked rows, (n,) each."""

    path: Ints
    """Places in the path map."""
    sent: Ints
    lost: Ints
    p50_ns: Floats
    base_ns: Floats
    window: NDArray[np.intp]
    windows: tuple[str, ...]
    slices: bool
    """Whether the windows are time intervals, in order."""


def check_observed(columns: dict[str, Column], path: Ints) -> ObservedPaths:
    """Check columns as read, nulls being None or NaN.

    Args:
        columns: name → values, (n,).
        path: place of each row's path in the path map, -1 for one that is not there, (n,).

    Raises:
        InputError: a column is missing, empty or of a wrong type; a count is missing, negative or
            too large; a path is unknown; a row is duplicated.
    """
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise InputError(
            "missing-columns",
            f"OBS has no column {', '.join(missing)}; needed: {', '.join(REQUIRED)}",
        )
    if not len(path):
        raise InputError("empty", "OBS holds no rows: that nothing is wrong cannot be known")
    strange = np.flatnonzero(path < 0)
    if len(strange):
        name = columns["path_id"][strange[0]]
        raise InputError("unknown-path", f"OBS row {strange[0]}: path_id {name} is not in PATHS")
    sent, lost = (_counts(name, columns[name]) for name in ("sent", "lost"))
    above = np.flatnonzero(lost > sent)
    if len(above):
        row = above[0]
        raise InputError("lost-above-sent", f"OBS row {row}: lost {lost[row]} of {sent[row]} sent")
    window, windows, slices = _windows(columns.get("window"), len(path))
    _check_repeats(path, window, columns["path_id"])
    p50_ns, base_ns = (_delays(name, columns.get(name), len(path)) for name in OPTIONAL[:2])
    return ObservedPaths(path, sent, lost, p50_ns, base_ns, window, windows, slices)


def window_counts(observed: ObservedPaths, paths: int) -> list[WindowCounts]:
    """Counts of each window, per path; for time intervals also of all together."""
    base_ns = observed.base_ns
    if observed.slices and len(observed.windows) > MIN_BASE_WINDOWS:
        base_ns = np.where(np.isfinite(base_ns), base_ns, _own_past(observed))
    change_ns = observed.p50_ns - base_ns
    found = []
    for number, name in enumerate(observed.windows):
        rows = observed.window == number
        found.append(_spread(observed, rows, change_ns, paths, name))
    if observed.slices and len(found) > 1:
        found.append(
            WindowCounts(
                WHOLE,
                np.sum([window.sent for window in found], axis=0),
                np.sum([window.lost for window in found], axis=0),
                np.full(paths, np.nan),
                np.zeros(paths),
            )
        )
    return found


def _spread(
    observed: ObservedPaths, rows: NDArray[np.bool_], change_ns: Floats, paths: int, name: str
) -> WindowCounts:
    sent, lost = np.zeros((2, paths), dtype=np.int64)
    change = np.full(paths, np.nan)
    place = observed.path[rows]
    sent[place], lost[place] = observed.sent[rows], observed.lost[rows]
    change[place] = change_ns[rows]
    return WindowCounts(name, sent, lost, change, np.zeros(paths))


def _own_past(observed: ObservedPaths) -> Floats:
    """Per row, the median of its path's delays in earlier windows; NaN for the first few."""
    order = np.lexsort((observed.window, observed.path))
    base_ns = np.full(len(order), np.nan)
    path, value = observed.path[order], observed.p50_ns[order]
    starts = np.flatnonzero(np.concatenate(([True], path[1:] != path[:-1])))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        for place in range(start, end):
            past = value[start:place]
            past = past[np.isfinite(past)]
            if len(past) >= MIN_BASE_WINDOWS:
                base_ns[order[place]] = np.median(past)
    return base_ns


def _counts(name: str, values: Column) -> Ints:
    numbers = _numbers(name, values)
    absent = np.flatnonzero(~np.isfinite(numbers))
    if len(absent):
        raise InputError("missing-counts", f"OBS row {absent[0]}: {name} is not a number")
    negative = np.flatnonzero(numbers < 0)
    if len(negative):
        raise InputError(
            "negative-counts", f"OBS row {negative[0]}: {name} is {numbers[negative[0]]:g}"
        )
    if not np.all(numbers == np.rint(numbers)) or numbers.max() >= 1 << 53:
        raise InputError("not-counts", f"OBS column {name} is not of whole numbers below 2^53")
    return numbers.astype(np.int64)


def _delays(name: str, values: Column | None, rows: int) -> Floats:
    if values is None:
        return np.full(rows, np.nan)
    numbers = _numbers(name, values)
    endless = np.flatnonzero(np.isinf(numbers))
    if len(endless):
        raise InputError("bad-delay", f"OBS row {endless[0]}: {name} is infinite")
    return numbers


def _numbers(name: str, values: Column) -> Floats:
    """Values as float64, None as NaN."""
    if values.dtype.kind == "O":
        wrong = [value for value in values.tolist() if not _is_number_or_none(value)]
        if wrong:
            raise InputError("not-numbers", f"OBS column {name} holds {str(wrong[0])[:40]!r}")
        return np.array([np.nan if value is None else value for value in values], np.float64)
    if values.dtype.kind not in "iuf":
        raise InputError("not-numbers", f"OBS column {name} is not of numbers")
    return values.astype(np.float64)


def _is_number_or_none(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _windows(values: Column | None, rows: int) -> tuple[NDArray[np.intp], tuple[str, ...], bool]:
    if values is None:
        return np.zeros(rows, dtype=np.intp), (WHOLE,), False
    absent = [row for row, value in enumerate(values.tolist()) if value is None or value != value]  # noqa: PLR0124 - NaN is the value that differs from itself
    if absent:
        raise InputError("missing-window", f"OBS row {absent[0]}: window is empty")
    slices = values.dtype.kind in "iuf"
    kept = values if slices else np.array([str(value) for value in values.tolist()])
    names, places = np.unique(kept, return_inverse=True)
    return places.reshape(-1), tuple(str(name) for name in names.tolist()), slices


def _check_repeats(path: Ints, window: NDArray[np.intp], ids: Column) -> None:
    order = np.lexsort((window, path))
    again = (np.diff(path[order]) == 0) & (np.diff(window[order]) == 0)
    if again.any():
        row = int(order[int(np.argmax(again)) + 1])
        raise InputError(
            "duplicate-rows", f"OBS row {row}: path_id {ids[row]} is there twice in one window"
        )
