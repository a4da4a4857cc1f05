"""Makes a plan real: namespaces, veth pairs, addresses, routes, shapers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from syntony.lab import commands, netns
from syntony.lab.plan import CONTROLLER, LabPlan
from syntony.lab.routes import routes

_THREADS = 4
"""`ip` and `tc` mostly wait for the kernel's RTNL lock: more threads than this gain nothing."""


def build(plan: LabPlan, *, guests: bool = False) -> None:
    """Brings the whole fabric up in the current (private, empty) world.

    With `guests` the hosts' addresses and routes are left to the machines that run there.

    Raises:
        MissingError: a tool failed or the kernel lacks a feature.
        OSError: the kernel refuses a namespace.
    """
    netns.NETNS_DIR.mkdir(parents=True, exist_ok=True)
    for node in plan.nodes:
        netns.create(node, _sysctls(plan, node))
    netns.batch(None, ["ip"], commands.veth_lines(plan))
    with ThreadPoolExecutor(_THREADS) as pool:
        # Two passes: a route's next hop must be reachable, so every port must be up first.
        empty = plan.hosts if guests else ()
        nodes = [node for node in plan.nodes if node not in empty]
        list(pool.map(lambda node: _addresses(plan, node), nodes))
        lines = {node: commands.route_lines("add", found) for node, found in routes(plan).items()}
        routed = set(nodes) & lines.keys()
        list(pool.map(lambda node: netns.batch(node, ["ip"], lines[node]), routed))
        list(pool.map(lambda node: _ports(plan, node, commands.up_lines(plan, node)), empty))


def _sysctls(plan: LabPlan, node: str) -> dict[str, str]:
    values = commands.sysctls(plan, node)
    if node in plan.switches and Path("/proc/sys", commands.SEED_SYSCTL).exists():
        values = values | {commands.SEED_SYSCTL: str(commands.hash_seed(plan, node))}
    return values


def _ports(plan: LabPlan, node: str, lines: list[str]) -> None:
    netns.batch(node, ["ip"], lines)
    netns.batch(node, ["tc"], commands.shaper_lines(plan, node))


def _addresses(plan: LabPlan, node: str) -> None:
    _ports(plan, node, commands.address_lines(plan, node))
    if node in plan.hosts or node == CONTROLLER:
        for family in (4, 6):
            lines = commands.rule_lines(plan, node, family)
            netns.batch(node, ["ip", f"-{family}"], lines)
