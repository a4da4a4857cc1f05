"""A route to one peer address, replaced while it lasts: plain TCP moves to another NIC.

For connections between addresses that belong to no NIC (a /32 or /128 on loopback, as many fabrics
give their hosts). Routes go into a table of our own, looked up before all others by one rule. The
kernel has no timeouts for routes, so a small process takes rule and table away when its pipe
closes: when whoever made it ends, however it ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from syntony.errors import MissingError

TABLE, PREFERENCE = 8_621, 500
_WATCH = """
import signal, subprocess, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print(flush=True)
sys.stdin.buffer.read()
for family in ("-4", "-6"):
    subprocess.run(["ip", family, "rule", "del", "pref", sys.argv[1]], stderr=subprocess.DEVNULL)
    subprocess.run(["ip", family, "route", "flush", "table", sys.argv[2]],
                   stderr=subprocess.DEVNULL)
"""


class HostRoutes:
    """Of the network namespace of its maker.

    Raises:
        MissingError: `ip` is missing, or may not change routes.
    """

    def __init__(self) -> None:
        # In a session of its own: what ends us all at once must not end the one that cleans up.
        self._watch = subprocess.Popen(
            [sys.executable, "-c", _WATCH, str(PREFERENCE), str(TABLE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        if self._watch.stdout is not None:
            self._watch.stdout.readline()
        for family in ("-4", "-6"):
            _ip(family, "rule", "del", "pref", str(PREFERENCE), fine=True)
            _ip(family, "rule", "add", "pref", str(PREFERENCE), "lookup", str(TABLE))

    @property
    def watchdog_pid(self) -> int:
        """Of the process that cleans up."""
        return self._watch.pid

    def move(self, remote: str, via: str, nic: str, source: str) -> None:
        """Packets to `remote` leave by `nic` from now on, with `source` as their address."""
        family, bits = ("-6", 128) if ":" in remote else ("-4", 32)
        _ip(
            family, "route", "replace", f"{remote}/{bits}", "via", via, "dev", nic,
            "src", source, "table", str(TABLE),
        )  # fmt: skip

    def leave(self, remote: str) -> None:
        """Packets to `remote` take the way they took before."""
        family, bits = ("-6", 128) if ":" in remote else ("-4", 32)
        _ip(family, "route", "del", f"{remote}/{bits}", "table", str(TABLE), fine=True)

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


def _ip(*words: str, fine: bool = False) -> None:
    """`fine`: it may have been done already."""
    try:
        done = subprocess.run(["ip", *words], text=True, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise MissingError("routes need ip; install with: apt install iproute2") from error
    if done.returncode != 0 and not fine:
        reason = (done.stderr.strip() or "no message").splitlines()[0]
        raise MissingError(f"`ip {' '.join(words)}` failed: {reason}")
