"""Converts a lab's plan to the topology that its controller reads. Pure."""

from __future__ import annotations

from syntony.fabric.graph import Cable, Device, Topology, make_topology
from syntony.fabric.names import ComponentKind
from syntony.lab.plan import LabPlan, LinkKind, Port


def topology(plan: LabPlan) -> Topology:
    """Rail NICs, leaves and spines with every address they answer by; not the front-end."""
    links = [link for link in plan.links if link.kind is not LinkKind.MGMT]
    ports: dict[str, list[Port]] = {}
    cables = []
    for link in links:
        near = link.name if link.kind is LinkKind.RAIL else link.a.node
        ports.setdefault(near, []).append(link.a)
        ports.setdefault(link.b.node, []).append(link.b)
        cables.append(
            Cable(
                a=near, a_port=link.a.name, b=link.b.node, b_port=link.b.name,
                gbps=plan.spec.rate_bps / 1e9,
            )
        )  # fmt: skip
    kinds = dict.fromkeys(plan.leaves, ComponentKind.LEAF)
    kinds |= dict.fromkeys(plan.spines, ComponentKind.SPINE)
    devices = [
        Device(
            name=name,
            kind=kinds.get(name, ComponentKind.NIC),
            addresses=tuple(a for port in own for a in (port.ipv4, port.ipv6)),
        )
        for name, own in ports.items()
    ]
    return make_topology(devices, cables)
