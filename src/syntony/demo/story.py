"""A lab for the length of the story, and the acts on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from syntony.demo.claims import Claim
from syntony.demo.screen import Screen
from syntony.demo.stage import Stage
from syntony.lab.client import Lab
from syntony.lab.plan import FabricSpec
from syntony.lab.world import World, new_lab


def tell(
    acts: Mapping[str, Callable[[Stage], tuple[Claim, ...]]], screen: Screen, *, hosts: int
) -> tuple[Claim, ...]:
    """Bring up a lab of its own, play the acts, end it; all claims in order.

    Raises:
        UsageError: a fleet of that size cannot be built.
        MissingError: this machine lacks something a lab needs.
    """
    spec = FabricSpec(hosts=hosts)
    with World(new_lab(f"demo-{os.getpid()}", spec), detach=False) as world, screen:
        world.wait_ready()
        stage = Stage(Lab(world.directory), screen)
        screen.say(
            f"a fleet is up: {hosts} hosts, real agents, real packets, in one machine's namespaces"
        )
        return tuple(claim for act in acts.values() for claim in act(stage))
