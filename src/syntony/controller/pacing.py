"""Paces jobs' flows on congested links: takes agents' reports, returns rates, logs every link.

`syntony.traffic.pacing` computes the rates; placement decides whether this controller may act, with
one lease for both. Agents drop rates that are not renewed for `EXPIRY_NS`.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from syntony.controller.batches import BatchPiece
from syntony.controller.config import PacingConfig, PlacementMode
from syntony.controller.flow_table import FlowTable, capacities
from syntony.controller.path_event_rows import PathEventRows
from syntony.fabric.book import Way
from syntony.fabric.graph import Topology
from syntony.model import S
from syntony.traffic.classes import Classes
from syntony.traffic.meter import HEADERS
from syntony.traffic.pacing import LinkQueue, Pacer, Sending
from syntony.wire.traffic import FlowsReport, FlowView, Pace, Paces

_log = logging.getLogger(__name__)

EXPIRY_NS = 3 * S
"""Validity of a rate: three turns and a slow network; after that a dead controller limits no
flow."""
REPEAT_NS = 1 * S
STALE_NS = 3 * S
"""Older reports are ignored."""
LATE_NS = 60 * S
"""Interval of rows about one host that refuses rates as too late."""


@dataclass(frozen=True, slots=True)
class _SenderRate:
    sending: Sending
    host: str
    view: FlowView


class PacingService:
    """Computes rates for jobs' flows on congested links from agents' reports.

    One per controller; `step` runs on a thread, one at a time.

    Args:
        config: ``[pacing]``.
        topology: of the fabric; without one no link's rate is known, and no flow is paced.
        table: paths of flows.
        classes: of jobs.
    """

    def __init__(
        self, config: PacingConfig, topology: Topology | None, table: FlowTable, classes: Classes
    ) -> None:
        self.mode = config.mode
        self._policy = config.policy
        self._topology = topology
        self._table = table
        self._classes = classes
        self._pacer = Pacer(self._policy)
        self._elephants: set[str] = set()
        self._reported: dict[str, tuple[int, Paces]] = {}
        """Host → when it was sent which rates."""
        self._late: dict[str, tuple[int, int]] = {}
        """Host → how many messages with rates it had refused as too late when the log last said
        so, and when that was."""
        self._log = PathEventRows()
        self._known: frozenset[str] = frozenset()
        """Links that are congested according to the log."""
        self.links: Mapping[str, float] = {}
        """Currently shared links, and the total rate of their flows, bits per second."""

    def set_mode(self, mode: PlacementMode, who: str, why: str, now_ns: int) -> BatchPiece:
        """A command of an operator; returns its row for the log."""
        self.mode = mode
        self.forget_times()
        self._known = frozenset()
        _log.warning("pacing mode=%s by=%s", mode, who)
        evidence = " ".join(f"{who}: {why}".split())[:400]
        return self._log.piece(now_ns, cause="operator", action=f"pacing-{mode}", evidence=evidence)

    def forget_times(self) -> None:
        """Fleet time has stepped back: rates are sent anew."""
        self._pacer.forget()
        self._reported, self._late = {}, {}

    def step(
        self,
        now_ns: int,
        reports: Mapping[str, FlowsReport],
        queues: Mapping[str, LinkQueue],
        dead: Iterable[str],
        *,
        deciding: bool,
    ) -> tuple[dict[str, Paces], list[BatchPiece]]:
        """Rates by host, for those to be sent now, and rows for the log.

        Args:
            now_ns: fleet time.
            reports: the newest of every host.
            queues: on links, newest known.
            dead: components that lose all packets.
            deciding: no other controller may decide.
        """
        if self.mode is PlacementMode.OFF or not deciding:
            self._pacer.forget()
            self._reported, self.links = {}, {}
            return {}, []
        senders = self._senders(reports, now_ns)
        known = dict(capacities(self._topology, dead))
        rates = self._pacer.step([each.sending for each in senders], known, queues, now_ns)
        crowded = frozenset(self._pacer.links)
        rows = self._rows(crowded, senders, queues, now_ns)
        rows += self._late_rows(reports, now_ns)
        if self.mode is PlacementMode.OBSERVE:
            # Rates that were not sent are not in force, and must not be assumed to be.
            self._pacer.forget_rates()
            self.links = {}
            return {}, rows
        self.links = dict(self._pacer.links)
        return self._orders(rates, senders, now_ns), rows

    def _senders(self, reports: Mapping[str, FlowsReport], now_ns: int) -> list[_SenderRate]:
        """The rate of every end of every connection, if it is or ever was large."""
        found = []
        for host, report in reports.items():
            if now_ns - report.at_ns > STALE_NS:
                continue
            for view in report.flows:
                src, dst = self._table.nic(view.local), self._table.nic(view.remote)
                if src is None or dst is None or not view.windows or view.moved_to:
                    continue
                flow_id = f"{host}:{view.connection}:{view.nic}:{view.local_port}>{view.remote}"
                if view.tx_bps < self._table.least_bps(src) and flow_id not in self._elephants:
                    continue
                links = self._table.ends(Way(src, dst, view.local_port, view.remote_port))
                priority, weight = self._classes.of(view.job)
                sending = Sending(
                    flow_id=flow_id,
                    links=links,
                    rate_bps=view.tx_bps * HEADERS,
                    paceable=view.paceable,
                    priority=priority,
                    weight=weight,
                )
                found.append(_SenderRate(sending, host, view))
        self._elephants = {each.sending.flow_id for each in found}
        return found

    def _orders(
        self, rates: Mapping[str, int], senders: Sequence[_SenderRate], now_ns: int
    ) -> dict[str, Paces]:
        by_host: defaultdict[str, list[Pace]] = defaultdict(list)
        for each in senders:
            bps = rates.get(each.sending.flow_id)
            if bps is not None:
                by_host[each.host].append(_pace(each.view, bps))
        orders = {}
        for host in by_host.keys() | self._reported.keys():
            paces = tuple(by_host.get(host, ()))
            before = self._reported.get(host)
            if before is not None and before[1].paces == paces and now_ns - before[0] < REPEAT_NS:
                continue
            orders[host] = Paces(paces=paces, expires_ns=now_ns + EXPIRY_NS)
            if paces:
                self._reported[host] = (now_ns, orders[host])
            else:
                self._reported.pop(host, None)
        return orders

    def _rows(
        self,
        crowded: frozenset[str],
        senders: Sequence[_SenderRate],
        queues: Mapping[str, LinkQueue],
        now_ns: int,
    ) -> list[BatchPiece]:
        rows = []
        for link in sorted(crowded ^ self._known):
            flows = [each for each in senders if link in each.sending.links]
            queue = queues.get(link)
            waits = f", packets wait {queue.queue_ns / 1e6:.2f} ms" if queue is not None else ""
            action = "pace" if link in crowded else "pace-end"
            evidence = f"{len(flows)} flows share {link}{waits}"
            _log.info("%s mode=%s %s", action, self.mode, evidence)
            rows.append(
                self._log.piece(
                    now_ns,
                    job=" ".join(sorted({each.view.job for each in flows})),
                    cause="contention",
                    action=action,
                    evidence=evidence,
                    result="would pace" if self.mode is PlacementMode.OBSERVE else "ordered",
                )
            )
        self._known = crowded
        return rows

    def _late_rows(self, reports: Mapping[str, FlowsReport], now_ns: int) -> list[BatchPiece]:
        """Hosts that refused rates because they reached them after they had expired."""
        rows = []
        for host, report in reports.items():
            count, told_ns = self._late.get(host, (report.late_paces, now_ns - LATE_NS))
            late = report.late_paces - count
            if late > 0 and now_ns - told_ns < LATE_NS:
                continue  # told later, with those that follow
            if late > 0:
                told_ns = now_ns
                evidence = f"{host} refused {late} times rates that had expired when they arrived"
                _log.warning("pace-late mode=%s %s", self.mode, evidence)
                rows.append(
                    self._log.piece(
                        now_ns, cause="contention", action="pace-late", evidence=evidence
                    )
                )
            self._late[host] = report.late_paces, told_ns
        return rows


def _pace(view: FlowView, bps: int) -> Pace:
    return Pace(
        local=view.local,
        local_port=view.local_port,
        remote=view.remote,
        remote_port=view.remote_port,
        bps=bps,
        process=view.process,
    )
