"""1.1 Software: the host's clock compared with true time."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from syntony.audit.check import HostCheck, Section
from syntony.audit.facts import AbsentError, FactError, Facts, UnreadableError
from syntony.audit.parse.clocks import WallClockError, parse_chrony, parse_ntpq, parse_timesyncd
from syntony.audit.parse.text import fields, json_of
from syntony.audit.result import ComparedValue, Result, Status, Suspect
from syntony.model import MS, format_ns

_FLEET_TIME = ("syntony", "clock", "now", "--json")
_PAGE = "/run/syntony/clock"
_SERVICES = (
    (("chronyc", "-n", "-c", "tracking"), parse_chrony),
    (("ntpq", "-c", "rv"), parse_ntpq),
    (("timedatectl", "timesync-status"), parse_timesyncd),
)
_SYSTEMD = ("timedatectl", "show")


class Time(HostCheck):
    """The host's clock is near the true time.

    Expected results: the bound of Syntony's served fleet time below `fleet_ns` where an agent runs;
    chrony, ntpd or systemd-timesyncd synchronised and its offset below `wall_ns` (1 ms), a warning
    where its own error bound leaves that open. Without any of them the kernel's flag counts that
    the clock is disciplined (timedatectl); unknown without any source.
    """

    id = "sw.time"
    section = Section.SOFTWARE
    reads = (f"$ {' '.join(_FLEET_TIME)}", _PAGE,
             *(f"$ {' '.join(command)}" for command, _ in _SERVICES),
             f"$ {' '.join(_SYSTEMD)}")  # fmt: skip
    meaning = "logs of hosts cannot be put in order; NCCL's time-outs and certificates misfire"
    remedy = "repair NTP or PTP (chronyc sources, ntpq -p); see `syntony clock status`"
    suspect = Suspect.CONFIG

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        wall_ns: int = 1 * MS
        fleet_ns: int = 1 * MS

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        reported = [*self._fleet(host), *self._wall(host)]
        if not reported:
            yield self.unknown(
                host, "neither a Syntony agent nor chrony, ntpd or timesyncd reports a state"
            )
        yield from reported

    def _fleet(self, host: Facts) -> Iterator[Result]:
        at = "fleet time"
        try:
            page = json_of(host.run(*_FLEET_TIME), "`syntony clock now`")
        except FactError as error:
            if host.exists(_PAGE):
                yield self.unknown(host, str(error), at)
            return
        bound = page.get("bound_ns") if isinstance(page, dict) else None
        if not isinstance(bound, int | float) or isinstance(bound, bool):
            yield self.unknown(host, "the agent serves a time without a bound", at)
            return
        limit = self.limits.fleet_ns
        yield self.verdict(
            bound < limit, host, format_ns(bound), f"< {format_ns(limit)}",
            "syntony clock now", at=at,
        )  # fmt: skip

    def _wall(self, host: Facts) -> Iterator[Result]:
        """The first service that answers; of several installed only one runs."""
        reasons = []
        for command, parse in _SERVICES:
            try:
                wall = parse(host.run(*command))
            except AbsentError:
                continue
            except UnreadableError as error:
                reasons.append(str(error))
                continue
            yield self._judged(host, wall, " ".join(command))
            return
        yield from self._kernel(host, reasons)

    def _judged(self, host: Facts, wall: WallClockError, evidence: str) -> Result:
        limit, offset, bound = self.limits.wall_ns, abs(wall.offset_ns), wall.bound_ns
        got = f"{format_ns(round(wall.offset_ns))} ± {format_ns(round(bound))}"
        far = not wall.synchronised or offset >= limit
        return self.verdict(
            wall.synchronised and offset + bound < limit, host,
            got if wall.synchronised else "not synchronised", f"within {format_ns(limit)}",
            f"{evidence}: offset ± (delay / 2 + dispersion)", at="wall time",
            bad=Status.FAIL if far else Status.WARN,
        )  # fmt: skip

    def _kernel(self, host: Facts, reasons: list[str]) -> Iterator[Result]:
        try:
            reported = fields(host.run(*_SYSTEMD), "=").get("NTPSynchronized", "")
        except FactError as error:
            reasons.append(str(error))
            reported = ""
        if reported == "no":
            yield self.verdict(False, host, "not synchronised", "synchronised",
                               "timedatectl: NTPSynchronized", at="wall time")  # fmt: skip
        elif reported == "yes":
            yield self.verdict(True, host, "synchronised, error unknown", "synchronised",
                               "timedatectl: NTPSynchronized", at="wall time")  # fmt: skip
        elif any("not recorded" not in reason and "not installed" not in reason
                 for reason in reasons):  # fmt: skip
            yield self.unknown(host, reasons[0], "wall time")
