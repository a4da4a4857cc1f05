"""What can be broken in the second generator's mechanism, one function for each class, and what
looks odd while nothing is wrong."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from bench.diagnosis.case import Unfit

if TYPE_CHECKING:
    from bench.diagnosis.foreign import Job, State


def _between_switches(job: Job, flows: int = 2) -> list[str]:
    """Links of the fabric that enough flows of several NICs cross, each alone in its set."""
    crossing: dict[str, set[str]] = defaultdict(set)
    nics: dict[str, set[str]] = defaultdict(set)
    for flow in job.flows:
        for hop in flow.hops:
            crossing[hop].add(flow.name)
            nics[hop].add(flow.src)
    found = sorted(
        hop
        for hop, names in crossing.items()
        if "/" not in hop and len(names) >= flows and len(names) < 0.6 * len(job.flows)
    )
    if not found:
        raise Unfit
    return found


def slow_flow(job: Job) -> str:
    """A limiter on one queue pair: little rate, and a queue before it."""
    flow = job.rng.choice(job.flows)
    extra_ns, limit = job.rng.uniform(20, 80) * job.base_ns(flow), job.rng.uniform(0.1, 0.5)

    def change(state: State, _window: int) -> None:
        state.extra_ns[flow.name] = extra_ns
        state.limit[flow.name] = limit

    job.change = change
    return flow.name


def contention(job: Job) -> str:
    """Another job takes most of a link between switches."""
    link = job.rng.choice(_between_switches(job))
    demand = job.network(job.windows).demand
    share = 1 - demand[link] * job.rng.uniform(0.3, 0.7)

    def change(state: State, _window: int) -> None:
        state.background[link] = share

    job.change = change
    return link


def incast(job: Job) -> str:
    """Everybody sends more to one receiver."""
    victim = job.rng.choice(job.flows).dst
    more = job.rng.uniform(1.6, 2.4)

    senders = {flow.src for flow in job.flows if flow.dst == victim}
    to = {src: [flow.dst == victim for flow in job.flows if flow.src == src] for src in senders}

    def change(state: State, _window: int) -> None:
        for flow in job.flows:
            if flow.dst == victim:
                state.wish[flow.name] = more
            elif flow.src in senders:
                hit, all_of = sum(to[flow.src]), len(to[flow.src])
                state.wish[flow.name] = max(0.2, (all_of - more * hit) / (all_of - hit))

    job.change = change
    return victim


def bad_link(job: Job) -> str:
    """A cable that corrupts."""
    loss, counted = 10 ** job.rng.uniform(-3.6, -2.2), job.rng.random() < 0.8
    link = job.rng.choice(_between_switches(job, 1 if counted else 2))

    def change(state: State, _window: int) -> None:
        state.loss[link] = loss
        state.errors[link] = loss if counted else 0.0

    job.change = change
    return link


def flapping(job: Job) -> str:
    """A port that goes and comes, or trains at half its speed."""
    flow = job.rng.choice(job.flows)
    link = flow.hops[0]
    if job.rng.random() < 0.3:

        def slower(state: State, _window: int) -> None:
            state.speed[link] = state.speed[flow.src] = 0.5

        job.change = slower
        return flow.src
    period = job.rng.choice((4, 6))

    def change(state: State, window: int) -> None:
        if (window - job.onset) % period in {0, 1}:
            state.dead |= {link}
            state.downs[flow.src] = state.downs[link] = 1

    job.change = change
    if job.window_ns * (job.windows - job.onset) < 2 * period * job.window_ns:
        job.onset = 0
    return flow.src


def class_mismatch(job: Job) -> str:
    """The job's packets are in another class than the probes', in which they wait."""
    hosts = sorted({flow.src.split("/")[0] for flow in job.flows})
    whole = job.rng.random() < 0.5
    host = job.rng.choice(hosts)
    job.differs, job.onset = False, job.onset if job.rng.random() < 0.5 else 0
    job.probe_class = dict(job.job_class)
    wrong = dict(
        job.job_class,
        **job.rng.choice(
            ({"roce_version": 1, "gid_index": 0}, {"tc": 32}, {"gid_index": 1, "roce_version": 1})
        ),
    )
    if whole:
        job.job_class = wrong
        job.differs = True
    else:
        job.flow_class = {flow.src: wrong for flow in job.flows if flow.src.startswith(host + "/")}
    job.matched_probes = job.rng.random() < 0.6
    extra_ns = job.rng.uniform(15, 60) * job.base_ns(job.flows[0])

    def change(state: State, _window: int) -> None:
        for flow in job.flows:
            if whole or flow.src in job.flow_class:
                state.extra_ns[flow.name] = extra_ns
                state.extra_ns[f"class {flow.src}"] = extra_ns

    job.change = change
    return "j" if whole else host


def pfc_storm(job: Job) -> str:
    """A NIC that will not stop pausing its switch, and the tree above it."""
    flow = job.rng.choice([each for each in job.flows if len(each.hops) > 2])
    root, share = flow.hops[-1], job.rng.uniform(0.4, 0.8)
    switch = root.split(">", maxsplit=1)[0]
    above = {
        hop
        for each in job.flows
        for hop in each.hops
        if hop.endswith(">" + switch) and "/" not in hop
    }

    def change(state: State, _window: int) -> None:
        state.pause[root] = share
        for hop in above:
            state.pause[hop] = share * 0.6

    job.change = change
    return root


def straggler(job: Job) -> str:
    """One rank computes slowly, for no reason that the device tells."""
    rank, factor = job.rng.randrange(len(job.places)), job.rng.uniform(1.15, 2.2)

    def change(state: State, _window: int) -> None:
        state.compute[rank] = factor

    job.change = change
    return f"rank {rank}"


def gpu_throttle(job: Job) -> str:
    """One GPU is held back, or mends its memory."""
    rank, left = job.rng.randrange(len(job.places)), job.rng.uniform(0.45, 0.8)
    reason = job.rng.choice(("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake", "ecc"))

    def change(state: State, _window: int) -> None:
        state.compute[rank] = 1 / left
        if reason == "ecc":
            state.ecc[rank], state.xid[rank] = 40, 63
        else:
            state.sm[rank], state.throttle[rank] = left, reason

    job.change = change
    return job.places[rank].gpu


def host_jitter(job: Job) -> str:
    """Somebody else's threads run on the job's cores of one host."""
    host = job.rng.choice(job.fabric.hosts)
    gap_ns = job.rng.uniform(60e3, 900e3)
    late_ns = job.rng.uniform(0.02, 0.2) * job.compute_ns
    seen = job.rng.choice(("both", "poll", "both"))

    def change(state: State, _window: int) -> None:
        state.poll_ns[host] = gap_ns
        state.runq[host] = 0.3 if seen == "both" else 0.0
        for rank, place in enumerate(job.places):
            if place.host == host:
                state.launch_ns[rank] = late_ns

    job.change = change
    return host


def pcie(job: Job) -> str:
    """A NIC's slot trained at few lanes."""
    flow = job.rng.choice(job.flows)
    width = job.rng.choice((1, 2, 4, 8))
    left = {1: 0.1, 2: 0.2, 4: 0.3, 8: 0.5}[width]

    def change(state: State, _window: int) -> None:
        state.width[flow.src] = width
        state.flush[flow.src] = 12.0
        for each in job.flows:
            if each.src == flow.src:
                state.cut[each.hops[0]] = left
            if each.dst == flow.src:
                state.cut[each.hops[-1]] = left

    job.change = change
    return flow.src


def slow_receiver(job: Job) -> str:
    """One rank takes long to consume what arrives."""
    rank, factor = job.rng.randrange(len(job.places)), job.rng.uniform(2.0, 5.0)

    def change(state: State, _window: int) -> None:
        state.slow_consumer[rank] = factor

    job.change = change
    return f"rank {rank}"


def rail_imbalance(job: Job) -> str:
    """One rail carries far more, or less, than its share."""
    rails = sorted({flow.rail for flow in job.flows})
    rail = job.rng.choice(rails)
    job.plan = job.rng.choice(({}, {f"r{each}": 1 / len(rails) for each in rails}))
    factor = job.rng.choice((0.2, 0.5, 1.2 + 0.8 * len(rails) / max(1, len(rails) - 1)))

    def change(state: State, _window: int) -> None:
        for flow in job.flows:
            if flow.rail == rail:
                state.amount[flow.name] = factor

    job.change = change
    return f"r{rail}"


def clock_fault(job: Job) -> str:
    """One NIC's clock steps."""
    nic = job.rng.choice(job.flows).src
    step_ns = job.rng.choice((-1, 1)) * 10 ** job.rng.uniform(4.0, 5.7)

    def change(state: State, _window: int) -> None:
        state.clock_ns[nic] = step_ns

    job.change = change
    return nic


def data_stall(job: Job) -> str:
    """Storage is slow for all, or checkpoints are long."""
    much_ns = job.rng.uniform(0.5, 2.0) * job.compute_ns
    checkpoint = job.rng.random() < 0.4

    def change(state: State, _window: int) -> None:
        if checkpoint:
            state.checkpoint_ns = 5 * much_ns
        else:
            state.data_ns = much_ns

    job.change = change
    return "j"


def hang(job: Job) -> str:
    """One rank never comes, or comes with another operation."""
    rank, kind = job.rng.randrange(len(job.places)), job.rng.choice(("hang", "desync"))
    job.windows += int(25_000 * 1e6 / job.window_ns)
    job.onset = job.rng.randrange(8, 20)

    def change(state: State, _window: int) -> None:
        state.hang = (kind, rank)

    job.change = change
    return f"rank {rank}"


def reduced_capacity(job: Job) -> str:
    """A NIC is gone for good; its flows crowd onto another of the same host."""
    gone = job.rng.choice(job.flows).src
    host = gone.split("/")[0]
    job.onset = max(job.onset, 8)
    at = job.fabric.hosts.index(host)
    rail = next(flow.rail for flow in job.flows if flow.src == gone)
    other = (rail + 1) % job.fabric.nics
    moved = {}
    for flow in job.flows:
        if gone in {flow.src, flow.dst}:
            peer = flow.dst if flow.src == gone else flow.src
            there = (job.fabric.hosts.index(peer.split("/")[0]), other)
            ends = ((at, other), there) if flow.src == gone else (there, (at, other))
            moved[flow.name] = flow._replace(
                src=job.fabric.nic(*ends[0]),
                dst=job.fabric.nic(*ends[1]),
                rail=other,
                hops=job.fabric.route(*ends, salt=flow.name),
            )

    def change(state: State, window: int) -> None:
        state.moved = moved
        state.dead |= {hop for hop in job.capacity if gone in hop.split(">")} | {gone}
        state.downs[gone] = int(window - job.onset < 2)

    job.change = change
    return gone


FAULTS: dict[str, Any] = {
    "slow-flow": slow_flow, "contention": contention, "incast": incast, "bad-link": bad_link,
    "flapping": flapping, "class-mismatch": class_mismatch, "pfc-storm": pfc_storm,
    "straggler": straggler, "gpu-throttle": gpu_throttle, "host-jitter": host_jitter, "pcie": pcie,
    "slow-receiver": slow_receiver, "rail-imbalance": rail_imbalance, "clock-fault": clock_fault,
    "data-stall": data_stall, "hang": hang, "reduced-capacity": reduced_capacity,
}  # fmt: skip


def plain(_job: Job) -> str:
    """Nothing at all."""
    return ""


def starved(job: Job) -> str:
    """All hosts are short of CPU: everything measured is noisy, nobody more than others."""
    job.starved = True
    job.variant += "/starved"
    return ""


def uneven_work(job: Job) -> str:
    """Ranks with longer sequences take longer, as they should."""
    job.onset = 0
    weights = [job.rng.uniform(0.8, 1.3) for _ in job.places]

    def change(state: State, _window: int) -> None:
        state.work.update(enumerate(weights))

    job.change = change
    job.variant += "/work"
    return ""


def planned_down(job: Job) -> str:
    """A port is taken down on purpose, a spare that the job does not use."""
    link = "spare0>spare1"

    def change(state: State, window: int) -> None:
        state.downs[link] = int((window - job.onset) % 8 == 0)
        state.planned.add(link)

    job.capacity[link] = job.fabric.line_bps
    job.change = change
    job.variant += "/planned"
    return ""


def planned_shares(job: Job) -> str:
    """Rails of unequal speed, and a plan that says so."""
    rails = sorted({flow.rail for flow in job.flows})
    weights = {rail: job.rng.uniform(0.5, 1.0) for rail in rails}
    job.onset = 0
    job.plan = {f"r{rail}": weight / sum(weights.values()) for rail, weight in weights.items()}

    def change(state: State, _window: int) -> None:
        for flow in job.flows:
            state.amount[flow.name] = weights[flow.rail]

    job.change = change
    job.variant += "/shares"
    return ""


def busy_neighbour(job: Job) -> str:
    """Others use links too, without getting in the way."""
    links = _between_switches(job, 1)

    def change(state: State, _window: int) -> None:
        for link in links[::2]:
            state.background[link] = 0.3

    job.change = change
    job.variant += "/neighbour"
    return ""


def power_cap(job: Job) -> str:
    """GPUs say that software caps their power, all the same, and keep pace."""

    def change(state: State, _window: int) -> None:
        for rank in range(len(job.places)):
            state.throttle[rank] = "sw_power_cap"

    job.change = change
    job.variant += "/powercap"
    return ""


def one_flap(job: Job) -> str:
    """One short loss of carrier on a port that nobody uses at that instant."""
    nic = job.rng.choice(job.flows).src

    def change(state: State, window: int) -> None:
        state.downs[nic] = int(window in {job.onset, job.onset + 1})

    job.change = change
    job.variant += "/oneflap"
    return ""


QUIET = (
    plain,
    plain,
    starved,
    starved,
    uneven_work,
    planned_down,
    planned_shares,
    busy_neighbour,
    power_cap,
    one_flap,
)
