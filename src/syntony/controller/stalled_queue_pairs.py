"""Stalled queue pairs as observations for the rules: by the NIC that they share, else by pair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from syntony.alerts.observations import Observation
from syntony.model.names import host_of
from syntony.sla.subjects import FLEET, pair_troubles
from syntony.traffic.queue_pair_stalls import STALL_NS, Stall, StallCause, StallsSeen

METRIC = {StallCause.NETWORK: "queue_pair_stalled", StallCause.RECEIVER: "queue_pair_not_ready"}
METRICS = frozenset(METRIC.values())


def observations(
    evaluation: StallsSeen, nics: Mapping[str, str], silent: Collection[str] = frozenset()
) -> list[Observation]:
    """For each cause, the NIC with at least half of its pairs stalled, else pairs.

    Args:
        evaluation: the result of one evaluation.
        nics: address → ``host/nic``; addresses of no NIC of the fleet are left out.
        silent: hosts whose agents do not report.
    """
    pairs = {
        each: f"{nics[each[0]]}->{nics[each[1]]}"
        for each in evaluation.directions
        if each[0] in nics and each[1] in nics
    }
    found = []
    for cause, metric in METRIC.items():
        bad: dict[str, list[Stall]] = defaultdict(list)
        for stall in evaluation.stalls:
            pair = pairs.get((stall.figures.local, stall.figures.remote), "")
            hosts = {host_of(end) for end in pair.split("->")}
            if pair and stall.cause is cause and not hosts & set(silent):
                bad[pair].append(stall)
        rows = {pair: _text(bad.get(pair, [])) for pair in sorted(set(pairs.values()))}
        found += [
            Observation(
                metric,
                each.subject,
                each.share,
                each.reasons,
                jobs=_jobs(each.subject, bad),
                span_ns=STALL_NS,
            )
            for each in pair_troubles(rows)
        ]
    return found


def _text(stalls: list[Stall]) -> str:
    texts = sorted(each.text for each in stalls)
    more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
    return f"{texts[0]}{more}" if texts else ""


def _jobs(subject: str, bad: Mapping[str, list[Stall]]) -> tuple[str, ...]:
    return tuple(
        sorted(
            {
                stall.figures.job
                for pair, stalls in bad.items()
                if subject in {FLEET, pair, *pair.split("->")}
                for stall in stalls
            }
        )
    )
