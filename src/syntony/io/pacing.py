"""Paces flows in the kernel: one HTB class for each, below any existing shaper of the NIC.

MPTCP sockets refuse SO_MAX_PACING_RATE (Linux 6.18) and their subflows have no descriptors, so a
flow is held back where it leaves: packets of its four-tuple wait in a class of its own, TCP's small
queues keep all but a few of them in the socket, and everything else passes by unclassified. The
NIC gets a root qdisc of ours where it has none that somebody chose; a token bucket (as in labs)
gets it in the place of its queue. A small process takes everything away when its pipe closes: when
anyone who made it ends, however it ends.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from syntony.errors import MissingError
from syntony.io.tool import run_tool
from syntony.model import MS, S
from syntony.model.paths import FourTuple

HANDLE = "5a1:"
"""Of our qdisc, on any NIC; 0x5a1 means nothing to anyone."""
BURST_NS = 2 * MS
"""A timer may be so late without a class losing rate; what a flow may send at once…"""
BURST_BYTES = 10 * 1514
"""… but at least an initial window (RFC 6928)."""
MIN_BPS = 64_000
FREE_BPS = 400_000_000_000
"""Of a class that is to go: what waits in it leaves at once, for a class takes its queue along."""
DRAIN_NS = 1 * S
_CLASSES = range(0x10, 0xFFFF)
_WATCH = """
trap '' INT TERM HUP
echo
cat > /dev/null
for command; do
    tc $command 2> /dev/null
done
"""

Paced = tuple[str, FourTuple]
"""NIC and flow, as its sender sees it."""


class _Class(NamedTuple):
    number: int
    bps: int


class _Place(NamedTuple):
    """Where on a NIC a qdisc of ours can be."""

    put: str
    """`tc` command that puts it there."""
    undo: str
    """… and that makes it as if it had never been there."""


class KernelPacing:
    """Limits the rates of flows in the kernel, one HTB class for each.

    Works in the network namespace of the thread that made it. Nothing is in the kernel until the
    first `set`.

    Args:
        nics: that may be touched.
    """

    def __init__(self, nics: Iterable[str]) -> None:
        self._nics = tuple(nics)
        self._classes: dict[Paced, _Class] = {}
        self._leaving: dict[tuple[str, int], int] = {}
        """(NIC, class) to which no flow is steered any more → since when."""
        self._attached: dict[str, _Place] = {}
        self._watch: subprocess.Popen[bytes] | None = None

    def set(self, rates: Mapping[Paced, int]) -> None:
        """Pace these flows at the given rates (bits per second of frames), and no others. Raises
        `MissingError`: no `tc`, a kernel without HTB, or a NIC with an operator's qdisc; then no
        flow is paced."""
        wanted = {key: max(MIN_BPS, bps) for key, bps in rates.items() if key[0] in self._nics}
        now_ns = time.monotonic_ns()
        try:
            if wanted:
                self._attach({nic for nic, _ in wanted})
            lines = [*self._changes(wanted, now_ns), *self._drained(now_ns)]
            if lines:
                _tc("-batch", "-", text="\n".join(lines) + "\n")
        except MissingError:
            self.close()
            raise

    def close(self) -> None:
        """Stop pacing and restore the NICs; returns when done. What waits in our
        queues is lost: `set` nothing and wait a second first where that matters."""
        watch, self._watch = self._watch, None
        self._classes, self._leaving, self._attached = {}, {}, {}
        if watch is None:
            return
        if watch.stdin is not None:
            watch.stdin.close()
        if watch.stdout is not None:
            watch.stdout.close()
        try:
            watch.wait(10)
        except subprocess.TimeoutExpired:
            watch.kill()
            watch.wait()

    def _attach(self, nics: Iterable[str]) -> None:
        """Our qdisc is on these NICs; the watchdog is there first."""
        fresh = sorted(set(nics) - self._attached.keys())
        if not fresh:
            return
        places = self._attached | {nic: _place(nic) for nic in fresh}
        before, self._watch = self._watch, _watchdog(place.undo for place in places.values())
        if before is not None:  # it knew fewer NICs; nothing may be done by it any more
            before.kill()
            before.wait()
        for nic in fresh:
            _tc(*places[nic].put.split())
            self._attached[nic] = places[nic]

    def _changes(self, wanted: Mapping[Paced, int], now_ns: int) -> list[str]:
        lines = []
        for key in self._classes.keys() - wanted.keys():
            number = self._classes.pop(key).number
            lines += [_filter("del", key, number), _class("change", key[0], number, FREE_BPS)]
            self._leaving[key[0], number] = now_ns
        for key, bps in wanted.items():
            known = self._classes.get(key)
            if known is None:
                number = self._free_number()
                lines += [_class("add", key[0], number, bps), _filter("add", key, number)]
            elif known.bps != bps:
                number = known.number
                lines.append(_class("change", key[0], number, bps))
            else:
                continue
            self._classes[key] = _Class(number, bps)
        return lines

    def _drained(self, now_ns: int) -> list[str]:
        done = [key for key, since_ns in self._leaving.items() if now_ns - since_ns >= DRAIN_NS]
        for key in done:
            del self._leaving[key]
        return [f"class del dev {nic} classid {HANDLE}{number:x}" for nic, number in done]

    def _free_number(self) -> int:
        used = {each.number for each in self._classes.values()}
        used |= {number for _, number in self._leaving}
        for number in _CLASSES:
            if number not in used:
                return number
        raise MissingError(f"more than {len(_CLASSES)} flows to pace on one host")


def _watchdog(commands: Iterable[str]) -> subprocess.Popen[bytes]:
    watch = subprocess.Popen(
        ["sh", "-c", _WATCH, "sh", *commands],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # what ends us all at once must not end it
    )
    if watch.stdout is not None:
        watch.stdout.readline()
    return watch


def _place(nic: str) -> _Place:
    """Raises `MissingError`: the NIC has a qdisc somebody chose, and that is no token bucket."""
    shown = json.loads(_tc("-j", "qdisc", "show", "dev", nic) or "[]")
    root = next((each for each in shown if each.get("root")), None)
    kind, handle = (root["kind"], root["handle"]) if root is not None else ("noqueue", "0:")
    if kind == "tbf":
        # Without a queue of its own a token bucket drops everything: it gets one like it had.
        options = root["options"] if root is not None else {}
        limit = int(options["rate"] * options["lat"] / 1_000_000 + options["burst"])
        where = f"dev {nic} parent {handle}1"
        return _Place(
            f"qdisc replace {where} handle {HANDLE} htb",
            f"qdisc replace {where} bfifo limit {limit}",
        )
    if handle == HANDLE:  # of one whose watchdog was killed too
        _tc("qdisc", "del", "dev", nic, "root", "handle", HANDLE)
    elif handle != "0:":
        raise MissingError(
            f"{nic} has a qdisc of its own ({kind} {handle}); pacing leaves it alone: "
            f"`tc qdisc del dev {nic} root` if it is not needed"
        )
    where = f"dev {nic} root handle {HANDLE}"
    return _Place(f"qdisc add {where} htb", f"qdisc del {where}")


def _class(verb: str, nic: str, number: int, bps: int) -> str:
    burst = max(BURST_BYTES, bps * BURST_NS // S // 8)
    return (
        f"class {verb} dev {nic} parent {HANDLE} classid {HANDLE}{number:x} htb "
        f"rate {bps}bit burst {burst}b cburst {burst}b quantum 1514"
    )


def _filter(verb: str, key: Paced, number: int) -> str:
    """Addresses, ports, TCP: IPv4 without options and IPv6 without extension headers, which is all
    that TCP sends unasked. The filter's priority is the number of its class."""
    nic, flow = key
    six = ":" in flow.remote
    ip, protocol, bits = ("ip6", "ipv6", 128) if six else ("ip", "ip", 32)
    head = f"filter {verb} dev {nic} parent {HANDLE} protocol {protocol} prio {number}"
    if verb == "del":
        return head
    words = (
        f"{ip} src {flow.local}/{bits}", f"{ip} dst {flow.remote}/{bits}",
        f"{ip} sport {flow.local_port} 0xffff", f"{ip} dport {flow.remote_port} 0xffff",
        f"{ip} protocol 6 0xff",
    )  # fmt: skip
    matches = " ".join(f"match {word}" for word in words)
    return f"{head} u32 {matches} classid {HANDLE}{number:x}"


def _tc(*words: str, text: str = "") -> str:
    return run_tool("tc", *words, what="pacing", package="iproute2", text=text)
