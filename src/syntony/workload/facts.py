"""All values that the rules use of a bundle, computed once."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

import numpy as np

from syntony.model import S, format_ns
from syntony.model.names import host_of
from syntony.workload.bundle import NULL, Bundle, Gap, instants
from syntony.workload.common_hop import Common, common_hops
from syntony.workload.crossings import Crossings, crossings
from syntony.workload.device_tables import GpuTable, HostTable, LinkTable
from syntony.workload.flows import Flows
from syntony.workload.full_links import FullLink, full_links
from syntony.workload.grid import Episode, Flags, K, N, median
from syntony.workload.late_stages import late_stages
from syntony.workload.path_queues import beyond_queues
from syntony.workload.probe_streams import ProbeStreams
from syntony.workload.processes import Processes, RankEnd
from syntony.workload.ranks import Ranks, SlowRank, step_length
from syntony.workload.schema import NOT_KNOWN
from syntony.workload.verdict import ECHO, RuleFinding

MOST_LATE = 0.6
"""Share of a bundle's flows; if more are late, only a link that most of them cross can be at
fault."""

EARLY = 0.1
"""Share of a recording in which permanent conditions are seen for the first time."""
ALWAYS = 0.5
"""Ratio of the delay above the reference in that part to the upper quartile of all, from which
flows have waited since the recording began: before a fault they wait a third as much at most."""
OFTEN = 0.15
"""Share of windows beyond the limit up to which a flow that is not late is healthy."""


AROUND_NS = 1 * S
"""Before and after a window in which a clock was in doubt: delays are of whole seconds."""


class BundleFacts:
    """A bundle, with the derived values that the rules need."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.steps = bundle.table("steps")
        tables = {name: bundle.tables.get(name) for name in ("flows", "links", "hosts", "probes")}
        self.flows = None if tables["flows"] is None else Flows(tables["flows"])
        self.links = None if tables["links"] is None else LinkTable(tables["links"])
        self.probes = None if tables["probes"] is None else ProbeStreams(tables["probes"])
        self.hosts = self.gpus = None
        if tables["hosts"] is not None:
            self.hosts, self.gpus = HostTable(tables["hosts"]), GpuTable(tables["hosts"])
        collectives = bundle.tables.get("collectives")
        self.step_ns = step_length(self.steps, bundle.table("collectives"))
        self.ranks = None if collectives is None else Ranks(collectives, self.step_ns)
        processes = bundle.tables.get("processes")
        self.processes = None if processes is None else Processes(processes, self.end_ns)
        self.gaps: list[Gap] = list(bundle.gaps)
        self.waits: list[RuleFinding] = []
        """Waits of which it is undetermined whether they are hangs."""
        self.ended = ""
        """How the job ended, if that is no fault."""
        if self.ranks is not None and self.ranks.left_out:
            left_out = f"the oldest {self.ranks.left_out:,} operations are left out: too many"
            self.gaps.append(Gap("collectives", left_out, "stragglers and hangs before them"))
        self._note_missing_paths()
        self._distrust_clocks()

    @cached_property
    def late_ranks(self) -> dict[int, SlowRank]:
        """Ranks that take longer by themselves than their peers, or, as stages of a pipeline, than
        before."""
        if self.ranks is None:
            return {}
        return late_stages(self.ranks, self.steps) | self.ranks.late

    def rank_ends(self) -> list[RankEnd]:
        """Of all ranks that are known to have ended, those that ended first first."""
        return self.processes.ends() if self.processes else []

    def _note_missing_paths(self) -> None:
        """Note that probes' paths are not recorded although those of flows are."""
        if self.probes is None or self.flows is None:
            return
        if any(self.flows.hops) and not any(self.bundle.table("probes").codes("hops").values):
            limits = "queues and losses that only probes show, and of which of several links"
            self.gaps.append(Gap("probes", "no paths of probes are recorded", limits))

    def _distrust_clocks(self) -> None:
        """Discard delays of hosts while their clock is in state UNKNOWN."""
        table = self.bundle.tables.get("hosts")
        if table is None or "clk_state" not in table:
            return
        states, hosts = table.codes("clk_state"), table.codes("host")
        unknown = [code for code, value in enumerate(states.values) if value in NOT_KNOWN]
        bad, stated = np.isin(states.codes, unknown), states.codes >= 0
        at_ns, width_ns = table.ints("at_ns"), table.ints("window_ns")
        names = []
        for code in np.unique(hosts.codes[bad]):
            host, mine = str(hosts.values[code]), hosts.codes == code
            rows, spans = np.flatnonzero(mine & bad), None
            names.append(host)
            if (mine & stated & ~bad).any():
                ends = zip(at_ns[rows].tolist(), (at_ns + width_ns)[rows].tolist(), strict=True)
                spans = [(begin_ns - AROUND_NS, end_ns + AROUND_NS) for begin_ns, end_ns in ends]
                names[-1] += f" (for {format_ns(int(width_ns[rows].sum()))})"
            self.distrust((nic for nic in self.nics if host_of(nic) == host), spans)
            if self.ranks is not None:
                self.ranks.distrust(host)
        if names:
            self.gaps.append(
                Gap("hosts", f"clock UNKNOWN on {', '.join(sorted(names)[:5])}",
                    "delays from and to these hosts then, and lateness of their ranks")
            )  # fmt: skip

    @cached_property
    def nics(self) -> list[str]:
        """NICs that flows or probes leave or enter."""
        found: set[str] = set()
        for each in (self.flows, self.probes):
            if each is not None:
                found |= {*each.src, *each.dst}
        return sorted(found)

    def distrust(self, nics: Iterable[str], spans: Sequence[tuple[int, int]] | None = None) -> None:
        """Discard the delays of these NICs in these intervals (None: all) for all later rules."""
        names = list(nics)
        if self.flows is not None:
            self.flows.distrust(names, spans)
        if self.probes is not None:
            self.probes.distrust(names, spans)

    @cached_property
    def begin_ns(self) -> int:
        """Begin of the recording."""
        given = self.bundle.manifest.begin_ns
        return given if given is not None else min(
            int(instants(each).min()) for each in self.bundle.tables.values())  # fmt: skip

    @cached_property
    def end_ns(self) -> int:
        """End of the recording: from the manifest, else the last instant in the data."""
        ends = []
        for table in self.bundle.tables.values():
            for name in ("at_ns", "enqueue_ns", "end_ns", "done_ns"):
                if name in table:
                    values = table.ints(name)
                    ends.append(int(values[values != NULL].max(initial=0)))
        given = self.bundle.manifest.end_ns
        return given if given is not None else max(ends)

    @cached_property
    def early_ns(self) -> int:
        """Permanent conditions are first observed before this instant."""
        return self.begin_ns + round(EARLY * (self.end_ns - self.begin_ns))

    def span(self, stretch: Episode) -> tuple[int, int]:
        """Begin and end of an episode of flows."""
        assert self.flows is not None  # noqa: S101 - an episode of flows
        grid = self.flows.grid
        return grid.instant(stretch.first), grid.instant(stretch.last + 1)

    def joint(
        self, flows: Collection[int], among: dict[int, Episode], bad: Flags | None = None
    ) -> tuple[int, int, float]:
        """Medians of begin, end and share of windows over several flows' episodes.

        With `bad`, (flows, windows), the share is that of windows in which half of the sending
        flows show it: each flow alone shows it only intermittently.
        """
        assert self.flows is not None  # noqa: S101 - episodes of flows
        stretches = [among[each] for each in flows if each in among]
        grid = self.flows.grid
        first = int(np.median([each.first for each in stretches]))
        last = int(np.median([each.last for each in stretches]))
        share = float(np.median([each.share for each in stretches]))
        if bad is not None:
            rows = sorted(each for each in flows if each in among)
            part = slice(first, last + 1)
            sent = np.isfinite(self.flows.delay[rows, part]).sum(axis=0)
            shown = bad[rows, part].sum(axis=0) >= 0.5 * sent
            share = max(share, float(shown[sent > 0].mean()))
        return grid.instant(first), grid.instant(last + 1), share

    @cached_property
    def healthy(self) -> frozenset[int]:
        """Flows with delays that are neither late nor often beyond the limit: too few windows for
        an episode prove nothing either way."""
        if self.flows is None:
            return frozenset()
        known = np.isfinite(self.flows.delay).sum(axis=1)
        often = self.flows.waiting.sum(axis=1) / np.maximum(known, 1)
        usual = float(np.median(often[known > 0])) if (known > 0).any() else 0.0
        seen = np.flatnonzero((known >= 3) & (often <= max(OFTEN, 2 * usual)))
        return frozenset(int(each) for each in seen) - self.flows.late.keys()

    @cached_property
    def late_hops(self) -> list[Common]:
        """Links that late flows have in common."""
        if self.flows is None:
            return []
        in_hosts = {each for each, stretch in self.flows.late.items()
                    if self.flows.waits_in_hosts(each, stretch.part)}  # fmt: skip
        late = {each for each in self.flows.late.keys() - self.beyond_queues.keys() - in_hosts
                if not self._waits_alone(each)}  # fmt: skip
        worst = self._worst_late() & late
        healthy = self._healthy_meanwhile() | in_hosts
        found = common_hops(self.flows.hops, worst, healthy | (late - worst))
        covered = {flow for each in found for flow in each.flows}
        found += common_hops(self.flows.hops, late - covered, healthy)
        found = [each for each in found if self._wait_together(each.flows)]
        if len(late) > MOST_LATE * (len(late) + len(self.healthy)):  # all wait: no link stands out
            found = [each for each in found if len(each.flows) >= 0.8 * len(late)]
        return found

    def _wait_together(self, flows: Collection[int]) -> bool:
        """Whether two of these flows wait at the same time: not a connection and, after a restart
        of the job, the one that replaced it."""
        assert self.flows is not None  # noqa: S101 - late flows
        parts = sorted((part.first, part.last) for each, part in self.flows.late.items()
                       if each in flows)  # fmt: skip
        return any(second[0] <= first[1] for first, second in itertools.pairwise(parts))

    @cached_property
    def crossings(self) -> list[Crossings]:
        """Flows, and probes, by the links that they cross."""
        return [] if self.flows is None else crossings(self.flows, self.probes)

    @cached_property
    def full_links(self) -> list[FullLink]:
        """Links that others fill while the job runs."""
        if self.flows is None or self.links is None:
            return []
        return full_links(self.flows, self.crossings, self.links)

    def _healthy_meanwhile(self) -> frozenset[int]:
        """Healthy flows that sent while the late ones waited: others prove nothing."""
        assert self.flows is not None  # noqa: S101 - late flows
        late = self.flows.late.values()
        part = slice(min((each.first for each in late), default=0),
                     max((each.last for each in late), default=0) + 1)  # fmt: skip
        sent = np.isfinite(self.flows.delay[:, part]).sum(axis=1)
        return frozenset(each for each in self.healthy if sent[each] > 0)

    def _waits_alone(self, flow: int) -> bool:
        """Whether a late flow waits far longer than all that cross any of its links meanwhile: in
        the queue of a link all packets wait.

        Queues come and go, so others are compared in the windows in which both send. If those that
        share a link with it have none, there may be a queue at that link.
        """
        flows = self.flows
        assert flows is not None  # noqa: S101 - a late flow
        stretch = flows.late[flow]
        part = slice(stretch.first, stretch.last + 1)
        sent = np.isfinite(flows.excess[flow, part])
        own = flows.excess[flow, part][sent]
        compared = False
        for link in flows.hops[flow]:
            mates = sorted(flows.across[link] - {flow})
            excess = flows.excess[mates][:, part][:, sent]
            both = np.isfinite(excess)
            known = both.sum(axis=1) >= K
            if mates and not known.any():
                return False
            limit = ECHO * median(np.where(both, own, np.nan), axis=1)
            if not (median(excess, axis=1)[known] < limit[known]).all():
                return False
            compared |= bool(mates)
        return compared

    @cached_property
    def beyond_queues(self) -> dict[int, Episode]:
        """Late flows that began to wait far longer than the queues on their paths, and when."""
        return {} if self.flows is None else beyond_queues(self.flows)

    def _worst_late(self) -> set[int]:
        """Late flows whose delay is at least `ECHO` times the second longest. In comparison, late
        flows of the job's other queues count as healthy."""
        assert self.flows is not None  # noqa: S101 - late flows
        excess = {each: self.flows.mean_over(self.flows.excess, each, stretch)
                  for each, stretch in self.flows.late.items()}  # fmt: skip
        if len(excess) < 2:
            return set(excess)
        level = sorted(excess.values())[-2]
        return {each for each, value in excess.items() if value >= ECHO * level}

    def fullest(self, links: tuple[str, ...], begin_ns: int, last_ns: int) -> tuple[str, ...]:
        """Links that are clearly fuller than the others, if known."""
        if self.links is None:
            return links
        level = {link: self.links.level(self.links.utilisation, link, begin_ns, last_ns)
                 for link in links}  # fmt: skip
        known = {link: value for link, value in level.items() if value is not None}
        if len(known) < len(links) or not known:
            return links
        best = max(known.values())
        return tuple(link for link in links if known[link] >= best - 0.05)

    def use(self, link: str, begin_ns: int, last_ns: int) -> float | None:
        """Utilisation of a link over a time interval; None if not recorded."""
        if self.links is None:
            return None
        return self.links.level(self.links.utilisation, link, begin_ns, last_ns)

    def port_bps(self, flow: int) -> float:
        """Speed of the slowest port at the ends of a flow; NaN: not recorded."""
        if self.flows is None or self.links is None:
            return float("nan")
        hops, speed = self.flows.hops[flow], self.links.column("speed_bps")
        ends = (self.flows.src[flow], *hops[:1]), (self.flows.dst[flow], *hops[-1:])
        rows = [[self.links.index[each] for each in end if each in self.links.index]
                for end in ends]  # fmt: skip
        known = [median(speed[some], axis=1) for some in rows]
        return float(np.min([np.fmin.reduce(each, initial=np.nan) for each in known]))

    def always_late(self, flows: Iterable[int]) -> bool:
        """Whether these flows have waited about as long since the recording began, or since half of
        them began to send, if that was later."""
        assert self.flows is not None  # noqa: S101 - late flows
        excess = self.flows.excess[sorted(flows)]
        begun = np.maximum.accumulate(np.isfinite(excess), axis=1)
        first = int(np.argmax(begun.mean(axis=0) >= 0.5))
        early = median(excess[:, first : first + max(N, round(EARLY * excess.shape[1]))])
        return bool(early >= ALWAYS * np.nanquantile(excess, 0.75))

    def ranks_of(self, flows: Iterable[int]) -> frozenset[int]:
        """Ranks at the ends of flows, where these are recorded."""
        if self.flows is None:
            return frozenset()
        ends = [value for each in flows for value in (self.flows.rank[each], self.flows.peer[each])]
        return frozenset(int(each) for each in ends if np.isfinite(each))

    def ranks_on(self, host: str) -> frozenset[int]:
        """Ranks of a host."""
        if self.ranks is None:
            return frozenset()
        return frozenset(rank for rank, name in self.ranks.host.items() if name == host)

    def nic_ends(self, link: str) -> tuple[str, ...]:
        """NICs at which a link of the paths begins or ends."""
        return tuple(sorted(self._ends.get(link, ())))

    @cached_property
    def _ends(self) -> dict[str, set[str]]:
        ends: dict[str, set[str]] = defaultdict(set)
        if self.flows is not None:
            for src, dst, hops in zip(self.flows.src, self.flows.dst, self.flows.hops, strict=True):
                if hops:
                    ends[hops[0]].add(src)
                    ends[hops[-1]].add(dst)
        return ends

    def last_hops(self) -> dict[str, str]:
        """The link into each NIC, by link."""
        if self.flows is None:
            return {}
        return {hops[-1]: dst for hops, dst in zip(self.flows.hops, self.flows.dst, strict=True)
                if hops}  # fmt: skip

    def usual_late_ns(self, flows: Iterable[int]) -> tuple[float, float]:
        """Median delay and median reference recently flows over their episodes, in ns."""
        assert self.flows is not None  # noqa: S101 - flows
        reported = [each for each in flows if each in self.flows.late]
        high = [self.flows.mean_over(self.flows.delay, each, self.flows.late[each])
                for each in reported]  # fmt: skip
        return float(np.median(high)), float(median(self.flows.reference[reported]))
