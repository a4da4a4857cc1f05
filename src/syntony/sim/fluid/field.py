"""Flows under way on a fabric: their paths, rates and telemetry. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.sim.fluid.net import LivingPaths, Net, Numbers
from syntony.sim.fluid.traffic import SimulatedTraffic
from syntony.traffic.fair import TIE, Floats, Ints, Sharer, max_min

ROUNDS = 10_000


def max_min_split(
    candidates: LivingPaths, capacity: Floats, weight: Floats, share: Sharer
) -> Floats:
    """Rates, (flows,): as `traffic.fair.max_min`, each flow loading all its paths alike.

    Args:
        candidates: paths of each flow.
        capacity: of each link, (links,).
        weight: of each flow, (flows,).
        share: for flows that all have one path.
    """
    first, _, ways = candidates
    counts = np.diff(first)
    flows = len(counts)
    if (counts == 1).all():
        return share(ways, capacity, weight)
    owner = np.repeat(np.arange(flows), counts)
    part = np.repeat(1 / counts, counts)
    hops = ways.shape[1]
    # One entry for each (flow, link) with what part of the flow crosses it.
    flat = ways.ravel()
    keep = flat >= 0
    key = np.repeat(owner, hops)[keep].astype(np.int64) * len(capacity) + flat[keep]
    pairs, where = np.unique(key, return_inverse=True)
    amount = np.bincount(where, np.repeat(part, hops)[keep])
    flow, link = np.divmod(pairs, len(capacity))
    room = capacity.astype(np.float64).copy()
    rates = np.zeros(flows)
    for _ in range(ROUNDS):
        pull = np.bincount(link, amount * weight[flow], len(capacity))
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.where(pull > 0, room / pull, np.inf)
        best = np.full(flows, np.inf)
        np.minimum.at(best, flow, level[link])
        tight = np.full(len(capacity), np.inf)
        np.minimum.at(tight, link, best[flow])
        settled = level <= tight * (1 + TIE)
        done = np.zeros(flows, dtype=bool)
        done[flow[settled[link]]] = True
        rates[done] = best[done] * weight[done]
        gone = done[flow]
        room -= np.bincount(link[gone], amount[gone] * rates[flow[gone]], len(capacity))
        room = np.maximum(room, 0)
        flow, link, amount = flow[~gone], link[~gone], amount[~gone]
        if not len(flow):
            break
    return rates


QUEUE_NS = 100_000.0
"""Queueing delay of a link whose demand is twice its capacity; in proportion otherwise. A proxy:
the length of a queue depends on buffers and congestion control, its existence on overload."""
MAX_QUEUE_NS = 400_000.0
"""A shallow switch buffer (5 MB) at 100 Gb/s."""


class Telemetry(NamedTuple):
    """What agents and switches could report at one instant; arrays over all flows or links."""

    at_ns: float
    active: NDArray[np.bool_]
    """(flows,)."""
    pick: Numbers
    """Path of each flow then, (flows,)."""
    rate: Floats
    """(flows,), Gb/s."""
    load: Floats
    """Carried by each link, (links,), Gb/s."""
    offered: Floats
    """Demand of the flows on each link, (links,), Gb/s: known from the flows, since a link never
    carries more than its capacity."""
    queue_ns: Floats
    """Queueing delay of each link, (links,)."""

    def delay_ns(self, ways: Ints) -> Floats:
        """Queueing delay of paths, (paths,)."""
        return np.asarray(np.append(self.queue_ns, 0.0)[ways].sum(axis=1))


class Field:
    """All flows of a simulated traffic on a fabric. A flow under way has one path, or all of its
    paths if flows are sprayed.

    Args:
        share: rule by which flows share links, max-min by default.
        sprayed: packets of a flow take all its paths evenly.
    """

    def __init__(
        self, net: Net, traffic: SimulatedTraffic, *, share: Sharer = max_min, sprayed: bool = False
    ) -> None:
        self.net, self.traffic = net, traffic
        self.pick = np.full(traffic.flows, -1, dtype=np.int64)
        self.active = np.zeros(traffic.flows, dtype=bool)
        self.rate = np.zeros(traffic.flows)
        self.share = share
        self._sprayed = sprayed
        self._weight = np.ones(traffic.flows) if traffic.weight is None else traffic.weight
        self._links = np.zeros((traffic.flows, 0), dtype=np.int32)

    @property
    def running(self) -> Numbers:
        """Flows under way."""
        return np.flatnonzero(self.active)

    def candidates(self, flows: Numbers) -> LivingPaths:
        return self.net.candidates(self.traffic.src[flows], self.traffic.dst[flows])

    def path(self, flows: Numbers, pick: Numbers) -> Ints:
        return self.net.path(self.traffic.src[flows], self.traffic.dst[flows], pick)

    def start(self, flows: Numbers, pick: Numbers) -> None:
        """Start flows on the paths `pick`, indices among the candidates of each flow."""
        self.active[flows] = True
        self.move(flows, pick)

    def end(self, flows: Numbers) -> None:
        self.active[flows] = False
        self.rate[flows] = 0

    def move(self, flows: Numbers, pick: Numbers) -> None:
        """Move flows to the paths `pick`."""
        self.pick[flows] = pick
        ways = self.path(flows, pick)
        if self._links.shape[1] < ways.shape[1]:
            wider = np.full((self.traffic.flows, ways.shape[1]), -1, dtype=np.int32)
            wider[:, : self._links.shape[1]] = self._links
            self._links = wider
        self._links[flows] = -1
        self._links[flows, : ways.shape[1]] = ways

    def settle(self) -> None:
        """Compute the rates of all flows under way (`rate`, Gb/s), as congestion control would."""
        running = self.running
        if not len(running):
            return
        weight = self._weight[running]
        if self._sprayed:
            self.rate[running] = max_min_split(
                self.candidates(running), self.net.capacity, weight, self.share
            )
        else:
            self.rate[running] = self.share(self._links[running], self.net.capacity, weight)

    def ideal_rates(self, flows: Numbers) -> Floats:
        """Rate of each flow if only NICs limited it, with all `flows` running, (flows,)."""
        tx, rx, port = self.net.line_rates()
        src, dst = self.traffic.src[flows], self.traffic.dst[flows]
        ends = np.column_stack((src, self.net.nics + dst)).astype(np.int32)
        most = np.minimum(port[src], port[dst])
        return self.share(ends, np.concatenate((tx, rx)), self._weight[flows], most)

    def observe(
        self, now_ns: float, noise: float = 0.0, rng: np.random.Generator | None = None
    ) -> Telemetry:
        """Measurements of the present state; `noise` is their relative error (1 sigma)."""
        running = self.running
        load = self._sum(running, self.rate[running])
        offered = self._sum(running, self.ideal_rates(running)) if len(running) else load
        with np.errstate(divide="ignore", invalid="ignore"):
            over = np.where(self.net.capacity > 0, offered / self.net.capacity - 1, 0.0)
        queue_ns = np.clip(QUEUE_NS * over, 0, MAX_QUEUE_NS)
        blur = _blur(noise, rng)
        return Telemetry(
            at_ns=now_ns,
            active=self.active.copy(),
            pick=self.pick.copy(),
            rate=blur(self.rate),
            load=blur(load),
            offered=blur(offered),
            queue_ns=blur(np.where(queue_ns > 1e-6 * QUEUE_NS, queue_ns, 0.0)),
        )

    def _sum(self, flows: Numbers, values: Floats) -> Floats:
        links = self._links[flows]
        total = np.bincount(
            links.ravel() + 1, np.repeat(values, links.shape[1]), self.net.links + 1
        )
        return np.asarray(total[1:], dtype=np.float64)


def _blur(noise: float, rng: np.random.Generator | None) -> Callable[[Floats], Floats]:
    if not noise or rng is None:
        return np.copy
    return lambda values: np.maximum(values * (1 + noise * rng.standard_normal(len(values))), 0)
