"""Ways to run a job under faults without agents, beside the drills' own: tuned kernels, and kernel
MPTCP alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from syntony.errors import RemoteError
from syntony.lab.client import Lab
from syntony.lab.drill.modes import PLAIN, RUN, SYNTONY, SYNTONY_TCP, JobMode

JOIN_PORTS = range(9990, 10_022)
"""For the kernel's own listener for joins: a program that listens on one address has none on its
host's other one. Several, because the kernel refuses a port (98, EADDRINUSE) as long as a joined
connection of an earlier run is in TIME_WAIT there."""
_SUBFLOWS = "8"

TUNED = JobMode(name="tuned-tcp", title="plain TCP, retries every second at most")
# 1 s alone would kill the job sooner: 15 retries take less time then.
_TUNING = {"net.ipv4.tcp_rto_max_ms": "1000", "net.ipv4.tcp_retries2": "255"}
KERNEL_MPTCP = JobMode(name="kernel-mptcp", title="kernel MPTCP alone", wrap=RUN)
MODES = {mode.name: mode for mode in (PLAIN, TUNED, KERNEL_MPTCP, SYNTONY, SYNTONY_TCP)}


@contextmanager
def prepared(lab: Lab, mode: JobMode) -> Iterator[None]:
    """Configure the hosts for `mode`, and restore them afterwards. Raises `RemoteError`."""
    status, sysctls = lab.status(), _TUNING if mode is TUNED else {}
    before: dict[str, dict[str, str]] = {}
    try:
        for host in status.hosts:
            before[host] = {name: lab.run(host, "sysctl", "-n", name).strip() for name in sysctls}
            _set(lab, host, sysctls)
            if mode is KERNEL_MPTCP:
                _add_endpoints(lab, host, status.spec.rails)
        yield
    finally:
        for host, values in before.items():
            _set(lab, host, values)
            if mode is KERNEL_MPTCP:
                lab.run(host, "ip", "mptcp", "endpoint", "flush")


def _set(lab: Lab, host: str, values: dict[str, str]) -> None:
    for name, value in values.items():
        lab.run(host, "sysctl", "-qw", f"{name}={value}")


def _add_endpoints(lab: Lab, host: str, rails: int) -> None:
    """Both ends may open subflows from every NIC, and the first NIC's peer learns the others."""
    addresses = lab.addresses(4)
    limits = ("subflow", _SUBFLOWS, "add_addr_accepted", _SUBFLOWS)
    lab.run(host, "ip", "mptcp", "limits", "set", *limits)
    for rail in range(rails):
        nic, address = f"rail{rail}", addresses[f"{host}/rail{rail}"]
        add = ("ip", "mptcp", "endpoint", "add", address, "dev", nic)
        lab.run(host, *add, "subflow")
        if rail:
            _listen(lab, host, add)


def _listen(lab: Lab, host: str, add: tuple[str, ...]) -> None:
    for port in JOIN_PORTS:
        try:
            lab.run(host, *add, "signal", "port", str(port))
        except RemoteError as error:
            if port == JOIN_PORTS[-1] or "-98" not in str(error):
                raise
        else:
            return
