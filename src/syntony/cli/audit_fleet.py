"""Checks of the fleet as a whole: connectivity, cabling, routing, NCCL. Holds the options that
`audit run` and `audit network` share, and computes their verdicts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from syntony.cli.output import messages
from syntony.errors import InputError, RemoteError, UsageError
from syntony.model import S, parse_duration_ns

if TYPE_CHECKING:
    from syntony.audit.parse.routes import RoutingTable
    from syntony.audit.reach import Survey
    from syntony.audit.reach_latency import DirectionDelay
    from syntony.audit.result import Result
    from syntony.audit.spec import Spec
    from syntony.cli.fleet import FleetTarget
    from syntony.fabric.graph import Topology
    from syntony.io.audit.survey import Argv, Step, SurveyOptions
    from syntony.lab.client import Lab

MIN_PORTS = 16
WINDOW_NS = 30 * S
LAB_NICS = "rail*"
_FILE = click.Path(path_type=Path)


class NetworkOptions(NamedTuple):
    nics: str
    ports: int
    rounds: int | None
    load: bool
    topology: Path | None
    switches: str
    routes: Path | None
    deadline_ns: int

    def requested(self) -> SurveyOptions:
        from syntony.io.audit.survey import SurveyOptions

        return SurveyOptions(self.ports, self.rounds, self.load, self.deadline_ns)


def network_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a network survey to a command, which gets them as `network`."""

    @click.option("--nics", default="", show_default=False, help="Back-end NICs: patterns with * "
                  "and ?, separated by commas. "
                  "[default: with an RDMA device; in a lab rail*]")  # fmt: skip
    @click.option(
        "--ports",
        type=click.IntRange(1, 512),
        default=MIN_PORTS,
        help="Source ports to test for every pair.",
    )
    @click.option("--rounds", type=click.IntRange(1), help="Rounds, in each of which a host "
                  "has one partner. [default: all pairs to 64 hosts, ⌈log₂ N⌉ above]")  # fmt: skip
    @click.option("--load", is_flag=True, help="Also load the paths, and measure delay under load.")
    @click.option("--topology", type=_FILE, help="Topology file: names of switches, expected hops.")
    @click.option("--switches", default="", show_default=False, help="Switches whose routes are "
                  "compared, over SSH: leaf[01-64],… [default in a lab: all]")  # fmt: skip
    @click.option("--routes", type=_FILE, help="Directory with DEVICE.json for each switch: "
                  "`ip -j route show table all` or FRR's `show ip route json`.")  # fmt: skip
    @click.option(
        "--network-deadline", default="10m", metavar="TIME", help="Time limit of the whole test."
    )
    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        deadline_ns = parse_duration_ns(kwargs.pop("network_deadline"))
        names = [name for name in NetworkOptions._fields if name != "deadline_ns"]
        reported = {name: kwargs.pop(name) for name in names}
        return command(*args, network=NetworkOptions(**reported, deadline_ns=deadline_ns), **kwargs)

    return wrapper


class FleetAccess(NamedTuple):
    """How to reach hosts, and where to get one-way delays."""

    hosts: tuple[str, ...]
    argv: Argv
    """Command line that runs the survey's program on a host."""
    command: Callable[[str, Sequence[str]], Sequence[str]]
    """Command line that runs a command on a host or a switch."""
    switches: tuple[str, ...]
    topology: Topology | None
    delays: FleetTarget | None
    """A controller that has probe rows."""
    nics: str


def of_lab(name: str | None, options: NetworkOptions) -> FleetAccess:
    """The hosts and switches of a lab, with its plan as the topology."""
    from syntony.cli.fleet import FleetTarget
    from syntony.io.audit.survey import boot_argv
    from syntony.lab.client import open_lab

    lab = open_lab(name)
    status = lab.status()
    program = boot_argv(sys.executable)
    there = lab.controller_socket.exists()
    return FleetAccess(
        hosts=tuple(status.hosts),
        argv=lambda host: lab.enter_argv(host, program),
        command=lab.enter_argv,
        switches=(*status.leaves, *status.spines),
        topology=_topology(options) or _lab_topology(lab),
        delays=FleetTarget(f"unix:{lab.controller_socket}", None) if there else None,
        nics=options.nics or LAB_NICS,
    )


def over_ssh(
    hosts: Sequence[str], words: Sequence[str], options: NetworkOptions, delays: FleetTarget | None
) -> FleetAccess:
    """Hosts, and switches with Linux, over the system's ssh.

    Args:
        hosts: names for ssh; ``user@`` is not part of the name.
        words: ssh and its options.
        options: names of NICs and switches, a topology.
        delays: a controller.
    """
    import shlex

    from syntony.audit.hostlist import parse_hosts
    from syntony.io.audit.survey import ssh_argv

    switches = parse_hosts(options.switches) if options.switches else ()
    target = {each.rpartition("@")[2]: each for each in (*hosts, *switches)}
    start = ssh_argv(words)
    return FleetAccess(
        hosts=tuple(each.rpartition("@")[2] for each in hosts),
        argv=lambda host: start(target[host]),
        command=lambda host, line: (*words, "--", target[host], shlex.join(line)),
        switches=tuple(each.rpartition("@")[2] for each in switches),
        topology=_topology(options),
        delays=delays,
        nics=options.nics,
    )


def _topology(options: NetworkOptions) -> Topology | None:
    from syntony.io.operator_files import load_topology

    return None if options.topology is None else load_topology(options.topology)


def _lab_topology(lab: Lab) -> Topology:
    from syntony.lab.plan import make_plan
    from syntony.lab.topology import topology

    return topology(make_plan(lab.file().spec))


def network_verdicts(
    reached: FleetAccess, options: NetworkOptions, spec: Spec, step: Step
) -> tuple[list[Result], Survey]:
    """Verdicts on connectivity, latency and routing, and the raw results for other checks."""
    from syntony.audit.checks.network import CrossRails
    from syntony.audit.reach_judge import judge
    from syntony.audit.routing import judge_routes
    from syntony.audit.spec import limits
    from syntony.io.audit.survey import survey

    patterns = reached.nics.replace(",", " ").split()
    seen = survey(reached.hosts, reached.argv, patterns, options.requested(), step)
    step("one-way delays and routing tables")
    delays = _delays(reached.delays) if reached.delays else {}
    tables, silent = _tables(reached, options)
    found = list(judge(seen, reached.topology, delays, limits(spec, [CrossRails])))
    found += judge_routes([*tables, *seen.tables], reached.topology, silent)
    return found, seen


def _tables(
    reached: FleetAccess, options: NetworkOptions
) -> tuple[list[RoutingTable], Mapping[str, str]]:  # fmt: skip
    from syntony.io.audit.tables import COMMAND, read_tables, switch_tables

    tables, silent = switch_tables(
        reached.switches, lambda switch: reached.command(switch, COMMAND)
    )  # fmt: skip
    if options.routes is not None:
        read, unread = read_tables(options.routes)
        return tables + read, {**silent, **unread}
    return tables, silent


def _delays(target: FleetTarget) -> Mapping[tuple[str, str], DirectionDelay]:
    """One-way delays of every direction that the fleet probes."""
    from syntony.audit.reach_latency import DirectionDelay
    from syntony.cli.fleet import ask
    from syntony.wire.probes import MatrixQuery

    try:
        query = MatrixQuery(window_ns=WINDOW_NS)
        cells = ask(target, query).cells
    except RemoteError as error:
        messages.print(f"syntony: one-way delays are left out: {error}", markup=False)
        return {}
    return {
        (cell.src, cell.dst): DirectionDelay(
            float(cell.owd_p50_ns), float(cell.owd_min_ns or 0), float(cell.clk_err_ns or 0)
        )
        for cell in cells
        if cell.owd_p50_ns is not None
    }


class CablingOptions(NamedTuple):
    """Files that describe the cabling."""

    subnet: Path | None
    lldp: tuple[Path, ...]
    topology: Path | None
    expected: Path | None


def cabling_verdicts(options: CablingOptions, reported: Mapping[str, str]) -> list[Result]:
    """Verdicts on cabling from files, else from the hosts' `lldpctl`; skipped if there is neither.

    Args:
        options: files.
        reported: host to what its `lldpctl` prints.
    """
    from syntony.audit.checks.rails import RailCabling
    from syntony.audit.fabric_check import audit_fabric, unreadable
    from syntony.cli.audit_fabric import lldp_cabling, read_cabling, read_lldp

    try:
        if file := options.subnet or options.topology:
            found = read_cabling(file, bool(options.subnet))
        elif options.lldp:
            found = read_lldp(options.lldp)
        elif reported:
            found = lldp_cabling(reported)
        else:
            raise UsageError("no cabling is known: give --ibnetdiscover or --lldp, or run lldpd")
        expected = None if options.expected is None else read_cabling(options.expected)
        return list(audit_fabric(found, expected))
    except InputError as error:
        return list(unreadable(str(error)))
    except UsageError as error:
        return skipped([RailCabling.section], str(error), but=("be.conn.hops", "be.topo.routes"))


def skipped(sections: Sequence[object], why: str, *, but: Sequence[str] = ()) -> list[Result]:
    """A "skipped" verdict, with the reason, for each fleet-wide check in these sections."""
    from syntony.audit.registry import fleet_checks
    from syntony.audit.result import FLEET, Status

    return [
        check().result(Status.SKIP, FLEET, evidence=why)
        for check in fleet_checks()
        if check.section in sections and check.id not in but
    ]
