"""What the deaths of a controller cost: nothing, says the promise. Exit status 1: it did not hold.

    python -m bench.control_deaths                  # 20 x kill -9, about ten minutes
    python -m bench.control_deaths --pauses         # every second is a pause of 5 to 20 s instead
    python -m bench.control_deaths --kills 3        # quick
    python -m bench.control_deaths --hogs 30        # beside so many busy loops
    python -m bench.control_deaths --of postgresql,replica,zookeeper,gateway,controller --pauses

A lab of four hosts, whose agents send what they measure, with one checked job over two rails. Each
round gives orders (stop switch, modes), begins to rotate the probe keys, takes a port down that has
to page, and kills the controller some seconds into that. It is started again after up to 3 s. Then
the orders must be as given, orders must be taken again, the port must have paged once, and clear
once when it is back. At the
end the store is held against what agents were told is safe (`bench.acknowledged`), and the log of
paths against the job, to which nothing may have happened. Stores that serve others than the
controller are held against it after every tenth death as well.

With `--of` the lab has two controllers, two gateways, PostgreSQL and a ClickHouse cluster with its
ZooKeeper (`bench.shared_stores`), and what is named dies in turn. A controller or gateway that died
is started again only once another one has all agents and takes orders; so is a replica or
ZooKeeper, which a fleet does not wait for.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench.acknowledged import (
    Account,
    BatchKey,
    account,
    acknowledged,
    embedded,
    stored,
    waiting,
)
from bench.hogs import hogs
from bench.pages import Doubled, Pages, doubled, receiver
from bench.shared_stores import CONTROLLERS, GATEWAYS, STORES, SharedStores, shared_stores
from tests.fleet.failing import Fleet, status
from tests.live import LiveLab, eventually, live

from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.wire.failover import SwitchCommand
from syntony.wire.messages import FleetQuery
from syntony.wire.probes import KeysQuery, RotateKeys
from syntony.wire.traffic import PlacementCommand, TrafficQuery

NAME, JOB, HOSTS = "bench-deaths", "llm", 4
SUBJECTS = ("h1/rail0", "h3/rail1", "h1/rail1", "h3/rail0")
"""Ports that the job does not use."""
RULE = "bench-port"
RULES = f"""
[[rule]]
name = "{RULE}"
metric = "port_down"
severity = "critical"
above = 0
stable = "1s"
summary = "{{subject}}: a compute port is down"
remedy = "none: this is a benchmark"
"""
PATIENCE_S, PAUSE_S = 900.0, (5.0, 20.0)
VICTIMS = ("controller", "gateway", *STORES)
MODES = ("off", "observe")
ACCOUNT_EACH = 10
"""Deaths between two accounts of the rows in shared stores."""
LATE_S = 300.0
"""What a replica that was away lacks for longer is lost."""


class Orders(NamedTuple):
    """What operators have ordered."""

    stopped: bool
    placement: str
    pacing: str


class Round(NamedTuple):
    """One death or pause."""

    kind: str
    down_s: float
    back_s: float
    """Until all agents are attached and orders are taken again: from the death, or from the restart
    where nothing takes its place (PostgreSQL; a controller without another)."""
    held: bool
    """Whether orders are as they were."""
    paged: int
    cleared: int
    """Messages about the one fault; 1 each."""


class Result(NamedTuple):
    """All rounds."""

    rounds: list[Round]
    rows: Account
    pages: Doubled
    torn: list[str]
    """What was done to paths of the job that nothing had happened to."""
    rails: int
    """Hosts of the job that use both rails in the end; 2."""
    job: dict[str, Any]
    epochs: int
    """Rotations of the probe keys that were begun."""

    def broken(self) -> list[str]:
        """Parts of the promise that did not hold."""
        rows, reported = self.rows, [(each.paged, each.cleared) for each in self.rounds]
        parts = {
            "acknowledged rows lost": rows.lost_batches + rows.lost_rows,
            "rows doubled": rows.doubled_rows,
            "pages doubled": self.pages.under_new_keys,
            "faults not paged and cleared once": sum(each != (1, 1) for each in reported),
            "orders not kept": sum(not each.held for each in self.rounds),
            "paths torn": len(self.torn) + 2 - self.rails,
        }
        return [f"{what}: {count}" for what, count in parts.items() if count]


class Deaths:
    """One run."""

    def __init__(
        self, lab: LiveLab, pages: Pages, rng: random.Random, shared: SharedStores | None
    ) -> None:
        self._lab, self._pages, self._rng, self._shared = lab, pages, rng, shared
        self.fleet = Fleet(lab)
        self.sizes: dict[BatchKey, int] = {}
        self.rotations = 0

    def restart(self, kind: str, down_s: float, back: Callable[[], bool]) -> float:
        """Take one away for so long; seconds until `back`, see `Round`."""
        replaced = self._shared is not None and not kind.startswith("postgresql")
        began_s = time.monotonic()
        end = self._strike(kind)
        time.sleep(min(0.3, down_s))
        self.sizes |= waiting(self._lab.directory / "spool")
        if not replaced:
            time.sleep(max(0.0, down_s - 0.3))
            end()
            began_s = time.monotonic()
        eventually(patient(back), "all agents attached, orders taken", within_s=PATIENCE_S)
        back_s = time.monotonic() - began_s
        if replaced:
            time.sleep(max(0.0, down_s - back_s))
            end()
        return back_s

    def _strike(self, kind: str) -> Callable[[], object]:
        if self._shared is not None and kind.startswith(STORES):
            return self._shared.strike(kind, self._rng)
        target = f"gateway{self._rng.randint(1, GATEWAYS)}" if kind.startswith("gateway") else ""
        fault = self._lab.inject(kind, target)
        return lambda: self._lab.clear(fault.id)

    def rows(self) -> Account:
        """What became of the batches so far. The embedded store's controller must be dead."""
        spools = self._lab.directory / "spool"
        self.sizes |= waiting(spools)
        safe, end_s = acknowledged(spools), time.monotonic() + LATE_S
        if self._shared is None:
            return account(self.sizes, safe, embedded(self._lab.directory / "store"))
        while True:
            found = account(self.sizes, safe, stored(self._shared.select))
            if not (found.lost_batches or found.lost_rows) or time.monotonic() > end_s:
                return found
            time.sleep(5)

    def attached(self) -> bool:
        agents = ask(self.fleet.target, FleetQuery()).agents
        return sum(each.connected for each in agents) == HOSTS

    def order(self, wanted: Orders) -> None:
        """Every one of them is acknowledged."""
        by, target = "bench", self.fleet.target
        ask(target, SwitchCommand(stopped=wanted.stopped, by=by))
        for what in ("placement", "pacing"):
            ask(target, PlacementCommand(what=what, mode=getattr(wanted, what), by=by))

    def _takes(self, wanted: Orders) -> bool:
        self.begin_rotation()
        self.order(wanted)
        return True

    def orders(self) -> Orders:
        """As the controller has them now."""
        switch, traffic = status(self.fleet).switch, ask(self.fleet.target, TrafficQuery())
        stopped = switch is not None and switch.stopped
        return Orders(stopped, traffic.mode, traffic.pacing)

    def begin_rotation(self) -> None:
        """Unless one is under way since the round before."""
        if ask(self.fleet.target, KeysQuery()).phase == "steady":
            ask(self.fleet.target, RotateKeys(by="bench", why="bench"))
            self.rotations += 1

    def round(self, number: int, kind: str) -> Round:
        """One death, in the middle of everything."""
        wanted = Orders(number % 2 == 0, MODES[number % 2], MODES[number // 2 % 2])
        subject = SUBJECTS[number % len(SUBJECTS)]
        before = [self._pages.count(RULE, subject, event) for event in ("page", "clear")]
        eventually(patient(lambda: self._takes(wanted)), "orders taken", within_s=PATIENCE_S)
        port = self._lab.inject("link-down", subject)
        time.sleep(self._rng.uniform(0, 6))
        down_s = self._rng.uniform(*(PAUSE_S if kind.endswith("-pause") else (0.5, 3)))
        found: list[Orders] = []

        def back() -> bool:
            if not self.attached():
                return False
            found.append(self.orders())
            return self._takes(wanted)

        back_s = self.restart(kind, down_s, back)
        held = found[0] == wanted
        self._reported(subject, "page", before[0])
        self._lab.clear(port.id)
        self._reported(subject, "clear", before[1])
        after = [self._pages.count(RULE, subject, event) for event in ("page", "clear")]
        reported = [b - a for a, b in zip(before, after, strict=True)]
        return Round(kind, round(down_s, 1), round(back_s, 1), held, *reported)

    def _reported(self, subject: str, event: str, before: int) -> None:
        """Waits for it; that it never came shows in the account."""
        try:
            eventually(
                lambda: self._pages.count(RULE, subject, event) > before, event, within_s=PATIENCE_S
            )
        except TimeoutError:
            progress(f"{subject}: never told {event}")


def patient(true: Callable[[], bool]) -> Callable[[], bool]:
    """A controller that does not answer is starting."""

    def look() -> bool:
        try:
            return true()
        except RemoteError:
            return False

    return look


def run(
    lab: LiveLab, pages: Pages, requested: argparse.Namespace, shared: SharedStores | None
) -> Result:
    deaths = Deaths(lab, pages, random.Random(requested.seed), shared)
    fleet = deaths.fleet
    eventually(
        patient(lambda: len(status(fleet).hosts) == HOSTS), "all agents", within_s=PATIENCE_S
    )
    for _ in range(1 if shared is None else CONTROLLERS):
        deaths.restart("controller-kill", 0.5, deaths.attached)  # it reads whom to tell
    rounds = []
    with fleet.job(JOB) as job:
        eventually(patient(lambda: fleet.both(JOB)), "both rails joined", within_s=PATIENCE_S)
        with hogs(requested.hogs):
            end_s = time.monotonic() + 60 * requested.minutes
            for number in range(requested.kills):
                if time.monotonic() > end_s:
                    break
                what = requested.of[number % len(requested.of)]
                turn = number // len(requested.of)
                kind = "pause" if requested.pauses and turn % 2 == 1 else "kill"
                rounds.append(deaths.round(number, f"{what}-{kind}"))
                progress(f"{number + 1}/{requested.kills} {rounds[-1]}")
                if shared is not None and (number + 1) % ACCOUNT_EACH == 0:
                    progress(f"{deaths.rows()}")
        rails = sum(fleet.rails(JOB, host) == {"rail0", "rail1"} for host in ("h0", "h2"))
        figures = job.account()
    time.sleep(5)  # what agents saw last is on its way
    torn = [
        f"{row.host} {row.cause} {row.old_path} {row.evidence}"
        for row in fleet.log(JOB)
        if row.action == "destroy" and row.cause != "join"
    ]
    if shared is None:
        lab.inject("controller-kill", "")
        time.sleep(1)
    rows = deaths.rows()
    return Result(rounds, rows, doubled(pages.reported), torn, rails, figures, deaths.rotations)


def progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def show(found: Result) -> None:
    rows = found.rows
    back: dict[str, list[float]] = {}
    for one in found.rounds:
        back.setdefault(one.kind, []).append(one.back_s)
    kinds = " and ".join(
        f"{sum(each.kind == kind for each in found.rounds)} x {kind}"
        for kind in dict.fromkeys(each.kind for each in found.rounds)
    )
    lines = {
        "deaths": kinds,
        **{
            f"{kind}: back after, median and longest": (
                f"{statistics.median(took):.1f} s, {max(took):.1f} s"
            )
            for kind, took in back.items()
        },
        "batches acknowledged (of these, of known size)": f"{rows.acknowledged} ({rows.sized})",
        "acknowledged batches lost, rows lost": f"{rows.lost_batches}, {rows.lost_rows}",
        "rows stored, of these doubled": f"{rows.rows}, {rows.doubled_rows}",
        "faults, of these paged and cleared once": (
            f"{len(found.rounds)}, {sum((r.paged, r.cleared) == (1, 1) for r in found.rounds)}"
        ),
        "messages doubled under new keys, sent again under the same": (
            f"{found.pages.under_new_keys}, {found.pages.under_the_same_key}"
        ),
        "stop switch and modes as before": f"{sum(r.held for r in found.rounds)}",
        "rotations of keys begun": str(found.epochs),
        "paths of the job torn": str(len(found.torn)),
        "steps of the job, longest": f"{found.job['steps']}, {found.job['longest_s']:.2f} s",
        "wrong answers (decision 0069)": str(found.job["wrong"]),
    }
    print("| What | |\n| --- | --- |")
    for what, value in lines.items():
        print(f"| {what} | {value} |")
    for each in found.torn:
        print(f"torn: {each}")
    print("\n" + ("; ".join(found.broken()) or "the promise held"))


def _victims(text: str) -> tuple[str, ...]:
    named = tuple(text.split(","))
    if unknown := set(named) - set(VICTIMS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: use {', '.join(VICTIMS)}")
    return named


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=math.inf, help="no further round then")
    parser.add_argument(
        "--pauses", action="store_true", help="every second is a pause of 5 to 20 s"
    )
    parser.add_argument(
        "--of", type=_victims, default=("controller",), help=f"in turn: {','.join(VICTIMS)}"
    )
    parser.add_argument("--hogs", type=int, default=0, help="busy loops beside the rounds")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--json", action="store_true")
    requested = parser.parse_args()
    if requested.kills < 1:
        parser.error("--kills: at least 1")
    progress(f"seed {requested.seed}")
    with tempfile.TemporaryDirectory(prefix="syntony-bench-") as directory:
        rules = Path(directory) / "rules.toml"
        rules.write_text(RULES)
        options = ("--hosts", str(HOSTS), "--mesh-peers", "3", "--rules", str(rules))
        with ExitStack() as stack:
            if requested.of == ("controller",):
                shared, lab = None, stack.enter_context(live(NAME, *options, agents=True))
            else:
                shared = stack.enter_context(shared_stores(NAME, *options))
                lab = shared.lab
            pages = stack.enter_context(receiver(lab))
            found = run(lab, pages, requested, shared)
    if requested.json:
        rounds = [each._asdict() for each in found.rounds]
        parts = {"rounds": rounds, "rows": found.rows._asdict(), "pages": found.pages._asdict()}
        print(json.dumps(found._asdict() | parts | {"broken": found.broken()}, indent=1))
    else:
        show(found)
    return 1 if found.broken() else 0


if __name__ == "__main__":
    sys.exit(main())
