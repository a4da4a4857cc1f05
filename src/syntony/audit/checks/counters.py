"""4.2 Back-end: what counters, optics and queues say of active connections."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from syntony.audit.check import Key, Section
from syntony.audit.facts import AbsentError, FactError, Facts, UnreadableError
from syntony.audit.parse.text import json_of
from syntony.audit.rdma import CLASS, RdmaCheck, RdmaPort
from syntony.audit.result import ComparedValue, Result, Status, Suspect
from syntony.links.counters import EVERY, Side
from syntony.model import S, format_ns

_LOOK_NS = 3 * S
_LIMITS_PER_S = {
    "ib/counters:link_downed": 0.0,
    "ib/counters:local_link_integrity_errors": 0.0,
    "ib/counters:excessive_buffer_overrun_errors": 0.0,
    "ib/hw_counters:rnr_nak_retry_err": 0.0,
    "ib/counters:symbol_error": 10.0,
    "ib/counters:link_error_recovery": 5 / 60,
    "ib/counters:port_rcv_errors": 10.0,
    "ib/counters:port_xmit_discards": 100.0,
    "ib/hw_counters:local_ack_timeout_err": 1.0,
    "ib/hw_counters:out_of_sequence": 10.0,
    "ib/hw_counters:packet_seq_err": 10.0,
    "ib/hw_counters:roce_slow_restart": 10.0,
}
"""Increases a second that NVIDIA's link guide and large operators still call healthy."""
_WIDE = 255
"""Narrower counters (4 bits) are full soon after a link's first training, and show nothing."""
_SUSPECTS = {Side.CABLE: Suspect.CABLE, Side.HOST: Suspect.HOST, Side.PEER: Suspect.PORT,
             Side.NETWORK: Suspect.FABRIC, Side.NONE: Suspect.PORT}  # fmt: skip


class ErrorCounters(RdmaCheck):
    """No error counter of a back-end port grows, and none has reached its end.

    Expected results: between two looks 3 s apart no counter grows faster than its limit (0 for
    link_downed, link integrity, buffer overrun and RNR retries; 10/s symbol errors…); no counter
    stands at the value where it stops counting. Of a recorded tree with one look, only the latter
    is known, and growth is unknown.
    """

    id = "be.act.counters"
    section = Section.ACTIVE
    reads = (f"{CLASS}/*/ports/*/counters/*", f"{CLASS}/*/ports/*/hw_counters/*")
    meaning = "bit errors, congestion or a receiver that does not keep up"
    remedy = "see `syntony links history` for which and since when; then as the counter says"
    suspect = Suspect.CABLE

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        first = {port.rdma: port.counters for port in host.ports() if port.rdma}
        later = host.later(_LOOK_NS)
        again = {port.rdma: port.counters for port in later.ports() if port.rdma} if later else {}
        for port in ports:
            counters = first.get(port.name, {})
            if not any(key in counters for key in _LIMITS_PER_S):
                yield self.unknown(host, f"{port.path}/counters cannot be read", port.name)
                continue
            yield from self._standing(host, port, counters)
            if later is None:
                yield self.unknown(host, "one look only: growth is unknown", port.name)
            else:
                yield from self._growth(host, port, counters, again.get(port.name, {}))

    def _standing(
        self, host: Facts, port: RdmaPort, counters: dict[str, int | None]
    ) -> Iterator[Result]:
        for key in _LIMITS_PER_S:
            value, ceiling = counters.get(key), EVERY[key].ceiling
            full = value is not None and ceiling is not None and value >= ceiling >= _WIDE
            # What does not fit its 8 or 16 bits stays at the end until somebody resets it.
            if full or (key.endswith("link_downed") and value in {255, 65_535}):
                yield self.verdict(
                    False, host, f"{EVERY[key].name} ≥ {value}", "below where it stops counting",
                    f"{port.path}: {key}", at=port.name, bad=Status.WARN,
                    meaning=f"{EVERY[key].meaning}: so often that the counter is full",
                    remedy="reset it (perfquery -R) and look again after an hour",
                )  # fmt: skip

    def _growth(
        self, host: Facts, port: RdmaPort, before: dict[str, int | None],
        after: dict[str, int | None],
    ) -> Iterator[Result]:  # fmt: skip
        bad = False
        for key, limit in _LIMITS_PER_S.items():
            one, two = before.get(key), after.get(key)
            if one is None or two is None:
                continue
            rate = max(0, two - one) / (_LOOK_NS / S)
            if rate > limit:
                bad = True
                row = EVERY[key]
                yield self.verdict(
                    False, host, f"{row.name} +{rate:.1f}/s", f"≤ {limit:g}/s",
                    f"{port.path}: {key}, two looks {format_ns(_LOOK_NS)} apart", at=port.name,
                    meaning=row.meaning, suspect=_SUSPECTS[row.suspect],
                )  # fmt: skip
        if not bad:
            yield self.verdict(True, host, "none grows", "none grows", f"{port.path}/counters",
                               at=port.name)  # fmt: skip


_NUMBER = r"([\d.]+(?:E[+-]?\d+)?)"
_RAW = re.compile(rf"^\s*Raw Physical BER\s*:\s*{_NUMBER}", re.MULTILINE | re.IGNORECASE)
_SYMBOL = re.compile(rf"^\s*Symbol BER\s*:\s*{_NUMBER}", re.MULTILINE | re.IGNORECASE)
_HOT = re.compile(r"^\s*Temperature \[C\]\s*:\s*(-?\d{1,3})", re.MULTILINE)


class BitErrors(RdmaCheck):
    """Bit errors before and after correction are rare, and optics are cool.

    Expected results: raw BER below 1e-7, symbol BER below 5e-15 (a warning, 1e-14 a failure), the
    module below 70 °C, by mlxlink; skipped without it. Needs root.
    """

    id = "be.act.ber"
    section = Section.ACTIVE
    reads = ("$ mlxlink -d DEVICE -p PORT -c -e -m",)
    meaning = "dirty or failing optics, or a cable at its limit"
    remedy = "clean both ends, reseat, swap the cable"
    suspect = Suspect.CABLE

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        raw: float = 1e-7
        symbol_warn: float = 5e-15
        symbol_fail: float = 1e-14
        hot_c: float = 70.0

    limits: Input

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        for port in ports:
            if not port.device.startswith("mlx"):
                yield self.skip(host, "not a Mellanox NIC", port.name)
                continue
            try:
                text = host.run("mlxlink", "-d", port.device, "-p", port.number, "-c", "-e", "-m")
            except AbsentError:
                yield self.skip(host, "mlxlink is not installed (NVIDIA MFT)")
                return
            except UnreadableError as error:
                yield self.unknown(host, str(error), port.name)
                continue
            yield from self._one(host, port, text)

    def _one(self, host: Facts, port: RdmaPort, text: str) -> Iterator[Result]:
        raw, symbol, hot = (_found(pattern, text) for pattern in (_RAW, _SYMBOL, _HOT))
        if raw is None and symbol is None:
            yield self.unknown(host, "mlxlink reports no bit error rate", port.name)
        limits = self.limits
        if raw is not None:
            yield self.verdict(raw < limits.raw, host, f"raw BER {raw:g}", f"< {limits.raw:g}",
                               "mlxlink -c", at=port.name)  # fmt: skip
        if symbol is not None:
            bad = Status.FAIL if symbol >= limits.symbol_fail else Status.WARN
            yield self.verdict(
                symbol < limits.symbol_warn, host, f"symbol BER {symbol:g}",
                f"< {limits.symbol_warn:g}", "mlxlink -c", at=port.name, bad=bad,
            )  # fmt: skip
        if hot is not None:
            yield self.verdict(hot < limits.hot_c, host, f"{hot:g} °C", f"< {limits.hot_c:g} °C",
                               "mlxlink -m", at=port.name, bad=Status.WARN)  # fmt: skip


def _found(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    try:
        return float(match[1]) if match else None
    except ValueError:
        return None


class LosslessQueues(RdmaCheck):
    """RoCE ports are set up for one lossless priority, alike everywhere.

    Expected results: PFC on at most one priority; PFC, the trust mode, ECN and the traffic class of
    RoCE equal to the expected values. Skipped over InfiniBand.
    """

    id = "be.act.qos"
    section = Section.ACTIVE
    reads = ("$ dcb -j pfc show dev NETDEV", "$ dcb -j app show dev NETDEV",
             "/sys/class/net/*/ecn/roce_np/enable/*", f"{CLASS}/*/tc/1/traffic_class")  # fmt: skip
    meaning = "loss under load that no counter of the sender shows: the ends disagree on priorities"
    remedy = "set it as on the others (mlnx_qos, dcb, cma_roce_tos), on the switches too"
    suspect = Suspect.CONFIG
    keys = (
        Key("be.qos.pfc", "priorities with flow control"),
        Key("be.qos.trust", "what decides the priority: pcp or dscp"),
        Key("be.qos.ecn", "priorities with ECN for RoCE"),
        Key("be.qos.class", "traffic class of RDMA connections"),
    )

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        reported = 0
        for port in ports:
            if port.layer != "Ethernet":
                continue
            reported += 1
            yield from self.part(host, self._pfc(host, port), port.name)
            yield from self._rest(host, port)
        if not reported:
            yield self.skip(host, "no RoCE port here")

    def _pfc(self, host: Facts, port: RdmaPort) -> Iterator[Result | ComparedValue]:
        if not port.netdev:
            yield self.unknown(host, "no interface is known for this port", port.name)
            return
        reported = json_of(host.run("dcb", "-j", "pfc", "show", "dev", port.netdev), "`dcb`")
        on = pfc_priorities(reported)
        if on is None:
            yield self.unknown(host, "`dcb pfc show` reports no priorities", port.name)
            return
        said = " ".join(map(str, on)) or "none"
        yield self.verdict(len(on) <= 1, host, said, "one at most", f"dcb pfc show {port.netdev}",
                           at=port.name)  # fmt: skip
        yield self.reading(host, "be.qos.pfc", said, port.name, evidence="dcb pfc show")

    def _rest(self, host: Facts, port: RdmaPort) -> Iterator[ComparedValue]:
        """Readings that only some drivers report."""
        enable = f"/sys/class/net/{port.netdev}/ecn/roce_np/enable"
        with contextlib.suppress(FactError):
            on = [name for name in host.names(enable) if host.read(f"{enable}/{name}") == "1"]
            yield self.reading(host, "be.qos.ecn", " ".join(on) or "none", port.name,
                               evidence=enable)  # fmt: skip
        path = f"{CLASS}/{port.device}/tc/{port.number}/traffic_class"
        with contextlib.suppress(FactError):
            said = " ".join(host.read(path).split())
            yield self.reading(host, "be.qos.class", said or "none", port.name, evidence=path)
        with contextlib.suppress(FactError):
            reported = json_of(host.run("dcb", "-j", "app", "show", "dev", port.netdev), "`dcb`")
            trust = "dscp" if isinstance(reported, dict) and reported.get("dscp_prio") else "pcp"
            yield self.reading(host, "be.qos.trust", trust, port.name, evidence="dcb app show")


def pfc_priorities(reported: Any) -> list[int] | None:
    """Priorities with flow control of a `dcb -j pfc show`; None if it does not list them."""
    if not isinstance(reported, dict):
        return None
    rows = reported.get("prio-pfc", reported.get("prio_pfc"))
    if isinstance(rows, list):
        rows = {str(at): each for at, each in enumerate(rows)}
    if not isinstance(rows, dict):
        return None
    return sorted(int(name) for name, on in rows.items()
                  if name.isdigit() and on in (True, "on", 1))  # fmt: skip
