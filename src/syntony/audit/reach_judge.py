"""Judges a connectivity survey. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from syntony.audit.check import Check
from syntony.audit.checks.network import (
    AllPaths,
    CrossRails,
    DelayFit,
    HopRails,
    LoadedDelay,
    OneWayDelay,
    PairLatency,
    PathMtu,
    RailConnectivity,
)
from syntony.audit.checks.rails import RailCabling
from syntony.audit.reach import (
    Culprit,
    DirectionResult,
    Survey,
    bad_nics,
    culprits,
    hop_cabling,
    tested_mtu,
    usual_mtu,
)
from syntony.audit.reach_latency import (
    DirectionDelay,
    Pair,
    fitted,
    loaded,
    one_way,
    pair_latency,
)
from syntony.audit.result import FLEET, Result, Status, Suspect
from syntony.fabric.graph import Topology
from syntony.fabric.names import cable_name
from syntony.model.names import some

_LISTED = 6
PORT_WORD = "port "
"""Before the RDMA port of a NIC, at the beginning of what was seen: the table of ports finds it."""


def judge(
    survey: Survey, topology: Topology | None = None,
    delays: Mapping[Pair, DirectionDelay] | None = None, limits: Mapping[str, Struct] | None = None,
) -> tuple[Result, ...]:  # fmt: skip
    """Every network check's verdict.

    Args:
        survey: what was seen.
        topology: for names of hops and for how many hops there should be; None: not known.
        delays: from the controller's probe rows; None: there is none.
        limits: check to its limits, where a spec sets any.
    """
    rails = [each for each in survey.seen if each.same_rail and each.sent]
    cross = CrossRails((limits or {}).get(CrossRails.id))
    if not rails:
        why = _nothing(survey)
        kinds = (RailConnectivity, AllPaths, PathMtu, CrossRails, HopRails, PairLatency,
                 OneWayDelay, LoadedDelay, DelayFit)  # fmt: skip
        return (*_silent(survey), *(_unknown(kind(), why) for kind in kinds))
    verdicts: tuple[tuple[Check, Iterable[Result]], ...] = (
        (RailConnectivity(), (*_silent(survey), *_rail(survey, rails))),
        (AllPaths(), _paths(survey, rails, topology)),
        (PathMtu(), _mtu(survey, rails)),
        (cross, _cross(cross, survey, rails)),
        (HopRails(), _hops(survey)),
        (PairLatency(), pair_latency(survey)),
        (OneWayDelay(), one_way(survey, delays)),
        (LoadedDelay(), loaded(survey)),
        (DelayFit(), fitted(survey, topology, delays)),
    )
    said = _describe(survey, rails)
    found: list[Result] = []
    for check, results in verdicts:
        reported = list(results)
        found += reported or [check.result(Status.PASS, FLEET, evidence=said)]
    return tuple(found)


def _describe(survey: Survey, rails: Sequence[DirectionResult]) -> str:
    flows = sum(each.sent for each in rails)
    how = f"{survey.rounds} rounds of pairs" + (" drawn of all" if survey.sampled else "")
    return f"{len(survey.nics)} NICs, {len(rails)} directions, {flows} flows in {how}"


def _nothing(survey: Survey) -> str:
    if not survey.nics and survey.silent:
        return f"none of {len(survey.silent)} hosts could take part: nothing was measured"
    if not survey.nics:
        return "no host has such NICs with an IPv4 address: nothing was measured (see --nics)"
    return "no two hosts have NICs of one name: nothing was measured"


def _unknown(check: Check, why: str, subject: str = FLEET) -> Result:
    return check.result(Status.UNKNOWN, subject, evidence=why)


def _silent(survey: Survey) -> Iterator[Result]:
    for host, why in survey.silent.items():
        yield _unknown(RailConnectivity(), why, host)


def _rail(survey: Survey, rails: Sequence[DirectionResult]) -> Iterator[Result]:
    check = RailConnectivity()
    dead = [each.pair for each in rails if not each.answered]
    if len(dead) == len(rails):
        yield check.result(
            Status.FAIL, FLEET, "no NIC answers another", "all do", _describe(survey, rails),
            suspect=Suspect.CONFIG, meaning="one cause for all: a filter, or the wrong interfaces",
            remedy="let UDP port 29700 pass between these NICs, or name others with --nics",
        )  # fmt: skip
        return
    suspects = bad_nics(dead, [each.pair for each in rails])
    tested: Counter[str] = Counter(nic for each in rails for nic in each.pair)
    lost: dict[str, list[Pair]] = defaultdict(list)
    for pair in dead:
        for nic in pair:
            lost[nic].append(pair)
    port = {str(nic): f"{PORT_WORD}{nic.rdma}; " if nic.rdma else "" for nic in survey.nics}
    errors = {reported.src: reported.error for reported in rails if reported.error}
    for nic in suspects:
        why = f"; the host says: {errors[nic]}" if nic in errors else ""
        yield check.result(
            Status.FAIL, nic, f"{len(lost[nic])} of {tested[nic]} directions are dead", "none",
            f"{port[nic]}dead with {_some(o for pair in lost[nic] for o in pair if o != nic)}{why}",
        )  # fmt: skip
    named = set(suspects)
    for src, dst in dead:
        if src not in named and dst not in named:
            yield check.result(
                Status.FAIL, f"{src} -> {dst}", "dead on every source port", "alive",
                "both NICs reach others", suspect=Suspect.FABRIC,
                meaning="a route or a rule between these two is missing",
                remedy="compare routes and access lists on the way",
            )  # fmt: skip
    for each in survey.nics:
        name = str(each)
        if tested[name] and not lost[name]:
            text = f"{port[name]}{tested[name]} directions pass"
            yield check.result(Status.PASS, name, evidence=text)


def _cross(check: CrossRails, survey: Survey, rails: Sequence[DirectionResult]) -> Iterator[Result]:
    """NICs that are dead on their own rail, or lose flows there, are left out: that check names
    them, and a few flows can all hash to a dead member.
    """
    dead = [each.pair for each in rails if not each.answered]
    known = set(bad_nics(dead, [each.pair for each in rails]))
    partly = [each for each in rails if each.answered and (each.lost or each.lost_back)]
    known |= {nic for each in partly for nic in each.pair}
    reported = [
        each for each in survey.seen
        if not each.same_rail and each.sent and not known & {each.src, each.dst}
    ]  # fmt: skip
    if not reported:
        why = "no two NICs are of different rails, or all of them lose flows on their own"
        yield check.result(Status.SKIP, FLEET, evidence=why)
        return
    joined = [each.pair for each in reported if each.answered]
    wanted = check.wanted(len(joined), len(reported))
    said = f"{len(joined)} of {len(reported)} directions across rails pass"
    if wanted is None:
        yield _unknown(check, f'undecided: {said}; say so in the spec: rails = "joined"')
        return
    wrong = [each.pair for each in reported if each.answered is not wanted]
    if not wrong:
        text = said if wanted else f"{said}: rails are separate"
        yield check.result(Status.PASS, FLEET, evidence=text)
        return
    expected = "rails are joined" if wanted else "rails are separate"
    if len(wrong) == len(reported):
        got = "rails are separate" if wanted else "rails are joined"
        yield check.result(Status.FAIL, FLEET, got, expected, said, suspect=Suspect.FABRIC)
        return
    suspects = bad_nics(wrong, [each.pair for each in reported])
    for nic in suspects:
        mine = [pair for pair in wrong if nic in pair]
        got = f"{len(mine)} directions to other rails {'are dead' if wanted else 'pass'}"
        yield check.result(Status.FAIL, nic, got, expected, said)
    rest = [pair for pair in wrong if not set(pair) & set(suspects)]
    if rest:
        got = f"{len(rest)} directions {'are dead' if wanted else 'pass'}"
        text = f"{said}; {_some(f'{a} to {b}' for a, b in rest)}"
        yield check.result(Status.FAIL, FLEET, got, expected, text, suspect=Suspect.FABRIC)


def _paths(
    survey: Survey, pairs: Sequence[DirectionResult], topology: Topology | None
) -> Iterator[Result]:
    check = AllPaths()
    partly = [p for p in pairs if (p.lost or p.lost_back) and p.answered]
    if not partly:
        return
    ports = sum(p.sent for p in partly)
    lost = sum(len(p.lost) for p in partly)
    back = sum(len(p.lost_back) for p in partly)
    said = f"{len(partly)} directions: of {ports} flows {lost} lost, {back} replies lost"
    places: dict[str, list[Culprit]] = defaultdict(list)
    for culprit in culprits(survey):
        places[_place(culprit, topology)].append(culprit)
    for place, group in sorted(places.items()):
        flows = [flow for culprit in group for flow in culprit.flows]
        hops = ", ".join(culprit.after or "the sender" for culprit in group)
        example = flows[0]
        yield check.result(
            Status.FAIL, place, f"{len(flows)} traced flows end here", "all pass",
            f"last answers from {hops}; for example {example.src} to {example.dst} from port "
            f"{example.sport}, while other ports pass; {said}",
        )  # fmt: skip
    if not places:
        worst = max(partly, key=lambda p: len(p.lost) + len(p.lost_back))
        yield check.result(
            Status.FAIL, FLEET, said, "all pass",
            f"no lost flow could be traced; worst {worst.src} to {worst.dst}: "
            f"{len(worst.lost)} lost, {len(worst.lost_back)} replies lost of {worst.sent}",
            suspect=Suspect.FABRIC,
        )  # fmt: skip


def _place(culprit: Culprit, topology: Topology | None) -> str:
    """The cable behind the last hop that answered, as far as it can be reported."""
    names = {} if topology is None else topology.by_address
    after = names.get(culprit.after, culprit.after)
    alive = {names.get(hop, hop) for hop in culprit.alive}
    if topology is not None and after in topology.neighbours:
        ways = [topology.nearer(after, topology.distances(flow.dst)) for flow in culprit.flows]
        left = set.intersection(*ways) - alive if ways else set()
        if len(left) == 1:
            return cable_name(after, left.pop())
    return f"behind {after or culprit.flows[0].src}"


def _mtu(survey: Survey, rails: Sequence[DirectionResult]) -> Iterator[Result]:
    check = PathMtu()
    decision, usual = usual_mtu(survey.nics), tested_mtu(survey.nics)
    big = {each.pair: each.big for each in rails if each.big is not None and each.answered}
    wrong = [pair for pair, passed in big.items() if not passed]
    odd = {str(nic): nic.mtu for nic in survey.nics if nic.mtu != usual}
    if decision.disputed:  # no majority: pairs that do not pass are reported below
        yield _unknown(check, f"MTU: {decision.why}")
        odd = {}
    for nic, mtu in odd.items():
        out = sum(pair[0] == nic for pair in wrong)
        into = sum(pair[1] == nic for pair in wrong)
        yield check.result(
            Status.FAIL if out or into or mtu < usual else Status.WARN, nic, f"MTU {mtu}",
            f"MTU {usual}", f"packets of {usual} bytes: {out} directions from it and {into} to it "
            f"lose them; {sum(n.mtu == usual for n in survey.nics)} other NICs have {usual}",
            suspect=Suspect.NIC, remedy=f"set the MTU of {nic} to {usual}",
        )  # fmt: skip
    left = [pair for pair in wrong if not odd.keys() & set(pair)]
    suspects = bad_nics(left, big)
    for nic in suspects:
        yield check.result(
            Status.FAIL, nic, f"{sum(nic in p for p in left)} directions lose {usual} bytes",
            f"{usual} bytes pass", "the NIC's own MTU is right: its switch port's is not",
            suspect=Suspect.PORT,
        )  # fmt: skip
    named = set(suspects)
    rest = [pair for pair in left if not named & set(pair)]
    if rest:
        yield check.result(
            Status.FAIL, FLEET, f"{len(rest)} directions lose {usual} bytes", "none",
            f"small packets pass: {_some(f'{a} to {b}' for a, b in rest)}", suspect=Suspect.FABRIC,
        )  # fmt: skip
    if not big:
        yield _unknown(check, "no pair answers at all, or no MTU is known")


def _hops(survey: Survey) -> Iterator[Result]:
    check = HopRails()
    cabling = hop_cabling(survey)
    if cabling is None:
        yield check.result(Status.SKIP, FLEET, evidence="no two NICs have one router in between")
        return
    for result in RailCabling().test(cabling):
        yield msgspec.structs.replace(
            result, check=check.id, evidence=f"by hop counts: {result.evidence}"
        )


def _some(names: Iterable[str]) -> str:
    return some(dict.fromkeys(names), _LISTED)
