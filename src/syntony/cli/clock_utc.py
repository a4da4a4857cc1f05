"""`syntony clock utc`: compares fleet time with UTC, and lists the anchors."""

from __future__ import annotations

import math

import click
import msgspec

from syntony.cli.fleet import FleetTarget, ask, fleet_options
from syntony.cli.output import console, print_json
from syntony.errors import MissingError
from syntony.model import ClockState, Utc
from syntony.view.clocks import STYLES, newest_ns
from syntony.view.tables import duration
from syntony.wire.clocks import ClockQuery, Clocks

_EXIT = {ClockState.SYNCHRONIZED: 0, ClockState.HOLDOVER: 1}


@click.command()
@fleet_options
@click.pass_context
def utc(context: click.Context, target: FleetTarget, as_json: bool) -> None:
    """Compare fleet time with UTC: offset, bound, anchors that count, anchors outvoted.

    Fleet time is steered to UTC by at most 100 ppb; host clocks are compared without the anchors.
    Add a host's own bound (`syntony clock status`) to the bound shown here.

    Exit status: 0 anchors agree; 1 held without them; 2 no anchors in this fleet; 3 unknown yet.

    \b
    Example:
      syntony lab up --utc h0 --utc h1 --utc h2 --detach && syntony clock utc
    """
    answer = ask(target, ClockQuery(), until=_is_known)
    if answer.utc is None:
        raise MissingError(
            "this fleet has no anchors: name [[anchors]] in controller.toml"
            " (in a lab: syntony lab up --utc h0)"
        )
    fleet_ns = newest_ns(answer.timelines)
    bound_ns = answer.utc.bound_ns(fleet_ns)
    if as_json:
        reported = msgspec.to_builtins(answer.utc)
        at = {"fleet_ns": fleet_ns, "utc_ns": answer.utc.to_utc_ns(fleet_ns)}
        print_json({**reported, **at, "bound_ns": None if math.isinf(bound_ns) else bound_ns})
    else:
        _show(answer.utc, fleet_ns, bound_ns)
    context.exit(_EXIT.get(answer.utc.state, 3))


def _is_known(answer: Clocks) -> bool:
    if not answer.timelines:
        return False
    return answer.utc is None or answer.utc.state is not ClockState.UNKNOWN


def _show(found: Utc, fleet_ns: int, bound_ns: float) -> None:
    style = STYLES[found.state]
    apart_ns = found.to_utc_ns(fleet_ns) - fleet_ns
    known = found.state is not ClockState.UNKNOWN
    console.print(f"UTC is [{style}]{found.state}[/]")
    if known:
        console.print(f"  UTC minus fleet time  {duration(float(apart_ns))} ± {duration(bound_ns)}")
        console.print(f"  by anchors            {', '.join(found.anchors) or 'none: held'}")
    if found.reason:
        console.print(f"  why                   {found.reason}")
