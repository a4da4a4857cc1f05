"""The connectivity audit's conductor: a small program on every host, told what to ask whom."""

from __future__ import annotations

import json
import secrets
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer
from typing import Any

from syntony.audit.pairs import matchings, sample_rounds, sampled
from syntony.audit.reach import Flow, HostNic, Outcome, Survey, Trace, plan_flows, plan_traces
from syntony.errors import RemoteError

PORT = 29_700
SCRIPT = Path(__file__).with_name("survey_host.py")
TRIES = 3
PINGS = 5
ALL_PAIRS = 32
"""Up to so many hosts every pair's round trip is measured, N−1 rounds; of more a sample."""
ANSWER_S = 60.0
_SECRET_BYTES = 16
_BOOT = "import sys; n = int(sys.stdin.readline()); exec(sys.stdin.read(n))"
"""The program itself comes first over standard input: nothing is installed on the host."""

Argv = Callable[[str], Sequence[str]]
"""Host to the command line that runs ``python3 -u -c BOOT`` there."""


def ssh_argv(host: str) -> tuple[str, ...]:
    """Over the system's ssh, with its configuration."""
    line = shlex.join(["python3", "-u", "-c", _BOOT])
    return ("ssh", "-o", "BatchMode=yes", "--", host, line)


def boot_argv(python: str) -> tuple[str, ...]:
    """For a host of a lab."""
    return (python, "-u", "-c", _BOOT)


def survey(hosts: Sequence[str], argv: Argv, patterns: Sequence[str], *, ports: int) -> Survey:
    """Ask everybody from everybody, then trace what was lost and some of what was not.

    Args:
        hosts: who takes part; one that cannot be reached is left out and told.
        argv: how to start a program there.
        patterns: names of the NICs, with ``*`` and ``?``.
        ports: source ports of every pair.
    """
    with ThreadPoolExecutor(max_workers=max(1, len(hosts))) as pool:
        started = list(pool.map(lambda host: _start(host, argv(host), patterns), hosts))
        running = [each for each in started if isinstance(each, _Remote)]
        silent = {host: each for host, each in zip(hosts, started, strict=True)
                  if isinstance(each, str)}  # fmt: skip
        try:
            return _survey(running, silent, pool, ports)
        finally:
            for each in running:
                each.close()


def _survey(
    running: Sequence[_Remote], silent: Mapping[str, str], pool: ThreadPoolExecutor, ports: int
) -> Survey:
    nics = tuple(nic for each in running for nic in each.nics)
    order = {"serve": PORT, "secret": secrets.token_hex(_SECRET_BYTES)}
    list(pool.map(lambda each: each.order(order), running))
    flows = plan_flows(nics, ports=ports)
    address = {str(nic): nic.address for nic in nics}
    by_host = {
        each.host: [flow for flow in flows if flow.src.partition("/")[0] == each.host]
        for each in running
    }

    def ask(each: _Remote) -> list[Outcome]:
        mine = by_host[each.host]
        asked = [[address[f.src], address[f.dst], f.sport, f.size] for f in mine]
        told = each.order({"ask": asked, "tries": TRIES})
        return [_outcome(flow, result) for flow, result in zip(mine, told, strict=True)]

    outcomes = [outcome for told in pool.map(ask, running) for outcome in told]
    heard = {
        (str(row[0]), int(row[1]), str(row[2]), bool(row[3]))
        for told in pool.map(lambda each: each.order({"heard": True}), running)
        for row in told
    }
    arrived = frozenset(
        o.flow
        for o in outcomes
        if (address[o.flow.src], o.flow.sport, address[o.flow.dst], o.flow.size > 0) in heard
    )
    wanted = plan_traces(outcomes, arrived)

    def follow(each: _Remote) -> list[Trace]:
        mine = [flow for flow in wanted if flow.src.partition("/")[0] == each.host]
        asked = [[address[flow.src], address[flow.dst], flow.sport] for flow in mine]
        told = each.order({"trace": asked}) if asked else []
        return [Trace(flow, tuple(map(str, hops))) for flow, hops in zip(mine, told, strict=True)]

    traces = tuple(each for told in pool.map(follow, running) for each in told)
    quiet_ns = _round_trips(running, pool, outcomes)
    return Survey(nics, tuple(outcomes), arrived, traces, dict(silent), quiet_ns)


def _round_trips(
    running: Sequence[_Remote], pool: ThreadPoolExecutor, outcomes: Sequence[Outcome]
) -> dict[tuple[str, str], int]:
    """Both directions of every pair, each host busy with one partner at a time: all pairs of a
    small fleet, a sample of a large one.
    """
    living: dict[tuple[str, str], Flow] = {}
    for outcome in outcomes:
        flow = outcome.flow
        same_rail = flow.src.partition("/")[2] == flow.dst.partition("/")[2]
        if outcome.answered and not flow.size and same_rail:
            living.setdefault((flow.src, flow.dst), flow)
    address = {str(nic): nic.address for each in running for nic in each.nics}
    count = len(running)
    rounds = matchings(count) if count <= ALL_PAIRS else sampled(count, sample_rounds(count), 1)
    found: dict[tuple[str, str], int] = {}

    def measure(here: _Remote, there: _Remote) -> list[tuple[Flow, int]]:
        mine = [
            flow
            for nic in here.nics
            if (flow := living.get((str(nic), f"{there.host}/{nic.name}"))) is not None
        ]
        asked = [[address[flow.src], address[flow.dst], flow.sport] for flow in mine]
        told = here.order({"ping": asked, "count": PINGS}) if asked else []
        return list(zip(mine, map(int, told), strict=True))

    for matching in rounds.tolist():
        pairs = [(running[a], running[b]) for a, b in matching]
        for way in (pairs, [(b, a) for a, b in pairs]):
            for told in pool.map(lambda pair: measure(*pair), way):
                found.update({(flow.src, flow.dst): ns for flow, ns in told if ns})
    return found


def _outcome(flow: Flow, result: Mapping[str, Any]) -> Outcome:
    return Outcome(
        flow=flow, answered=result["got"] > 0, hops=int(result["hops"]),
        rtt_ns=int(result["rtt_ns"]), error=str(result["error"]),
    )  # fmt: skip


def _start(host: str, argv: Sequence[str], patterns: Sequence[str]) -> _Remote | str:
    """A running program, or why there is none."""
    try:
        return _Remote(host, argv, patterns)
    except RemoteError as error:
        return str(error)


class _Remote:
    """The program on one host."""

    def __init__(self, host: str, argv: Sequence[str], patterns: Sequence[str]) -> None:
        self.host = host
        try:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True,
            )  # fmt: skip
        except OSError as error:
            raise RemoteError(f"{argv[0]}: {error.strerror}") from error
        script = SCRIPT.read_text(encoding="utf-8")
        self._write(f"{len(script)}\n{script}")
        told = self.order({"interfaces": list(patterns)})
        self.nics = tuple(
            HostNic(host, name, str(each["address"]), int(each["mtu"]))
            for name, each in sorted(told.items())
        )

    def order(self, order: Mapping[str, Any]) -> Any:
        """What it answers. Raises `RemoteError`: it ended, or takes too long."""
        self._write(json.dumps(order) + "\n")
        timer = Timer(ANSWER_S, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline() if self._process.stdout else ""
        finally:
            timer.cancel()
        if not line:
            raise RemoteError(f"{self.host}: {self._last_words()}")
        try:
            return json.loads(line)
        except ValueError as error:
            raise RemoteError(f"{self.host}: it said {line[:80]!r}") from error

    def close(self) -> None:
        """Ends it: the program ends with its standard input."""
        self._process.kill()
        self._process.communicate()

    def _write(self, text: str) -> None:
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(text)
                self._process.stdin.flush()
        except BrokenPipeError as error:
            raise RemoteError(f"{self.host}: {self._last_words()}") from error

    def _last_words(self) -> str:
        self._process.kill()
        _, said = self._process.communicate()
        lines = said.strip().splitlines()
        return lines[-1][:160] if lines else "the program ended"
