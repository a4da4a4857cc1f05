"""One fault at a time in a live lab: what it is called, how soon, and how many pages it costs.

Each run brings up a lab of another shape (hosts, rails, leaves, spines and addresses are drawn, two
leaves and two spines among them; the seed is printed) with its real agents and the rules that come
with Syntony, but for how long an incident lingers. In some labs a spine answers no path learner,
or TCP saturates the links between two hosts. Kinds of fault with the fewest results come first.

A fault lasts until every part of it has its page, and some seconds more. The right name is that of
the part, "A or B" with the part among them, or the group that it is in where paths are not learnt
whole; of a leaf with one NIC, that NIC's port: which of the two is dead cannot be seen from hosts.
The clock starts when the fault is in force. Pages count whatever became of the incident, until the
next fault begins.

With --out every result is written down as it ends, and the table is that of all in the file. With
--keep what is needed to find out why a result was not right is left in a folder: the result, the
incidents with their evidence, the findings and paths when its fault ended, the lab's logs, topology
and rules, and a copy of its store, of which `syntony replay` shows what other rules had made. The
exit code is 1 if a name was wrong, a page missing or one too many.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from bench.localise_cases import Case, Page, cases, fits, shape
from bench.saturation import Load, saturated
from tests.live import LiveLab, live

from syntony.alerts.rules import default_rules
from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.fabric.changes import QUIET_NS
from syntony.lab.plan import LinkKind, make_plan
from syntony.model import S
from syntony.wire.fabric import FindingsQuery, PathsQuery
from syntony.wire.incidents import IncidentsQuery

PATIENCE_S, QUIET_S, LEARN_S = 45.0, 120.0, 120.0
LONGER_S = {"cable pulled": 90.0, "cable slow": 90.0}
"""A pulled cable whose routes converge pages after 23 s by its rule; a delay within a minute after
another fault of the same part counts as that fault's."""
STAYS_S = 6.0
"""A fault stays so long after its last page, for what comes too much."""
WATCH_S, PAUSE_S = 15.0, 20.0
"""A fault that should open nothing is watched for so long; a pause of the controller lasts."""
LINGER = "2s"
"""Instead of `stable`, so that faults do not wait for each other."""
WAYS = ("plain", "plain", "mute", "crowded")
"""Nothing else; one spine answers no path learner; TCP saturates links."""
SIDE_EFFECTS = frozenset({"link-flaps", "link-flapping", "latency-sla", "clock-unsynchronized"})
"""Open for an hour, by count, or about what a fault rightly disturbs beside: not waited for."""
SLOW = frozenset({"cable slow", "cable pulled", "agent hangs", "host dies"})
"""Kinds whose rule waits for eight to ten seconds by itself: not in the overall quantiles."""
MUTE = (
    "table inet mute { chain out { type filter hook output priority 0; "
    "icmp type time-exceeded drop; icmpv6 type time-exceeded drop; }; }"
)
"""No answer to packets whose time ran out, as nftables says it."""


class Result(NamedTuple):
    """One fault's outcome, as it is written down."""

    seed: int
    lab: str
    row: str
    parts: int
    verdict: str
    """Of the worst part: ``right``, ``twin``, ``group``, ``missed``."""
    found_s: float | None
    """Until a finding or an incident named any part; None: never."""
    named_s: float | None
    """Until every part was named by an incident that is nobody's evidence."""
    paged_s: float | None
    """Until every part had its page."""
    pages: int
    right: int
    """Of these that fit a part."""
    wrong: tuple[str, ...]
    """Pages that fit none, while the fault was there or before it, with nothing broken."""
    after: tuple[str, ...]
    """Pages when it was over."""
    beside: tuple[str, ...]
    """Incidents that named nothing right and were nobody's evidence for a moment; no page."""
    load: float
    told_s: float | None = None
    """Until losses were told, with a name or without; None: never, or of an earlier version."""
    lasted_s: float = 0.0
    """Since the fault before was over; 0: of an earlier version."""
    away_s: float = 0.0
    """For how long nothing saturated links while the fault was there, as it was in the way."""


class Bench:
    """One running lab."""

    def __init__(self, lab: LiveLab, seed: int, called: str, keep: Path | None) -> None:
        self._lab, self._seed, self._called = lab, seed, called
        self._keep = keep
        self._target = f"unix:{lab.controller_socket}"
        self.load: Load | None = None
        """What saturates links, if anything does."""
        self._known: set[tuple[int, int, Page]] = set()
        self._over_s = time.monotonic()

    def quiet(self) -> bool:
        """Whether nothing is to blame and nothing open that matters here."""
        try:
            answer = ask(self._target, FindingsQuery())
        except RemoteError:
            return False
        named = {rule for rule, _ in self.open()} - SIDE_EFFECTS
        return bool(answer.ts_ns) and (self.load is not None or not answer.findings) and not named

    def open(self) -> set[Page]:
        """Incidents that are live and nobody's evidence."""
        return {(each["rule"], each["subject"]) for each in self._incidents() if not each["cause"]}

    def pages(self) -> set[tuple[int, int, Page]]:
        """All that ever went out, also what turned out to be another's evidence: the incident's
        number, and which of its pages."""
        return {
            (each["number"], page, (each["rule"], each["subject"]))
            for each in self._incidents(resolved=True)
            for page in range(each["pages"])
        }

    def learnt(self, wanted: int) -> bool:
        try:
            return len(ask(self._target, PathsQuery()).paths) >= wanted
        except RemoteError:
            return False

    def _incidents(self, *, resolved: bool = False) -> Iterable[dict[str, Any]]:
        try:
            found = ask(self._target, IncidentsQuery(resolved=resolved)).incidents
        except RemoteError:
            return ()
        # Where TCP saturates links, congestion is no false name.
        return [each for each in found if self.load is None or each["rule"] != "congestion"]

    def _blamed(self) -> tuple[set[str], bool]:
        """Components with a finding, and whether probes are lost without one."""
        try:
            answer = ask(self._target, FindingsQuery())
        except RemoteError:
            return set(), False
        return {each.component for each in answer.findings}, answer.losing is not None

    @staticmethod
    def until(true: Callable[[], bool], patience_s: float) -> bool:
        """Whether `true` comes to hold in time."""
        end_s = time.monotonic() + patience_s
        while time.monotonic() < end_s:
            if true():
                return True
            time.sleep(0.1)
        return False

    def run(self, case: Case) -> Result:
        """Inject, wait for the right pages, say what else there was."""
        if not self.until(self.quiet, QUIET_S):
            print(f"not quiet before {case.row}: {sorted(self.open())}", file=sys.stderr)
        if self.load is not None and not self.until(self.load.is_there, QUIET_S):
            print(f"nothing saturates links before {case.row}", file=sys.stderr)
        before, opened = self.pages(), self.open()
        idle = [page for *_, page in before - self._known]
        if case.paused:
            self._lab.inject("controller-pause", "", for_ns=int(PAUSE_S) * S)
        began, began_s = self._kept_now(), time.monotonic()
        for kind, target, options in case.orders:
            self._lab.inject(kind, target, options)
        told_s, found_s, named, paged = self._wait(case, before, opened)
        during = {page for *_, page in self.pages() - before}
        sent = [page for *_, page in self.pages() - before]
        ended = self._kept_now()
        away_s = 0.0 if self.load is None else self.load.away_s(began_s)
        self._lab.clear()
        self.until(self.quiet, QUIET_S)
        self._known = self.pages()
        after = [page for *_, page in self._known - before]
        for page in sent:
            after.remove(page)
        how = {fit for page in during | {*named} for fit in fits(page, case).items()}
        verdicts = [
            min((each for part, each in how if part == wanted), key=_BEST.index, default="missed")
            for wanted in case.parts
        ]
        result = Result(
            self._seed, self._called, case.row, len(case.parts),
            max(verdicts, key=_BEST.index, default="right"),
            found_s, _last(named, case), _last(paged, case),
            len(sent) + len(after) + len(idle),
            sum(bool(fits(page, case)) for page in sent),
            _words([*idle, *(page for page in sent if not fits(page, case))]), _words(after),
            _words(
                page for page in named.keys() - during
                if not fits(page, case) and page[0] not in SIDE_EFFECTS
            ),
            round(os.getloadavg()[0], 1), told_s, round(time.monotonic() - self._over_s, 1),
            round(away_s, 1),
        )  # fmt: skip
        self._over_s = time.monotonic()
        if self._keep is not None and (result.beside or not is_right(result)):
            self._write_down(self._keep, case, result, {"before": began, "ended": ended})
        return result

    def _kept_now(self) -> dict[str, Any]:
        """Findings with the fleet time of their window, and the learnt paths; empty: no answer."""
        if self._keep is None:
            return {}
        try:
            found, learnt = ask(self._target, FindingsQuery()), ask(self._target, PathsQuery())
        except RemoteError:
            return {}
        return {"ts_ns": found.ts_ns, "findings": found.findings, "paths": learnt.paths}

    def _write_down(self, keep: Path, case: Case, result: Result, known: dict[str, Any]) -> None:
        """Write what shows why a result is as it is, into a folder of its own below `keep`."""
        folder = keep / f"{result.seed}-{case.row}".replace(", ", "-").replace(" ", "-")
        source = self._lab.directory
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        known |= {
            "result": result._asdict(), "orders": case.orders,
            "incidents": list(self._incidents(resolved=True)),
        }  # fmt: skip
        (folder / "result.json").write_bytes(msgspec.json.format(msgspec.json.encode(known)))
        lingering(folder)
        shutil.copy(source / "topology.json", folder)
        shutil.copytree(source / "logs", folder / "logs")
        # The engine keeps merged parts for minutes; those that vanish meanwhile are in others.
        with suppress(shutil.Error):
            shutil.copytree(
                source / "store", folder / "store", symlinks=True,
                ignore=shutil.ignore_patterns("tmp*", "delete_tmp*"),
            )  # fmt: skip

    def _wait(
        self, case: Case, before: set[tuple[int, int, Page]], opened: set[Page]
    ) -> tuple[float | None, float | None, dict[Page, float], dict[Page, float]]:
        """Until losses are told; until the first finding or incident about a part; until each
        incident and page."""
        began = time.monotonic()
        told_s: float | None = None
        found_s: float | None = None
        named: dict[Page, float] = {}
        paged: dict[Page, float] = {}
        if case.paused:
            time.sleep(PAUSE_S)
        patience_s = LONGER_S.get(case.row, PATIENCE_S if case.parts else WATCH_S)
        end_s = time.monotonic() + patience_s
        while time.monotonic() < end_s:
            now_s = time.monotonic() - began
            for page in self.open() - opened:
                named.setdefault(page, now_s)
            for *_, page in self.pages() - before:
                paged.setdefault(page, now_s)
            blamed, losing = self._blamed()
            if found_s is None and (
                case.parts.keys() & blamed or any(fits(page, case) for page in named)
            ):
                found_s = now_s
            if told_s is None and (losing or found_s is not None):
                told_s = now_s
            if case.parts and _last(paged, case) is not None:
                end_s = min(end_s, time.monotonic() + STAYS_S)
            time.sleep(0.2)
        return told_s, found_s, named, paged


_BEST = ("right", "twin", "group", "missed")


def _last(seen: Mapping[Page, float], case: Case) -> float | None:
    """When the last part was named; None: not every part was."""
    first: dict[str, float] = {}
    for page, seconds in seen.items():
        for part in fits(page, case):
            first[part] = min(seconds, first.get(part, seconds))
    return max(first.values()) if case.parts and len(first) == len(case.parts) else None


def _words(pages: Iterable[Page]) -> tuple[str, ...]:
    return tuple(sorted(" ".join(page) for page in pages))


def is_right(result: Result) -> bool:
    """Every part named and paged once, nothing else, nothing afterwards. One page may be about
    several that no path tells apart."""
    return result.verdict != "missed" and result.pages == result.right <= result.parts


def table(results: list[Result]) -> None:
    """A line for each kind of fault, and what was not right."""
    for row in sorted({each.row for each in results}):
        mine = [each for each in results if each.row == row]
        kinds = Counter(each.verdict for each in mine)
        names = "  ".join(f"{kind} {kinds[kind]:2}" for kind in _BEST)
        wrong = sum(bool(each.wrong or each.after) for each in mine)
        causes = sum(each.parts for each in mine)
        print(
            f"{row:29} {names}  wrong {wrong:2}  of {len(mine):2}  pages "
            f"{sum(each.pages for each in mine):3} for {causes:3}  {_spread(mine)}"
        )
        for each in filter(lambda each: not is_right(each), mine):
            words = [*each.wrong, *(f"{page} (afterwards)" for page in each.after)]
            print(f"    seed {each.seed}, load {each.load}, {each.lab}: {each.verdict}, {words}")
    false = sum(len(each.wrong) + len(each.after) for each in results)
    minutes = sum(each.lasted_s for each in results) / 60
    print(f"{len(results)} faults, {sum(map(is_right, results))} named and paged right")
    print(f"{false} pages too many in {minutes:.0f} minutes")
    away = [each.away_s for each in results if each.away_s]
    if away:
        print(f"load away for {sum(away):.0f} s, in {len(away)} faults: {max(away):.0f} s at most")
    quick = [each for each in results if each.row not in SLOW and not each.row.startswith("contr")]
    print(f"without {sorted(SLOW)} and pauses: {_spread(quick)}")


def _spread(results: Iterable[Result]) -> str:
    """p50 and p95 of seconds."""
    results, parts = list(results), []
    for name in ("told_s", "found_s", "named_s", "paged_s"):
        took = [each for each in (getattr(one, name) for one in results) if each is not None]
        if took:
            p50, p95 = np.quantile(took, [0.5, 0.95])
            parts.append(f"{name[:-2]} {p50:.1f}, {p95:.1f} s")
    return "; ".join(parts)


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
    """What earlier runs wrote down."""
    if path is None or not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return [
        Result(**each | {n: tuple(each[n]) for n in ("wrong", "after", "beside")}) for each in found
    ]


def measure(arguments: argparse.Namespace, results: list[Result]) -> None:
    rng = random.Random(arguments.seed)
    options, way = shape(rng), arguments.way or rng.choice(WAYS)
    called = f"{' '.join(options)} {way}"
    print(f"seed {arguments.seed}: {called}, load {os.getloadavg()[0]:.0f}", file=sys.stderr)
    end_s = time.monotonic() + arguments.minutes * 60
    with (
        tempfile.TemporaryDirectory(prefix="syntony-bench-") as directory,
        live(
            f"bench-{os.getpid()}", *options, "--rules", str(lingering(Path(directory))),
            agents=True,
        ) as lab,
    ):  # fmt: skip
        plan = make_plan(lab.file().spec)
        if way == "mute":
            lab.run(rng.choice(plan.spines), "nft", MUTE)
        bench = Bench(lab, arguments.seed, called, arguments.keep)
        nics = len(plan.of_kind(LinkKind.RAIL))
        if not bench.until(lambda: bench.learnt(nics * 8), LEARN_S):
            print("paths were never all learnt", file=sys.stderr)
        # A cable pulled before the first look at the fabric is over is no news.
        time.sleep(QUIET_NS / S + 5)
        family = 6 if "ipv6" in options else 4
        with saturated(lab, rng, family) if way == "crowded" else nullcontext() as bench.load:
            _each(arguments, bench, cases(plan, rng), results, end_s)


def _each(
    arguments: argparse.Namespace, bench: Bench, every: list[Case], results: list[Result],
    end_s: float,
) -> None:  # fmt: skip
    """Each kind once, those with the fewest results first."""
    count = Counter(each.row for each in results)
    random.Random(arguments.seed).shuffle(every)
    for case in sorted(every, key=lambda case: count[case.row]):
        if arguments.only not in case.row or time.monotonic() > end_s:
            continue
        results.append(bench.run(case))
        line = json.dumps(results[-1]._asdict())
        print(line, flush=True)
        if arguments.out is not None:
            with arguments.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument(
        "--way", choices=sorted({*WAYS}), help="how the lab is made hard; drawn by default"
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after so many")
    parser.add_argument("--only", default="", help="part of a row's name")
    parser.add_argument("--out", type=Path, help="append each result here; the table is of all")
    parser.add_argument(
        "--keep", type=Path, help="write what shows why a result is not right to this folder"
    )
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
    return 0 if results and all(map(is_right, results)) else 1


if __name__ == "__main__":
    sys.exit(main())
