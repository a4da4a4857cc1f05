"""Flows paced by the kernel: one HTB class for each, below whatever shapes the NIC already.

MPTCP sockets refuse SO_MAX_PACING_RATE (Linux 6.18) and their subflows have no descriptors, so a
flow is held back where it leaves: packets of its four-tuple wait in a class of its own, TCP's small
queues keep all but a few of them in the socket, and everything else passes by unclassified. The
NIC gets a root qdisc of ours where it has none that somebody chose; a token bucket (as in labs)
gets it as its child. A small process takes everything away when its pipe closes: when whoever made
it ends, however it ends.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from syntony.errors import MissingError
from syntony.model import MS, S
from syntony.model.paths import FourTuple

HANDLE = "5a1:"
"""Of our qdisc, on any NIC; 0x5a1 means nothing to anyone."""
BURST_NS = 2 * MS
"""A timer may be so late without a class losing rate; what a flow may send at once…"""
BURST_BYTES = 10 * 1514
"""… but at least an initial window (RFC 6928)."""
MIN_BPS = 64_000
_CLASSES = range(0x10, 0xFFFF)
_PATIENCE_S = 2.0
_ROOT = re.compile(r"^qdisc (\S+) (\S+) .*\broot\b")
_WATCH = """
trap '' INT TERM HUP
echo
cat > /dev/null
while [ $# -gt 0 ]; do
    tc qdisc del dev "$1" $2 handle 5a1: 2> /dev/null
    shift 2
done
"""

Paced = tuple[str, FourTuple]
"""NIC and flow, as its sender sees it."""


class _Class(NamedTuple):
    number: int
    bps: int


class KernelPacing:
    """Of the network namespace of its maker; nothing is in the kernel until the first `set`.

    Args:
        nics: that may be touched.
    """

    def __init__(self, nics: Iterable[str]) -> None:
        self._nics = tuple(nics)
        self._classes: dict[Paced, _Class] = {}
        self._parents: dict[str, str] = {}
        """NIC to where our qdisc is, ``root`` or ``parent …``; those that have one."""
        self._watch: subprocess.Popen[bytes] | None = None

    @property
    def watchdog_pid(self) -> int:
        """Of the process that cleans up; 0 while there is nothing."""
        return self._watch.pid if self._watch is not None else 0

    def set(self, rates: Mapping[Paced, int]) -> None:
        """These flows go at so many bits per second of frames from now on, all others are free.

        Raises:
            MissingError: no `tc`, a kernel without HTB, or a NIC with a qdisc somebody chose; then
                nobody is paced.
        """
        wanted = {key: max(MIN_BPS, bps) for key, bps in rates.items() if key[0] in self._nics}
        if not wanted:
            self.close()
            return
        try:
            lines = [*self._attached({nic for nic, _ in wanted}), *self._changes(wanted)]
            if lines:
                _tc("-batch", "-", text="\n".join(lines) + "\n")
        except MissingError:
            self.close()
            raise

    def close(self) -> None:
        """Nobody is paced; returns when it is so."""
        watch, self._watch = self._watch, None
        self._classes, self._parents = {}, {}
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

    def _attached(self, nics: Iterable[str]) -> list[str]:
        """Commands that put our qdisc on the NICs that have none; the watchdog is there first."""
        if self._watch is None:
            places = {nic: _place(nic) for nic in self._nics}
            self._parents = {}
            self._watch = subprocess.Popen(
                ["sh", "-c", _WATCH, "sh", *(word for pair in places.items() for word in pair)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # what ends us all at once must not end it
            )
            if self._watch.stdout is not None:
                self._watch.stdout.readline()
        lines = []
        for nic in sorted(set(nics) - self._parents.keys()):
            place = _place(nic)
            with suppress(MissingError):  # left behind by one whose watchdog was killed too
                _tc("qdisc", "del", "dev", nic, *place.split(), "handle", HANDLE)
            lines.append(f"qdisc add dev {nic} {place} handle {HANDLE} htb")
            self._parents[nic] = place
        return lines

    def _changes(self, wanted: Mapping[Paced, int]) -> list[str]:
        lines = []
        for key in self._classes.keys() - wanted.keys():
            lines += _gone(key, self._classes.pop(key).number)
        for key, bps in wanted.items():
            known = self._classes.get(key)
            if known is None:
                number = self._free_number()
                lines += [_class("add", key[0], number, bps), _filter(key, number)]
            elif known.bps != bps:
                number = known.number
                lines.append(_class("change", key[0], number, bps))
            else:
                continue
            self._classes[key] = _Class(number, bps)
        return lines

    def _free_number(self) -> int:
        used = {each.number for each in self._classes.values()}
        for number in _CLASSES:
            if number not in used:
                return number
        raise MissingError(f"more than {len(_CLASSES)} flows to pace on one host")


def _place(nic: str) -> str:
    """Where a qdisc of ours can be.

    Raises:
        MissingError: the NIC has one that somebody chose, and that is no token bucket.
    """
    for line in _tc("qdisc", "show", "dev", nic).splitlines():
        found = _ROOT.match(line)
        if found is None:
            continue
        kind, handle = found.groups()
        if kind == "tbf":
            return f"parent {handle}1"
        if handle in {"0:", HANDLE}:  # the kernel's default, or our own
            return "root"
        raise MissingError(
            f"{nic} has a qdisc of its own ({kind} {handle}); pacing leaves it alone: "
            f"`tc qdisc del dev {nic} root` if it is not needed"
        )
    return "root"


def _class(verb: str, nic: str, number: int, bps: int) -> str:
    burst = max(BURST_BYTES, bps * BURST_NS // S // 8)
    return (
        f"class {verb} dev {nic} parent {HANDLE} classid {HANDLE}{number:x} htb "
        f"rate {bps}bit burst {burst}b cburst {burst}b quantum 1514"
    )


def _filter(key: Paced, number: int) -> str:
    """Addresses, ports, TCP: IPv4 without options and IPv6 without extension headers, which is all
    that TCP sends unasked."""
    nic, flow = key
    six = ":" in flow.remote
    ip, protocol, bits = ("ip6", "ipv6", 128) if six else ("ip", "ip", 32)
    words = (
        f"{ip} src {flow.local}/{bits}", f"{ip} dst {flow.remote}/{bits}",
        f"{ip} sport {flow.local_port} 0xffff", f"{ip} dport {flow.remote_port} 0xffff",
        f"{ip} protocol 6 0xff",
    )  # fmt: skip
    matches = " ".join(f"match {word}" for word in words)
    return (
        f"filter add dev {nic} parent {HANDLE} protocol {protocol} prio {number} u32 {matches} "
        f"classid {HANDLE}{number:x}"
    )


def _gone(key: Paced, number: int) -> list[str]:
    nic, flow = key
    protocol = "ipv6" if ":" in flow.remote else "ip"
    return [
        f"filter del dev {nic} parent {HANDLE} protocol {protocol} prio {number}",
        f"class del dev {nic} classid {HANDLE}{number:x}",
    ]


def _tc(*words: str, text: str = "") -> str:
    try:
        done = subprocess.run(
            ["tc", *words],
            input=text,
            text=True,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise MissingError("pacing needs tc; install with: apt install iproute2") from error
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"tc does not answer within {_PATIENCE_S:g} s") from error
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no message").splitlines()[0]
        raise MissingError(f"tc refuses to pace: {reason}")
    return done.stdout
