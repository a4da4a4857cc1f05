"""Conducts the connectivity audit: runs a small program on every host and sends it probe plans."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from syntony.audit.facts import UnreadableError
from syntony.audit.pairs import matchings, sample_rounds, sampled
from syntony.audit.parse.routes import RoutingTable, parse_routes
from syntony.audit.reach import (
    FIRST_PORT,
    PORTS,
    DirectionResult,
    HostNic,
    LoadedRoundTrip,
    ReachFlow,
    RouteTrace,
    Survey,
    merged,
    plan_traces,
)
from syntony.audit.reach_plan import NicRequests, SurveyPlan
from syntony.errors import RemoteError
from syntony.io.audit.remote import AT_ONCE, BOOT, Remote, SurveyHosts, Surveyor, allow_files
from syntony.model import S
from syntony.model.names import host_of

PORT = 29_700
SCRIPT = Path(__file__).with_name("survey_host.py")
TRIES = 3
PINGS = 5
LOADED_PINGS = 50
LOADED_ROUNDS = 2
"""Matchings in which paths are filled: each direction of each pair costs about five seconds."""
ALL_PAIRS = 32
"""Up to so many hosts every pair's round trip is measured, N−1 rounds; of more a sample."""
DEADLINE_NS = 600 * S
_SECRET_BYTES = 16

Argv = Callable[[str], Sequence[str]]
"""Host to the command line that runs ``python3 -u -c BOOT`` there."""
Step = Callable[[str], None]
"""Called with the step that begins."""


class SurveyOptions(NamedTuple):
    ports: int = PORTS
    """Source ports of every pair."""
    rounds: int | None = None
    """Perfect matchings; None: all of a small fleet, ⌈log₂ N⌉ of a large one."""
    load: bool = False
    """Fill paths, too, and see what that does to delays."""
    deadline_ns: int = DEADLINE_NS
    """For all of it."""


USUAL = SurveyOptions()


def ssh_argv(words: Sequence[str]) -> Argv:
    """Over the system's ssh, as `syntony.io.audit.ssh.ssh_words` calls it."""
    line = shlex.join(["python3", "-u", "-c", BOOT])
    return lambda host: (*words, "--", host, line)


def boot_argv(python: str) -> tuple[str, ...]:
    """For a host of a lab."""
    return (python, "-u", "-c", BOOT)


def survey(
    hosts: Sequence[str], argv: Argv, patterns: Sequence[str], requested: SurveyOptions = USUAL,
    step: Step = lambda _: None,
) -> Survey:  # fmt: skip
    """Send requests between all hosts, then trace the lost flows and some of the others.

    Args:
        hosts: who takes part; one that cannot be reached, or falls silent, is left out and
            reported.
        argv: how to start a program there.
        patterns: names of the NICs, with ``*`` and ``?``; none: those with an RDMA device.
    """
    allow_files(len(hosts))
    until_s = time.monotonic() + requested.deadline_ns / S
    script = SCRIPT.read_text(encoding="utf-8")
    step("starting")

    def start(host: str) -> Remote | str:
        try:
            remote = Remote(host, argv(host), until_s)
        except RemoteError as error:
            return str(error)
        try:
            remote.load(script)
            reported = remote.order({"interfaces": list(patterns)})
            remote.nics = tuple(_nic(host, name, each) for name, each in sorted(reported.items()))
        except (RemoteError, AttributeError, KeyError, TypeError, ValueError) as error:
            remote.close()
            return str(error) if isinstance(error, RemoteError) else "it did not name its NICs"
        return remote

    with ThreadPoolExecutor(max_workers=max(1, min(AT_ONCE, len(hosts)))) as pool:
        started = list(pool.map(start, hosts))
    running = [each for each in started if isinstance(each, Remote)]
    silent = {h: each for h, each in zip(hosts, started, strict=True) if isinstance(each, str)}
    return conduct(running, silent, requested, step)


def _nic(host: str, name: str, reported: Mapping[str, Any]) -> HostNic:
    return HostNic(
        host, name, str(reported["address"]), int(reported["mtu"]), str(reported.get("rdma", ""))
    )


def conduct(
    running: Sequence[Surveyor], silent: Mapping[str, str], requested: SurveyOptions, step: Step
) -> Survey:
    """A survey by programs that run; they are ended."""
    members = SurveyHosts(running, silent)
    try:
        return _Conductor(members, requested, step).survey()
    finally:
        members.close()


class _Conductor:
    def __init__(
        self, members: SurveyHosts[Surveyor], requested: SurveyOptions, step: Step
    ) -> None:
        self._members, self._requested, self._step = members, requested, step
        self._nics = tuple(nic for each in members.members.values() for nic in each.nics)
        self._address = {str(nic): nic.address for nic in self._nics}

    def survey(self) -> Survey:
        order = {"serve": PORT, "secret": secrets.token_hex(_SECRET_BYTES)}
        self._members.each(self._everybody, lambda each: each.order(order))
        course = SurveyPlan(self._nics, ports=self._requested.ports, rounds=self._requested.rounds)
        seen: list[DirectionResult] = []
        while hosts := course.next_turn():
            self._step(f"who reaches whom, {len(hosts)} hosts")
            reported = self._turn(course, hosts)
            course.report(reported)
            seen += reported
        seen = list(merged(seen))
        self._step("tracing what was lost")
        traces = self._traces(plan_traces(seen))
        self._step("round trips")
        quiet_ns = self._round_trips(seen)
        loaded = self._loaded(quiet_ns) if self._requested.load else {}
        tables = tuple(self._tables())
        lldp = self._members.each(self._everybody, lambda each: str(each.order({"lldp": True})))
        gone = self._members.silent
        return Survey(
            self._nics, tuple(each for each in seen if host_of(each.dst) not in gone), traces,
            dict(gone), quiet_ns, loaded, course.rounds, course.sampled, tables,
            {host: text for host, text in lldp.items() if text},
        )  # fmt: skip

    def _tables(self) -> Iterator[RoutingTable]:
        """Routing tables of hosts with iproute2. Invalid ones are left out: switches show more."""
        reported = self._members.each(
            self._everybody, lambda each: str(each.order({"routes": True}))
        )
        for host, text in reported.items():
            with contextlib.suppress(UnreadableError):
                if text:
                    yield parse_routes(text, host)

    @property
    def _everybody(self) -> list[str]:
        return list(self._members.members)

    def _turn(self, course: SurveyPlan, hosts: Sequence[str]) -> list[DirectionResult]:
        def ask(each: Surveyor) -> list[DirectionResult]:
            legs = list(course.legs(each.host))
            requested = [
                [self._address[g.src], self._address[g.dst], g.ports, g.size] for g in legs
            ]
            reported = each.order({"ask": requested, "tries": TRIES})
            return [_seen(leg, row) for leg, row in zip(legs, reported, strict=True)]

        by_host = self._members.each(hosts, ask)
        gone = self._members.silent
        seen = [e for reported in by_host.values() for e in reported if host_of(e.dst) not in gone]
        return self._separate_lost_replies(seen)

    def _separate_lost_replies(self, seen: Sequence[DirectionResult]) -> list[DirectionResult]:
        """Separate lost requests from lost replies, by what the other end received."""
        lost: dict[str, list[ReachFlow]] = defaultdict(list)
        for each in seen:
            if each.lost or each.big is False:
                ports = [ReachFlow(each.src, each.dst, port, 0) for port in each.lost]
                large = [ReachFlow(each.src, each.dst, FIRST_PORT, 1)] if each.big is False else []
                lost[host_of(each.dst)] += ports + large

        def received(other: Surveyor) -> set[ReachFlow]:
            mine = lost[other.host]
            rows = [[self._address[f.src], f.sport, self._address[f.dst], f.size > 0] for f in mine]
            reported = other.order({"heard": rows})
            return {flow for flow, yes in zip(mine, reported, strict=True) if yes}

        arrived = {
            flow for some in self._members.each(list(lost), received).values() for flow in some
        }
        return [_judged(each, arrived) for each in seen]

    def _traces(self, wanted: Iterable[ReachFlow]) -> tuple[RouteTrace, ...]:
        by_host: dict[str, list[ReachFlow]] = defaultdict(list)
        for flow in wanted:
            by_host[host_of(flow.src)].append(flow)

        def follow(each: Surveyor) -> list[RouteTrace]:
            mine = by_host[each.host]
            reported = each.order({"trace": [self._wire(flow) for flow in mine]})
            return [
                RouteTrace(flow, tuple(map(str, hops)))
                for flow, hops in zip(mine, reported, strict=True)
                if hops is not None
            ]

        done = self._members.each(list(by_host), follow)
        return tuple(trace for reported in done.values() for trace in reported)

    def _round_trips(self, seen: Iterable[DirectionResult]) -> dict[tuple[str, str], int]:
        """Both directions of every pair, each host busy with one partner at a time: all pairs of a
        small fleet, a sample of a large one.
        """
        living = {each.pair for each in seen if each.same_rail and each.answered}
        count = len(self._members.members)
        every = count <= ALL_PAIRS and self._requested.rounds is None
        drawn = min(self._requested.rounds or sample_rounds(count), sample_rounds(count))
        rounds = matchings(count) if every else sampled(count, drawn, 1)
        found: dict[tuple[str, str], int] = {}
        for pair, ns in self._in_pairs(rounds.tolist(), living, "ping", PINGS):
            if ns:
                found[pair] = int(ns)
        return found

    def _loaded(
        self, quiet_ns: Mapping[tuple[str, str], int]
    ) -> dict[tuple[str, str], LoadedRoundTrip]:
        """Fill one direction of a pair at a time, all pairs of a matching in parallel."""
        self._step("delay under load")
        self._members.each(self._everybody, lambda each: each.order({"sink": True}))
        count = len(self._members.members)
        rounds = sampled(count, LOADED_ROUNDS, 2).tolist()
        found: dict[tuple[str, str], LoadedRoundTrip] = {}
        for pair, row in self._in_pairs(rounds, set(quiet_ns), "load", LOADED_PINGS):
            idle_ns, loaded_ns, rate_bps = row
            if idle_ns and loaded_ns:
                found[pair] = LoadedRoundTrip(int(idle_ns), int(loaded_ns), float(rate_bps))
        return found

    def _in_pairs(
        self, rounds: Sequence[Sequence[Sequence[int]]], living: set[tuple[str, str]], what: str,
        count: int,
    ) -> Iterator[tuple[tuple[str, str], Any]]:  # fmt: skip
        """Measure every round's pairs at the same time, first one way, then the other."""
        hosts = self._everybody
        for matching in rounds:
            there = {hosts[a]: hosts[b] for a, b in matching}
            back = {b: a for a, b in there.items()}
            for way in (there, back):
                yield from self._one_way(way, living, what, count)

    def _one_way(
        self, partner: Mapping[str, str], living: set[tuple[str, str]], what: str, count: int
    ) -> Iterator[tuple[tuple[str, str], Any]]:
        def measure(each: Surveyor) -> list[tuple[tuple[str, str], Any]]:
            pairs = [
                pair
                for nic in each.nics
                if (pair := (str(nic), f"{partner[each.host]}/{nic.name}")) in living
            ]
            flows = [self._wire(ReachFlow(*pair, FIRST_PORT, 0)) for pair in pairs]
            reported = each.order({what: flows, "count": count}) if flows else []
            return list(zip(pairs, reported, strict=True))

        for reported in self._members.each(list(partner), measure).values():
            yield from reported

    def _wire(self, flow: ReachFlow) -> list[object]:
        return [self._address[flow.src], self._address[flow.dst], flow.sport]


def _seen(leg: NicRequests, row: Sequence[Any]) -> DirectionResult:
    sent, lost, hops, big, error = row
    return DirectionResult(
        leg.src, leg.dst, int(sent), tuple(map(int, lost)), (), int(hops),
        None if big is None else bool(big), str(error),
    )  # fmt: skip


def _judged(each: DirectionResult, arrived: set[ReachFlow]) -> DirectionResult:
    """Correct a result with what the other end received: a large packet whose reply was lost has
    passed; on a path that also loses small packets it says nothing about the MTU.
    """
    back = tuple(port for port in each.lost if ReachFlow(each.src, each.dst, port, 0) in arrived)
    big = each.big
    if big is False and ReachFlow(each.src, each.dst, FIRST_PORT, 1) in arrived:
        big = True
    lost = tuple(port for port in each.lost if port not in back)
    if big is False and FIRST_PORT in lost:
        big = None
    if not back and big is each.big:
        return each
    return each._replace(lost=lost, lost_back=back, big=big)
