"""3 Front-end network: whether hosts have the same time, as the fleet's own clocks see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from syntony.audit.check import HostCheck, Section
from syntony.audit.checks.frontend import records
from syntony.audit.facts import FactError, Facts
from syntony.audit.parse.text import json_of
from syntony.audit.result import ComparedValue, Result, Status, Suspect
from syntony.model import MS, format_ns

CLOCKS = ("syntony", "audit", "clocks", "--json")
_PAGE = "/run/syntony/clock.json"


class PeerTime(HostCheck):
    """The host's clock agrees with its peers' clocks, and how far that is known is enough.

    Expected results: for every host that this one exchanges probes with, the bound on how far the
    two clocks are apart below `bound_ns`, and the offset itself below `offset_ns`: no time service
    says so, the probes do. An offset that the bound makes doubtful is a warning. Skipped where no
    agent runs; offsets are skipped in a lab, whose clocks are wrong on purpose.
    """

    id = "fe.time"
    section = Section.FRONTEND
    reads = ("$ syntony audit clocks --json", _PAGE)
    meaning = "two hosts' logs and one-way delays cannot be compared; time-outs fire too early"
    remedy = (
        "see `syntony clock status` for why; compare the time servers of the two (chronyc sources)"
    )
    suspect = Suspect.CONFIG

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        bound_ns: int = 1 * MS
        offset_ns: int = 1 * MS

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        try:
            reported = json_of(host.run(*CLOCKS), "`syntony audit clocks`")
        except FactError as error:
            if host.exists(_PAGE) or "was not recorded" in str(error):
                yield self.unknown(host, str(error))
            else:
                yield self.skip(host, "no agent of Syntony runs here")
            return
        peers = records(reported.get("peers")) if isinstance(reported, dict) else []
        if not peers:
            yield self.unknown(host, "the agent knows no peer's clock")
        synthetic = isinstance(reported, dict) and reported.get("synthetic") is True
        for peer in peers:
            yield from self._peer(host, peer, synthetic=synthetic)
        if peers and synthetic:
            yield self.skip(host, "a lab's clocks are wrong on purpose", "offsets")

    def _peer(self, host: Facts, peer: dict[str, Any], *, synthetic: bool) -> Iterator[Result]:
        name = str(peer.get("peer", "?"))[:80]
        bound, offset = _number(peer.get("bound_ns")), _number(peer.get("offset_ns"))
        if bound is None or offset is None:
            why = str(peer.get("why") or "nothing is known of its clock")
            yield self.unknown(host, why[:160], name)
            return
        limit = self.limits.bound_ns
        yield self.verdict(
            bound < limit, host, f"± {format_ns(round(bound))}", f"bound < {format_ns(limit)}",
            " ".join(CLOCKS), at=name,
        )  # fmt: skip
        if synthetic:
            return
        most = self.limits.offset_ns
        surely = abs(offset) - bound >= most
        yield self.verdict(
            abs(offset) + bound < most, host,
            f"{format_ns(round(offset))} ± {format_ns(round(bound))}", f"within {format_ns(most)}",
            "this host's clock and the peer's, by the fleet's probes", at=name,
            bad=Status.FAIL if surely else Status.WARN,
        )  # fmt: skip


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18
    return float(value) if good else None
