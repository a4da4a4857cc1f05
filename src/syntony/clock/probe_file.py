"""A file of probes, checked: every way it can be wrong has a name.

Columns: `src`, `dst` (node names), `t_tx_ns` (src's clock), `t_rx_ns` (dst's clock), optionally
`pair` (probes sent back to back share a number) and `path`. Probes of both directions are in one
file; one pair of nodes and one path make one series.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.errors import InputError

REQUIRED = ("src", "dst", "t_tx_ns", "t_rx_ns")
MIN_RTT_NS = 100
"""Round trip of light through 15 m of fibre; a shorter one is in another unit."""
MAX_INSTANT_NS = 1 << 61

Instants = NDArray[np.int64]


class Probes(NamedTuple):
    """Checked probes, arrays of shape (n,), in the file's order but without repeated rows."""

    src: NDArray[np.intp]
    dst: NDArray[np.intp]
    nodes: tuple[str, ...]
    """Sorted; `src` and `dst` are places in it."""
    tx_ns: Instants
    rx_ns: Instants
    pair: Instants | None
    path: NDArray[np.intp]
    duplicates: int
    """Rows dropped because they repeat another exactly."""


def check_probes(columns: dict[str, NDArray[Any]]) -> Probes:
    """Columns as read, nulls being None or NaN, to probes. Raises `InputError`: a column is
    missing, empty or of a wrong kind; a stamp is missing; time goes backwards; a unit is not
    nanoseconds; a probe's ends are one node."""
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise InputError(
            "missing-columns", f"no column {', '.join(missing)}; needed: {', '.join(REQUIRED)}"
        )
    if not len(columns["t_tx_ns"]):
        raise InputError("empty", "the file holds no probes")
    tx_ns, rx_ns = _instants("t_tx_ns", columns), _instants("t_rx_ns", columns)
    src_names, dst_names = _names("src", columns), _names("dst", columns)
    same = np.flatnonzero(src_names == dst_names)
    if len(same):
        raise InputError("self-probe", f"row {same[0]}: src and dst are both {src_names[same[0]]}")
    nodes, ends = np.unique(np.concatenate((src_names, dst_names)), return_inverse=True)
    src, dst = ends[: len(tx_ns)], ends[len(tx_ns) :]
    pair, path = _numbers(columns.get("pair")), _numbers(columns.get("path"))
    path = np.zeros(len(tx_ns), dtype=np.int64) if path is None else path
    _, first = np.unique(np.stack((src, dst, tx_ns, rx_ns, path)), axis=1, return_index=True)
    keep = np.sort(first)
    probes = Probes(
        src=src[keep],
        dst=dst[keep],
        nodes=tuple(str(node) for node in nodes),
        tx_ns=tx_ns[keep],
        rx_ns=rx_ns[keep],
        pair=None if pair is None else pair[keep],
        path=path[keep].astype(np.intp),
        duplicates=len(tx_ns) - len(keep),
    )
    _check_order(probes)
    _check_units(probes)
    return probes


def _instants(name: str, columns: dict[str, NDArray[Any]]) -> Instants:
    values = columns[name]
    if values.dtype.kind == "M":
        return values.astype("datetime64[ns]").astype(np.int64)
    if values.dtype.kind in {"O", "f"}:
        _check_present(name, values)
    if values.dtype.kind == "f":
        if not np.all(values == np.rint(values)):
            raise InputError("not-nanoseconds", f"{name} has fractions; give whole nanoseconds")
        if np.abs(values).max() >= 1 << 53:
            raise InputError("not-integers", f"{name} is floating point and too large to be exact")
    elif values.dtype.kind not in "iuO":
        raise InputError("not-integers", f"{name} is not a column of whole numbers")
    try:
        whole = values.astype(np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError("not-integers", f"{name} is not a column of whole numbers") from error
    if np.abs(whole.astype(np.float64)).max() >= MAX_INSTANT_NS:
        raise InputError("out-of-range", f"{name} holds an instant over 73 years from its epoch")
    return np.asarray(whole, dtype=np.int64)


def _check_present(name: str, values: NDArray[Any]) -> None:
    absent = [row for row, value in enumerate(values.tolist()) if value is None or value != value]  # noqa: PLR0124 - NaN is the value that differs from itself
    if absent:
        raise InputError("missing-stamps", f"{name} is empty or NaN in row {absent[0]}")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError("missing-stamps", f"{name} is infinite in some row")


def _names(name: str, columns: dict[str, NDArray[Any]]) -> NDArray[np.str_]:
    values = columns[name].tolist()
    for row, value in enumerate(values):
        if not isinstance(value, str) or not value:
            raise InputError("missing-names", f"{name} is not a node's name in row {row}")
    return np.array(values, dtype=np.str_)


def _numbers(values: NDArray[Any] | None) -> Instants | None:
    """Values that distinguish probes, as numbers; a missing value gets a number of its own."""
    if values is None:
        return None
    _, numbers = np.unique(np.array([str(value) for value in values.tolist()]), return_inverse=True)
    return np.asarray(numbers, dtype=np.int64)


def _check_order(probes: Probes) -> None:
    """Check that each direction's probes are in the order in which they were sent."""
    series = (probes.src * len(probes.nodes) + probes.dst) * (probes.path.max() + 1) + probes.path
    order = np.argsort(series, kind="stable")
    back = (np.diff(probes.tx_ns[order]) < 0) & (np.diff(series[order]) == 0)
    if back.any():
        row = int(order[int(np.argmax(back)) + 1])
        name = probes.nodes[probes.src[row]]
        raise InputError(
            "time-backwards",
            f"t_tx_ns of {name} goes backwards (probe {row}): sort the file, or {name}'s clock "
            "was set back and the file is to be cut there",
        )


def _check_units(probes: Probes) -> None:
    for a, b in sorted(set(zip(probes.src.tolist(), probes.dst.tolist(), strict=True))):
        there = (probes.src == a) & (probes.dst == b)
        names = f"{probes.nodes[a]} and {probes.nodes[b]}"
        _check_rate(probes.tx_ns[there], probes.rx_ns[there], names)
        back = (probes.src == b) & (probes.dst == a)
        if a < b and there.any() and back.any():
            _check_round_trip(probes, there, back, names)


def _check_rate(tx_ns: Instants, rx_ns: Instants, names: str) -> None:
    """Whether both clocks count in one unit, by the middle of the rates between distant probes."""
    half = len(tx_ns) // 2
    if half < 4:
        return
    sent = (tx_ns[half : 2 * half] - tx_ns[:half]).astype(np.float64)
    come = (rx_ns[half : 2 * half] - rx_ns[:half]).astype(np.float64)
    rates = come[sent > 0] / sent[sent > 0]
    if not len(rates):
        raise InputError("one-instant", f"all probes between {names} left at one instant")
    rate = float(np.median(rates))
    if not 0.01 < rate < 100:
        raise InputError(
            "not-nanoseconds",
            f"the clocks of {names} run at {rate:.3g} to 1: give both columns in nanoseconds",
        )


def _check_round_trip(
    probes: Probes, there: NDArray[np.bool_], back: NDArray[np.bool_], names: str
) -> None:
    """A whole file in microseconds has round trips of tens of "nanoseconds"."""
    forward = probes.rx_ns[there] - probes.tx_ns[there]
    reverse = probes.tx_ns[back] - probes.rx_ns[back]
    # Over one instant drift cannot matter: neighbours in time, middle of many.
    nearest = np.searchsorted(probes.tx_ns[there], probes.rx_ns[back]).clip(0, len(forward) - 1)
    rtt = float(np.median(forward[nearest] - reverse))
    if abs(rtt) < MIN_RTT_NS:
        raise InputError(
            "not-nanoseconds",
            f"round trips between {names} are {rtt:.0f} ns: give stamps in nanoseconds",
        )
