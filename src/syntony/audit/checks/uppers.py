"""4.6 Switches above the leaves: none absent from all of the switches below it."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from syntony.audit.cabling import Cabling, SwitchPlane, name_columns, pattern, port_gap
from syntony.audit.fabric_check import FABRIC, FabricCheck
from syntony.audit.majority import Votes, own_vote
from syntony.audit.result import Result, Status, Suspect
from syntony.model.names import natural, some

_LISTED = 4


class UpperSwitches(FabricCheck):
    """No switch above the leaves is absent, and no hosts are cut off from the others.

    Expected results: all hosts joined through switches; in every plane as many upper switches as in
    more than half of the planes of that size; no gap in the uplink ports that more than half of a
    plane's switches share, as wide as the links to one upper switch, unless the upper switches are
    numbered without a gap. A gap in the numbers alone is unknown. A first or last switch that is
    absent from the only plane leaves no gap: give an expected file. Skipped where the source shows
    no cable between switches.
    """

    id = "be.topo.switches"
    meaning = "a spine or core is down, unmanaged or not cabled: every leaf lost the same bandwidth"
    remedy = "look for the switch: power, then the subnet manager's view of it, then its cables"
    suspect = Suspect.SWITCH

    def test(self, fabric: Cabling) -> Iterator[Result]:
        if len(fabric.tiers) < 2 and not fabric.says:
            yield self.skip("the source reports no switch above the leaves")
            return
        yield from self._parts(fabric)
        for tier in range(len(fabric.tiers) - 1):
            planes = fabric.planes(tier)
            short = {plane.lowers: found for plane, found in self._short(planes)}
            yield from short.values()
            for plane in planes:
                if plane.lowers not in short:
                    yield from self._gap(plane)

    def _parts(self, fabric: Cabling) -> Iterator[Result]:
        """Hosts that no cable joins to most of the others."""
        part = _parts(fabric)
        of_host = {host: {part[nic.leaf] for nic in mine} for host, mine in fabric.by_host.items()}
        sizes = Counter(number for parts in of_host.values() for number in parts)
        if not sizes:
            return
        (main, count), *_ = sizes.most_common()
        outside = {host: min(parts) for host, parts in of_host.items() if main not in parts}
        if outside and 2 * count <= len(of_host):
            named = "; ".join(some(hosts, _LISTED) for hosts in _by_part(outside, of_host, main))
            yield self.result(
                Status.FAIL, FABRIC, f"{len(set(outside.values())) + 1} separate parts", "one part",
                f"no cable joins {named}", suspect=Suspect.FABRIC,
            )  # fmt: skip
            return
        for hosts in _by_part(outside, {}, main):
            leaves = sorted({nic.leaf for host in hosts for nic in fabric.by_host[host]})
            yield self.result(
                Status.FAIL, pattern(leaves), f"{len(hosts)} hosts cut off from {count} others",
                "all hosts joined", f"no cable leads from the leaves of {some(hosts, _LISTED)} to "
                "the rest",
            )  # fmt: skip

    def _short(self, planes: Sequence[SwitchPlane]) -> Iterator[tuple[SwitchPlane, Result]]:
        """Planes with fewer upper switches, and fewer uplinks, than their equals."""
        for size in sorted({len(plane.lowers) for plane in planes}):
            equals = [plane for plane in planes if len(plane.lowers) == size]
            votes = Votes[tuple[int, int]]("planes")
            for plane in equals:
                votes.add(pattern(plane.lowers), _width(plane))
            decision = votes.decide()
            if decision.value is None:
                if decision.disputed:
                    least = min(equals, key=_width)
                    yield (
                        least,
                        self.unknown(
                            f"upper switches and uplinks of each switch: {decision.why}",
                            pattern(least.lowers),
                        ),
                    )
                continue
            uppers, uplinks = decision.value
            whole = next(plane for plane in equals if _width(plane) == decision.value)
            for plane in equals:
                have, links = _width(plane)
                if have < uppers and links < uplinks:
                    missing = _unlike(plane.uppers, whole.uppers)
                    yield plane, self._absent(
                        missing if len(missing) == uppers - have else (),
                        f"{have} upper switches, {links} uplinks of each switch",
                        f"{uppers} and {uplinks}, as {decision.why}", plane,
                    )  # fmt: skip

    def _gap(self, plane: SwitchPlane) -> Iterator[Result]:
        """An upper switch that all of a plane lack: by the ports it left dark, by its number."""
        ports, names = port_gap(plane), _number_gap(plane.uppers)
        both = 0 < ports.perhaps == len(names.missing)
        if both or (ports.absent and not (names.reported and not names.missing)):
            yield self._absent(
                names.missing if len(names.missing) == ports.perhaps else (),
                f"port {ports.dark} dark on {ports.why}", "linked to an upper switch", plane,
            )  # fmt: skip
        elif names.missing and names.reported and not ports.reported:
            yield self.unknown(
                f"between {plane.uppers[0]} and {plane.uppers[-1]}: it is absent, or there never "
                "was one",
                ", ".join(names.missing),
            )

    def _absent(self, names: Sequence[str], got: str, expected: str, plane: SwitchPlane) -> Result:
        return self.result(
            Status.FAIL, ", ".join(names) or f"above {pattern(plane.lowers)}", got, expected,
            f"present: {', '.join(plane.uppers)}; below: {some(plane.lowers, _LISTED)}",
        )  # fmt: skip


def _parts(fabric: Cabling) -> dict[str, int]:
    """Switch to the number of the part that it is joined to, over switches only."""
    switches = {device.name for device in fabric.topology.devices} - fabric.nics
    part: dict[str, int] = {}
    for number, start in enumerate(sorted(switches)):
        todo = [start] if start not in part else []
        while todo:
            here = todo.pop()
            if here in part:
                continue
            part[here] = number
            todo += [n for n in fabric.topology.neighbours.get(here, ()) if n in switches]
    return part


def _by_part(
    outside: dict[str, int], everybody: dict[str, set[int]], main: int
) -> list[list[str]]:  # fmt: skip
    found: defaultdict[int, list[str]] = defaultdict(list)
    for host, parts in everybody.items():
        if main in parts:
            found[main].append(host)
    for host, number in outside.items():
        found[number].append(host)
    return [sorted(hosts, key=natural) for _, hosts in sorted(found.items())]


def _width(plane: SwitchPlane) -> tuple[int, int]:
    """Upper switches, and the uplinks that more than half of the switches have, else the most."""
    uplinks = [plane.uplinks(lower) for lower in plane.lowers]
    return len(plane.uppers), own_vote(uplinks) or max(uplinks)


class _NumberGap(NamedTuple):
    missing: tuple[str, ...]
    """Unused names between the first and the last number."""
    reported: bool
    """Whether most numbers are consecutive, so that a gap is meaningful."""


def _number_gap(names: Sequence[str]) -> _NumberGap:
    found = _numbered(names)
    if found is None:
        return _NumberGap((), False)
    numbers = sorted(found.numbers)
    steps = [b - a for a, b in itertools.pairwise(numbers)]
    reported = own_vote(steps) == 1 or steps == [2]
    gone = sorted(set(range(numbers[0], numbers[-1])) - set(numbers))
    return _NumberGap(tuple(map(found.name, gone)), reported)


def _unlike(names: Sequence[str], whole: Sequence[str]) -> tuple[str, ...]:
    """What names would be there if they were numbered like others."""
    mine, others = _numbered(names), _numbered(whole)
    if mine is None or others is None:
        return ()
    return tuple(map(mine.name, sorted(others.numbers - mine.numbers)))


class _Numbered(NamedTuple):
    """Names that differ in one number."""

    words: tuple[str, ...]
    at: int
    width: int
    numbers: frozenset[int]

    def name(self, number: int) -> str:
        return "".join([*self.words[: self.at], f"{number:0{self.width}}",
                        *self.words[self.at + 1 :]])  # fmt: skip


def _numbered(names: Sequence[str]) -> _Numbered | None:
    columns = name_columns(names)
    if columns is None:
        return None
    varying = [at for at, words in enumerate(columns) if len(set(words)) > 1]
    if len(varying) != 1 or varying[0] % 2 == 0:
        return None
    (at,) = varying
    padded = any(word.startswith("0") and len(word) > 1 for word in columns[at])
    width = min(map(len, columns[at])) if padded else 0
    words = tuple(column[0] for column in columns)
    return _Numbered(words, at, width, frozenset(map(int, columns[at])))
