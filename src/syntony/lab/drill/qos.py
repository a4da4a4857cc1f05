"""QoS drill: three jobs that exceed the fabric, one of them guaranteed. Separated by placement
where there are several links, and by pacing on a link that all must use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from syntony.errors import UsageError
from syntony.lab.client import Lab
from syntony.lab.drill import contention
from syntony.lab.drill.contention import SPEC, ContentionOptions, ContentionTimes, ContentionTrial
from syntony.lab.drill.contention_figures import Figures
from syntony.lab.drill.place import NIC
from syntony.lab.jobs.programs import PORT, JobSpec
from syntony.traffic.classes import JobClass

GOLD = "gold"
JOBS = (GOLD, "grey", "brown")
CLASSES = (
    JobClass(jobs=(GOLD,), priority="guaranteed"),
    JobClass(jobs=("*",), priority="scavenger"),
)
LINK_CLASSES = (
    JobClass(jobs=(GOLD,), priority="guaranteed"),
    JobClass(jobs=("brown",), priority="scavenger"),
)
"""No class names `grey`: it is standard."""
LINK_SPEC = msgspec.structs.replace(SPEC, hosts=4, rails=1)
"""Its receiver has one NIC of 40 Mb/s."""
LINK_NICS = {GOLD: "24mbit", "grey": "12mbit", "brown": ""}
"""How slow the NIC of each job's sender is made: gold could fill six tenths of the receiver's NIC,
grey three, brown all of it. TCP alone gives each a third."""
LINK_ELEMENTS = 65_536
"""256 KiB a step: 90 ms of gold's NIC."""
HOSTS = 6
"""Three below each leaf with two uplinks: two thirds of what they could send fits."""
RATE_BPS = 30_000_000
"""Three jobs on two cores."""


def link_drill(times: ContentionTimes, say: Callable[[str], None]) -> ContentionTrial:
    """Each job has a sender of its own and they have one receiver: TCP's shares, then pacing.

    Raises:
        MissingError: this machine or installation lacks something.
        RemoteError: the jobs did not start, or their flows were not known in time.
    """
    with contention.agent_lab(LINK_SPEC, LINK_CLASSES, None) as lab:
        contention.set_mode(lab, "observe", "pacing")
        for spec, rate in zip(link_specs(lab), LINK_NICS.values(), strict=True):
            if rate:
                lab.inject("rate", f"{spec.hosts[1]}/{NIC}", {"to": rate})
        return _link_run(lab, link_specs(lab), times, say)


def link_specs(lab: Lab) -> tuple[JobSpec, ...]:
    """The first host receives for all. Raises `UsageError`: too few hosts."""
    hosts, addresses = lab.status().hosts, lab.addresses(4)
    if len(hosts) <= len(JOBS):
        raise UsageError(f"lab {lab.name!r} has {len(hosts)} hosts; needed: {len(JOBS) + 1}")
    return tuple(
        JobSpec(
            kind="gather",
            elements=LINK_ELEMENTS,
            hosts=(hosts[0], sender),
            addresses=(addresses[f"{hosts[0]}/{NIC}"], addresses[f"{sender}/{NIC}"]),
            nic=NIC,
            port=PORT + number,
        )
        for number, sender in enumerate(hosts[1 : len(JOBS) + 1])
    )


def _link_run(
    lab: Lab, specs: Sequence[JobSpec], times: ContentionTimes, say: Callable[[str], None]
) -> ContentionTrial:
    with contention.start_jobs(lab, JOBS, specs, times, say) as (jobs, alone_ns):
        say("three jobs run: one receiver, one link to it")
        contention.wait_delays(lab, JOBS)
        named = dict(zip(JOBS, jobs, strict=True))
        return contention.measure_jobs(lab, named, times, alone_ns, say, what="pacing")


class GuaranteedShares(NamedTuple):
    """The guaranteed job's throughput, as a part of what it does alone."""

    before: float
    after: float


def make_options(seed: int, times: ContentionTimes) -> ContentionOptions:
    spec = msgspec.structs.replace(SPEC, hosts=HOSTS, rate_bps=RATE_BPS, seed=seed)
    return ContentionOptions(spec=spec, times=times, jobs=JOBS)


def guaranteed_shares(found: Figures) -> GuaranteedShares:
    """The guaranteed job's shares from a trial's figures. Pure."""
    alone = found.alone_mbps / len(JOBS)
    if not alone:
        return GuaranteedShares(0.0, 0.0)
    return GuaranteedShares(found.before.mbps[GOLD] / alone, found.after.mbps[GOLD] / alone)
