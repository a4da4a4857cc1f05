"""Incast drill: one host sends to another, then all to that one, then all paced by Syntony."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from syntony.errors import RemoteError, UsageError
from syntony.lab.client import Lab
from syntony.lab.drill import contention, verbs
from syntony.lab.drill.contention import ContentionTimes, ContentionTrial, ControllerSample
from syntony.lab.drill.modes import MANAGED
from syntony.lab.drill.place import NIC
from syntony.lab.jobs.nccl_mesh import PLUGIN
from syntony.lab.jobs.programs import JobSpec
from syntony.lab.jobs.runner import START_TIMEOUT_S, LabJob
from syntony.lab.plan import FabricSpec, LinkKind, make_plan
from syntony.model import MS, S

JOB = "incast"
SENDERS = 4
SPEC = FabricSpec(rails=2, leaves=2, spines=2, rate_bps=40_000_000, latency_ns=50 * MS)
"""Slow, so that two cores carry it; the receiver's leaf port is the narrowest place of all."""
ELEMENTS = 262_144
"""1 MiB from every sender each step: 0.4 s of the receiver's two links with four of them."""
VERBS_SENDERS = 2
VERBS_SPEC = FabricSpec(
    leaves=1, spines=1, rate_bps=500_000, burst_bytes=8_192, latency_ns=400 * MS
)
"""One leaf for each rail. The rate is low, so that the links and not the processors are the
bottleneck; the queue holds less than what two senders have under way (`MESSAGE`)."""
VERBS_ELEMENTS = 32_768
"""128 KiB from every sender each step: two seconds of the receiver's two links."""
MESSAGE = 4_096
"""Bytes: 70 ms of a link. A message goes at the link's rate, whatever the pace; so it must be short
beside the queue. A real link carries the plug-in's largest chunk in a hundredth of that."""
RAILS = ("rail0", "rail1")
LOSSY = ("cubic", "reno")
"""The usual default, and the one that a kernel allows in a lab without root if it forbids cubic."""
_WARM_STEPS = 4
_COUNTERS = "/sys/class/infiniband/rxe_*/ports/1/hw_counters"
_SENT_AGAIN = ("out_of_seq_request", "duplicate_request")
"""Of Soft-RoCE at the receiver, each a reason for the sender to send again: a packet was missing,
or an acknowledgement."""
_SYSCTL = "net.ipv4.tcp_congestion_control"


class IncastOptions(msgspec.Struct, frozen=True, kw_only=True):
    senders: int = SENDERS
    elements: int = ELEMENTS
    plain: bool = False
    """The job's connections are plain TCP: of one NIC each."""
    congestion: str = ""
    """Congestion control of all hosts; empty: the first of `LOSSY` that is allowed here."""
    spec: FabricSpec = SPEC
    times: ContentionTimes = ContentionTimes(before_ns=10 * S)
    """Of one sender, of all of them, and of all of them paced."""
    verbs: bool = False
    """Over RDMA, between virtual machines."""


VERBS_OPTIONS = IncastOptions(
    senders=VERBS_SENDERS,
    elements=VERBS_ELEMENTS,
    spec=VERBS_SPEC,
    times=ContentionTimes(alone_ns=10 * S, before_ns=20 * S, after_ns=60 * S),
    verbs=True,
)
"""Over verbs, where everything takes longer."""


class LossCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counters at an instant (CLOCK_MONOTONIC)."""

    at_ns: int
    sent_again: int
    """Segments that all senders have sent again; over RDMA how often the receiver made them do so.
    """
    dropped: int
    """Packets dropped by the queues to the receiver, at its leaves."""


class IncastTrial(msgspec.Struct, frozen=True, kw_only=True):
    trial: ContentionTrial
    receiver: str
    congestion: str
    losses: tuple[LossCounts, ...]
    """At the start and end of the time with one sender, of that with all, and of that paced."""
    rails: int
    """That its connections use."""


def drill(
    options: IncastOptions, say: Callable[[str], None], *, lab: Lab | None = None
) -> IncastTrial:
    """Runs the job once, in a lab of its own unless one is given.

    Raises:
        UsageError: the lab given has no agents, or too few hosts; no such congestion control.
        MissingError: this machine or installation lacks something.
        RemoteError: the job did not start.
    """
    spec = msgspec.structs.replace(options.spec, hosts=options.senders + 1)
    with contention.agent_lab(spec, (), lab, say if options.verbs else None) as place:
        job = job_spec(place, options)
        contention.set_mode(place, "observe", "pacing")
        tuned = () if options.verbs else job.hosts
        before = {host: place.run(host, "sysctl", "-n", _SYSCTL).strip() for host in tuned}
        try:
            used = "" if options.verbs else _choose(place, job.hosts, options.congestion)
            return _run(place, options, job, used, say)
        finally:
            with suppress(RemoteError):  # the lab may be gone
                contention.set_mode(place, "observe", "pacing")
                for host, name in before.items():
                    place.run(host, "sysctl", "-qw", f"{_SYSCTL}={name}")


def job_spec(lab: Lab, options: IncastOptions) -> JobSpec:
    """The first host receives. Raises `UsageError`: too few hosts, or none with RDMA."""
    if options.verbs:
        verbs.check_lab(lab)
    hosts, addresses = lab.status().hosts, lab.addresses(4)
    wanted = options.senders + 1
    if len(hosts) < wanted:
        raise UsageError(f"lab {lab.name!r} has {len(hosts)} hosts; needed: {wanted}")
    ranks = hosts[:wanted]
    nic = verbs.SOCKETS if options.verbs else NIC
    return JobSpec(
        kind="gather",
        elements=options.elements,
        hosts=ranks,
        addresses=tuple(addresses[f"{host}/{nic}"] for host in ranks),
        nic=nic,
        net=PLUGIN if options.verbs else "",
        message=MESSAGE if options.verbs else 0,
        nice=verbs.NICER if options.verbs else 0,
        alone=True,
    )


def _choose(lab: Lab, hosts: tuple[str, ...], wanted: str) -> str:
    """Set the congestion control of all hosts; return which one it is."""
    for name in (wanted,) if wanted else LOSSY:
        try:
            for host in hosts:
                lab.run(host, "sysctl", "-qw", f"{_SYSCTL}={name}")
        except RemoteError:
            continue
        return name
    allowed = lab.run(hosts[0], "sysctl", "-n", "net.ipv4.tcp_allowed_congestion_control")
    raise UsageError(
        f"congestion control {wanted or ' or '.join(LOSSY)} is not allowed here; "
        f"allowed: {', '.join(allowed.split())}"
    )


def _run(
    lab: Lab, options: IncastOptions, spec: JobSpec, congestion: str, say: Callable[[str], None]
) -> IncastTrial:
    samples: list[ControllerSample] = []
    wrap: tuple[str, ...] = (*MANAGED, JOB, "--")
    if options.plain:
        wrap = (*wrap, "env", "SYNTONY_TCP=off")
    if options.verbs:
        wrap = verbs.managed(JOB, RAILS)
    with LabJob(lab, spec, wrap=wrap) as job:
        job.wait_steps(
            _WARM_STEPS, verbs.START_BESIDE_AGENTS_S if options.verbs else START_TIMEOUT_S
        )
        kind = f"plain TCP, {congestion}" if options.plain else f"TCP over all rails, {congestion}"
        say(f"one sender, one receiver, {'RDMA' if options.verbs else kind}")
        counted = [_count(lab, spec)]
        alone_ns = time.monotonic_ns()
        contention.sample(lab, samples, alone_ns + options.times.alone_ns)
        counted.append(_count(lab, spec))
        job.let_all_send()
        contention.wait_delays(lab, (JOB,), options.senders)
        say(f"{options.senders} senders")
        counted.append(_count(lab, spec))
        began_ns = time.monotonic_ns()
        contention.sample(lab, samples, began_ns + options.times.before_ns)
        acted_ns = time.monotonic_ns()
        contention.set_mode(lab, "act", "pacing")
        counted.append(_count(lab, spec))
        say("Syntony paces")
        settled_ns = settled(acted_ns, acted_ns + options.times.after_ns)
        contention.sample(lab, samples, settled_ns)
        counted.append(_count(lab, spec))
        contention.sample(lab, samples, acted_ns + options.times.after_ns)
        ended_ns = time.monotonic_ns()
        counted.append(_count(lab, spec))
        contention.end_jobs([job])
        run = contention.job_run(JOB, job, f"{options.senders} senders to one receiver")
    trial = ContentionTrial(
        spec=lab.file().spec,
        alone_ns=(alone_ns, alone_ns + options.times.alone_ns),
        began_ns=began_ns,
        acted_ns=acted_ns,
        ended_ns=ended_ns,
        fleet_ahead_ns=samples[-1].traffic.now_ns - samples[-1].at_ns,
        jobs=(run,),
        samples=tuple(samples),
        moves=(),
        verbs=options.verbs,
    )
    return IncastTrial(
        trial=trial,
        receiver=spec.hosts[0],
        congestion=congestion,
        losses=tuple(counted),
        rails=1 if options.plain else trial.spec.rails,
    )


def settled(acted_ns: int, ended_ns: int) -> int:
    """From when on paced throughput counts as settled."""
    return min(acted_ns + 6 * S, (acted_ns + ended_ns) // 2)


def _count(lab: Lab, spec: JobSpec) -> LossCounts:
    at_ns, (receiver, *senders) = time.monotonic_ns(), spec.hosts
    links = make_plan(lab.file().spec).links_of(receiver)
    ports = [link.b for link in links if link.kind is LinkKind.RAIL]
    queues = [
        lab.run(port.node, "tc", "-s", "-j", "qdisc", "show", "dev", port.name) for port in ports
    ]
    if spec.net:
        files = " ".join(f"{_COUNTERS}/{name}" for name in _SENT_AGAIN)
        again = sum(map(int, lab.run(receiver, "sh", "-c", f"cat {files}").split()))
    else:
        again = sum(retransmitted(lab.run(host, "cat", "/proc/net/snmp")) for host in senders)
    return LossCounts(at_ns=at_ns, sent_again=again, dropped=sum(map(dropped, queues)))


def dropped(queues: str) -> int:
    """Packets dropped by the queues that tc(8) lists, in JSON. A queue's count includes those of
    the queues in it."""
    return sum(each.get("drops", 0) for each in json.loads(queues) if each.get("root"))


def retransmitted(snmp: str) -> int:
    """``RetransSegs`` of /proc/net/snmp; 0 where it is not reported."""
    rows = [line.split() for line in snmp.splitlines() if line.startswith("Tcp:")]
    if len(rows) < 2:
        return 0
    return int(dict(zip(rows[0], rows[1], strict=False)).get("RetransSegs", 0))
