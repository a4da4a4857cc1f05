"""`syntony audit`: checks the fleet before a long job starts."""

from __future__ import annotations

import click

from syntony.cli.lazy import LazyGroup

_ELSEWHERE = {
    "bandwidth": (
        "audit_bandwidth:bandwidth",
        "Test bandwidth between hosts: TCP (fe.bw), or RDMA on every NIC (be.conn.qp, .bw, .gdr).",
    ),
    "checks": (
        "audit_checks:checks",
        "List every check: what it reads and expects, what a failure means, what to do.",
    ),
    "fabric": (
        "audit_fabric:fabric",
        "Check the cabling: rails, port order, uplinks, speeds, names, hierarchy.",
    ),
    "nccl": (
        "audit_nccl:nccl",
        ("Test all-reduce with 1, 2, 4 and 8 queue pairs, in job order and fabric order of hosts."),
    ),
    "network": (
        "audit_network:network",
        "Test connectivity on 16 source ports per pair, path MTU, hops, rails, routes, latency.",
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
        "Write the expected values of a fleet that is known to be good, as sorted TOML.",
    ),
    "run": (
        "audit_run:run",
        "Run all checks; show what is wrong, what it means and what to do.",
    ),
    "diff": (
        "audit_show:diff",
        "Compare two runs: the last two, BEFORE and the last, or BEFORE and AFTER.",
    ),
    "show": (
        "audit_show:show_run",
        "Show an earlier run, by default the last: the same tree, tables and documents.",
    ),
    "clocks": (
        "audit_tools:clocks",
        "Compare this host's clock with its peers' clocks, with a bound on the error.",
    ),
    "gemm": (
        "audit_tools:gemm",
        "Measure TFLOP/s of matrix products on every GPU, else on each NUMA node's processors.",
    ),
    "reach": (
        "audit_tools:reach",
        "Connect to each peer (HOST or HOST:PORT) --count times; show failures and durations.",
    ),
    "record": (
        "audit_tools:record",
        "Record what the checks read on this host, as a tree to judge later or elsewhere.",
    ),
    "triad": (
        "audit_tools:triad",
        "Measure the memory bandwidth of each NUMA node, GB/s; loads all processors for seconds.",
    ),
}


@click.group(cls=LazyGroup, lazy=_ELSEWHERE)
def command() -> None:
    """Check the fleet before a job starts: configuration, nodes, networks, NCCL.

    \b
    Example:
      syntony audit run --local
    """
