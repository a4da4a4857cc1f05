"""Run one scenario in the simulator. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from syntony.errors import InputError
from syntony.sim.fluid.net import Net, break_cables
from syntony.sim.fluid.optimum import Optimum, optimum
from syntony.sim.fluid.policies.base import Tools
from syntony.sim.fluid.run import Finished, FluidRun, RunSettings, Settled, make_policy, settle
from syntony.sim.fluid.traffic import SimulatedTraffic

US = 1_000.0


class ScenarioResult(NamedTuple):
    finished: Finished
    """All flows, to their ends."""
    settled: Settled
    """The first wave as if it never ended."""
    optimum: Optimum
    """Of the first wave."""

    def document(self) -> dict[str, Any]:
        """As ``syntony sim run --json`` prints it."""
        share, end_us = self.settled.share, self.finished.end_ns / US
        return {
            "completion_max_us": round(float(end_us.max()), 3),
            "completion_mean_us": round(float(end_us.mean()), 3),
            "rate_mean": round(float(share.mean()), 6),
            "rate_min": round(float(share.min()), 6),
            "moves_per_flow": round(self.settled.moves / len(share), 6),
            "epochs": self.settled.epochs,
            "optimum": {
                "rate_mean": round(self.optimum.rate_mean, 6),
                "rate_min": round(self.optimum.rate_min, 6),
                "rate_min_unsplit": round(self.optimum.pinned_min, 6),
            },
        }


def simulate(
    net: Net, traffic: SimulatedTraffic, policy: str, settings: RunSettings, tools: Tools
) -> ScenarioResult:
    """Run a policy twice: the first wave until it settles, and everything to its end."""
    field, player = make_policy(policy, net, traffic, settings, tools)
    settled = settle(field, player, settings)
    best = optimum(field, traffic.first_wave)
    field, player = make_policy(policy, net, traffic, settings, tools)
    return ScenarioResult(FluidRun(field, player, settings).run_to_end(), settled, best)


def damage(net: Net, dead: Iterable[str], speeds: Iterable[str], seed: int) -> list[str]:
    """Break cables and change speeds.

    Args:
        net: is changed.
        dead: each the name of a cable or link, or how many random cables.
        speeds: each ``NAME=GBPS``.
        seed: draws the random ones.

    Returns:
        Names of what is dead.

    Raises:
        InputError: no such link, or not a speed.
    """
    found: list[str] = []
    rng = np.random.default_rng([seed, 3])
    for text in speeds:
        name, _, speed = text.rpartition("=")
        net.set_links({name: _gbps(speed, text)})
    for text in dead:
        if text.isdecimal():
            found += break_cables(net, int(text), rng)
        else:
            net.set_links({text: 0.0})
            found.append(text)
    return found


def _gbps(word: str, text: str) -> float:
    try:
        speed = float(word)
    except ValueError:
        speed = -1.0
    if not 0 <= speed < 1e6:
        raise InputError("bad-speed", f"{text[:80]!r}: write NAME=GBPS, for example a--b=40")
    return speed
