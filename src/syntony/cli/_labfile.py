"""Describes a lab from the options of `syntony lab up`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.errors import UsageError
from syntony.io.operator_files import load_objectives, load_rules
from syntony.lab.clocks import ClockOptions, parse_step, parse_swing
from syntony.lab.plan import FabricSpec
from syntony.lab.rates import parse_rate_bps
from syntony.lab.world import new_lab
from syntony.model import MS, US, S, format_ns, parse_duration_ns

if TYPE_CHECKING:
    from syntony.lab.messages import LabFile


def lab_file(name: str, options: dict[str, Any]) -> LabFile:
    """Describe the lab that the options of `syntony lab up` ask for.

    Raises:
        UsageError: a value that is out of its range, or does not fit another one.
        ConfigError: a URL of control state that is none.
    """
    spec = FabricSpec(
        hosts=options["hosts"],
        rails=options["rails"],
        leaves=options["leaves"],
        spines=options["spines"],
        rate_bps=parse_rate_bps(options["rate"]),
        burst_bytes=_bounded("--burst", options["burst"], 2_000, 64 << 20),
        latency_ns=_length_ns("--latency", options["latency"], 1 * MS, 10 * S),
        convergence_ns=_length_ns("--convergence", options["convergence"], 0, 600 * S),
        seed=_bounded("--seed", options["seed"], 0, 1_000_000),
    )
    return new_lab(
        name,
        spec,
        family=options["family"],
        agents=not options["no_agents"],
        clocks=_clock_options(options),
        options=_daemon_options(options),
        placement=options["placement"],
        controllers=_controllers(options),
        gateways=options["gateways"],
        console_port=_bounded("--console-port", options["console_port"], 0, 65_535),
    )


def _controllers(options: dict[str, Any]) -> int:
    wanted: int = options["controllers"]
    if wanted > 1 and not options["state"]:
        raise UsageError(
            "--controllers: a standby needs control state that both can reach; add"
            " --state postgresql:///DATABASE?host=/SOCKET/DIRECTORY"
        )
    return wanted


def _bounded(what: str, value: int, low: int, high: int, show: Callable[[int], str] = str) -> int:
    if not low <= value <= high:
        raise UsageError(f"{what} is out of range; give {show(low)} to {show(high)}")
    return value


def _length_ns(what: str, text: str, low_ns: int, high_ns: int) -> int:
    return _bounded(what, parse_duration_ns(text), low_ns, high_ns, format_ns)


def _clock_options(options: dict[str, Any]) -> ClockOptions:
    steps = tuple(parse_step(text) for text in options["clock_steps"])
    utc = tuple(options["utc"])
    if not options["clock_swing"]:
        return ClockOptions(steps=steps, utc=utc)
    ppb, period_ns = parse_swing(options["clock_swing"])
    return ClockOptions(swing_ppb=ppb, swing_period_ns=period_ns, steps=steps, utc=utc)


def _daemon_options(options: dict[str, Any]) -> dict[str, str | int | float]:
    chosen: dict[str, str | int | float] = {}
    if options["mesh_peers"]:
        chosen["mesh_peers"] = options["mesh_peers"]
    if options["probe_interval"]:
        chosen["probe_interval_ns"] = _length_ns(
            "--probe-interval", options["probe_interval"], 100 * US, 60 * S
        )
    if options["state"]:
        from syntony.state.postgresql import check_url

        check_url(options["state"])
        chosen["state"] = options["state"]
    if options["store"]:
        from syntony.store.clickhouse import parse_url

        parse_url(options["store"])
        chosen["store"] = options["store"]
    # The controller runs in another directory: make the path absolute.
    for name, load in (("rules", load_rules), ("sla", load_objectives)):
        if options[name]:
            load(options[name])
            chosen[name] = str(Path(options[name]).resolve())
    return chosen
