"""What each class does to the first generator's arrays, and what is odd but harmless."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from bench.diagnosis.case import Unfit

if TYPE_CHECKING:
    from bench.diagnosis.drawn import Draft


def _pick(draft: Draft, among: Any) -> Any:
    among = list(among)
    if not among:
        raise Unfit
    return among[int(draft.rng.integers(len(among)))]


def _wait(draft: Draft, flows: Any, ratio: float) -> None:
    rows = np.asarray(flows)
    shape = len(rows), draft.off - draft.on
    draft.p50[rows, draft.time] += (
        draft.base[rows, None] * ratio * draft.rng.lognormal(0, 0.15, shape)
    )


def slow_flow(draft: Draft) -> str:
    """94 µs among 4 µs."""
    index = int(draft.rng.integers(draft.count))
    _wait(draft, [index], draft.rng.uniform(6, 30))
    if draft.rng.random() < 0.7:
        draft.rate[index, draft.time] *= draft.rng.uniform(0.1, 0.5)
    draft.slower(draft.rng.uniform(1.2, 2.5))
    return f"qp{index * 7 + 100}"


def _inner(draft: Draft, least: int) -> list[str]:
    return [
        name
        for name in draft.link
        if name.count("leaf") == 1
        and "spine" in name
        and least <= len(draft.across(name)) <= 0.5 * draft.count
    ]


def contention(draft: Draft) -> str:
    """A queue before one link of the fabric."""
    link = _pick(draft, _inner(draft, 2))
    ratio = draft.rng.uniform(3, 20)
    _wait(draft, draft.across(link), ratio)
    draft.rate[draft.across(link), draft.time] *= draft.rng.uniform(0.4, 0.8)
    draft.use[draft.at[link], draft.time] = draft.rng.uniform(0.93, 1.0)
    draft.waiting = {link: ratio * float(draft.base.mean())}  # type: ignore[attr-defined]
    draft.slower(draft.rng.uniform(1.2, 2))
    return str(link)


def incast(draft: Draft) -> str:
    """A queue before one NIC."""
    host, rail = int(draft.rng.integers(draft.hosts)), int(draft.rng.integers(draft.rails))
    link = f"leaf{rail}-{host % draft.pods}->{draft.nic(host, rail)}"
    ratio = draft.rng.uniform(3, 20)
    _wait(draft, draft.across(link), ratio)
    draft.use[draft.at[link], draft.time] = draft.rng.uniform(0.9, 1.0)
    draft.waiting = {link: ratio * float(draft.base.mean())}  # type: ignore[attr-defined]
    draft.slower(1.5)
    return draft.nic(host, rail)


def bad_link(draft: Draft) -> str:
    """Losses, and tails of delay; the median stays."""
    link = _pick(draft, _inner(draft, 1) + [hop for hop in draft.link if "->h" in hop])
    while not len(draft.across(link)):
        link = _pick(draft, draft.link)
    rows = draft.across(link)
    shape = len(rows), draft.off - draft.on
    level = float(draft.rng.choice([3, 20, 200]))
    draft.again[rows, draft.time] += draft.rng.poisson(level, shape)
    draft.tail[rows, draft.time] *= draft.rng.uniform(10, 100)
    draft.rate[rows, draft.time] *= draft.rng.uniform(0.7, 0.95)
    draft.errors[draft.at[link], draft.time] += draft.rng.poisson(
        draft.rng.uniform(15, 500), draft.off - draft.on
    )
    draft.slower(1.3)
    return str(link)


def flapping(draft: Draft) -> str:
    """Carrier comes and goes; flows stop meanwhile."""
    host, rail = int(draft.rng.integers(draft.hosts)), int(draft.rng.integers(draft.rails))
    nic = draft.nic(host, rail)
    rows = np.flatnonzero(
        ((draft.flow[:, 0] == host) | (draft.flow[:, 1] == host)) & (draft.flow[:, 2] == rail)
    )
    if draft.rng.random() < 0.25:
        draft.speed[draft.at[nic], draft.on :] = draft.rng.choice([0.25, 0.5])
        draft.rate[rows, draft.on :] *= 0.5
        return nic
    for window in range(draft.on, draft.off, int(draft.rng.integers(3, 8))):
        draft.downs[draft.at[nic], window] = 1
        draft.up[draft.at[nic], window] = 0
        draft.rate[rows, window] = 0
        draft.sent[rows, window] = 0
        draft.cqe[rows, window] = 1
        draft.again[rows, window] += 20
    return nic


def class_mismatch(draft: Draft) -> str:
    """RoCEv1, or another class: 250 µs in band, 10 µs by probes."""
    whole = draft.rng.random() < 0.5
    hosts = list(range(draft.hosts)) if whole else [int(draft.rng.integers(draft.hosts))]
    rows = np.flatnonzero(np.isin(draft.flow[:, 0], hosts))
    wrong = _pick(draft, ({"roce_version": 1.0, "gid_index": 1.0}, {"tc": 0.0}))
    for name, value in wrong.items():
        draft.flow_roce[name][rows] = value
    _wait(draft, rows, draft.rng.uniform(8, 40))
    draft.slow_ns = float(draft.base.mean()) * 20  # type: ignore[attr-defined]
    draft.wrong = wrong  # type: ignore[attr-defined]
    draft.matched_slow = set(hosts) if draft.rng.random() < 0.6 else set()
    if draft.matched_slow:
        draft.slow_ns = float(np.median(draft.p50[rows, draft.on : draft.off]))  # type: ignore[attr-defined]
    return str(draft.manifest["job"]) if whole else f"h{hosts[0]}"


def pfc_storm(draft: Draft) -> str:
    """One NIC pauses its leaf, the leaf what feeds it."""
    crossing = [path[-1] for path in draft.paths if len(path) > 2]
    root = _pick(draft, sorted(set(crossing)))
    leaf = root.split("->")[0]
    above = [name for name in draft.link if name.endswith("->" + leaf)]
    draft.pause[draft.at[root], draft.time] = draft.rng.uniform(0.3, 0.9)
    for name in above:
        draft.pause[draft.at[name], draft.time] = draft.rng.uniform(0.1, 0.5)
    rows = np.unique(
        np.concatenate([draft.across(name) for name in (*above, root) if len(draft.across(name))])
    )
    _wait(draft, rows, draft.rng.uniform(3, 15))
    draft.slower(2)
    return str(root)


def straggler(draft: Draft) -> str:
    """A rank computes longer."""
    rank = int(draft.rng.integers(draft.ranks))
    draft.compute[rank, draft.during] *= draft.rng.uniform(1.12, 2)
    draft.waits["gpu_wait_ns"][rank, draft.during] *= draft.rng.uniform(2, 6)
    return f"rank {rank}"


def gpu_throttle(draft: Draft) -> str:
    """A rank computes longer, and its GPU says why."""
    rank = int(draft.rng.integers(draft.ranks))
    left = float(draft.rng.uniform(0.5, 0.85))
    draft.compute[rank, draft.during] /= left
    draft.waits["gpu_wait_ns"][rank, draft.during] *= 3
    if draft.rng.random() < 0.7:
        draft.mhz[rank, draft.time] *= left
        draft.reason[rank, draft.time] = _pick(draft, ("hw_slowdown", "hw_thermal_slowdown", ""))
    else:
        draft.xid[rank, draft.time] = 94
        draft.ecc[rank, draft.time] = 3
    return f"GPU-{rank:04d}"


def host_jitter(draft: Draft) -> str:
    """A host's threads wait for cores."""
    host = int(draft.rng.integers(draft.hosts))
    rows = np.flatnonzero((draft.flow[:, 0] == host) | (draft.flow[:, 1] == host))
    draft.gap[rows, draft.time] *= draft.rng.uniform(10, 100)
    draft.runq[host, draft.time] += draft.rng.uniform(0.1, 0.6)
    draft.tail[rows, draft.time] *= 4
    if draft.rng.random() < 0.5:
        _wait(draft, np.flatnonzero(draft.flow[:, 1] == host), draft.rng.uniform(2, 6))
    ranks = slice(host * draft.rails, (host + 1) * draft.rails)
    part = draft.compute[ranks, draft.during]
    draft.compute[ranks, draft.during] += (
        draft.period * draft.rng.uniform(0.02, 0.2) * (draft.rng.random(part.shape))
    )
    return f"h{host}"


def pcie(draft: Draft) -> str:
    """A slot with fewer lanes: slow both ways, long flushes."""
    host, rail = int(draft.rng.integers(draft.hosts)), int(draft.rng.integers(draft.rails))
    nic, rank = draft.nic(host, rail), host * draft.rails + rail
    lanes = float(draft.rng.choice([1, 4, 8]))
    draft.lanes[draft.at[nic], draft.time] = lanes
    rows = np.flatnonzero(
        ((draft.flow[:, 0] == host) | (draft.flow[:, 1] == host)) & (draft.flow[:, 2] == rail)
    )
    draft.rate[rows, draft.time] *= max(0.15, lanes / 16 * 0.9)
    if draft.rng.random() < 0.5:
        _wait(draft, rows, draft.rng.uniform(3, 10))
    draft.waits["flush_wait_ns"][rank, draft.during] *= draft.rng.uniform(5, 30)
    draft.slower(1.6)
    return nic


def slow_receiver(draft: Draft) -> str:
    """A rank gives little credit, for it consumes late."""
    rank = int(draft.rng.integers(draft.ranks))
    host, rail = divmod(rank, draft.rails)
    rows = np.flatnonzero((draft.flow[:, 1] == host) & (draft.flow[:, 2] == rail))
    draft.credit[rows, draft.time] = draft.rng.uniform(0.15, 0.7)
    draft.rate[rows, draft.time] *= draft.rng.uniform(0.3, 0.8)
    draft.waits["consume_wait_ns"][rank, draft.during] *= draft.rng.uniform(4, 15)
    senders = np.unique(draft.flow[rows, 0]) * draft.rails + rail
    draft.waits["credit_wait_ns"][senders, draft.during] *= 10
    draft.slower(1.7)
    return f"rank {rank}"


def rail_imbalance(draft: Draft) -> str:
    """A rail carries more or less than its part."""
    rail = int(draft.rng.integers(draft.rails))
    rows = draft.flow[:, 2] == rail
    draft.sent[rows, draft.time] *= draft.rng.choice([0.1, 0.4, 2.2, 3.0])
    return f"rail{rail}"


def clock_fault(draft: Draft) -> str:
    """A NIC's clock jumps, or drifts away."""
    host, rail = int(draft.rng.integers(draft.hosts)), int(draft.rng.integers(draft.rails))
    size = draft.rng.choice([-1, 1]) * 10 ** draft.rng.uniform(4.0, 6.0)
    steps = draft.windows - draft.on
    shape = np.ones(steps) if draft.rng.random() < 0.6 else np.linspace(0.4, 1, steps)
    draft.offset[host, rail, draft.on :] = size * shape
    return draft.nic(host, rail)


def data_stall(draft: Draft) -> str:
    """Every rank waits for data, or for checkpoints."""
    steps = draft.during
    longer = draft.period * draft.rng.uniform(0.4, 1.5)
    if draft.rng.random() < 0.7:
        draft.data[:, steps] += longer * draft.rng.lognormal(0, 0.1, draft.data[:, steps].shape)
    else:
        draft.save[:, steps] += longer
    return str(draft.manifest["job"])


def hang(draft: Draft) -> str:
    """A rank does not come, or comes with something else."""
    draft.on, draft.off = max(draft.on, 8), draft.windows
    draft.hang = (_pick(draft, ("hang", "desync")), int(draft.rng.integers(draft.ranks)))
    for rows in (draft.sent, draft.rate):
        rows[:, draft.on :] = 0 if rows is draft.sent else np.nan
    draft.p50[:, draft.on + 1 :] = np.nan
    draft.manifest["end_ns"] += int(draft.rng.uniform(30, 120) * 1e9)
    return f"rank {draft.hang[1]}"


def reduced_capacity(draft: Draft) -> str:
    """A port dies for good; its flows go over another rail."""
    draft.on, draft.off = max(draft.on, 8), draft.windows
    host, rail = int(draft.rng.integers(draft.hosts)), int(draft.rng.integers(draft.rails))
    other = (rail + 1) % draft.rails
    nic = draft.nic(host, rail)
    mine = ((draft.flow[:, 0] == host) | (draft.flow[:, 1] == host)) & (draft.flow[:, 2] == rail)
    draft.moved = {  # type: ignore[attr-defined]
        int(index): (
            draft.path(a, b, other, 0),
            draft.nic(a, other),
            draft.nic(b, other),
            f"rail{other}",
        )
        for index, (a, b, _, _) in enumerate(draft.flow.tolist())
        if mine[index]
    }
    crowded = np.flatnonzero(
        ((draft.flow[:, 0] == host) | (draft.flow[:, 1] == host))
        & np.isin(draft.flow[:, 2], [rail, other])
    )
    draft.rate[crowded, draft.on :] *= 0.5
    if draft.rng.random() < 0.5:
        _wait(draft, crowded, draft.rng.uniform(2, 6))
    for name in (nic, f"{nic}->leaf{rail}-{host % draft.pods}"):
        draft.downs[draft.at[name], draft.on] = 1
        draft.up[draft.at[name], draft.on :] = 0
    draft.slower(1.4)
    return nic


FAULTS: dict[str, Any] = {
    "slow-flow": slow_flow,
    "contention": contention,
    "incast": incast,
    "bad-link": bad_link,
    "flapping": flapping,
    "class-mismatch": class_mismatch,
    "pfc-storm": pfc_storm,
    "straggler": straggler,
    "gpu-throttle": gpu_throttle,
    "host-jitter": host_jitter,
    "pcie": pcie,
    "slow-receiver": slow_receiver,
    "rail-imbalance": rail_imbalance,
    "clock-fault": clock_fault,
    "data-stall": data_stall,
    "hang": hang,
    "reduced-capacity": reduced_capacity,
}


def nothing(_draft: Draft) -> str:
    """As drawn."""
    return ""


def starved(draft: Draft) -> str:
    """All hosts are short of CPU."""
    shape = draft.p50.shape
    draft.p50 *= draft.rng.lognormal(0.1, 0.3, shape)
    draft.p50 += draft.base[:, None] * 8 * (draft.rng.random(shape) < 0.05)
    draft.gap *= draft.rng.lognormal(2, 0.5, shape)
    draft.runq += draft.rng.uniform(0.1, 0.5, draft.runq.shape)
    draft.compute *= draft.rng.lognormal(0, 0.08, draft.compute.shape)
    return ""


def bursts(draft: Draft) -> str:
    """Two windows in which everything waits."""
    for _ in range(3):
        at = int(draft.rng.integers(draft.windows - 2))
        draft.p50[:, at : at + 2] *= draft.rng.uniform(2, 8)
    return ""


def longer_sequences(draft: Draft) -> str:
    """Ranks with more work, in the same measure."""
    more = draft.rng.uniform(0.9, 1.5, (draft.ranks, 1))
    draft.compute *= more
    draft.work *= more
    return ""


def rebalanced(draft: Draft) -> str:
    """Flows are moved to other spines, and lose nothing."""
    draft.moved = {}  # type: ignore[attr-defined]
    for index in draft.rng.choice(draft.count, draft.count // 4, replace=False).tolist():
        a, b, rail, _ = draft.flow[index].tolist()
        path = draft.path(a, b, rail, int(draft.rng.integers(draft.spines)))
        draft.moved[index] = (path, draft.nic(a, rail), draft.nic(b, rail), f"rail{rail}")  # type: ignore[attr-defined]
    return ""


def maintenance(draft: Draft) -> str:
    """A port is taken down and up again, as planned."""
    row = draft.at[draft.nic(0, 0)]
    draft.downs[row, draft.on : draft.on + 6 : 2] = 1
    draft.planned[row, draft.on : draft.on + 6] = 1
    return ""


def corrected(draft: Draft) -> str:
    """A link counts errors that cost no packet."""
    draft.errors[int(draft.rng.integers(len(draft.link))), draft.time] += 30
    return ""


def all_capped(draft: Draft) -> str:
    """Every GPU runs at the same lower clock."""
    draft.mhz *= 0.8
    draft.reason[:] = "sw_power_cap"
    return ""


def checkpoints(draft: Draft) -> str:
    """A short checkpoint now and then."""
    draft.save[:, ::10] = draft.period * 0.5
    return ""


def eight_lanes(draft: Draft) -> str:
    """All slots have eight lanes, by design."""
    draft.lanes[:] = 8
    return ""


def harmless_class(draft: Draft) -> str:
    """Probes go in another class, which is as fast."""
    draft.probe_roce["tc"] = 0.0
    return ""


def bigger_batches(draft: Draft) -> str:
    """All ranks compute longer from some step on."""
    draft.compute[:, draft.during] *= 1.6
    draft.work[:, draft.during] *= 1.6
    return ""


QUIET = (
    nothing,
    nothing,
    starved,
    starved,
    bursts,
    longer_sequences,
    rebalanced,
    maintenance,
    corrected,
    all_capped,
    checkpoints,
    eight_lanes,
    harmless_class,
    bigger_batches,
)
