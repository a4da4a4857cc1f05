"""Reports of hosts as they come in, and the verdicts on all of them together. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from syntony.audit.check import Section
from syntony.audit.judge import Golden, Judge, Majority
from syntony.audit.registry import every_check
from syntony.audit.report.ports import port_of
from syntony.audit.result import WRONG, HostReport, Result, Status
from syntony.audit.spec import Spec
from syntony.model.names import host_of

_NO_PACKET = frozenset({Section.CONNECTIVITY, Section.LATENCY})
_NO_LINK = _NO_PACKET | {Section.ACTIVE, Section.GID}
CAUSES = {"be.init.phys": _NO_LINK, "be.act.state": _NO_LINK, "be.conn.rail": _NO_PACKET}
"""Of one port, the first that fails explains failures of these sections: no light, then no link,
then no packet."""
_LINKS = frozenset({"be.topo.attached"})
"""Checks of other sections that a port without a link explains."""
_OWN = frozenset({"be.act.flap", "be.act.counters", "be.act.ber", "be.act.qos"})
"""Checks of counters and configuration have other causes."""
_Port = tuple[str, str]


class Consequences:
    """Which verdicts follow from which."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._sections = {check.id: check.section for check in every_check()}
        bad: list[Result] = []
        ports: dict[_Port, _Port] = {}
        for result in results:
            self._learn(result, ports)
            if result.status in WRONG and "/" in result.subject:
                bad.append(result)
        groups: defaultdict[_Port, list[Result]] = defaultdict(list)
        for result in bad:
            place = _place(result)
            groups[ports.get(place, place)].append(result)
        self._others: dict[Result, list[Result]] = {}
        self._cause: dict[Result, Result] = {}
        for group in groups.values():
            self._explain(group)

    @staticmethod
    def _learn(result: Result, ports: dict[_Port, _Port]) -> None:
        """The names that a port goes by: ``rail0`` and ``mlx5_0`` for ``mlx5_0:1``."""
        port = port_of(result)
        if port is not None:
            ports[_place(result)] = port
            ports.setdefault((port[0], port[1].partition(":")[0]), port)

    def _explain(self, group: list[Result]) -> None:
        cause = next((each for id_ in CAUSES for each in group
                      if each.check == id_ and each.status is Status.FAIL), None)  # fmt: skip
        if cause is None:
            return
        others = [each for each in group if each != cause and self._follows(each, cause)]
        self._others[cause] = others
        self._cause.update(dict.fromkeys(others, cause))

    def _follows(self, result: Result, cause: Result) -> bool:
        explained = CAUSES[cause.check]
        if result.check in _LINKS:
            return explained is _NO_LINK
        return self._sections.get(result.check) in explained and result.check not in _OWN

    def reported(self, result: Result) -> Result:
        """A cause with its consequences; a consequence as skipped, with its cause."""
        cause = self._cause.get(result)
        if cause is not None:
            named = f"{cause.check} {cause.subject}"
            said = f"follows from {named}: {cause.got}; {result.evidence}"
            return msgspec.structs.replace(
                result, status=Status.SKIP, evidence=said, follows=named, meaning="", remedy="",
            )  # fmt: skip
        others = self._others.get(result)
        if not others:
            return result
        listed = ", ".join(f"{each.check} ({each.got or each.status})" for each in others)
        return msgspec.structs.replace(result, evidence=f"{result.evidence}; hence also {listed}")


def _place(result: Result) -> _Port:
    host, _, at = result.subject.partition("/")
    return host, at


_MAX_REASON = 300


def unreachable(host: str, why: str, now_ns: int) -> HostReport:
    """A report of a host that could not be reached."""
    reason = " ".join(why.split())[:_MAX_REASON] or "?"
    return HostReport(host=host, taken_ns=now_ns, unreachable=reason)


def host_report(host: str, data: bytes, refused: str, now_ns: int) -> HostReport:
    """Decode an agent's answer; a host whose answer is unusable is unreachable, with the reason.

    Args:
        host: the name in the agent's certificate: it speaks for no other host.
        data: JSON of a `HostReport`.
        refused: why there is none.
    """
    if refused:
        return unreachable(host, f"its agent refused: {refused}", now_ns)
    try:
        report = msgspec.json.decode(data, type=HostReport)
    except msgspec.DecodeError as error:
        return unreachable(host, f"its agent sent no report: {error}", now_ns)
    subjects = [each.subject for each in report.results]
    subjects += [each.subject for each in report.readings]
    foreign = any(host_of(subject) != host for subject in subjects)
    if foreign or report.host != host:
        return unreachable(host, "its agent reported on another host", now_ns)
    return report


def verdicts(
    reports: Iterable[HostReport], spec: Spec, golden: Golden | None = None
) -> Iterator[Result]:
    """Verdicts on all reports, in three passes: count votes, find consequences, judge.

    Args:
        reports: can be gone through several times.
    """
    majority = Majority(spec)
    for report in reports:
        majority.count(report)
    judge = Judge(spec, golden, majority)
    consequences = Consequences(result for report in reports for result in judge.verdicts(report))
    for report in reports:
        yield from map(consequences.reported, judge.verdicts(report))
