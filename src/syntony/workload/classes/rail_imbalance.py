"""Asymmetric rail use: a rail's share of the bytes differs by more than a fifth from the plan."""

from __future__ import annotations

import math

import numpy as np

from syntony.workload.bundle import Floats, Gap
from syntony.workload.classes._weigh import weigh
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import Flows
from syntony.workload.grid import Episode, N, episode
from syntony.workload.ranks import SYMMETRIC
from syntony.workload.verdict import Evidence, FaultClass, RuleFinding, confidence

OFF = 0.2
"""Maximum deviation from the planned share (taxonomy)."""
MOST_OF_RECORDING = 0.2
"""Maximum share of the recording over which bytes are summed, so that sums contain whole steps."""
SUMS = 2
"""Minimum of sums without a common window in a recording: a share that was off in one of them, such
as in the first seconds of a job, is either seen again or had been right before."""
MOST = 0.7
"""Minimum share of the rail's flows that carry more, or less."""
ALONE = 1.15
"""A deviation this many times the next one is the cause of the others."""
ALIKE_SENT = SYMMETRIC - {"all_to_all"}
"""Operations in which all ranks send alike."""
ACTION = "check how channels are spread over NICs (NCCL_IB_HCA, rails of the hosts, plane weights)"


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Rails that carry more or less than they should."""
    flows = facts.flows
    if flows is None or not all(flows.rail):
        return []
    rails = sorted(set(flows.rail))
    codes = flows.table.codes("rail")
    place = {rail: number for number, rail in enumerate(rails)}
    number = {code: place.get(str(value), -1) for code, value in enumerate(codes.values)}
    carried = np.zeros((len(rails), max(flows.grid.windows, 1)))
    sent = np.nan_to_num(flows.table.numbers("bytes"))
    rows = np.array([number.get(int(code), -1) for code in codes.codes], dtype=np.int64)
    known = rows >= 0
    np.add.at(carried, (rows[known], flows.grid.column[known]), sent[known])
    step = min(facts.step_ns / flows.grid.width_ns, carried.shape[1] * MOST_OF_RECORDING)
    smeared = max(N, math.ceil(step))
    sums, carried = carried, _rolling(carried, smeared)
    total = carried.sum(axis=0)
    plan = _plan(facts, rails)
    if len(rails) < 2 or plan is None:
        return []
    with np.errstate(invalid="ignore", divide="ignore"):
        off = carried / total / plan[:, None] - 1
    worst = np.abs(off).max(axis=0)
    stretch = episode(np.nan_to_num(worst) > OFF, total > 0)
    unplanned = np.count_nonzero(worst <= OFF) < N and _is_planned_by_use(facts, flows)
    unplanned |= _is_of_ranks(facts, flows)
    if stretch is None or stretch.share < 0.7 or unplanned:
        return []
    part = slice(stretch.first, stretch.last + 1)
    level = np.array([float(np.nanmedian(each[part])) for each in off])
    order = sorted(range(len(rails)), key=lambda each: -abs(level[each]))
    if abs(level[order[0]]) <= OFF:
        return []
    worst_rails = [each for each in order if abs(level[each]) * ALONE >= abs(level[order[0]])]
    change = _change(facts, sums, stretch, smeared // 2)
    named = [rails[each] for each in _changed(worst_rails, change)]
    begin_ns, last_ns = facts.span(stretch)
    own = _deviating(flows, rails, plan, level, part)
    if not any(len(own[rail]) >= MOST * flows.rail.count(rail) for rail in named) or _too_short(
        facts, sums, smeared, named
    ):
        return []  # a few flows are at fault, not the use of the rail; or nobody can tell
    text, since = (
        ", ".join(f"{rails[each]} {values[each]:+.0%}" for each in order[:8])
        for values in (level, change - 1)
    )
    return [
        RuleFinding(
            fault=FaultClass.RAIL_IMBALANCE, subjects=tuple(named), onset_ns=begin_ns,
            last_ns=last_ns, confidence=confidence(stretch.share, len(named) == 1 or None),
            evidence=(Evidence("bytes", f"share of bytes against plan: {text}",
                               float(level[order[0]]), 0.0),
                      *((Evidence("bytes", f"bytes against before, at the same pace: {since}"),)
                        if np.isfinite(change).all() else ())),
            alternatives=(
                weigh(FaultClass.REDUCED_CAPACITY, True, "no flow was moved off a dead part"),
                weigh(FaultClass.FLAPPING, True if facts.links else None, "no port of the rail"
                      " flaps", "links"),
            ),
            action=ACTION, flows=frozenset(flow for rail in named for flow in own[rail]),
        )
    ]  # fmt: skip


def _is_planned_by_use(facts: BundleFacts, flows: Flows) -> bool:
    """Whether only what was seen can show that rails are to carry alike: TCP carries most, and a
    program opens its connections where it likes, and failover moves them."""
    proto, sent = flows.table.codes("proto"), np.nan_to_num(flows.table.numbers("bytes"))
    tcp = np.isin(proto.codes, [code for code, each in enumerate(proto.values) if each == "tcp"])
    return not facts.bundle.manifest.rail_shares and bool(2 * sent[tcp].sum() > sent.sum())


def _is_of_ranks(facts: BundleFacts, flows: Flows) -> bool:
    """Whether each rank sends over one rail, and most bytes in operations in which ranks may send
    unlike each other, as far as is known: a rail carries what its ranks have to send."""
    rails: dict[float, set[str]] = {}
    for rank, rail in zip(flows.rank.tolist(), flows.rail, strict=True):
        rails.setdefault(rank, set()).add(rail)
    several = any(len(each) > 1 for each in rails.values())
    if several or facts.bundle.manifest.rail_shares or not np.isfinite(flows.rank).all():
        return False
    table = facts.bundle.table("collectives")
    ops, sent = table.codes("op"), np.nan_to_num(table.numbers("bytes"), nan=1.0)
    alike = np.isin(ops.codes, [code for code, op in enumerate(ops.values) if op in ALIKE_SENT])
    return bool(sent[alike].sum() <= sent[~alike].sum())


def _too_short(facts: BundleFacts, sums: Floats, smeared: int, named: list[str]) -> bool:
    """Whether the recording has fewer than `SUMS` sums of `smeared` windows; then it is noted."""
    windows, least = int(np.count_nonzero(sums.any(axis=0))), SUMS * smeared
    if windows < least:
        text = f"too little evidence for {FaultClass.RAIL_IMBALANCE} {', '.join(named[:3])}"
        facts.gaps.append(Gap("", f"{text}: bytes of {windows} windows, {least} are needed"))
    return windows < least


def _change(facts: BundleFacts, sums: Floats, stretch: Episode, smeared: int) -> Floats:
    """Ratio of each rail's bytes per operation, or step, in an episode to those before, (rails,).
    NaN if unknown: a full rail carries no more per second when it has more to carry, and the others
    carry less.

    Args:
        sums: bytes, (rails, windows).
        smeared: windows by which the episode may begin and end early, or late.
    """
    assert facts.flows is not None  # noqa: S101 - rails
    grid = facts.flows.grid
    each_s = []
    for first, end in ((0, stretch.first - smeared),
                       (stretch.first + smeared, stretch.last + 1 - smeared)):  # fmt: skip
        pace = _pace(facts, grid.instant(first), grid.instant(end))
        each_s.append(sums[:, first : max(first, end)].sum(axis=1) / max(end - first, 1) / pace)
    with np.errstate(invalid="ignore", divide="ignore"):
        change: Floats = each_s[1] / each_s[0]
    return change


def _pace(facts: BundleFacts, begin_ns: int, end_ns: int) -> float:
    """Operations, or steps, of one rank per ns; NaN if too few were recorded."""
    table, name = facts.bundle.table("collectives"), "enqueue_ns"
    if not table.rows:
        table, name = facts.steps, "begin_ns"
    rank, at_ns = table.ints("rank"), table.ints(name)
    at_ns = at_ns[rank == rank.max(initial=0)]
    at_ns = at_ns[(at_ns >= begin_ns) & (at_ns < end_ns)]
    if len(at_ns) < N:
        return float("nan")
    return (len(at_ns) - 1) / float(at_ns.max() - at_ns.min())


def _changed(rails: list[int], change: Floats) -> list[int]:
    """Rails whose bytes changed while all others are unchanged: of two equal deviations, one is the
    consequence of the other. All of them if that is not clear."""
    size = np.abs(np.log(np.maximum(change, 1e-9)))
    found = [each for each in rails if size[each] > np.log(1 + OFF)]
    same = [each for each in rails if size[each] < np.log(1 + OFF / 2)]
    return found if found and len(found) + len(same) == len(rails) else rails


def _rolling(carried: Floats, windows: int) -> Floats:
    """Sums of bytes over neighbouring windows: within one operation, or step, rails that carry
    little finish before the others."""
    kernel = np.ones(min(windows, carried.shape[1]))
    return np.array([np.convolve(each, kernel, mode="same") for each in carried])


def _deviating(flows: Flows, rails: list[str], plan: Floats, level: Floats,
               part: slice) -> dict[str, list[int]]:  # fmt: skip
    """Flows of each rail that carry more, or less, than other rails' flows, in the same direction
    as the rail."""
    sent = np.nansum(flows.column("bytes", "sum")[:, part], axis=1)
    place = np.array([rails.index(rail) for rail in flows.rail])
    found = {}
    for number, rail in enumerate(rails):
        mine = place == number
        others = sent[~mine] / plan[place[~mine]]
        others = others[np.isfinite(others)]
        # Of the others those that could explain the deviation: one slow NIC is not a rail.
        part_of = 0.75 if level[number] > 0 else 0.25
        usual = float(np.quantile(others, part_of, method="nearest")) if len(others) else 0.0
        with np.errstate(invalid="ignore"):
            ratio = sent / plan[number] / max(usual, 1.0) - 1
            odd = mine & (np.abs(ratio) > OFF / 2) & (np.sign(ratio) == np.sign(level[number]))
        found[rail] = [int(each) for each in np.flatnonzero(odd)]
    return found


def _plan(facts: BundleFacts, rails: list[str]) -> Floats | None:
    """Planned share by rail: from the manifest, else from NICs; None if unknown."""
    given = facts.bundle.manifest.rail_shares
    if given:
        shares = np.array([given.get(rail, 0.0) for rail in rails])
        planned: Floats = shares / shares.sum()
        return planned if (shares > 0).all() else None
    flows = facts.flows
    assert flows is not None  # noqa: S101 - rails
    nics = np.array([len({src for src, each in zip(flows.src, flows.rail, strict=True)
                          if each == rail}) for rail in rails], dtype=float)  # fmt: skip
    share: Floats = nics / nics.sum()
    return share
