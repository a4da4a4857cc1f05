"""`syntony audit run` beyond single hosts: network, cabling and NCCL checks of the fleet."""

from __future__ import annotations

import hashlib
import json
import queue
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from syntony.audit.check import Section
from syntony.audit.registry import chosen_sections, fleet_checks, host_checks, named_checks
from syntony.audit.result import FLEET, HostReport, Result, Status
from syntony.cli.audit_fleet import (
    CablingOptions,
    FleetAccess,
    NetworkOptions,
    cabling_verdicts,
    network_options,
    network_verdicts,
    of_lab,
    over_ssh,
    skipped,
)
from syntony.cli.audit_sources import Sources, StepDisplay, chosen_checks, collect, now_ns
from syntony.errors import RemoteError, SyntonyError, UsageError

if TYPE_CHECKING:
    from rich.progress import Progress


NETWORK = frozenset({Section.CONNECTIVITY, Section.LATENCY, Section.TOPOLOGY})
_FILE = click.Path(path_type=Path)
_NCCL = frozenset({Section.NCCL})
_BANDWIDTH = frozenset({"fe.bw", "be.conn.qp", "be.conn.bw", "be.conn.gdr"})
_BANDWIDTH_S = 3600.0
_NO_VERDICT = "no part of this run: see `syntony audit pairs`, `syntony audit nccl`"
Step = Callable[[str], None]


class PartOptions(NamedTuple):
    """Options of the checks beyond single hosts."""

    network: NetworkOptions
    cabling: CablingOptions
    only: tuple[str, ...]
    skip: tuple[str, ...]
    nccl: str | None
    """Further words for `syntony audit nccl`; None: not asked for."""
    nccl_deadline_s: float
    bandwidth: str | None
    """Further words for `syntony audit bandwidth`; None: not asked for."""


def part_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of fleet-wide checks to a command, which gets them as `parts`."""

    @click.option("--only", multiple=True, metavar="SECTION", help="Only configuration, node, "
                  "frontend, backend, nccl (1 to 5), or a part: latency, 4.5.")  # fmt: skip
    @click.option("--skip", multiple=True, metavar="SECTION", help="Skip this section; repeatable.")
    @network_options
    @click.option("--ibnetdiscover", "subnet", type=_FILE, help="Output of `ibnetdiscover`.")
    @click.option("--lldp", type=_FILE, multiple=True,
                  help="HOST.json with the output of `lldpctl -f json`, or a directory of them; "
                  "repeatable.")  # fmt: skip
    @click.option("--expected", type=_FILE, help="The expected cabling.")
    @click.option("--bandwidth", is_flag=True, help="Also test bandwidth of pairs.")
    @click.option("--bandwidth-options", metavar="OPTIONS", help="The same, with options of "
                  "`audit bandwidth`: '--rdma mlx5_[0-7]'.")  # fmt: skip
    @click.option("--nccl", is_flag=True, help="Also test all-reduce.")
    @click.option("--nccl-options", metavar="OPTIONS", help="The same, with options of "
                  "`audit nccl`: '--launcher srun'.")  # fmt: skip
    @click.option("--nccl-deadline", type=float, default=3600.0,
                  help="Time limit of the NCCL part, seconds.")  # fmt: skip
    @wraps(command)
    def wrapper(
        *args: Any, network: NetworkOptions, subnet: Path | None, lldp: tuple[Path, ...],
        expected: Path | None, only: tuple[str, ...], skip: tuple[str, ...], nccl: bool,
        nccl_options: str | None, nccl_deadline: float, bandwidth: bool,
        bandwidth_options: str | None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        if subnet is not None and lldp:
            raise UsageError("give --ibnetdiscover or --lldp, not both")
        for path in filter(None, (subnet, expected, network.topology, network.routes, *lldp)):
            if not path.exists():  # checked before an audit that takes minutes
                raise UsageError(f"{path}: no such file")
        cabling = CablingOptions(subnet, lldp, network.topology, expected)
        parts = PartOptions(
            network, cabling, only, skip, _options_of(nccl, nccl_options), nccl_deadline,
            _options_of(bandwidth, bandwidth_options),
        )  # fmt: skip
        return command(*args, parts=parts, **kwargs)

    return wrapper


def _options_of(requested: bool, options: str | None) -> str | None:
    """The options; empty if only the flag is set, None if neither is."""
    return "" if requested and options is None else options


class ChosenChecks(NamedTuple):
    sources: Sources
    """With exactly the chosen host checks."""
    hosts: bool
    """Whether any host check was chosen."""
    fleet: frozenset[str]
    """The chosen checks of the fleet as a whole."""


def choose_checks(sources: Sources, options: PartOptions) -> ChosenChecks:
    """Apply --check, --only and --skip. Raises `UsageError`."""
    named = {check.id for check in named_checks(sources.checks)}
    fleet = {check.id: check.section for check in fleet_checks() if check.id in named}
    if not options.only and not options.skip:
        hosts = bool(host_checks(sources.checks, active=sources.active))
        return ChosenChecks(sources, hosts, frozenset(fleet))
    sections = chosen_sections(options.only, options.skip)
    chosen = tuple(check.id for check in chosen_checks(sources) if check.section in sections)
    left = frozenset(check for check, section in fleet.items() if section in sections)
    return ChosenChecks(sources._replace(checks=chosen), bool(chosen), left)


class _FleetTask(NamedTuple):
    """One fleet-wide task, run on a thread of its own."""

    name: str
    requested: str
    run: Callable[[Step], list[Result]]


def fleet_reports(
    todo: ChosenChecks, options: PartOptions, done: frozenset[str], kept: Mapping[str, str]
) -> Iterator[HostReport]:
    """Yield reports of hosts and of the fleet as a whole, each as soon as it is complete.

    Args:
        todo: the chosen checks.
        options: of the fleet-wide checks.
        done: hosts that a resumed run has already. kept: its finished tasks, and what they had been
        requested to do.
    """
    from syntony.cli.output import messages

    parts = [each for each in _fleet_tasks(todo, options) if kept.get(each.name) != each.requested]
    bar: Progress | None = None
    if messages.is_terminal:
        from rich.progress import Progress as Shown

        bar = Shown(console=messages.rich, transient=True)
        bar.start()
    try:
        ended = _start(parts, bar)
        if todo.hosts:
            yield from collect(todo.sources, done, bar)
        for _ in parts:
            yield ended.get()
    finally:
        if bar is not None:
            bar.stop()


def _start(parts: Sequence[_FleetTask], bar: Progress | None) -> queue.SimpleQueue[HostReport]:
    """Run one part at a time (NCCL would disturb delays), while hosts run their own checks."""
    ended: queue.SimpleQueue[HostReport] = queue.SimpleQueue()

    def work() -> None:
        for part in parts:
            with StepDisplay(part.name, bar) as step:
                results = _guarded(part, step)
            ended.put(
                HostReport(host=FLEET, taken_ns=now_ns(), results=tuple(results),
                           part=part.name, requested=part.requested)
            )  # fmt: skip

    threading.Thread(target=work, name="audit of the fleet", daemon=True).start()
    return ended


def _guarded(part: _FleetTask, step: Step) -> list[Result]:
    """Run a task; an error becomes its verdict, and the audit continues."""
    sections = [Section.NCCL] if part.name == "nccl" else [*NETWORK]
    try:
        return part.run(step)
    except SyntonyError as error:
        why = str(error)
    except Exception as error:  # noqa: BLE001 - supervisor: one part's fault is its verdict
        why = f"{type(error).__name__}: {error}"
    found = [each for each in skipped(sections, why) if each.check not in _BANDWIDTH]
    if part.name == "bandwidth":
        found = _not_measured(why)
    return [msgspec.structs.replace(each, status=Status.UNKNOWN) for each in found]


def _fleet_tasks(todo: ChosenChecks, options: PartOptions) -> Iterator[_FleetTask]:
    sections = {c.id: c.section for c in fleet_checks()}
    requested_for = {sections[check] for check in todo.fleet}

    def only(results: Sequence[Result], of: frozenset[Section]) -> list[Result]:
        reported = {each.check for each in results}
        rest = [e for e in skipped([*of], _NO_VERDICT) if e.check not in reported]
        requested = todo.fleet - _BANDWIDTH
        return [each for each in (*results, *rest) if each.check in requested]

    digest = _digest(todo.sources, options)
    if requested_for & NETWORK:
        yield _FleetTask(
            "network", digest, lambda step: only(_network(todo, options, step), NETWORK)
        )
    mine = _BANDWIDTH & todo.fleet
    if mine:
        yield _FleetTask(
            "bandwidth", digest, lambda step: _bandwidth(todo.sources, options, step, mine)
        )
    if Section.NCCL in requested_for:
        yield _FleetTask(
            "nccl", digest, lambda step: only(_nccl(todo.sources, options, step), _NCCL)
        )


def _digest(sources: Sources, options: PartOptions) -> str:
    """A digest of the hosts and options: a resumed run repeats a task whose digest has changed."""
    text = repr((sorted(sources.hosts), sources.lab, sources.controller, options))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _network(todo: ChosenChecks, options: PartOptions, step: Step) -> list[Result]:
    """Verdicts on connectivity, latency and routes if hosts can be reached, and on cabling."""
    sources = todo.sources
    found: list[Result]
    reported: Mapping[str, str] = {}
    why = _unreached(sources)
    if why:
        found = [
            each
            for each in skipped([*NETWORK], why)
            if each.check == "be.topo.routes" or not each.check.startswith("be.topo.")
        ]
    else:
        reached = _reached(sources, options.network)
        found, seen = network_verdicts(reached, options.network, sources.spec, step)
        if not seen.nics and not seen.silent:
            text = "no NIC has an RDMA device and an IPv4 address: name them with --nics"
            found = [msgspec.structs.replace(each, status=Status.SKIP, evidence=text)
                     if each.status is Status.UNKNOWN else each for each in found]  # fmt: skip
        reported = seen.lldp
    step("cabling")
    return found + cabling_verdicts(options.cabling, reported)


def _unreached(sources: Sources) -> str:
    """Why no survey is possible; empty if one is."""
    if sources.hosts or sources.lab is not None:
        return ""
    if sources.controller is not None:
        return "agents do not carry the survey: add --hosts, to reach them over SSH"
    if sources.roots or sources.replays:
        return "recorded hosts cannot be asked who reaches whom"
    return "one host cannot tell: name the fleet with --hosts or --lab"


def _reached(sources: Sources, options: NetworkOptions) -> FleetAccess:
    if sources.lab is not None:
        return of_lab(sources.lab or None, options)
    from syntony.cli.fleet import fleet_target

    controller = sources.controller
    delays = fleet_target(None, controller, sources.tls) if controller else None
    return over_ssh(sources.hosts, sources.ssh, options, delays)


def _nccl(sources: Sources, options: PartOptions, step: Step) -> list[Result]:
    """Run `syntony audit nccl` in a separate process, so that it leaves nothing in this one."""
    if options.nccl is None:
        return skipped([Section.NCCL], "it takes all GPUs for minutes: ask with --nccl")
    where = _where(sources)
    if not where:
        return skipped([Section.NCCL], "name the hosts with --hosts or --lab")
    plan = options.cabling.topology or options.cabling.subnet
    words = [*where, *(["--topology", str(plan)] if plan else []), *shlex.split(options.nccl)]
    step("all-reduce")
    return _command("nccl", words, options.nccl_deadline_s)


def _bandwidth(
    sources: Sources, options: PartOptions, step: Step, mine: frozenset[str]
) -> list[Result]:  # fmt: skip
    """Run `syntony audit bandwidth` likewise; a "skipped" verdict if it was not requested."""
    where = _where(sources)
    why = _unreached(sources) or "it takes the whole network: ask with --bandwidth"
    reported: list[Result] = []
    if options.bandwidth is not None and where:
        step("pairs")
        reported = _command("bandwidth", [*where, *shlex.split(options.bandwidth)], _BANDWIDTH_S)
        why = "not asked for: see `syntony audit bandwidth --help`"
    measured = {each.check for each in reported}
    rest = [each for each in _not_measured(why) if each.check not in measured]
    return [each for each in (*reported, *rest) if each.check in mine]


def _not_measured(why: str) -> list[Result]:
    found = skipped([Section.FRONTEND, Section.CONNECTIVITY], why)
    return [each for each in found if each.check in _BANDWIDTH]


def _command(name: str, words: Sequence[str], limit_s: float) -> list[Result]:
    """Verdicts of `syntony audit NAME`. Raises `RemoteError`."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "syntony", "audit", name, *words, "--json"],
            capture_output=True, text=True, timeout=limit_s, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RemoteError(f"`audit {name}` did not end in {limit_s:g} s") from error
    try:
        reported = json.loads(done.stdout)
        return [msgspec.convert(each, Result) for each in reported]
    except (ValueError, msgspec.ValidationError) as error:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise RemoteError(last[0].removeprefix("syntony: ")[:300]) from error


def _where(sources: Sources) -> list[str]:
    """Options that give `syntony audit NAME` the same hosts; empty if they cannot be reached."""
    from syntony.lab.client import open_lab

    if sources.lab is not None:
        return ["--lab", sources.lab or open_lab(None).name]
    return ["--hosts", ",".join(sources.hosts)] if sources.hosts else []
