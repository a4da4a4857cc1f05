"""Fabrics with planted faults, as `ibnetdiscover` would print them."""

from __future__ import annotations

import random
from typing import NamedTuple


class Port(NamedTuple):
    node: str
    port: int


class Wiring:
    """A rail-optimised fabric: groups of hosts, a leaf of each rail in every group, spines.

    Args:
        uplinks: cables of each leaf to each spine.
    """

    def __init__(
        self, *, groups: int = 2, hosts: int = 4, rails: int = 4, spines: int = 2, uplinks: int = 2
    ) -> None:
        self.groups, self.hosts, self.rails = groups, hosts, rails
        self.spines, self.uplinks = spines, uplinks
        self.far: dict[Port, Port] = {}
        self.rates: dict[Port, str] = {}
        self.says: dict[str, str] = {}
        for group in range(groups):
            for rail in range(rails):
                self._leaf(group, rail)

    def _leaf(self, group: int, rail: int) -> None:
        leaf = self.leaf(group, rail)
        for host in range(self.hosts):
            self.join(Port(leaf, host + 1), Port(self.nic(group, host, rail), 1))
        port = self.hosts
        for spine in range(self.spines):
            for uplink in range(self.uplinks):
                port += 1
                at = (group * self.rails + rail) * self.uplinks + uplink + 1
                self.join(Port(leaf, port), Port(f"spine{spine}", at))

    @staticmethod
    def leaf(group: int, rail: int) -> str:
        return f"leaf-{rail + 1:02}-{group + 1:02}"

    def nic(self, group: int, host: int, rail: int) -> str:
        return f"gpu{group * self.hosts + host:04} mlx5_{rail}"

    def join(self, a: Port, b: Port) -> None:
        self.far[a], self.far[b] = b, a

    def cut(self, port: Port) -> None:
        del self.far[self.far.pop(port)]

    def swap(self, a: Port, b: Port) -> None:
        """Exchange what is plugged into two ports."""
        at_a, at_b = self.far[a], self.far[b]
        self.join(a, at_b)
        self.join(b, at_a)

    def slow(self, port: Port, rate: str) -> None:
        self.rates[port] = self.rates[self.far[port]] = rate

    def remove(self, node: str) -> None:
        for port in [port for port in self.far if port.node == node]:
            self.cut(port)

    def text(self, seed: int = 0) -> str:
        """With nodes and ports in an order that `seed` draws."""
        nodes = sorted({port.node for port in self.far})
        guids = {node: f"{number + 0x100:016x}" for number, node in enumerate(nodes)}
        random.Random(seed).shuffle(nodes)
        lines = ["#", "# Topology file: generated on Sat Nov 21 10:00:00 2026", "#", ""]
        for node in nodes:
            lines += [*self._node(node, guids), ""]
        return "\n".join(lines)

    def _node(self, node: str, guids: dict[str, str]) -> list[str]:
        switch = " " not in node
        kind = "Switch\t64" if switch else "Ca\t1"
        lines = ["vendid=0x2c9", "devid=0xd2f2", f'{kind} "{self._id(node, guids)}"\t\t']
        lines[-1] += f'# "{self._says(node)}"' + (
            " enhanced port 0 lid 5 lmc 0" if switch else ""
        )  # fmt: skip
        for port, far in sorted(self.far.items()):
            if port.node != node:
                continue
            rate = self.rates.get(port, "4xNDR")
            own = "" if switch else f"({guids[node]})"
            lid = "" if switch else "lid 7 lmc 0 "
            lines.append(
                f'[{port.port}]{own} \t"{self._id(far.node, guids)}"[{far.port}]\t\t'
                f'# {lid}"{self._says(far.node)}" lid 9 {rate}'
            )
        return lines

    @staticmethod
    def _id(node: str, guids: dict[str, str]) -> str:
        return ("H-" if " " in node else "S-") + guids[node]

    def _says(self, node: str) -> str:
        return self.says.get(node, node if " " in node else f"MF0;{node}:MQM9700/U1")
