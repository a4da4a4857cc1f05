"""Named traffic patterns: collectives of two jobs. Pure, seeded."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from syntony.errors import InputError, UsageError
from syntony.sim.fluid.net import Net, Numbers
from syntony.sim.fluid.traffic import SimulatedTraffic, Trigger, TriggerKind, make_traffic

JOBS = 2
RING_BYTES = 16_000_000
PEER_BYTES = 2_000_000
ROUNDS = 16
"""Rounds of an all-to-all: the peers to which each NIC sends, one after the other."""
REDUCE_BYTES = 32_000_000
ONESHOT = Trigger(TriggerKind.ONESHOT)
_NAME = re.compile(r"(?P<kind>[a-z-]+?)(?:-(?P<nics>\d+))?(?P<random>-random)?")
SIZES = {256: (16, 16, 16), 2048: (64, 32, 32)}
"""NICs to the leaves, NICs per leaf and spines of the fabric that a preset of that size is for."""


class Preset(NamedTuple):
    """A parsed name."""

    kind: str
    nics: int
    """0: as many as the fabric has."""
    random: bool
    """NICs of a job are anywhere; else they are spread evenly, every other one of each leaf."""


def parse_preset(name: str) -> Preset:
    """``rings-256``, ``alltoall-2048-random``, ``permutation``. Raises `UsageError`: no such
    preset."""
    match = _NAME.fullmatch(name)
    if match is None or match["kind"] not in KINDS:
        raise UsageError(
            f"{name!r} is neither a file nor a preset: {', '.join(KINDS)}, each also with -256 or "
            f"-2048, and with -random"
        )
    nics = int(match["nics"] or 0)
    if nics and nics not in SIZES:
        raise UsageError(f"{name!r}: presets are of {' or '.join(map(str, SIZES))} NICs")
    return Preset(match["kind"], nics, random=bool(match["random"]))


def preset_traffic(
    preset: Preset, net: Net, rng: np.random.Generator, queue_pairs: int = 1
) -> SimulatedTraffic:
    """The traffic on a fabric.

    Args:
        rng: decides who is where, and the order of peers.
        queue_pairs: into how many flows each is split.

    Raises:
        InputError: the fabric has another number of NICs, or too few for two jobs.
    """
    if preset.nics and net.nics != preset.nics:
        raise InputError(
            "wrong-size", f"the preset is for {preset.nics} NICs, the topology has {net.nics}"
        )
    if net.nics < 2 * JOBS:
        raise InputError("wrong-size", f"two jobs need 4 NICs, the topology has {net.nics}")
    members = _members(net, rng, random=preset.random)
    leaves = int((net.position == 0).sum())
    traffic = KINDS[preset.kind](members, rng, leaves)
    return _split(traffic, queue_pairs) if queue_pairs > 1 else traffic


def _members(net: Net, rng: np.random.Generator, *, random: bool) -> list[Numbers]:
    if random:
        order = rng.permutation(net.nics)
        return [np.asarray(part) for part in np.array_split(order, JOBS)]
    # By place below the leaf, then by leaf: a NIC's neighbours in the job are on other leaves.
    order = np.lexsort((np.arange(net.nics), net.position))
    return [order[net.position[order] % JOBS == job] for job in range(JOBS)]


def _ring(members: Sequence[Numbers], _: np.random.Generator, __: int) -> SimulatedTraffic:
    """Each NIC streams to the next of its ring: an all-reduce of long buffers."""
    return make_traffic(
        np.concatenate(members),
        np.concatenate([np.roll(each, -1) for each in members]),
        RING_BYTES,
        _job_numbers(members),
    )


def _all_to_all(
    members: Sequence[Numbers], rng: np.random.Generator, leaves: int
) -> SimulatedTraffic:
    """Each NIC sends to one peer after the other, all with the same shifts: no receiver has two
    senders as long as all keep pace. Shifts by whole leaves are left out where there are others:
    of an evenly spread job they would not load the fabric."""
    waves = []
    for job, each in enumerate(members):
        every = np.arange(1, len(each))
        across = every[every % leaves != 0]
        every = across if len(across) else every
        shifts = rng.choice(every, min(ROUNDS, len(every)), replace=False)
        waves.append([(each, np.roll(each, -shift), job) for shift in shifts.tolist()])
    return _chains(waves, [PEER_BYTES] * ROUNDS)


def _reduce_scatter(
    members: Sequence[Numbers], _: np.random.Generator, __: int
) -> SimulatedTraffic:
    """Recursive halving among the largest power of two of each job's NICs."""
    waves, sizes = [], []
    for job, each in enumerate(members):
        count = 1 << (len(each).bit_length() - 1)
        steps = count.bit_length() - 1
        near = np.arange(count)
        waves.append([(each[:count], each[near ^ (count >> (k + 1))], job) for k in range(steps)])
        sizes.append([REDUCE_BYTES / 2 ** (k + 1) for k in range(steps)])
    return _chains(waves, max(sizes, key=len))


def _chains(
    waves: Sequence[Sequence[tuple[Numbers, Numbers, int]]], sizes: Sequence[float]
) -> SimulatedTraffic:
    """Each NIC's flows one after the other, wave by wave."""
    src, dst, job, size, waits, fires = [], [], [], [], [], []
    triggers: dict[int, Trigger] = {}
    for chain in waves:
        before: Numbers | None = None
        for number, (a, b, which) in enumerate(chain):
            last = number == len(chain) - 1
            after = None if last else len(triggers) + 1 + np.arange(len(a))
            none = np.full(len(a), -1)
            if after is not None:
                triggers |= dict.fromkeys(after.tolist(), ONESHOT)
            src.append(a)
            dst.append(b)
            job.append(np.full(len(a), which))
            size.append(np.full(len(a), sizes[number]))
            waits.append(none if before is None else before)
            fires.append(none if after is None else after)
            before = after
    arrays = [np.concatenate(column) for column in (src, dst, size, job, waits, fires)]
    return make_traffic(
        arrays[0], arrays[1], arrays[2], arrays[3],
        waits=arrays[4], fires=arrays[5], triggers=triggers,
    )  # fmt: skip


def _tree(members: Sequence[Numbers], _: np.random.Generator, __: int) -> SimulatedTraffic:
    """Binary tree all-reduce: up to the root, each waiting for its children, and down again."""
    src, dst, job, waits, fires = [], [], [], [], []
    triggers: dict[int, Trigger] = {}
    for which, each in enumerate(members):
        base = len(triggers) + 1
        count = len(each)
        for node in range(count):
            children = sum(child < count for child in (2 * node + 1, 2 * node + 2))
            # One trigger for what a node sends up (the root: down), one for what it passes down.
            triggers[base + node] = Trigger(TriggerKind.BARRIER, max(children, 1))
            triggers[base + count + node] = ONESHOT
        for node in range(1, count):
            parent, leaf = (node - 1) // 2, 2 * node + 1 >= count
            src.append(each[node])
            dst.append(each[parent])
            waits.append(-1 if leaf else base + node)
            fires.append(base + parent)
        for node in range(1, count):
            parent, leaf = (node - 1) // 2, 2 * node + 1 >= count
            src.append(each[parent])
            dst.append(each[node])
            waits.append(base if parent == 0 else base + count + parent)
            fires.append(-1 if leaf else base + count + node)
        job += [which] * (2 * count - 2)
    return make_traffic(src, dst, RING_BYTES, job, waits=waits, fires=fires, triggers=triggers)


def _permutation(members: Sequence[Numbers], rng: np.random.Generator, _: int) -> SimulatedTraffic:
    """Each NIC of a job sends to one other, drawn at random without fixed points."""
    far = []
    for each in members:
        order = rng.permutation(len(each))
        shifted = np.empty(len(each), dtype=np.int64)
        shifted[order] = np.roll(order, -1)  # one cycle through all: nobody sends to itself
        far.append(each[shifted])
    return make_traffic(
        np.concatenate(members), np.concatenate(far), RING_BYTES, _job_numbers(members)
    )


def _job_numbers(members: Sequence[Numbers]) -> Numbers:
    return np.repeat(np.arange(len(members)), [len(each) for each in members])


def _split(traffic: SimulatedTraffic, parts: int) -> SimulatedTraffic:
    """Every flow as several of equal size, started and ended together."""

    def each(values: Numbers) -> Numbers:
        return np.repeat(values, parts)

    fired = {int(k) for k in traffic.fires.tolist() if k >= 0}
    triggers = {
        number: Trigger(TriggerKind.BARRIER, parts * trigger.count) if number in fired else trigger
        for number, trigger in traffic.triggers.items()
    }
    return make_traffic(
        each(traffic.src), each(traffic.dst), np.repeat(traffic.size / parts, parts),
        each(traffic.job), waits=each(traffic.waits), fires=each(traffic.fires), triggers=triggers,
    )  # fmt: skip


KINDS: dict[str, Callable[[Sequence[Numbers], np.random.Generator, int], SimulatedTraffic]] = {
    "rings": _ring,
    "alltoall": _all_to_all,
    "reduce-scatter": _reduce_scatter,
    "tree": _tree,
    "permutation": _permutation,
}
