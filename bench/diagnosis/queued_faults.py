"""What is broken in the third generator's machinery, and what is odd in jobs with nothing wrong."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from bench.diagnosis.case import Unfit

if TYPE_CHECKING:
    from bench.diagnosis.queued import World
    from bench.diagnosis.queued_engine import Flow, Server


def _across(world: World) -> dict[str, list[Flow]]:
    found: dict[str, list[Flow]] = defaultdict(list)
    for flow in world.job.flows:
        for server in flow.path[1:-1]:
            found[server.name].append(flow)
    return found


def _pick_link(world: World, least: int, last: bool) -> Server:
    """A link that enough flows of several NICs cross, and enough others do not."""
    into = {flow.path[-2].name for flow in world.job.flows}
    outof = {flow.path[1].name for flow in world.job.flows}
    names = [
        name for name, flows in sorted(_across(world).items())
        if (name in into) == last and name not in outof and len(flows) >= least
        and len(flows) <= 0.5 * len(world.job.flows)
        and len({flow.src for flow in flows}) >= min(least, 2)
    ]  # fmt: skip
    if not names:
        raise Unfit
    return world.fabric.servers[world.rng.choice(names)]


def _during(world: World, server: Server, name: str, value: float) -> None:
    old = getattr(server, name)
    world.engine.at(world.on, setattr, server, name, value)
    world.engine.at(world.off, setattr, server, name, old)


def slow_flow(world: World) -> str:
    """A limiter, or a detour, for one queue pair."""
    siblings = defaultdict(list)
    for flow in world.job.flows:
        siblings[len(flow.path)].append(flow)
    flow = world.rng.choice([each for group in siblings.values() if len(group) >= 5
                             for each in group] or _unfit())  # fmt: skip
    world.engine.at(world.on, setattr, flow, "extra", world.base * world.rng.uniform(8, 40))
    if world.rng.random() < 0.6:
        pace = world.service * world.rng.uniform(4, 10)
        world.engine.at(world.on, setattr, flow, "pace", pace)
        world.engine.at(world.off, setattr, flow, "pace", 0.0)
    world.engine.at(world.off, setattr, flow, "extra", 0.0)
    return flow.name


def _unfit() -> list[Flow]:
    raise Unfit


def _load(world: World, server: Server) -> None:
    server.burst = world.base * world.rng.uniform(0.4, 1.2)
    world.loads[server.name] = world.rng.uniform(0.9, 0.96)
    _during(world, server, "background", world.loads[server.name])
    server.xoff = world.base * world.rng.uniform(15, 40)


def contention(world: World) -> str:
    """Another job's bursts on a link between switches."""
    server = _pick_link(world, 2, last=False)
    _load(world, server)
    return server.name


def incast(world: World) -> str:
    """Many senders, of this job and others, to one NIC."""
    server = _pick_link(world, 2, last=True)
    _load(world, server)
    return next(flow.dst for flow in world.job.flows if flow.path[-2] is server)


def bad_link(world: World) -> str:
    """Packets that do not come across."""
    across = _across(world)
    names = sorted(name for name, flows in across.items()
                   if len(flows) <= 0.6 * len(world.job.flows))  # fmt: skip
    if not names:
        raise Unfit
    name = world.rng.choice(names)
    world.expected_loss = name
    _during(world, world.fabric.servers[name], "loss", world.rng.uniform(0.02, 0.08))
    world.errors[name] = world.rng.uniform(20, 2000)
    return name


def flapping(world: World) -> str:
    """A port that loses carrier again and again."""
    flow = world.rng.choice(world.job.flows)
    count = world.rng.randrange(3, 8)
    span = (world.off - world.on) / count
    # Twice a minute at least, whatever the job's step time.
    count = max(count, int((world.off - world.on) * world.dilation / 25e9) + 1)
    span = (world.off - world.on) / count
    times = [world.on + span * (each + world.rng.uniform(0.1, 0.6)) for each in range(count)]
    world.downs[flow.src] = times
    long = min(span * 0.2, world.engine.width * 0.7)

    def opens(at: float) -> float:
        gone = [time + long for time in times if time <= at < time + long]
        return gone[0] if gone else at

    for each in world.job.flows:
        for server, nic in ((each.path[1], each.src), (each.path[-2], each.dst)):
            if nic == flow.src:
                server.closed = opens
    return flow.src


def class_mismatch(world: World) -> str:
    """The job's class waits at every switch; the default class does not."""
    mean = world.base * world.rng.uniform(8, 40)
    host = world.rng.choice(world.job.flows).src.split("/")[0]
    whole = world.rng.random() < 0.6 or world.fabric.hosts < 5
    world.odd_class = "" if whole else host
    links = {flow.path[-2].name for flow in world.job.flows}  # once for each packet

    def wait(sender: str, name: str, at: float) -> float:
        if not world.active(at) or name not in links:
            return 0.0
        if not whole and sender != host:
            return 0.0
        return mean * world.rng.uniform(0.6, 1.5)

    world.engine.class_delay = wait
    return world.name if whole else host


def pfc_storm(world: World) -> str:
    """A NIC that does not take its packets; everything before it is paused."""
    if not world.engine.lossless:
        raise Unfit
    server = _pick_link(world, 2, last=True)
    duty, cycle = world.rng.uniform(0.8, 0.95), world.base * world.rng.uniform(10, 40)

    def opens(at: float) -> float:
        place = (at - world.on) % cycle
        return at + duty * cycle - place if world.active(at) and place < duty * cycle else at

    server.closed = opens
    world.storm[server.name] = duty
    for each in world.fabric.servers.values():
        if each.xoff < 1e11:
            each.xoff = 2.5 * world.service
    return server.name


def straggler(world: World) -> str:
    """A rank whose compute takes longer."""
    if world.job.size < 4:
        raise Unfit
    rank, factor = world.rng.randrange(world.job.size), world.rng.uniform(1.15, 1.9)
    world.job.slow = lambda each, at: factor if each == rank and world.active(at) else 1.0
    return f"rank {rank}"


def gpu_throttle(world: World) -> str:
    """The same, and the GPU says so."""
    rank = int(straggler(world).split()[1])
    kind = world.rng.choice(("clock", "reason", "both", "xid", "ecc"))
    world.gpu_told[rank] = kind
    return world.gpu(rank)


def host_jitter(world: World) -> str:
    """A neighbour eats one host's cores."""
    if world.fabric.hosts < 4:
        raise Unfit
    host = world.fabric.host(world.rng.randrange(world.fabric.hosts))
    mean = world.compute * world.rng.uniform(0.03, 0.15)
    before = world.engine.host_delay

    def late(nic: str, at: float) -> float:
        if nic.split("/", maxsplit=1)[0] != host or not world.active(at):
            return before(nic, at)
        return world.rng.expovariate(1 / mean) if world.rng.random() < 0.4 else 0.0

    world.engine.host_delay = late
    world.starved[host] = world.rng.uniform(0.15, 0.5)
    return host


def pcie(world: World) -> str:
    """A slot with fewer lanes."""
    into = {flow.dst for flow in world.job.flows}
    nic = world.rng.choice([flow for flow in world.job.flows if flow.src in into] or _unfit()).src
    part = world.rng.choice((0.25, 0.5)) if world.rng.random() < 0.5 else 0.25
    world.slot[nic] = part
    for way in ("to", "from"):
        server = world.fabric.dma(way, nic)
        _during(world, server, "bps", server.bps * part * 0.6)
    return nic


def slow_receiver(world: World) -> str:
    """A rank that is slow to take what has come."""
    rank = world.rng.choice([flow.peer for flow in world.job.flows])
    long = world.service * world.rng.uniform(5, 12)
    usual = world.engine.consume_ns
    world.engine.consume_ns = lambda flow, at: (
        long if flow.peer == rank and world.active(at) else usual(flow, at)
    )
    world.consumes_late = rank
    return f"rank {rank}"


def rail_imbalance(world: World) -> str:
    """More, or less, over one rail."""
    rails = sorted({flow.rail for flow in world.job.flows})
    count = [sum(flow.rail == rail for flow in world.job.flows) for rail in rails]
    if len(rails) < 2 or len(set(count)) > 1:
        raise Unfit  # uneven as it is
    rail = world.rng.choice(rails)
    part = world.rng.choice((0.3, 0.5, 2.0, 2.5))
    world.job.share = lambda each, at: part if each == rail and world.active(at) else 1.0
    return rail


def clock_fault(world: World) -> str:
    """A NIC's clock steps."""
    pairs = {(flow.src, flow.dst) for flow in world.job.flows}
    for _ in range(20):
        nic = world.rng.choice(world.job.flows).src
        peers = {one for one, other in pairs if other == nic} | {
            other for one, other in pairs if one == nic}  # fmt: skip
        if len(peers) >= 2 and len(world.nics) >= 4:
            world.clock[nic] = world.rng.choice((-1, 1)) * world.base * world.rng.uniform(4, 60)
            return nic
    raise Unfit


def data_stall(world: World) -> str:
    """Storage is slow, for all."""
    every = world.rng.choice((1, 1, 4))
    level = world.compute * world.rng.uniform(0.7, 1.5) * (max(1, every))
    usual = world.job.data

    def wait(rank: int, step: int, at: float) -> tuple[float, float]:
        data, checkpoint = usual(rank, step, at)
        if not world.active(at) or step % every:
            return data, checkpoint
        more = level * world.rng.uniform(0.8, 1.2)
        return (data + more, checkpoint) if every == 1 else (data, checkpoint + more)

    world.job.data = wait
    return world.name


def hang(world: World) -> str:
    """A rank dies, or calls something else."""
    if world.job.size < 3:
        raise Unfit
    rank = world.rng.randrange(world.job.size)
    kind = world.rng.choice(("dies", "dies", "broadcast"))
    if len(next(comm for comm in world.job.comms if rank in comm.ranks).ranks) < 3:
        kind = "dies"

    def stops(each: int, _comm: object, at: float) -> str:
        return kind if each == rank and at >= world.on else ""

    world.job.stops = stops
    world.hangs = True
    return f"rank {rank}"


def reduced_capacity(world: World) -> str:
    """A NIC dies and its flows use the host's next one, or a link between switches does."""
    fabric = world.fabric
    if fabric.rails < 2:
        raise Unfit
    flow = world.rng.choice(world.job.flows)
    nic = flow.src

    def move() -> None:
        for each in world.job.flows:
            for host in (each.src_node, each.dst_node):
                if nic in {each.src, each.dst} and nic.split("/")[0] == fabric.host(host):
                    rail = (int(each.rail[4:]) + 1) % fabric.rails
                    each.path = fabric.path(each.src_node, each.dst_node, rail, fabric.made)
                    each.src = fabric.nic(each.src_node, rail)
                    each.dst = fabric.nic(each.dst_node, rail)
                    each.moved = world.engine.now
                    break

    world.engine.at(world.on, move)
    world.gone[nic] = world.on
    return nic


FAULTS = {
    "slow-flow": slow_flow, "contention": contention, "incast": incast, "bad-link": bad_link,
    "flapping": flapping, "class-mismatch": class_mismatch, "pfc-storm": pfc_storm,
    "straggler": straggler, "gpu-throttle": gpu_throttle, "host-jitter": host_jitter,
    "pcie": pcie, "slow-receiver": slow_receiver, "rail-imbalance": rail_imbalance,
    "clock-fault": clock_fault, "data-stall": data_stall, "hang": hang,
    "reduced-capacity": reduced_capacity,
}  # fmt: skip


def ordinary(_world: World) -> None:
    """Nothing is odd."""


def starved(world: World) -> None:
    """All hosts are short of CPU."""
    mean = world.compute * 0.05

    def late(_nic: str, _at: float) -> float:
        return min(mean * world.rng.paretovariate(1.5), 20 * mean) if (
            world.rng.random() < 0.06) else 0.0  # fmt: skip

    world.engine.host_delay = late
    world.starved_all = True


def uneven(world: World) -> None:
    """Ranks have more or less to do, and say so."""
    more = {rank: world.rng.uniform(0.85, 1.25) for rank in range(world.job.size)}
    world.job.work = lambda rank, _step: more[rank] * world.rng.uniform(0.95, 1.05)
    world.keep_work = True


def changed_batch(world: World) -> None:
    """From some step on every rank computes longer."""
    factor = world.rng.uniform(1.3, 2.0)
    world.job.slow = lambda _rank, at: factor if at >= world.on else 1.0


def planned(world: World) -> None:
    """A planned change takes a port down."""
    flapping(world)
    world.planned = True
    for server in world.fabric.servers.values():
        server.closed = None


def benign(world: World) -> None:
    """GPUs that report a power cap, and a few old ECC errors."""
    world.gpu_told[world.rng.randrange(world.job.size)] = "benign"


def dirty(world: World) -> None:
    """A few symbol errors that cost no packet."""
    world.errors[world.rng.choice(world.job.flows).path[1].name] = 3.0


def bursty(world: World) -> None:
    """Other jobs' light bursts everywhere."""
    for server in world.fabric.servers.values():
        if server.xoff < 1e11:
            server.background = world.rng.uniform(0.05, 0.3)


ODDITIES = {"": ordinary, "starved": starved, "uneven": uneven, "batch": changed_batch,
            "planned": planned, "benign": benign, "dirty": dirty, "bursty": bursty}  # fmt: skip
