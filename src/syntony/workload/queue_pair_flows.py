"""Converts the store's rows of a job's RDMA queue pairs to flows of its bundle. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from syntony.model import S
from syntony.model.names import host_of
from syntony.workload.gpu_rows import Row


def queue_pair_flows(
    pairs: Iterable[Row], ports: Iterable[Row], clock_err_ns: Callable[[str, int], float | None]
) -> dict[str, list[Row]]:
    """Seconds of each direction of a queue pair in which messages were measured, by flow name.

    Counts of a row are totals since the queue pair became ready: a second has the difference to the
    previous row, and the first one is unknown.

    Args:
        pairs: rows of `queue_pair_1s`.
        ports: rows of `link_ports`: the NIC of each RDMA device.
        clock_err_ns: 1-sigma of a host's clock at an instant.
    """
    rows = sorted(pairs, key=lambda row: int(row["ts_ns"]))
    nics = _nics(ports)
    place = {(row["src"], row["local"]): _nic(nics, row["src"], row["device"]) for row in rows}
    directions: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        key = tuple(row[name] for name in ("src", "local", "number", "dst", "remote",
                                           "peer_number"))  # fmt: skip
        directions[key].append(row)
    found: dict[str, list[Row]] = {}
    for (src_host, local, number, dst_host, remote, peer), some in directions.items():
        src = place[src_host, local]
        # A NIC that sends nothing measured is known by its address only.
        dst = place.get((dst_host, remote), f"{dst_host}/{remote}")
        name = f"{src}:{number}>{dst}:{peer}"
        found[name] = [
            {"flow": name, "src": src, "dst": dst, "rail": src.partition("/")[2], "proto": "rc",
             "clk_err_ns": _both(clock_err_ns, src_host, dst_host, row["ts_ns"])}
            | _second(row, before)
            for before, row in zip([None, *some], some, strict=False)
        ]  # fmt: skip
    return found


def _second(row: Row, before: Row | None) -> Row:
    """Values of a row for its second, and for the time since the previous row."""
    second = {"at_ns": row["ts_ns"], "window_ns": S, "owd_p50_ns": row["owd_p50_ns"]}
    if before is None or row["ts_ns"] <= before["ts_ns"]:
        return second
    more = {name: row[name] - before[name] for name in ("sent", "bytes_posted", "errors")}
    if min(more.values()) < 0:  # it restarted in between
        return second
    rate_bps = more["bytes_posted"] * 8 * S / (row["ts_ns"] - before["ts_ns"])
    return second | {
        "bytes": rate_bps / 8, "rate_bps": rate_bps, "cqe_errors": more["errors"],
    }  # fmt: skip


def _nics(ports: Iterable[Row]) -> dict[tuple[str, str], set[str]]:
    """Host and RDMA device → its NICs: a device may have two ports."""
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for each in ports:
        if each["rdma"]:
            host, device = host_of(each["nic"]), each["rdma"].rpartition(":")[0]
            found[host, device].add(each["nic"])
    return found


def _nic(nics: dict[tuple[str, str], set[str]], host: str, device: str) -> str:
    """The NIC of a device; the device's name if unknown."""
    known = nics.get((host, device), set())
    return next(iter(known)) if len(known) == 1 else f"{host}/{device}"


def _both(
    clock_err_ns: Callable[[str, int], float | None], src: str, dst: str, at_ns: int
) -> float | None:
    """1-sigma of both ends' clocks, as in `flows`; None if one is unknown."""
    errors = [clock_err_ns(host, at_ns) for host in (src, dst)]
    known = [each for each in errors if each is not None]
    return math.hypot(*known) / math.sqrt(2) if len(known) == len(errors) else None
