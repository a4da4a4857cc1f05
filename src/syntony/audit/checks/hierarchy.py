"""4.6 What the fabric looks like as a whole: its tiers and groups, its names, the expected file."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from syntony.audit.cabling import Attachment, Cabling, ends, misplaced_pairs
from syntony.audit.fabric_check import FABRIC, FabricCheck
from syntony.audit.result import Result, Status, Suspect
from syntony.fabric.names import cable_name
from syntony.model.names import some

_LISTED = 100
_HOSTS = 4
"""Maximum number of host names in an evidence; the others are counted."""
_DEFAULTS = {"localhost", "localhost.localdomain", "ubuntu", "debian", "linux", "(none)", "rocky"}
"""Host names that an image has before it is given one."""
_NAMELESS = re.compile(r"MT\d{4,5}|Mellanox Technologies|ConnectX|^$", re.IGNORECASE)
"""An HCA's default name, until the driver or the subnet manager sets the host's name."""


class ExpectedCabling(FabricCheck):
    """The cabling is the expected file's.

    Expected results: the same devices, and every cable between the same ports; skipped without a
    file. Ports that the file does not tell are not compared.
    """

    id = "be.topo.links"
    meaning = "the fabric is not cabled as planned"
    remedy = "cable it as the plan says, or correct the plan"

    def test(self, fabric: Cabling) -> Iterator[Result]:
        if self.expected is None:
            yield self.skip("no expected file")
            return
        yield from self._nics(fabric, self.expected)
        yield from self._switches(fabric, self.expected)

    def _nics(self, fabric: Cabling, expected: Cabling) -> Iterator[Result]:
        want, have = _places(expected), _places(fabric)
        wrong = []
        for name in sorted(want.keys() | have.keys()):
            planned, found = want.get(name), have.get(name)
            if found is None:
                yield self.result(Status.FAIL, name, "absent", _place(planned))
            elif planned is None:
                yield self.result(Status.WARN, name, _place(found), "absent")
            elif found.leaf != planned.leaf or not _same(found.port, planned.port):
                wrong.append(_Moved(name, planned, found))
        for pair in misplaced_pairs(wrong, _exchanged):
            names = " and ".join(one.name for one in pair)
            kind = "wrong port" if pair[0].found.leaf == pair[0].planned.leaf else "wrong leaf"
            yield self.result(
                Status.FAIL, " <-> ".join(one.name for one in pair),
                ", ".join(_place(one.found) for one in pair),
                ", ".join(_place(one.planned) for one in pair),
                "swapped: each is in the other's place" if len(pair) == 2 else kind,
                remedy=f"swap the cables of {names}" if len(pair) == 2
                else f"move the cable of {names} to {_place(pair[0].planned)}",
            )  # fmt: skip

    def _switches(self, fabric: Cabling, expected: Cabling) -> Iterator[Result]:
        want, have = _trunks(expected), _trunks(fabric)
        for pair in sorted(want.keys() | have.keys()):
            planned, found = want.get(pair, Counter()), have.get(pair, Counter())
            if not all(port for ports in (planned + found) for port in ports):
                planned, found = (Counter({("", ""): c.total()}) for c in (planned, found))
            missing, extra = planned - found, found - planned
            if missing or extra:
                yield self.result(
                    Status.FAIL if missing else Status.WARN, cable_name(*pair),
                    f"{found.total()} links", f"{planned.total()} links",
                    "; ".join(
                        filter(None, (_reported("missing", missing), _reported("extra", extra)))
                    ),
                )  # fmt: skip


class Hierarchy(FabricCheck):
    """Hosts form groups under leaves, leaves share spines.

    Expected results: with an expected file, hosts grouped as there. The groups found are always
    reported. (A NIC outside its host's group is reported by be.topo.rail.)
    """

    id = "be.topo.hier"
    meaning = "a scheduler that places by this hierarchy places wrongly"
    remedy = "correct the cabling, or the scheduler's settings (topology.conf, node labels)"
    suspect = Suspect.CONFIG

    def test(self, fabric: Cabling) -> Iterator[Result]:
        if not fabric.by_host:
            yield self.unknown("no NIC says which host's it is")
            return
        bad = False
        for result in self._compare(fabric):
            bad = True
            yield result
        if not bad:
            groups = "; ".join(
                f"{g.name}: {len(g.leaves)} leaves, {len(g.hosts)} hosts" for g in fabric.groups
            )
            tiers = " + ".join(str(len(tier)) for tier in fabric.tiers)
            got = f"{len(fabric.groups)} groups, {tiers} switches"
            yield self.result(Status.PASS, FABRIC, got, evidence=groups)

    def _compare(self, fabric: Cabling) -> Iterator[Result]:
        if self.expected is None:
            return
        want, have = (_together(cabling) for cabling in (self.expected, fabric))
        for host in sorted(want.keys() & have.keys()):
            known = {other for other in want[host] ^ have[host] if other in want and other in have}
            if len(known) > len(want[host]) / 2:
                yield self.result(
                    Status.FAIL, host, f"with {_some(have[host])}", f"with {_some(want[host])}",
                    "its neighbours under the leaves are not those of the expected file",
                )  # fmt: skip


class HcaNames(FabricCheck):
    """Every HCA says which host's it is, and no two say the same.

    Expected results: descriptions unique, and none of a driver's or an image's defaults.
    """

    id = "be.topo.names"
    meaning = "the fabric does not show which host this cable belongs to"
    remedy = "set the host name, then restart the node description service (rdma-ndd) or openibd"
    suspect = Suspect.CONFIG

    def test(self, fabric: Cabling) -> Iterator[Result]:
        if not fabric.says:
            yield self.skip("the source reports no node descriptions")
            return
        places = {nic.nic: nic for nic in fabric.attachments}
        by_text: dict[str, list[str]] = defaultdict(list)
        for name in places:
            by_text[fabric.says.get(name, "")].append(name)
        defaults: dict[str, list[str]] = defaultdict(list)
        for text, names in sorted(by_text.items()):
            host = text.split(" ")[0]
            if _NAMELESS.search(text):
                yield self._bad(text or "(nothing)", names, places, "says no host")
            elif host.lower() in _DEFAULTS:
                defaults[host] += names
            elif len(names) > 1:
                yield self._bad(text, names, places, "is said by several")
        for host, names in sorted(defaults.items()):
            yield self._bad(host, names, places, "is the name of an image, not of a host")

    def _bad(
        self, text: str, names: list[str], places: Mapping[str, Attachment], why: str
    ) -> Result:  # fmt: skip
        where = [f"{n} at {places[n].leaf} port {places[n].port}" for n in sorted(names)]
        return self.result(
            Status.WARN, text, f"{len(names)} NICs", "a description of its own for each",
            f"{text!r} {why}: {some(where, _LISTED)}",
        )  # fmt: skip


class CablingSource(FabricCheck):
    """The source of the cabling is complete and does not contradict itself.

    Expected results: every line and every host's answer understood; each address and each chassis
    id said by one switch, each switch port by one NIC. What contradicts itself is left out; the
    rest is judged.
    """

    id = "be.topo.source"
    meaning = "two switches answer for each other, or a part of the fabric was not looked at"
    remedy = "correct the switch's configuration; read the skipped lines, or collect again"
    suspect = Suspect.CONFIG

    def test(self, fabric: Cabling) -> Iterator[Result]:
        for doubt in fabric.doubts:
            if doubt.certain:
                yield self.result(Status.FAIL, doubt.subject, doubt.what, "one switch")
            else:
                yield self.unknown(doubt.what, doubt.subject)


class _Moved(NamedTuple):
    name: str
    planned: Attachment
    found: Attachment


def _exchanged(one: _Moved, other: _Moved) -> bool:
    return (
        (one.found.leaf, one.found.port) == (other.planned.leaf, other.planned.port)
        and (other.found.leaf, other.found.port) == (one.planned.leaf, one.planned.port)
    )  # fmt: skip


def _places(fabric: Cabling) -> dict[str, Attachment]:
    """By host and label: the same whatever the source calls the NIC."""
    return {f"{a.host}/{a.label}" if a.host else a.nic: a for a in fabric.attachments}


def _place(attachment: Attachment | None) -> str:
    if attachment is None:
        return "absent"
    return attachment.leaf + (f" port {attachment.port}" if attachment.port else "")


def _same(one: str, other: str) -> bool:
    return not one or not other or one == other


def _trunks(fabric: Cabling) -> dict[tuple[str, str], Counter[tuple[str, str]]]:
    """Cables between switches: the two, sorted, to how often which ports are joined."""
    switches = {name for tier in fabric.tiers for name in tier}
    found: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
    for cable in fabric.topology.cables:
        a, b = sorted(ends(cable))
        if a.device in switches and b.device in switches:
            found[a.device, b.device][a.port, b.port] += 1
    return found


def _reported(word: str, ports: Counter[tuple[str, str]]) -> str:
    if not ports:
        return ""
    listed = ", ".join(f"port {a} to port {b}" for a, b in sorted(ports) if a or b)
    return f"{ports.total()} {word}" + (f": {listed}" if listed else "")


def _together(fabric: Cabling) -> dict[str, frozenset[str]]:
    """Host to the others of its group."""
    return {
        host: frozenset(group.hosts) - {host} for group in fabric.groups for host in group.hosts
    }  # fmt: skip


def _some(hosts: frozenset[str]) -> str:
    return some(sorted(hosts), _HOSTS) or "nobody"
