"""Bandwidth between two hosts: a program at each end for as long as the test lasts."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from syntony.audit.facts import UnreadableError
from syntony.audit.hunt import Pair
from syntony.audit.parse.bandwidth import error_line, parse_write_bw
from syntony.audit.speed_hunt import Speed
from syntony.io.audit.collective import RankStarter, finish

WORKER = Path(__file__).with_name("pair_worker.py")
PORT = 29_800
QPS = (1, 2, 4, 8)
BANDWIDTH_QPS = 2
"""As OCI's node checks run it: one may not fill a 400 Gb/s port."""
GPU_SHARE = 0.95
"""Of the figure from host memory, that one from GPU memory reaches."""
_MORE_S = 40.0
"""Beyond the seconds of sending: logins, retries, perftest's own start."""
_End = tuple[str, Mapping[str, Any]]
"""A host, and what was said there."""
QUEUE_PAIRS, BANDWIDTH, GPU_DIRECT = "be.conn.qp", "be.conn.bw", "be.conn.gdr"


class PairTests:
    """Runs them.

    Args:
        where: starts the program on a host.
        seconds: of sending, each way.
        port: at which the receiver listens; perftest's NICs use it and those after it.
    """

    def __init__(self, where: RankStarter, seconds: float = 5, port: int = PORT) -> None:
        self._where, self._seconds, self._port = where, seconds, port

    def tcp(self, pair: Pair, streams: int) -> Speed:
        """Test several streams in one direction, then in the other: the slower direction counts."""
        ways = [self._tcp(src, dst, streams) for src, dst in (pair, pair[::-1])]
        return slower(ways)

    def rdma(self, pair: Pair, requested: PairTestOptions) -> dict[str, Speed]:
        """On all NICs side by side: `ib_write_bw` with each number of queue pairs, then from the
        GPU's memory.

        Returns:
            ``be.conn.bw mlx5_0`` and so on, to what was measured.
        """
        found: dict[str, Speed] = {}
        runs = {qps: [self._rdma(pair, requested, qps=qps)] for qps in QPS}
        runs[BANDWIDTH_QPS].append(self._rdma(pair[::-1], requested, qps=BANDWIDTH_QPS))
        for device in requested.devices:
            every = [way[device] for ways in runs.values() for way in ways]
            found[f"{QUEUE_PAIRS} {device}"] = _all_ran(every)
            both = slower([way[device] for way in runs[BANDWIDTH_QPS]])
            found[f"{BANDWIDTH} {device}"] = both
        if requested.gpu:
            ways = [self._rdma(each, requested, qps=BANDWIDTH_QPS, gpu=True)
                    for each in (pair, pair[::-1])]  # fmt: skip
            for device in requested.devices:
                least = found[f"{BANDWIDTH} {device}"].gbps
                speed = slower([way[device] for way in ways])
                found[f"{GPU_DIRECT} {device}"] = Speed(
                    gbps=speed.gbps, why=speed.why, broke=speed.broke, line_gbps=speed.line_gbps,
                    least_gbps=None if least is None else GPU_SHARE * least,
                )  # fmt: skip
        return found

    def _tcp(self, src: str, dst: str, streams: int) -> Speed:
        served, sent = self._ends(src, dst, {"streams": streams, "secret": secrets.token_hex(16)})
        for host, reported in _worst_first((src, sent), (dst, served)):
            if reported.get("why"):
                broke = not (reported.get("lost") or reported.get("skip"))
                return Speed(why=f"{host}: {reported['why']}", broke=broke)
        gbps = _number(served.get("gbps"))
        why = "" if gbps is not None else f"{dst} reported no figure"
        return Speed(gbps=gbps, line_gbps=_line_gbps(served, sent), why=why)

    def _rdma(
        self, pair: Pair, requested: PairTestOptions, *, qps: int, gpu: bool = False
    ) -> dict[str, Speed]:  # fmt: skip
        src, dst = pair
        reported = {
            "devices": list(requested.devices),
            "qps": qps,
            "gid": requested.gid,
            "gpu": gpu,
        }
        served, sent = self._ends(src, dst, reported)
        for host, end in _worst_first((src, sent), (dst, served)):
            if end.get("why"):
                return dict.fromkeys(requested.devices, Speed(why=f"{host}: {end['why']}"))
        return {
            device: _written(device, qps, (dst, _of(served, device)), (src, _of(sent, device)))
            for device in requested.devices
        }

    def _ends(
        self, src: str, dst: str, reported: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The output of the receiver and the sender."""
        order = json.dumps({
            **reported, "address": self._where.address(dst), "port": self._port,
            "seconds": self._seconds,
        })  # fmt: skip
        ranks = [self._where.rank(dst, ["serve", order], {}),
                 self._where.rank(src, ["send", order], {})]  # fmt: skip
        ended = finish(ranks, 3 * self._seconds + _MORE_S)
        said = []
        for done in ended:
            lost = {"why": done.trouble or "ended by the other end", "lost": True,
                    "first": bool(done.trouble)}  # fmt: skip
            said.append(_object(done.last_object) or lost)
        return said[0], said[1]


class PairTestOptions(NamedTuple):
    devices: tuple[str, ...]
    gid: int = -1
    """GID index; -1 for perftest's own choice."""
    gpu: bool = False


def slower(ways: Sequence[Speed]) -> Speed:
    """The worse of both directions."""
    without = next((way for way in ways if way.gbps is None), None)
    return without or min(ways, key=lambda way: way.gbps or 0.0)


def _all_ran(every: Sequence[Speed]) -> Speed:
    """A figure of 1 of 1 if all connected and ended, whatever their rate."""
    failed = next((each for each in every if each.gbps is None), None)
    return failed or Speed(gbps=1.0, least_gbps=1.0)


def _worst_first(sent: _End, served: _End) -> tuple[_End, _End]:
    """The error to report: that of an end that failed by itself, else the sender's."""
    own = served[1].get("first") or served[1].get("skip")
    return (served, sent) if own else (sent, served)


def _written(device: str, qps: int, served: _End, sent: _End) -> Speed:
    """What the two ends of one `ib_write_bw` come to."""
    what = f"{device}, {qps} queue pair{'s' if qps > 1 else ''}"
    for host, reported in (sent, served):
        if reported.get("why"):
            return Speed(why=f"{host}: {reported['why']}")
        if reported.get("status") != 0:
            line = (
                error_line(str(reported.get("said", ""))) or f"exit status {reported.get('status')}"
            )
            return Speed(why=f"{host}: {what}: {line}", broke=True)
    try:
        gbps = parse_write_bw(str(sent[1].get("said", "")))
    except UnreadableError as error:
        return Speed(why=f"{sent[0]}: {what}: {error}")
    return Speed(gbps=gbps, line_gbps=_line_gbps(served[1], sent[1]))


def _line_gbps(*ends: Mapping[str, Any]) -> float | None:
    """The slower end's line rate; None: not both are known."""
    lines = [_number(end.get("line_gbps")) for end in ends]
    known = [line for line in lines if line is not None]
    return min(known) if len(known) == len(lines) else None


def _of(reported: Mapping[str, Any], device: str) -> Mapping[str, Any]:
    devices = reported.get("devices")
    found = devices.get(device) if isinstance(devices, Mapping) else None
    return found if isinstance(found, Mapping) else {"why": f"nothing was said of {device}"}


def _object(line: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6
    return float(value) if good else None
