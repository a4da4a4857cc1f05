"""Installs fallback routes to peers' addresses, for packets whose own route went down with its NIC.

They are in a table of our own, which one rule looks up after all others. The kernel has no timeouts
for routes, so a small process removes rule and table when its pipe closes, that is when its parent
ends, however it ends. While the parent hangs it removes the rule, until the parent runs again. Only
that process runs programs; the parent talks to the kernel itself.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress

from syntony.errors import MissingError
from syntony.io.netlink import NLM_F_REPLACE, NetlinkMessage, attribute, attributes
from syntony.io.netlink_socket import CREATE, NetlinkSocket
from syntony.io.routes import (
    GETROUTE,
    NETLINK_ROUTE,
    NEWROUTE,
    NEWRULE,
    RTA_OIF,
    RTMSG,
    UNICAST,
)

TABLE = 8_621
PREFERENCE = 32_900
"""Of the rule: these routes are used where all others (main is 32,766) have failed."""
DEAD_MAN_S = 5
_DELRULE, _TO_TABLE, _FRA_PRIORITY, _FRA_TABLE = 33, 1, 6, 15
_RTA_DST, _RTA_SRC, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_TABLE = 1, 2, 5, 6, 15
_PROTO_BOOT = 3
_EXCLUSIVE = 0x200
"""NLM_F_EXCL."""
_WATCH = """
import os, select, signal, subprocess, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
preference, table, patience = sys.argv[1:]

def ip(*words):
    for family in ("-4", "-6"):
        subprocess.run(["ip", family, *words], stderr=subprocess.DEVNULL)

def rule(verb):
    ip("rule", verb, "pref", preference, *(("lookup", table) if verb == "add" else ()))

there = True
print(flush=True)
while True:
    heard = select.select([0], [], [], float(patience) if there else None)[0]
    if heard and not os.read(0, 4096):
        break
    if there != bool(heard):
        there = not there
        rule("add" if there else "del")
if there:
    rule("del")
ip("route", "flush", "table", table)
"""


class HostRoutes:
    """Installs fallback routes to peers' addresses.

    Works in the network namespace of the thread that made it. The routes expire unless `beat` is
    called within every `DEAD_MAN_S`.

    Raises:
        MissingError: routes may not be changed here.
    """

    def __init__(self) -> None:
        # In a session of its own: what ends us all at once must not end the one that cleans up.
        self._watch = subprocess.Popen(
            [sys.executable, "-c", _WATCH, str(PREFERENCE), str(TABLE), str(DEAD_MAN_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        if self._watch.stdout is not None:
            self._watch.stdout.readline()
        self._kernel = NetlinkSocket(NETLINK_ROUTE)
        for family in (socket.AF_INET, socket.AF_INET6):
            head = RTMSG.pack(family, 0, 0, 0, 0, 0, 0, _TO_TABLE, 0)
            rule = head + _number(_FRA_PRIORITY, PREFERENCE) + _number(_FRA_TABLE, TABLE)
            for kind, flags, fine in (
                (_DELRULE, 0, errno.ENOENT),
                (NEWRULE, CREATE | _EXCLUSIVE, errno.EEXIST),
            ):
                self._ask(kind, rule, flags, fine)

    def offer(self, remote: str, like: tuple[str, str], nic: str, metric: int) -> None:
        """Packets to `remote` may leave by `nic`, by the lowest metric that is left.

        Args:
            remote: where they go.
            like: source and destination of packets that leave by `nic` today: by the same gateway.
                A destination that is a neighbour is the gateway: without any, packets would wait
                for the address resolution of somebody who is not there.
            nic: interface.
            metric: lower comes first.
        """
        source, neighbour = like
        family, far = _packed(remote)
        gateway = self._gateway(source, neighbour) or _packed(neighbour)[1]
        bits = 8 * len(far)
        body = RTMSG.pack(family, bits, 0, 0, 0, _PROTO_BOOT, 0, UNICAST, 0)
        body += attribute(_RTA_DST, far) + attribute(_RTA_GATEWAY, gateway)
        try:
            body += _number(RTA_OIF, socket.if_nametoindex(nic))
        except OSError as error:
            raise MissingError(f"no route through {nic}: {error.strerror}") from error
        body += _number(_RTA_PRIORITY, metric) + _number(_RTA_TABLE, TABLE)
        self._ask(NEWROUTE, body, CREATE | NLM_F_REPLACE)

    def _gateway(self, source: str, destination: str) -> bytes:
        """Of packets between these; empty: they need none."""
        family, far = _packed(destination)
        near = _packed(source)[1]
        body = RTMSG.pack(family, 8 * len(far), 8 * len(near), 0, 0, 0, 0, 0, 0)
        body += attribute(_RTA_DST, far) + attribute(_RTA_SRC, near)
        for message in self._ask(GETROUTE, body):
            if message.type == NEWROUTE:
                return attributes(message.payload, RTMSG.size).get(_RTA_GATEWAY, b"")
        return b""

    def _ask(self, kind: int, body: bytes, flags: int = 0, fine: int = 0) -> list[NetlinkMessage]:
        """`fine`: the errno that says that it has been done already."""
        try:
            return self._kernel.ask(kind, body, flags)
        except OSError as error:
            if error.errno == fine:
                return []
            raise MissingError(f"the kernel refuses a route or rule: {error.strerror}") from error

    def beat(self) -> None:
        """Confirm that the caller is alive."""
        if self._watch.stdin is not None:
            with suppress(BrokenPipeError):
                self._watch.stdin.write(b".")
                self._watch.stdin.flush()

    def close(self) -> None:
        """Remove rule and routes; returns when they are gone."""
        self._kernel.close()
        if self._watch.stdin is not None:
            self._watch.stdin.close()
        if self._watch.stdout is not None:
            self._watch.stdout.close()
        try:
            self._watch.wait(10)
        except subprocess.TimeoutExpired:
            os.kill(self._watch.pid, signal.SIGKILL)
            self._watch.wait()


def _packed(address: str) -> tuple[int, bytes]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return family, socket.inet_pton(family, address)


def _number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))
