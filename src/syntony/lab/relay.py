"""Delays packets without netem: they are routed into a TUN device and come back later."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from typing import IO, AnyStr, NamedTuple

from syntony.errors import MissingError
from syntony.lab import netns
from syntony.lab.plan import Port

TUN_DEVICE = Path("/dev/net/tun")
_PREF_DONE = 100
_PREF_IN = 200
_PREF_TO = 300
_FIRST_TABLE = 1000
_STOP_TIMEOUT_S = 2.0


class RelaySpot(NamedTuple):
    """Which packets are delayed: those that come in by `port`, or those for `to` (its peer)."""

    port: Port
    to: Port | None

    @property
    def device(self) -> str:
        """Unique: interface indexes are unique in the fabric."""
        return f"{'out' if self.to else 'in'}{self.port.index}"

    @property
    def table(self) -> int:
        return _FIRST_TABLE + 2 * self.port.index + (self.to is not None)


class Relay:
    """One running relay and the policy routing that feeds it."""

    def __init__(self, spot: RelaySpot, delay_ns: int) -> None:
        """Raises `MissingError`: no /dev/net/tun, or the relay was not built."""
        _check_tun()
        self._spot = spot
        with netns.entered(spot.port.node):
            self._process = subprocess.Popen(
                [str(relay_program()), spot.device, str(delay_ns)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        if pipe(self._process.stdout).readline().strip() != "ready":
            said = self._process.communicate()[1].strip()
            raise MissingError(f"the delay relay did not start: {said}")
        try:
            self._route("add")
        except MissingError:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def set_delay(self, delay_ns: int) -> None:
        """Changes the delay of a running relay."""
        orders = pipe(self._process.stdin)
        orders.write(f"{delay_ns}\n")
        orders.flush()

    def close(self) -> None:
        """Restore the direct path, then end the relay."""
        self._route("del")
        try:
            self._process.communicate(timeout=_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _route(self, verb: str) -> None:
        """A packet that has passed a relay towards its port must not match it again."""
        spot, node = self._spot, self._spot.port.node
        run = netns.batch if verb == "add" else netns.batch_forced
        if verb == "add":
            run(node, ["ip"], [f"link set {spot.device} up"])
        for family in (4, 6):
            lines = []
            if spot.to is None:
                lines += [f"rule {verb} iif {spot.port.name} table {spot.table} pref {_PREF_IN}"]
            else:
                lines += [
                    f"rule {verb} iif {spot.device} table main pref {_PREF_DONE}",
                    f"rule {verb} to {spot.to.address(family)} table {spot.table} pref {_PREF_TO}",
                ]
            default = "0.0.0.0/0" if family == 4 else "::/0"
            route = f"route {verb} {default} dev {spot.device} table {spot.table}"
            lines = [route, *lines] if verb == "add" else [*lines, route]
            run(node, ["ip", f"-{family}"], lines)


def relay_program() -> Path:
    """The installed `syntony-delay`. Raises `MissingError`: this installation was built without
    it."""
    spec = importlib.util.find_spec("syntony.lab")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        program = Path(place, "_native", "syntony-delay")
        if program.exists():
            return program
    raise MissingError("syntony-delay is not installed; reinstall syntony with a C compiler")


def pipe(stream: IO[AnyStr] | None) -> IO[AnyStr]:
    """The pipe to a process that was started with one."""
    if stream is None:
        raise ValueError("the process was started without this pipe")
    return stream


def _check_tun() -> None:
    if not TUN_DEVICE.exists():
        raise MissingError(f"the delay fault needs {TUN_DEVICE}; load it with: modprobe tun")
    if not os.access(TUN_DEVICE, os.R_OK | os.W_OK):
        raise MissingError(
            f"the delay fault needs {TUN_DEVICE}, which you may not open; "
            f"as root: chmod 0666 {TUN_DEVICE}"
        )
