"""Parses the output of `ss` on a host's TCP connections. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

SS_ARGV = ("ss", "-tniOH", "state", "established")
"""Every established connection on one line with its tcp_info; MPTCP subflows are among them."""
_SENT = re.compile(r"\bbytes_sent:(\d+)")
_ENDS = slice(2, 4)
"""With a state asked for, ``ss`` leaves that column out: receive queue, send queue, ends."""


class HostFlow(NamedTuple):
    local: str
    local_port: int
    peer: str
    peer_port: int
    sent_bytes: int


def parse_ss(text: str) -> list[HostFlow]:
    """Lines that describe no connection are left out."""
    found = []
    for line in text.splitlines():
        ends = [end.rpartition(":") for end in line.split()[_ENDS]]
        if len(ends) < 2 or not all(port.isdecimal() for _, _, port in ends):
            continue
        (local, _, local_port), (peer, _, peer_port) = ends
        sent = _SENT.search(line)
        addresses = (_bare(local), int(local_port), _bare(peer), int(peer_port))
        found.append(HostFlow(*addresses, int(sent.group(1)) if sent else 0))
    return found


def _bare(address: str) -> str:
    """IPv6 addresses come in brackets, and IPv4 mapped into them from dual-stack sockets."""
    return address.strip("[]").removeprefix("::ffff:")
