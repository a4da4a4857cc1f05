"""`syntony audit`: is the fleet right before the week-long job starts?"""

from __future__ import annotations

import click

from syntony.cli.lazy import LazyGroup

_ELSEWHERE = {
    "bandwidth": (
        "audit_bandwidth:bandwidth",
        "TCP between pairs of hosts (fe.bw), or RDMA on every NIC (be.conn.qp, .bw, .gdr).",
    ),
    "checks": (
        "audit_checks:checks",
        "Every check: what it reads, what it expects, what a failure means and what to do.",
    ),
    "fabric": (
        "audit_fabric:fabric",
        "Cabling: rails, port order, uplinks, speeds, names, hierarchy.",
    ),
    "nccl": (
        "audit_nccl:nccl",
        (
            "All-reduce with 1, 2, 4 and 8 queue pairs, in a job's order of hosts and by the "
            "hierarchy."
        ),
    ),
    "network": (
        "audit_network:network",
        "Connectivity on 16 source ports of every pair, path MTU, hops and rails, routes, latency.",
    ),
    "pairs": (
        "audit_pairs:pairs",
        (
            "Run TEST for pairs of hosts, all hosts busy at once, and name the host or pair that "
            "fails."
        ),
    ),
    "learn": (
        "audit_run:learn",
        "Write the spec of a fleet that is known to be good: TOML, sorted, made to be compared.",
    ),
    "run": (
        "audit_run:run",
        "Run all checks and say what is wrong, what it means, and what to do.",
    ),
    "diff": (
        "audit_show:diff",
        "What turned between two runs: the last two, BEFORE and the last, or BEFORE and AFTER.",
    ),
    "show": (
        "audit_show:show_run",
        "An earlier run, the last one by default: the same tree, tables and documents.",
    ),
    "clocks": (
        "audit_tools:clocks",
        "This host's clock compared with its probing peers' clocks, and the bound.",
    ),
    "gemm": (
        "audit_tools:gemm",
        "TFLOP/s of matrix products: of every GPU, else of the processors of each NUMA node.",
    ),
    "reach": (
        "audit_tools:reach",
        (
            "Connect to each peer (HOST or HOST:PORT) so often, and say how many fail and how long "
            "it takes."
        ),
    ),
    "record": (
        "audit_tools:record",
        "Keep what the checks read on this host as a tree: for later, or for somebody else.",
    ),
    "triad": (
        "audit_tools:triad",
        "Memory bandwidth of each NUMA node, GB/s: all its processors work for some seconds.",
    ),
}


@click.group(cls=LazyGroup, lazy=_ELSEWHERE)
def command() -> None:
    """Is the fleet right before the job starts: configuration, nodes, networks, NCCL.

    \b
    Example:
      syntony audit run --local
    """
