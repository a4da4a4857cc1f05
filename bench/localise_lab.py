"""Faults in a live lab: which incident is opened, about which part, and how soon.

Every kind of fault on links, NICs, ports, hosts and whole switches, one at a time, on a lab of
IPv4 or IPv6 with two hosts at each of three leaves, its real agents and the rules that come with
Syntony, but for how long an incident lingers; before each, nothing may be to blame and nothing open
that this fault could be taken for. The seed of targets, delays and family is drawn and printed.
Rows of the table are what was broken, columns what the incident was about. The clock starts when
the fault is in force and stops when the right incident is open and is nobody's evidence.

With --out every injection is written down as it ends, and a run that was cut short goes on there;
an interrupt prints the table of what there is.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tests.live import LiveLab, live

from syntony.alerts.rules import default_rules
from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.fabric.changes import QUIET_NS
from syntony.fabric.names import cable_name, link_name
from syntony.lab.plan import LabPlan, Link, LinkKind, make_plan
from syntony.model import S
from syntony.wire.fabric import FindingsQuery, PathsQuery
from syntony.wire.incidents import IncidentsQuery

PATIENCE_S = 45.0
QUIET_S = 120.0
WATCH_S = 15.0
"""A fault that should open nothing is watched for so long."""
HOSTS, LEAVES, PEERS = 6, 3, 5
DELAYS_US = (50, 200, 1_000, 5_000)
LINGER = "2s"
"""Instead of `stable`, so that faults do not wait for each other."""
SIDE_EFFECTS = frozenset({"link-flaps", "link-flapping", "latency-sla", "clock-unsynchronized"})
"""Open for an hour, by count, or about what a fault rightly disturbs beside."""
SLOW = frozenset({"delay", "host silent", "cable pulled"})
"""Kinds whose rule waits for eight to ten seconds by itself: not in the overall quantiles."""
Options = dict[str, str]


class Case(NamedTuple):
    """One injection and its right answer."""

    row: str
    orders: list[tuple[str, str, Options]]
    right: tuple[str, str] | None
    """Rule and subject; None: nothing should be opened."""


class Result(NamedTuple):
    """One injection's outcome, as it is written down."""

    round: int
    row: str
    right: str
    seconds: float | None
    """To the right incident; None: never."""
    also: tuple[str, ...]
    """Other incidents that were nobody's evidence then."""
    blamed: float | None = None
    """Seconds until localisation named the part, of faults that it can name."""
    beside: tuple[str, ...] = ()
    """What else it blamed, from the injection until the right incident was open."""
    pages: int = 0
    """That went out for it, whatever they named, until the next injection; side effects too."""


def cases(plan: LabPlan, rng: random.Random, turn: int) -> list[Case]:
    """One of each kind, on targets drawn at random; flaps on a port that has not flapped before."""
    cable = rng.choice(plan.of_kind(LinkKind.FABRIC))
    nic = rng.choice(plan.of_kind(LinkKind.RAIL))
    flapping = plan.of_kind(LinkKind.RAIL)[turn % len(plan.of_kind(LinkKind.RAIL))]
    host = nic.name.partition("/")[0]
    found = [*_of_cable(cable, rng), *_of_nic(nic), *_of_spine(plan, rng.choice(plan.spines))]
    found += [
        Case("NIC down", [("link-down", nic.name, {})], ("port-down", nic.name)),
        Case("leaf port down", [("link-down", nic.name, {"side": "leaf"})],
             ("port-down", nic.name)),
        Case("flap", [("flap", flapping.name, {"period": "600ms", "count": "4"})],
             ("link-flaps", flapping.name)),
        Case("host silent", [("agent-stop", host, {})], ("host-silent", host)),
        Case("host busy", [("cpu-hog", host, {"procs": "2"})], None),
    ]  # fmt: skip
    rng.shuffle(found)
    return found


def _of_cable(cable: Link, rng: random.Random) -> list[Case]:
    leaf, top = cable.a.node, cable.b.node
    both = ("link-loss", cable_name(leaf, top))
    up, down = ("link-loss", link_name(leaf, top)), ("link-loss", link_name(top, leaf))
    slower = ("component-delay", cable_name(leaf, top))
    return [
        Case("cable, black hole", [("blackhole", cable.name, {})], both),
        *(
            Case(f"cable, {percent} %", [("loss", cable.name, {"percent": percent})], both)
            for percent in ("10", "5", "1")
        ),
        Case("link up, black hole", [("blackhole", cable.name, {"direction": "from"})], up),
        Case("link down, 5 %", [("loss", cable.name, {"percent": "5", "direction": "to"})], down),
        Case("delay", [("delay", cable.name, {"add": f"{rng.choice(DELAYS_US)}us"})], slower),
        Case(
            "cable pulled", [("link-down", cable.name, {})], ("cable-lost", cable_name(leaf, top))
        ),
    ]


def _of_nic(nic: Link) -> list[Case]:
    below = nic.b.node
    both = ("nic-loss", nic.name)
    inward = ("link-loss", link_name(below, nic.name))
    outward = ("link-loss", link_name(nic.name, below))
    out = {"percent": "5", "direction": "from"}
    return [
        Case("NIC, black hole", [("blackhole", nic.name, {})], both),
        Case("NIC, 5 %", [("loss", nic.name, {"percent": "5"})], both),
        Case("NIC in, black hole", [("blackhole", nic.name, {"direction": "to"})], inward),
        Case("NIC out, 5 %", [("loss", nic.name, out)], outward),
    ]


def _of_spine(plan: LabPlan, spine: str) -> list[Case]:
    links = [link.name for link in plan.links_of(spine)]
    right = ("switch-loss", spine)
    return [
        Case("spine dies", [("switch-down", spine, {})], ("switch-down", spine)),
        Case("spine, black hole", [("blackhole", name, {}) for name in links], right),
        Case("spine, 5 %", [("loss", name, {"percent": "5"}) for name in links], right),
    ]


class Bench:
    """One running lab."""

    def __init__(self, lab: LiveLab) -> None:
        self._lab = lab
        self._target = f"unix:{lab.controller_socket}"

    def quiet(self) -> bool:
        """Whether nothing is to blame and nothing open that matters here."""
        try:
            answer = ask(self._target, FindingsQuery())
        except RemoteError:
            return False
        named = {rule for rule, _ in self.open()} - SIDE_EFFECTS
        return bool(answer.ts_ns) and not answer.findings and not named

    def open(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Incidents that are live and nobody's evidence, by rule and subject."""
        try:
            reply = ask(self._target, IncidentsQuery())
        except RemoteError:
            return {}
        return {(i["rule"], i["subject"]): i for i in reply.incidents if not i["cause"]}

    def learnt(self, wanted: int) -> bool:
        try:
            return len(ask(self._target, PathsQuery()).paths) >= wanted
        except RemoteError:
            return False

    @staticmethod
    def until(true: Callable[[], bool], patience_s: float) -> bool:
        """Whether `true` comes to hold in time."""
        end_s = time.monotonic() + patience_s
        while time.monotonic() < end_s:
            if true():
                return True
            time.sleep(0.1)
        return False

    def run(self, case: Case, turn: int) -> Result:
        """Inject, wait for the right incident, say what else there was."""
        self._lab.clear()
        if not self.until(self.quiet, QUIET_S):
            print(f"not quiet before {case.row}: {sorted(self.open())}", file=sys.stderr)
        before, reported = self.open(), self._pages()
        for kind, target, options in case.orders:
            self._lab.inject(kind, target, options)
        began = time.monotonic()
        if case.right is None:
            self.until(lambda: bool(self._fresh(before, None)), WATCH_S)
            blamed = seconds = None
            beside = tuple(sorted(self._blamed()))
        else:
            blamed, seconds, beside = self._wait(case.right, began)
        also = self._fresh(before, case.right)
        right = " ".join(case.right or ("nothing",))
        self._lab.clear()
        self.until(self.quiet, QUIET_S)
        pages = self._pages() - reported
        return Result(turn, case.row, right, seconds, also, blamed, beside, pages)

    def _pages(self) -> int:
        """All that ever went out."""
        try:
            answer = ask(self._target, IncidentsQuery(resolved=True))
        except RemoteError:
            return 0
        return sum(each["pages"] for each in answer.incidents)

    def _wait(
        self, right: tuple[str, str], began: float
    ) -> tuple[float | None, float | None, tuple[str, ...]]:
        """Seconds until the part was blamed, and until the incident was open; what else was."""
        blamed: list[float] = []
        beside: set[str] = set()

        def there() -> bool:
            named = self._blamed()
            beside.update(named - {right[1]})
            if not blamed and right[1] in named:
                blamed.append(time.monotonic() - began)
            return right in self.open()

        opened = self.until(there, PATIENCE_S)
        seconds = time.monotonic() - began if opened else None
        return (blamed[0] if blamed else None), seconds, tuple(sorted(beside))

    def _blamed(self) -> set[str]:
        try:
            answer = ask(self._target, FindingsQuery())
        except RemoteError:
            return set()
        return {found.component for found in answer.findings}

    def _fresh(
        self, before: Iterable[tuple[str, str]], right: tuple[str, str] | None
    ) -> tuple[str, ...]:
        known = {*before, right}
        fresh = (each for each in self.open() if each not in known)
        return tuple(sorted(" ".join(each) for each in fresh if each[0] not in SIDE_EFFECTS))


def column(result: Result) -> str:
    """What the table says became of it."""
    if result.right == "nothing":
        return "nothing, rightly" if not result.also else f"false: {', '.join(result.also)}"
    if result.seconds is None:
        return f"never; {', '.join(result.also) or 'nothing'}"
    return "right" if not result.also else f"right, and {', '.join(result.also)}"


def table(results: Iterable[Result]) -> None:
    """What was broken, what was reported, how long it took."""
    results = list(results)
    reported: dict[str, Counter[str]] = defaultdict(Counter)
    took: dict[str, list[float]] = defaultdict(list)
    for each in results:
        reported[each.row][column(each)] += 1
        took[each.row] += [] if each.seconds is None else [each.seconds]
    for row in sorted(reported):
        times = took[row]
        spread = f"p50 {np.median(times):5.1f} s, largest {max(times):5.1f} s" if times else ""
        counts = "; ".join(f"{number} {name}" for name, number in reported[row].most_common())
        pages = sum(each.pages for each in results if each.row == row)
        print(f"{row:20} {spread:33} {pages:3} pages  {counts}")
    total = sum(map(Counter.total, reported.values()))
    well = sum(counts["right"] + counts["nothing, rightly"] for counts in reported.values())
    print(f"{total} injections, {well} exactly right")
    blurred = sum(bool(each.beside) for each in results)
    print(f"blamed beside, if only for a moment: in {blurred} of {total}")
    quick = [seconds for row, times in took.items() if row not in SLOW for seconds in times]
    if quick:
        p50, p95 = np.quantile(quick, [0.5, 0.95])
        print(f"to the right incident, without {sorted(SLOW)}: p50 {p50:.1f} s, p95 {p95:.1f} s")


def lingering(directory: Path) -> Path:
    """The rules that come with Syntony, as a file, with `LINGER`."""
    lines = []
    for rule in default_rules():
        fields = {name: getattr(rule, name) for name in rule.__struct_fields__}
        fields |= {"stable": LINGER, "explained_by": list(rule.explained_by)}
        lines += ["[[rule]]"]
        lines += [f"{k} = {json.dumps(v)}" for k, v in fields.items() if v is not None]
    path = directory / "rules.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def read(path: Path | None) -> list[Result]:
    """What an earlier run wrote down."""
    if path is None or not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return [
        Result(**each | {name: tuple(each.get(name, ())) for name in ("also", "beside")})
        for each in found
    ]


def measure(arguments: argparse.Namespace, results: list[Result]) -> None:
    done = {(each.round, each.row) for each in results}
    family = arguments.family or random.Random(arguments.seed).choice(["ipv4", "ipv6"])
    options = [
        "--hosts", str(HOSTS), "--rails", "1", "--leaves", str(LEAVES), "--mesh-peers", str(PEERS),
        "--family", family,
    ]  # fmt: skip
    print(f"seed {arguments.seed}: {family}, load {os.getloadavg()[0]:.0f}", file=sys.stderr)
    end_s = time.monotonic() + arguments.minutes * 60
    with (
        tempfile.TemporaryDirectory(prefix="syntony-bench-") as directory,
        live(
            f"bench-{os.getpid()}", *options, "--rules", str(lingering(Path(directory))),
            agents=True,
        ) as lab,
    ):  # fmt: skip
        bench = Bench(lab)
        plan = make_plan(lab.file().spec)
        wanted = 2 * len(plan.of_kind(LinkKind.RAIL)) * PEERS * 8
        if not bench.until(lambda: bench.learnt(wanted), 300):
            print("paths were never all learnt", file=sys.stderr)
        # A cable pulled before the first look at the fabric is over is no news.
        time.sleep(QUIET_NS / S + 5)
        for turn in range(arguments.rounds):
            rng = random.Random(f"{arguments.seed}/{turn}")
            for case in cases(plan, rng, turn):
                if (turn, case.row) in done or arguments.only not in case.row:
                    continue
                if time.monotonic() > end_s:
                    return
                results.append(bench.run(case, turn))
                line = json.dumps(results[-1]._asdict())
                print(line, flush=True)
                if arguments.out is not None:
                    with arguments.out.open("a", encoding="utf-8") as file:
                        file.write(line + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5, help="of twenty injections")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--family", choices=["ipv4", "ipv6"], help="drawn, if not told")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after so many")
    parser.add_argument("--only", default="", help="part of a row's name")
    parser.add_argument("--out", type=Path, help="append each injection here; go on from it")
    arguments = parser.parse_args()
    results = read(arguments.out)
    # Ended from outside, the lab comes down and the table is printed all the same.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        measure(arguments, results)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        table(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
