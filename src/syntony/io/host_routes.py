"""Routes of last resort to peers' addresses: for packets whose own route went with its NIC.

They are in a table of our own, which one rule looks up after all others. The kernel has no timeouts
for routes, so a small process takes rule and table away when its pipe closes: when whoever made it
ends, however it ends. Of a maker that hangs it takes the rule away, until that lives again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

from syntony.errors import MissingError

TABLE = 8_621
PREFERENCE = 32_900
"""Of the rule: these routes are used where all others (main is 32,766) have failed."""
DEAD_MAN_S = 5
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
    """Of the network namespace of its maker, who must call `beat` within every `DEAD_MAN_S`.

    Raises:
        MissingError: `ip` is missing, or may not change routes.
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
        for family in ("-4", "-6"):
            _ip(family, "rule", "del", "pref", str(PREFERENCE), fine=True)
            _ip(family, "rule", "add", "pref", str(PREFERENCE), "lookup", str(TABLE))

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
        family, bits = _family(remote)
        source, neighbour = like
        (found,) = json.loads(_ip(family, "-json", "route", "get", neighbour, "from", source))
        _ip(
            family, "route", "replace", f"{remote}/{bits}",
            "via", found.get("gateway", neighbour), "dev", nic,
            "metric", str(metric), "table", str(TABLE),
        )  # fmt: skip

    def beat(self) -> None:
        """The maker lives."""
        if self._watch.stdin is not None:
            with suppress(BrokenPipeError):
                self._watch.stdin.write(b".")
                self._watch.stdin.flush()

    def close(self) -> None:
        """Everything as it was; returns when it is."""
        if self._watch.stdin is not None:
            self._watch.stdin.close()
        if self._watch.stdout is not None:
            self._watch.stdout.close()
        try:
            self._watch.wait(10)
        except subprocess.TimeoutExpired:
            os.kill(self._watch.pid, signal.SIGKILL)
            self._watch.wait()


def _family(address: str) -> tuple[str, int]:
    """As `ip` is told, and the length of a host's prefix."""
    return ("-6", 128) if ":" in address else ("-4", 32)


def _ip(*words: str, fine: bool = False) -> str:
    """`fine`: it may have been done already."""
    try:
        done = subprocess.run(["ip", *words], text=True, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise MissingError("routes need ip; install with: apt install iproute2") from error
    if done.returncode != 0 and not fine:
        reason = (done.stderr.strip() or "no message").splitlines()[0]
        raise MissingError(f"`ip {' '.join(words)}` failed: {reason}")
    return done.stdout
