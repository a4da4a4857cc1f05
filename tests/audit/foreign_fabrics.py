"""Fabrics of many shapes, built and written without any of Syntony's own words for them.

A fabric here is a list of boxes with numbered sockets and wires between sockets. Shapes are drawn:
hosts with one NIC per rail, on one top-of-rack switch or on two; two tiers or three; cores that
meet all spines or one of each pod; planes of their own for rails; pods of unequal size.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import NamedTuple


class Wire(NamedTuple):
    a: str
    a_socket: int
    b: str
    b_socket: int


class Shape(NamedTuple):
    """What was drawn, for anyone who reads a failing seed."""

    attach: str
    upper: str
    pods: tuple[int, ...]
    nics: int
    spines: int
    cores: int
    links: int
    names: str


class Built:
    """One fabric. `boxes` maps a name to ``switch`` or ``nic``."""

    def __init__(self, seed: int, attach: str = "") -> None:
        self.random = random.Random(seed)
        self.wires: list[Wire] = []
        self.boxes: dict[str, str] = {}
        self.level: dict[str, int] = {}
        self._next: defaultdict[str, int] = defaultdict(int)
        self.pod_hosts: list[list[str]] = []
        self.leaf_of: dict[str, str] = {}
        draw = self.random
        attach = attach or draw.choice(["rail", "rail", "rack", "dual"])
        pods = draw.randint(1, 4)
        full = draw.choice([4, 8, 16, 24])
        sizes = [full] * (pods - 1) + [draw.choice([1, 2, 3, 3, full // 2, full])]
        if pods > 2 and draw.random() < 0.3:
            sizes = [draw.randint(3, full) for _ in range(pods)]
        upper = draw.choice(["spines", "spines", "rail-planes", "cores-by-spine", "cores-meshed"])
        if attach != "rail" and upper == "rail-planes":
            upper = "spines"
        self.shape = Shape(
            attach, upper, tuple(sizes), draw.choice([2, 4, 8]), draw.randint(2, 8),
            draw.randint(2, 4), draw.choice([1, 1, 2, 4]), draw.choice(["plain", "padded", "row"]),
        )  # fmt: skip
        self._build()

    def switch(self, kind: str, *numbers: int) -> str:
        match self.shape.names:
            case "plain":
                name = kind + "-".join(map(str, numbers))
            case "padded":
                name = f"{kind}-" + "-".join(f"{n + 1:02}" for n in numbers)
            case _:
                name = f"row{chr(97 + numbers[0])}-{kind}{''.join(str(n + 1) for n in numbers[1:])}"
                name += "" if numbers[1:] else "x"
        assert name not in self.boxes, name
        self.boxes[name] = "switch"
        self.level[name] = {"leaf": 0, "spine": 1, "core": 2}[kind]
        return name

    def join(self, a: str, b: str, a_socket: int = 0) -> Wire:
        ends = []
        for box, socket in ((a, a_socket), (b, 0)):
            self._next[box] = socket or self._next[box] + 1
            ends.append(self._next[box])
        self.wires.append(Wire(a, ends[0], b, ends[1]))
        return self.wires[-1]

    def _build(self) -> None:
        shape = self.shape
        per_pod = [self._pod(pod, hosts) for pod, hosts in enumerate(shape.pods)]
        ports = max(shape.pods) * shape.nics + 1
        for leaves in per_pod:
            for leaf in leaves:
                self._next[leaf] = ports  # uplinks begin at the same socket of every leaf
        match shape.upper:
            case "spines":
                self._mesh([x for leaves in per_pod for x in leaves], self._many("spine", 0))
            case "rail-planes":
                for rail in range(shape.nics):
                    self._mesh([leaves[rail] for leaves in per_pod], self._many("spine", rail))
            case _:
                self._three_tiers(per_pod)

    def _three_tiers(self, per_pod: list[list[str]]) -> None:
        shape = self.shape
        spines = [self._many("spine", pod) for pod in range(len(per_pod))]
        for leaves, mine in zip(per_pod, spines, strict=True):
            self._mesh(leaves, mine)
        if shape.upper == "cores-meshed":
            self._mesh([x for mine in spines for x in mine], self._many("core", 0, shape.cores))
        else:
            for place in range(shape.spines):
                self._mesh([mine[place] for mine in spines],
                           self._many("core", place, shape.cores))  # fmt: skip

    def _many(self, kind: str, group: int, count: int = 0) -> list[str]:
        return [self.switch(kind, group, n) for n in range(count or self.shape.spines)]

    def _mesh(self, lowers: list[str], uppers: list[str]) -> None:
        interleaved = self.random.random() < 0.5
        for low in lowers:
            rounds = [uppers] * self.shape.links if interleaved else [
                [x] * self.shape.links for x in uppers]  # fmt: skip
            for one_round in rounds:
                for up in one_round:
                    self.join(low, up)

    def _pod(self, pod: int, hosts: int) -> list[str]:
        shape = self.shape
        count = {"rail": shape.nics, "rack": 1, "dual": 2}[shape.attach]
        leaves = [self.switch("leaf", pod, n) for n in range(count)]
        names = [f"n{pod}x{host:03}" for host in range(hosts)]
        self.pod_hosts.append(names)
        for name in names:
            for nic in range(shape.nics):
                box = f"{name} mlx5_{nic}"
                self.boxes[box] = "nic"
                self.leaf_of[box] = leaves[nic % count]
                self.join(leaves[nic % count], box)
        return leaves

    # --- faults ---

    def wire_of(self, box: str) -> Wire:
        return next(wire for wire in self.wires if box in (wire.a, wire.b))

    def cut(self, wire: Wire) -> None:
        self.wires.remove(wire)

    def remove(self, box: str) -> None:
        self.wires = [wire for wire in self.wires if box not in (wire.a, wire.b)]
        del self.boxes[box]

    def exchange(self, one: str, other: str) -> None:
        """What two NICs are plugged into."""
        a, b = self.wire_of(one), self.wire_of(other)
        self.wires = [w for w in self.wires if w not in (a, b)]
        self.wires += [
            a._replace(b=b.b, b_socket=b.b_socket),
            b._replace(b=a.b, b_socket=a.b_socket),
        ]

    def uppers(self, level: int) -> list[str]:
        return [box for box, at in self.level.items() if at == level]

    def below(self, box: str) -> frozenset[str]:
        """What is wired to it from the level below."""
        level = self.level[box]
        near = {w.a for w in self.wires if w.b == box} | {w.b for w in self.wires if w.a == box}
        return frozenset(each for each in near if self.level.get(each, -1) < level)

    # --- how it is written ---

    def _guid(self, box: str) -> int:
        return 0xB8CEF60300000000 + 0x40 * sorted(self.boxes).index(box)

    def _says(self, box: str) -> str:
        return box if self.boxes[box] == "nic" else f"MF0;{box}:MQM9700/U1"

    def _sides(self) -> dict[str, list[tuple[int, str, int]]]:
        sides: dict[str, list[tuple[int, str, int]]] = {box: [] for box in self.boxes}
        for a, a_socket, b, b_socket in self.wires:
            sides[a].append((a_socket, b, b_socket))
            sides[b].append((b_socket, a, a_socket))
        return {box: sorted(ends) for box, ends in sides.items() if ends}

    def full(self) -> str:
        """As `ibnetdiscover` prints it."""
        guids = {box: self._guid(box) for box in self.boxes}
        lines = ["#", "# Topology file: generated on Sun Nov 22 09:00:00 2026", "#"]
        for box, ends in self._sides().items():
            nic = self.boxes[box] == "nic"
            head = "Ca\t1" if nic else "Switch\t64"
            mark = "H" if nic else "S"
            tail = "" if nic else " enhanced port 0 lid 3 lmc 0"
            name = f'{head} "{mark}-{guids[box]:016x}"\t\t# "{self._says(box)}"{tail}'
            lines += ["", "vendid=0x2c9", name]
            for socket, far, far_socket in ends:
                far_mark = "H" if self.boxes[far] == "nic" else "S"
                own = f"({guids[box]:x}) " if nic else ""
                lid = "lid 9 lmc 0 " if nic else ""
                lines.append(f'[{socket}]{own}\t"{far_mark}-{guids[far]:016x}"[{far_socket}]\t\t'
                             f'# {lid}"{self._says(far)}" lid 11 4xNDR')  # fmt: skip
        return "\n".join(lines) + "\n"

    def ports_report(self) -> str:
        """As `ibnetdiscover -p` prints it, ports that lead nowhere among them."""
        guids = {box: self._guid(box) for box in self.boxes}
        lids = {box: number + 1 for number, box in enumerate(self.boxes)}
        lines = []
        for box, ends in self._sides().items():
            kind = {"nic": "CA", "switch": "SW"}
            for socket, far, far_socket in reversed(ends):
                here = f"{kind[self.boxes[box]]} {lids[box]:5d} {socket:2d} 0x{guids[box]:016x}"
                there = (
                    f"{kind[self.boxes[far]]} {lids[far]:5d} {far_socket:2d} 0x{guids[far]:016x}"
                )
                both = f"( '{self._says(box)}' - '{self._says(far)}' )"
                lines.append(f"{here} 4x NDR - {there} {both}")
            if self.boxes[box] == "switch":
                lines.append(f"SW {lids[box]:5d} 64 0x{guids[box]:016x} 4x SDR{' ' * 36}"
                             f"'{self._says(box)}'")  # fmt: skip
        return "\n".join(lines) + "\n"
