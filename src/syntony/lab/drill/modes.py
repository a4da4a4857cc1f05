"""The ways to run a job under faults: plain TCP, Syntony, and over verbs."""

from __future__ import annotations

import sys

import msgspec


class JobMode(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    wrap: tuple[str, ...] = ()
    """Put before every rank's command line."""
    agents: bool = False


JOB = "drill"
"""The name that agents know a wrapped job by."""
MANAGED = (sys.executable, "-m", "syntony", "run", "--job")
"""Before the name of a job, then its command."""
RUN = (*MANAGED, JOB, "--")
PLAIN = JobMode(name="plain-tcp", title="plain TCP")
SYNTONY = JobMode(name="syntony", title="Syntony", wrap=RUN, agents=True)
SYNTONY_TCP = JobMode(
    name="syntony-tcp",
    title="Syntony, plain TCP",
    # As on a host without MPTCP, or with a program that nothing can be put in front of.
    wrap=("env", "SYNTONY_TCP=off", *RUN),
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
    wrap=(*VERBS, _BOTH, *RUN[:-1], "--nccl", "--no-nccl-profiler", "--"),
)
