"""Clos fabrics by rule: two tiers with rails and planes, and three tiers. Pure."""

from __future__ import annotations

import numpy as np

from syntony.errors import InputError
from syntony.sim.fluid.net import LineRates, Net, Numbers
from syntony.traffic.fair import Ints


class LeafSpine(Net):
    """Two tiers, every leaf on every spine of its plane.

    Args:
        leaves: of one plane.
        hosts_per_leaf: NICs below each leaf.
        spines: of one plane.
        gbps: of a NIC, all its planes together.
        uplink_gbps: of a cable between leaf and spine; 0: of the NIC's port.
        rails: a host's NICs are on as many neighbouring leaves (1: on one).
        planes: copies of the fabric; a NIC has one port in each.
    """

    def __init__(
        self,
        *,
        leaves: int = 16,
        hosts_per_leaf: int = 16,
        spines: int = 16,
        gbps: float = 100.0,
        uplink_gbps: float = 0.0,
        rails: int = 1,
        planes: int = 1,
    ) -> None:
        _positive(
            leaves=leaves, hosts_per_leaf=hosts_per_leaf, spines=spines, rails=rails,
            planes=planes, gbps=gbps,
        )  # fmt: skip
        if leaves % rails:
            raise InputError("bad-topology", f"{leaves} leaves are no multiple of {rails} rails")
        self.leaves, self.spines, self.planes, self.rails = leaves, spines, planes, rails
        self.nics = leaves * hosts_per_leaf
        number = np.arange(self.nics)
        group, within = np.divmod(number, hosts_per_leaf * rails)
        # With rails, NIC r of a host is on leaf r of its group; its neighbours in number are its
        # host's other NICs.
        self.leaf = group * rails + within % rails
        self.position = within // rails
        self._ports = self.nics * planes
        self._fabric = leaves * spines * planes
        port = gbps / planes
        up = uplink_gbps or port
        self.capacity = np.repeat([port, up], [2 * self._ports, 2 * self._fabric]).astype(float)

    def choices(self, src: Numbers, dst: Numbers) -> Numbers:
        near = self.leaf[src] == self.leaf[dst]
        return np.where(near, self.planes, self.planes * self.spines)

    def path(self, src: Numbers, dst: Numbers, pick: Numbers) -> Ints:
        a, b = self.leaf[src], self.leaf[dst]
        near = a == b
        plane = np.where(near, pick, pick // self.spines)
        spine = pick % self.spines
        up = 2 * self._ports + (plane * self.leaves + a) * self.spines + spine
        down = 2 * self._ports + self._fabric + (plane * self.leaves + b) * self.spines + spine
        columns = (
            src * self.planes + plane,
            np.where(near, -1, up),
            np.where(near, -1, down),
            self._ports + dst * self.planes + plane,
        )
        return np.stack(columns, axis=1).astype(np.int32)

    def alternatives(self, src: Numbers, dst: Numbers) -> Numbers:  # noqa: ARG002 - the same for all
        """By rule: the ports of a NIC, the cables up from a leaf, those down to it, in all planes
        (of flows between all NICs; a flow below one leaf has fewer)."""
        ports = np.arange(2 * self._ports)
        ends = ports - ports % self.planes
        up = np.arange(self._fabric) // self.spines % self.leaves * self.spines
        first = 2 * self._ports
        return np.concatenate((ends, first + up, first + self._fabric + up))

    def line_rates(self) -> LineRates:
        tx, rx = self.capacity[: 2 * self._ports].reshape(2, self.nics, self.planes)
        return LineRates(tx.sum(axis=1), rx.sum(axis=1), tx.max(axis=1))

    def link_name(self, link: int) -> str:
        if link < 2 * self._ports:
            nic, plane = divmod(link % self._ports, self.planes)
            ends = (self.nic_name(nic), self._leaf_name(plane, int(self.leaf[nic])))
            return "->".join(ends if link < self._ports else ends[::-1])
        rest = link - 2 * self._ports
        plane, rest_of = divmod(rest % self._fabric, self.leaves * self.spines)
        leaf, spine = divmod(rest_of, self.spines)
        both = (self._leaf_name(plane, leaf), self._in_plane(plane, f"spine{spine}"))
        return "->".join(both if rest < self._fabric else both[::-1])

    def nic_name(self, nic: int) -> str:
        return f"n{nic}"

    def _leaf_name(self, plane: int, leaf: int) -> str:
        return self._in_plane(plane, f"leaf{leaf}")

    def _in_plane(self, plane: int, name: str) -> str:
        return name if self.planes == 1 else f"p{plane}-{name}"


class ThreeTier(Net):
    """Pods of leaves and aggregation switches; above each aggregation switch cores of its own."""

    def __init__(
        self,
        *,
        pods: int = 4,
        leaves: int = 4,
        hosts_per_leaf: int = 4,
        aggs: int = 4,
        cores: int = 4,
        gbps: float = 100.0,
        uplink_gbps: float = 0.0,
    ) -> None:
        _positive(
            pods=pods, leaves=leaves, hosts_per_leaf=hosts_per_leaf, aggs=aggs, cores=cores,
            gbps=gbps,
        )  # fmt: skip
        self._pod_leaves, self.aggs, self.cores = leaves, aggs, cores
        self.leaves = pods * leaves
        self.nics = self.leaves * hosts_per_leaf
        self.leaf, self.position = np.divmod(np.arange(self.nics), hosts_per_leaf)
        self._lower, self._upper = self.leaves * aggs, pods * aggs * cores
        sizes = [2 * self.nics, 2 * (self._lower + self._upper)]
        self.capacity = np.repeat([gbps, uplink_gbps or gbps], sizes).astype(float)

    def choices(self, src: Numbers, dst: Numbers) -> Numbers:
        a, b = self.leaf[src], self.leaf[dst]
        same_pod = a // self._pod_leaves == b // self._pod_leaves
        return np.where(a == b, 1, np.where(same_pod, self.aggs, self.aggs * self.cores))

    def path(self, src: Numbers, dst: Numbers, pick: Numbers) -> Ints:
        a, b = self.leaf[src], self.leaf[dst]
        pod_a, pod_b = a // self._pod_leaves, b // self._pod_leaves
        agg = pick % self.aggs
        core = pick // self.aggs
        lower, upper = 2 * self.nics, 2 * (self.nics + self._lower)
        over = (pod_a * self.aggs + agg) * self.cores + core
        under = (pod_b * self.aggs + agg) * self.cores + core
        columns = (
            src,
            np.where(a == b, -1, lower + a * self.aggs + agg),
            np.where(pod_a == pod_b, -1, upper + over),
            np.where(pod_a == pod_b, -1, upper + self._upper + under),
            np.where(a == b, -1, lower + self._lower + b * self.aggs + agg),
            self.nics + dst,
        )
        return np.stack(columns, axis=1).astype(np.int32)

    def line_rates(self) -> LineRates:
        tx, rx = self.capacity[: 2 * self.nics].reshape(2, self.nics)
        return LineRates(tx, rx, tx)

    def link_name(self, link: int) -> str:
        if link < 2 * self.nics:
            nic = link % self.nics
            ends = (self.nic_name(nic), f"leaf{self.leaf[nic]}")
            return "->".join(ends if link < self.nics else ends[::-1])
        rest = link - 2 * self.nics
        if rest < 2 * self._lower:
            leaf, agg = divmod(rest % self._lower, self.aggs)
            ends = (f"leaf{leaf}", f"agg{leaf // self._pod_leaves}-{agg}")
            return "->".join(ends if rest < self._lower else ends[::-1])
        rest -= 2 * self._lower
        where, core = divmod(rest % self._upper, self.cores)
        pod, agg = divmod(where, self.aggs)
        ends = (f"agg{pod}-{agg}", f"core{agg}-{core}")
        return "->".join(ends if rest < self._upper else ends[::-1])

    def nic_name(self, nic: int) -> str:
        return f"n{nic}"


def _positive(**values: float) -> None:
    for name, value in values.items():
        if value <= 0:
            raise InputError("bad-topology", f"{name.replace('_', '-')} must be positive")
