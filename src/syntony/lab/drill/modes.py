"""The ways to run a job under faults: plain TCP, tuned kernels, kernel MPTCP, Syntony."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from syntony.errors import RemoteError
from syntony.lab.client import Lab

JOIN_PORTS = range(9990, 10_022)
"""For the kernel's own listener for joins: a program that listens on one address has none on its
host's other one. Several, because the kernel refuses a port (98, EADDRINUSE) as long as a joined
connection of an earlier run is in TIME_WAIT there."""
_SUBFLOWS = "8"


class JobMode(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run a job."""

    name: str
    title: str
    wrap: tuple[str, ...] = ()
    """Put before every rank's command line."""
    own_mptcp: bool = False
    """The built-in job asks for multi-path sockets itself, and is not wrapped."""
    sysctls: dict[str, str] = {}
    """Of every host, restored afterwards."""
    endpoints: bool = False
    """Whether every NIC is announced to the kernel's own path manager."""
    agents: bool = False


JOB = "drill"
"""The name that agents know a wrapped job by."""
MANAGED = (sys.executable, "-m", "syntony", "run", "--job")
"""Before the name of a job, then its command."""
_RUN = (*MANAGED, JOB, "--")
PLAIN = JobMode(name="plain-tcp", title="plain TCP")
TUNED = JobMode(
    name="tuned-tcp",
    title="plain TCP, retries every second at most",
    # 1 s alone would kill the job sooner: 15 retries take less time then.
    sysctls={"net.ipv4.tcp_rto_max_ms": "1000", "net.ipv4.tcp_retries2": "255"},
)
KERNEL_MPTCP = JobMode(
    name="kernel-mptcp", title="kernel MPTCP alone", wrap=_RUN, own_mptcp=True, endpoints=True
)
SYNTONY = JobMode(name="syntony", title="Syntony", wrap=_RUN, agents=True)
SYNTONY_TCP = JobMode(
    name="syntony-tcp",
    title="Syntony, plain TCP",
    # As on a host without MPTCP, or with a program that nothing can be put in front of.
    wrap=("env", "SYNTONY_TCP=off", *_RUN),
    agents=True,
)
VERBS = (
    "env",
    "NCCL_SOCKET_IFNAME=mgmt0",
    "NCCL_DEBUG=WARN",
    # The ranks' sockets only find each other: no agent is to manage them.
    "SYNTONY_TCP=off",
    # Soft-RoCE takes 7 for ever.
    "NCCL_IB_RETRY_CNT=6",
    "NCCL_IB_RESILIENCY_PORT_FAILOVER=1",
)
"""For NCCL's transports in a lab of machines; assignments may follow."""
_BOTH = "SYNTONY_NCCL_RAILS=rxe_rail0+rxe_rail1"
NCCL = JobMode(name="nccl-ib", title="NCCL's own IB transport", wrap=(*VERBS, _BOTH))
NCCL_SYNTONY = JobMode(
    name="nccl-syntony",
    title="Syntony's net plug-in",
    wrap=(*VERBS, _BOTH, *_RUN[:-1], "--nccl", "--no-nccl-profiler", "--"),
)
MODES = {mode.name: mode for mode in (PLAIN, TUNED, KERNEL_MPTCP, SYNTONY, SYNTONY_TCP)}


@contextmanager
def prepared(lab: Lab, mode: JobMode) -> Iterator[None]:
    """Configure the hosts for `mode`, and restore them afterwards. Raises `RemoteError`."""
    status = lab.status()
    before: dict[str, dict[str, str]] = {}
    try:
        for host in status.hosts:
            before[host] = {
                name: lab.run(host, "sysctl", "-n", name).strip() for name in mode.sysctls
            }
            _set(lab, host, mode.sysctls)
            if mode.endpoints:
                _add_endpoints(lab, host, status.spec.rails)
        yield
    finally:
        for host, values in before.items():
            _set(lab, host, values)
            if mode.endpoints:
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
