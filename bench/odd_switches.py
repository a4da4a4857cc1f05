"""Faults in fabrics whose switches answer path traces in odd ways: what is named, and what pages.

Drawn per seed, which is printed: 2 to 4 leaves and spines, 4 to 8 hosts, a topology or none, the
kind's parameters, and one fault or none after 60 to 130 s, watched for 60 s. Path learners, map,
localisation and rules are the real ones (`tests.controller.probed`).

* *limited*: each switch answers 1 to 10 packets a second, of all hosts together.
* *addresses*: each spine, or each switch, answers with one of 2 to 4 addresses, drawn for each
  packet.
* *rehashed*: all flows are distributed anew every 10 to 60 s.
* *two silent*: two spines answer nobody, and die at the same moment.

A name is wrong if localisation gives it, for two seconds or more, a confidence of 0.5 and more, and
neither it nor its alternatives touch the fault. Other pages than of the fault are false.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import NamedTuple

from bench.fault_pairs import HOSTS
from bench.incidents import of_one_kind, touches
from tests.controller.judged import Control
from tests.controller.probed import Jam, Probed

from syntony.controller.fabric_changes import FabricChangeService
from syntony.fabric.book import PathBook
from syntony.fabric.extra_probes import suspected
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.graph import Cable, Device, make_topology
from syntony.fabric.learn import HopQuery
from syntony.fabric.names import GROUP, OR, SILENT_AT, ComponentKind
from syntony.model import S

KINDS = ("limited", "addresses", "rehashed", "two silent")
FAULTS = ("", "spine dies", "loss", "slow")
WATCHED_S = 60
AT = "@"


class Case(NamedTuple):
    """What was said of one fault."""

    fault: str
    seen: bool
    """Whether a page named it, alone or among others."""
    wrong: tuple[str, ...]
    pages: tuple[str, ...]
    """False ones."""
    words: str


class Odd(Probed):
    """See above."""

    def __init__(self, control: Control, kind: str, seed: int) -> None:
        draw = self.draw = random.Random(f"odd {kind} {seed}")
        leaves, spines = draw.randint(2, 4), draw.randint(3 if kind == "two silent" else 2, 4)
        super().__init__(control, seed, leaves, spines=spines, hosts=draw.randint(4, 8))
        self.per_s = draw.randint(1, 10) if kind == "limited" else 0
        self.addresses: dict[str, int] = {}
        self.anew_s = draw.randint(10, 60) if kind == "rehashed" else 0
        self._tokens: dict[str, tuple[float, int]] = {}
        switches = [*self.spines, *sorted({*self.leaf.values()})]
        if kind == "addresses":
            some = draw.choice([self.spines, switches])
            self.addresses = dict.fromkeys(some, draw.randint(2, 4))
        if kind == "two silent":
            self.silent = {*draw.sample(self.spines, 2)}
        if planned := draw.random() < 0.5:
            devices = [
                Device(name=n, addresses=(n, *(f"{n}{AT}{k}" for k in range(4)))) for n in switches
            ]
            cables = [Cable(a=a, b=b) for a in sorted({*self.leaf.values()}) for b in self.spines]
            self.book = PathBook(make_topology(devices, cables))
            self.service = FabricChangeService(self.book, None)
            self.watch = FaultLocator(self.book)
        odd = f"{self.per_s}/s" if self.per_s else f"{self.addresses or self.anew_s or ''}"
        self.shape += f", {odd}" + (", planned" if planned else "")

    def answer(self, ask: HopQuery) -> str:
        device = super().answer(ask)
        if not device:
            return ""
        if self.per_s:
            tokens, at_ns = self._tokens.get(device, (float(self.per_s), self.now_ns))
            tokens = min(self.per_s, tokens + (self.now_ns - at_ns) * self.per_s / S)
            self._tokens[device] = max(tokens - 1, 0.0) if tokens >= 1 else tokens, self.now_ns
            if tokens < 1:
                return ""
        several = self.addresses.get(device)
        return f"{device}{AT}{self.draw.randrange(several)}" if several else device

    def pass_s(self, seconds: int) -> Counter[str]:
        """Let so many pass; names of confidence 0.5 and more, with their seconds."""
        said: Counter[str] = Counter()
        for _ in range(seconds):
            if self.anew_s and self.second % self.anew_s == 0:
                self.salt += 1
            self.run(1)
            said.update(
                OR.join(suspected(each))
                for each in self.findings
                if each.confidence >= 0.5 and each.kind != ComponentKind.REPLIES
            )
        return said


def case(control: Control, kind: str, seed: int) -> Case:
    """One of `KINDS`."""
    fabric = Odd(control, kind, seed)
    draw = fabric.draw
    fault = "spine dies" if kind == "two silent" else draw.choice(FAULTS)
    said = fabric.pass_s(draw.randint(60, 130))
    spine, leaf = draw.choice(fabric.spines), draw.choice(sorted({*fabric.leaf.values()}))
    parts, words = {spine}, fault
    if fault == "spine dies":
        parts = {*fabric.silent} or parts
        fabric.black = {*parts}
        said += fabric.pass_s(draw.randint(0, 2))
        fabric.black, fabric.dead = set(), {*parts}
    elif fault:
        up, down = f"{leaf}->{spine}", f"{spine}->{leaf}"
        parts, links = {f"{leaf}--{spine}"}, draw.choice([[up], [down], [up, down]])
        if fault == "loss":
            fabric.losses = dict.fromkeys(links, draw.choice([1.0, 0.3, 0.1]))
        else:
            fabric.jams = {link: Jam(draw.uniform(1e5, 5e6), 0.0, ()) for link in links}
        words = f"{fault} {links} {[*fabric.losses.values()][:1]}"
    said += fabric.pass_s(WATCHED_S)
    parts = parts if fault else set()
    right = [page for page in control.pages() if _is_about(page.partition(" ")[2], parts)]
    false = [page for page in control.pages() if page not in right] + right[len(parts) :]
    false = [page for page in false if page.partition(" ")[0] not in HOSTS]
    wrong = [f"{name} {s} s" for name, s in said.items() if s > 1 and not _is_about(name, parts)]
    return Case(fault, bool(right), (*wrong,), (*false,), f"{fabric.shape}; {words}")


def _is_about(subject: str, parts: set[str]) -> bool:
    names = [_named(name) for name in subject.split(OR)]
    return any(
        name.startswith(SILENT_AT) or GROUP in name or touches(name, part)
        for name in names
        for part in parts
    )


def _named(name: str) -> str:
    """Without which of its addresses a switch answered with."""
    for dash in ("->", "--", GROUP):
        if dash in name:
            return dash.join(end.partition(AT)[0] for end in name.split(dash))
    return name.partition(AT)[0]


def main() -> int:
    _, cases = of_one_kind(__doc__, KINDS, case, lambda got: (
        f"{got.fault or 'nothing'}: {'seen' if got.seen else 'not seen'} {got.wrong} {got.pages} "
        f"({got.words})"
    ))  # fmt: skip
    for fault in FAULTS:
        some = [each for each in cases if each.fault == fault]
        print(f"{fault or 'nothing'}: {len(some)} cases, seen {sum(e.seen for e in some)}, with "
              f"wrong names {sum(bool(e.wrong) for e in some)}, with false pages "
              f"{sum(bool(e.pages) for e in some)}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
