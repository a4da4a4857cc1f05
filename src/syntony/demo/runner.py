"""Runs the demo's acts on one lab and reports on each, even if others fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress

from syntony.demo.claims import ActReport, DemoClaim
from syntony.demo.screen import Screen
from syntony.demo.stage import Stage
from syntony.errors import SyntonyError
from syntony.lab.client import Lab
from syntony.lab.plan import FabricSpec
from syntony.lab.world import World, new_lab


def run_acts(
    acts: Mapping[str, Callable[[Stage], tuple[DemoClaim, ...]]],
    screen: Screen,
    *,
    hosts: int,
    report: Callable[[tuple[ActReport, ...]], None],
    hold: bool = False,
) -> tuple[ActReport, ...]:
    """Bring up a lab, run the acts in order, take it down; return one report per act.

    Args:
        report: called with the reports, before the lab is taken down.
        hold: then keep the lab until Ctrl-C.

    Raises:
        UsageError: a fleet of that size cannot be built.
        MissingError: this machine lacks something a lab needs.
        RemoteError: the lab did not come up.
    """
    spec = FabricSpec(hosts=hosts)
    name = f"demo-{os.getpid()}"
    with World(new_lab(name, spec), detach=False) as world:
        with screen:
            world.wait_ready()
            stage = Stage(Lab(world.directory), screen)
            screen.say(
                f"a fleet is up: {hosts} hosts, real agents, real packets, in one machine's "
                "namespaces"
            )
            screen.say(f"the console: {world.console_url}")
            reports = tuple(play(name, act, stage) for name, act in acts.items())
        report(reports)
        if hold and not stage.lab_ended:
            hold_until_interrupted(world, screen)
    if hold and stage.lab_ended:
        screen.say("the last act ended its fleet; another one is coming up")
        with World(new_lab(name, spec), detach=False) as world:
            world.wait_ready()
            hold_until_interrupted(world, screen)
    return reports


def hold_until_interrupted(world: World, screen: Screen) -> None:
    """Wait until Ctrl-C, or until the lab ends by itself."""
    url = world.console_url
    with suppress(SyntonyError):  # the first link may have been used; the controller may be away
        url = Lab(world.directory).console_url()
    screen.say(f"the fleet stays up; Ctrl-C ends it. The console: {url}")
    with suppress(KeyboardInterrupt):
        for event in world.events():
            screen.say(event.text)


def play(name: str, act: Callable[[Stage], tuple[DemoClaim, ...]], stage: Stage) -> ActReport:
    """Run one act. A `SyntonyError` means that it could not run here; any other error is a bug and
    counts as a failed claim."""
    try:
        return ActReport(act=name, claims=act(stage))
    except SyntonyError as error:
        report = ActReport(act=name, not_run="; ".join((str(error), *_crash_reports(stage))))
    except Exception as error:  # noqa: BLE001 - the supervisor of the acts: the others go on
        broken = f"{type(error).__name__}: {error}"
        claim = DemoClaim(text="the act runs to its end", measured=broken, held=False)
        report = ActReport(act=name, claims=(claim,))
    stage.screen.say(f"{name} ended early: {report.not_run or report.claims[0].measured}")
    with suppress(SyntonyError):  # the act may have ended the lab
        stage.lab.clear()
    return report


def _crash_reports(stage: Stage) -> tuple[str, ...]:
    try:
        return stage.lab.crash_reports()
    except SyntonyError:  # the lab is gone, too
        return ()
