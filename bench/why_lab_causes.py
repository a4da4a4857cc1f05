"""The causes that `bench.why_lab` makes real, each of a random subject and size, beside a running
job; and which answer is right."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from bench.why_lab_processes import end_groups, kill, members, pin, sockets

from syntony.errors import MissingError
from syntony.lab.commands import shaper_line
from syntony.lab.drill import modes
from syntony.lab.drill.place import NIC
from syntony.lab.drill.slow_job import busiest_connection
from syntony.lab.plan import LinkKind
from syntony.workload.flows import Flows
from syntony.workload.verdict import FaultClass

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from syntony.lab.client import Lab
    from syntony.lab.drill.slow_job import NamedFlow, Recorder
    from syntony.lab.jobs.programs import JobSpec
    from syntony.lab.plan import LabPlan, Link

RATES = ("1mbit", "1500kbit", "2mbit")
NARROW = "8mbit"
"""For a class of packets: what a NIC receives in a step of the job waits there for 16 to 33 ms."""
FLOOD_PROGRAM = Path(__file__).with_name("why_lab_flood.py")
FLOOD = 0.6
"""Of a NIC's rate: two of them do not fit."""
FLOOD_PORTS, FLOOD_DPORT = range(40_000, 40_016), 9
LATELY = 3
"""Windows that a connection which the job still has was seen in: those of a job before stay in the
recording."""


class Begun(NamedTuple):
    """A cause in force."""

    end: Callable[[], object]
    right: Callable[[tuple[str, ...]], bool]
    """Whether the subjects of a verdict of the right class are the right ones."""
    clock: str = ""
    """Host whose clock is wrong."""
    twin: Callable[[NamedFlow], bool] = lambda _verdict: False
    """Whether a verdict of another class is right as far as flows can tell."""


class Cause(NamedTuple):
    """One kind of cause."""

    row: str
    fault: str
    """The class that is right; empty: nothing is to be named."""
    torch: bool
    begin: Callable[[Scene], Begun]
    rails: int = 1
    """NICs of each host that the job sends by."""


class Running(NamedTuple):
    """A job."""

    spec: JobSpec
    groups: tuple[int, ...]
    """Process group of each rank; of a job by two rails those of the second after those of the
    first."""
    torch: bool


class Scene(NamedTuple):
    """A running job and its lab."""

    lab: Lab
    plan: LabPlan
    job: Running
    rng: random.Random
    control: Path
    recorder: Recorder

    def flows(self) -> list[tuple[str, tuple[str, ...]]]:
        """Receiving NIC and directed links of each flow that was recorded lately. Raises
        `MissingError`: of none."""
        bundle = self.recorder.bundle()
        if bundle is None or "flows" not in bundle.tables:
            raise MissingError("no flow is recorded")
        flows = Flows(bundle.tables["flows"])
        lately = np.any(np.isfinite(flows.raw_delay[:, -LATELY:]), axis=1).tolist()
        return [(dst, hops) for dst, hops, here in zip(flows.dst, flows.hops, lately, strict=True)
                if hops and here]  # fmt: skip

    def host(self) -> str:
        return self.rng.choice(self.job.spec.hosts)

    def start(self, host: str, *argv: str) -> Callable[[], object]:
        """A program of our own in a host, until called."""
        command = self.lab.enter_argv(host, (sys.executable, *argv))
        process = subprocess.Popen(command, start_new_session=True)

        def end() -> None:
            kill(process)
            process.wait()

        return end

    def flood(self, ways: list[tuple[str, str, list[int]]]) -> Callable[[], object]:
        """Each (sender, receiver, source ports) sends UDP, six tenths of a NIC, until called."""
        addresses, stack = self.lab.addresses(4), ExitStack()
        bps = FLOOD * self.plan.spec.rate_bps
        for sender, receiver, ports in ways:
            words = [addresses[f"{end}/{NIC}"] for end in (sender, receiver)]
            stack.callback(
                self.start(sender, str(FLOOD_PROGRAM), *words, str(int(bps)), *map(str, ports))
            )
        return stack.close

    def inject(
        self, kind: str, target: str, options: dict[str, str] | None = None
    ) -> Callable[[], object]:
        fault = self.lab.inject(kind, target, options or {})
        return lambda: self.lab.clear(fault.id)

    def order(self, **changes: object) -> Callable[[], object]:
        """Change what the program does, until called."""
        before = self.control.read_text()
        write(self.control, json.loads(before) | changes)
        return lambda: write(self.control, json.loads(before))


def write(place: Path, what: object) -> None:
    new = place.with_suffix(".new")
    new.write_text(json.dumps(what))
    new.replace(place)


def slow_flow(scene: Scene) -> Begun:
    first, last = scene.rng.sample(range(len(scene.job.spec.hosts)), 2)
    order = [
        first,
        *(each for each in range(len(scene.job.spec.hosts)) if each not in {first, last}),
    ]
    spec = msgspec.structs.replace(
        scene.job.spec,
        hosts=tuple(scene.job.spec.hosts[each] for each in (*order, last)),
        addresses=tuple(scene.job.spec.addresses[each] for each in (*order, last)),
    )
    ports, names = busiest_connection(scene.lab, spec)
    options = {"to": scene.rng.choice(RATES), "sport": str(ports[0]), "dport": str(ports[1])}
    end = scene.inject("flow-rate", f"{spec.hosts[0]}/{NIC}", options)
    return Begun(end, lambda subjects: set(subjects) <= set(names))


def lossy_nic(scene: Scene) -> Begun:
    nic = f"{scene.rng.choice(scene.job.spec.hosts)}/{NIC}"
    end = scene.inject("loss", nic, {"percent": scene.rng.choice(["3", "6", "10"])})
    return Begun(end, lambda subjects: all(nic in each for each in subjects))


def lossy_cable(scene: Scene) -> Begun:
    """One that the job sends by."""
    used = {hop for _, hops in scene.flows() for hop in hops[1:-1]}
    cable = scene.rng.choice(
        [each for each in scene.plan.of_kind(LinkKind.FABRIC) if not used.isdisjoint(_ways(each))]
    )
    end = scene.inject("loss", cable.name, {"percent": scene.rng.choice(["3", "6", "10"])})
    return Begun(end, lambda subjects: not set(_ways(cable)).isdisjoint(subjects))


def _ways(cable: Link) -> tuple[str, str]:
    """Its two directions, as recordings name them."""
    return f"{cable.a.node}->{cable.b.node}", f"{cable.b.node}->{cable.a.node}"


def contention(scene: Scene) -> Begun:
    """Two strangers' streams, of six tenths of a link each, meet on a link of two of the job's
    flows; they have no sender and no receiver in common, whose NICs would be full as well."""
    crossing: dict[str, int] = defaultdict(int)
    for _, hops in scene.flows():
        for hop in hops[1:-1]:
            crossing[hop] += 1
    links = sorted(each for each, flows in crossing.items() if flows >= 2)
    found = [(link, pair) for link in links
             for pair in itertools.combinations(_ways_over(scene, link), 2)
             if pair[0][0] != pair[1][0] and pair[0][1] != pair[1][1]]  # fmt: skip
    if not found:
        raise MissingError("no link of two flows that two hosts can fill")
    link, pair = scene.rng.choice(found)
    end = scene.flood([*pair])
    return Begun(end, lambda subjects: link in subjects)


def _ways_over(scene: Scene, link: str) -> list[tuple[str, str, list[int]]]:
    """One way of each two hosts whose UDP crosses a link: sender, receiver, source port."""
    found: dict[tuple[str, str], tuple[str, str, list[int]]] = {}
    for src, dst in itertools.permutations(scene.job.spec.hosts, 2):
        ends = f"{src}/{NIC}", f"{dst}/{NIC}"
        for path in scene.lab.paths(*ends, FLOOD_PORTS, FLOOD_DPORT):
            if link in (f"{a}->{b}" for a, b in itertools.pairwise(path.hops)):
                found.setdefault((src, dst), (src, dst, [path.sport]))
    return list(found.values())


def incast(scene: Scene) -> Begun:
    """Two strangers' streams, spread over all spines, meet before one NIC of the job."""
    target, *senders = scene.rng.sample(scene.job.spec.hosts, 3)
    nic = f"{target}/{NIC}"
    alike = links_like(nic, scene.flows())
    end = scene.flood([(sender, target, [*FLOOD_PORTS]) for sender in senders])
    return Begun(
        end, lambda subjects: subjects == (nic,),
        twin=lambda verdict: is_twin(nic, alike, verdict),
    )  # fmt: skip


def links_like(nic: str, flows: Sequence[tuple[str, tuple[str, ...]]]) -> frozenset[str]:
    """Links inside the fabric that exactly the flows to a NIC cross, which nothing that flows show
    tells from it."""
    into = [place for place, (dst, _) in enumerate(flows) if dst == nic]
    crossing: dict[str, list[int]] = defaultdict(list)
    for place, (_, hops) in enumerate(flows):
        for hop in hops[1:-1]:
            crossing[hop].append(place)
    return frozenset(link for link, places in crossing.items() if places == into)


def is_twin(nic: str, alike: frozenset[str], verdict: NamedFlow) -> bool:
    """Whether a verdict says that the NIC is full, or a link that is like it (decision 0431)."""
    names = set(verdict.subjects)
    return verdict.fault == FaultClass.CONTENTION and nic in names and names - {nic} <= alike


def slow_receiver(scene: Scene) -> Begun:
    """A rank's sockets have hardly any memory to receive into, as on a host that is short of it."""
    rank = scene.rng.randrange(len(scene.job.spec.hosts))
    before = [(held, held.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
              for held in sockets(scene.job.groups[rank])]  # fmt: skip
    for held, _ in before:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)

    def end() -> None:
        for held, size in before:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size // 2)
            held.close()

    return Begun(end, lambda subjects: subjects == (f"rank {rank}",))


def class_mismatch(scene: Scene) -> Begun:
    """The job's sockets get a class whose packets have a narrow queue before every NIC."""
    dscp = scene.rng.choice((8, 10, 26))
    stack = ExitStack()
    for host in scene.job.spec.hosts:
        port = next(link.b for link in scene.plan.links_of(host)
                    if link.a.name == NIC and link.kind is LinkKind.RAIL)  # fmt: skip
        which = f"match ip tos {dscp << 2:#x} 0xfc"
        for words in (
            f"qdisc add dev {port.name} parent 1:1 handle 9: htb default 1",
            f"class add dev {port.name} parent 9: classid 9:1 htb rate 1gbit quantum 60000",
            f"class add dev {port.name} parent 9: classid 9:2 htb rate {NARROW} burst 2k",
            f"filter add dev {port.name} parent 9: protocol ip u32 {which} flowid 9:2",
        ):
            scene.lab.run(port.node, "tc", *words.split())
        # A token bucket drops everything once its queue is deleted, until it is given another.
        again = shaper_line("change", scene.plan, port, scene.plan.spec.rate_bps)
        for undo in (again, f"qdisc del dev {port.name} parent 1:1 handle 9:"):
            stack.callback(scene.lab.run, port.node, "tc", *undo.split())
    held = [each for group in scene.job.groups for each in sockets(group)]
    for each in held:
        stack.callback(each.close)
        each.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
        stack.callback(each.setsockopt, socket.IPPROTO_IP, socket.IP_TOS, 0)
    return Begun(stack.close, lambda subjects: subjects == (modes.JOB,))


def core_shared(scene: Scene) -> Begun:
    """All of a rank's threads share one core with a program of greater priority."""
    rank = scene.rng.randrange(len(scene.job.spec.hosts))
    core = min(os.sched_getaffinity(0))
    group, nice = scene.job.groups[rank], scene.rng.choice((8, 10))
    stack = ExitStack()
    for thread in (int(task.name) for pid in members(group)
                   for task in Path(f"/proc/{pid}/task").iterdir()):  # fmt: skip
        stack.callback(pin, thread, os.sched_getaffinity(thread), 0)
        pin(thread, {core}, nice)
    # Where the kernel groups sessions, priorities are compared within each of them only.
    session = Path(f"/proc/{group}/autogroup")
    if session.exists():
        session.write_text(str(nice))
        stack.callback(session.write_text, "0")
    hog = "import time; end=time.monotonic()+60\nwhile time.monotonic()<end: pass"
    pinned = ("taskset", "-c", str(core), sys.executable, "-c", hog)
    process = subprocess.Popen(
        scene.lab.enter_argv(scene.job.spec.hosts[rank], pinned), start_new_session=True
    )
    stack.callback(process.wait)
    stack.callback(kill, process)
    return Begun(stack.close, lambda subjects: subjects == (scene.job.spec.hosts[rank],))


def rail_use(scene: Scene) -> Begun:
    """One rail of two is not used any more."""
    ranks = len(scene.job.spec.hosts)
    which = scene.rng.randrange(2)
    stack = ExitStack()
    for group in scene.job.groups[which * ranks : (which + 1) * ranks]:
        os.killpg(group, signal.SIGSTOP)
        stack.callback(os.killpg, group, signal.SIGCONT)
    return Begun(stack.close, lambda subjects: f"rail{which}" in subjects)


def flapping(scene: Scene) -> Begun:
    nic = f"{scene.rng.choice(scene.job.spec.hosts)}/{NIC}"
    end = scene.inject("flap", nic, {"period": "3s", "duty": "0.15"})
    return Begun(end, lambda subjects: all(nic in each for each in subjects))


def straggler(scene: Scene) -> Begun:
    rank = scene.rng.randrange(len(scene.job.spec.hosts))
    end = scene.order(slow_rank=rank, slow_s=scene.rng.uniform(0.06, 0.3))
    return Begun(end, lambda subjects: subjects == (f"rank {rank}",))


def data_stall(scene: Scene) -> Begun:
    end = scene.order(data_s=scene.rng.uniform(0.15, 0.4))
    return Begun(end, lambda subjects: subjects == (modes.JOB,))


def hang(scene: Scene) -> Begun:
    rank = scene.rng.randrange(len(scene.job.spec.hosts))
    group = scene.job.groups[rank]
    os.killpg(group, signal.SIGSTOP)

    def right(subjects: tuple[str, ...]) -> bool:
        # Of a rank that stopped within an operation three readings tell that it is that one.
        return subjects == (f"rank {rank}",) or subjects[0].startswith("communicator ")

    return Begun(lambda: os.killpg(group, signal.SIGCONT), right)


def killed(scene: Scene) -> Begun:
    """One rank is killed. The others end as well, by the errors that they get, so that nothing
    tells it from a job that somebody ends; until then that rank is right, too."""
    rank = scene.rng.randrange(len(scene.job.spec.hosts))
    os.killpg(scene.job.groups[rank], signal.SIGKILL)
    return Begun(lambda: None, _is_job, twin=lambda verdict: is_gone(verdict, rank))


def ended(scene: Scene) -> Begun:
    """Somebody ends the job; one rank ends before the others, as these write a checkpoint."""
    first, *others = scene.rng.sample(scene.job.groups, len(scene.job.groups))
    os.killpg(first, signal.SIGTERM)
    pause = threading.Timer(scene.rng.uniform(0.1, 0.5), end_groups, (others,))
    pause.start()
    rank = scene.job.groups.index(first)
    return Begun(pause.join, _is_job, twin=lambda verdict: is_gone(verdict, rank))


def _is_job(subjects: tuple[str, ...]) -> bool:
    return subjects == (f"job {modes.JOB}",)


def is_gone(verdict: NamedFlow, rank: int) -> bool:
    """Whether a verdict says that the job waits for this rank, which has ended."""
    return verdict.fault == FaultClass.HANG and verdict.subjects == (f"rank {rank}",)


def desync(scene: Scene) -> Begun:
    rank = scene.rng.randrange(len(scene.job.spec.hosts))
    end = scene.order(skip_rank=rank)
    return Begun(end, lambda subjects: subjects == (f"rank {rank}",))


def clock_steps(scene: Scene) -> Begun:
    host = scene.host()
    end = scene.inject("clock-step", host, {"by": scene.rng.choice(["3ms", "-2ms", "10ms"])})
    return Begun(end, lambda _subjects: False, host)


def clock_drifts(scene: Scene) -> Begun:
    """Off by a millisecond after ten seconds and more."""
    host = scene.host()
    end = scene.inject("clock-drift", host, {"ppm": scene.rng.choice(["100", "-200", "400"])})
    return Begun(end, lambda _subjects: False, host)


def besides(
    clock: Callable[[Scene], Begun], cause: Callable[[Scene], Begun]
) -> Callable[[Scene], Begun]:
    """A cause, and a clock of one host that has a fault as well."""

    def begin(scene: Scene) -> Begun:
        with ExitStack() as stack:
            wrong = clock(scene)
            stack.callback(wrong.end)
            begun = cause(scene)
            stack.callback(begun.end)
            return begun._replace(end=stack.pop_all().close, clock=wrong.clock)

    return begin


def busy(scene: Scene) -> Begun:
    end = scene.inject("cpu-hog", scene.rng.choice(scene.job.spec.hosts), {"procs": "2"})
    return Begun(end, lambda _subjects: False)


def nothing(_scene: Scene) -> Begun:
    return Begun(lambda: None, lambda _subjects: False)


CAUSES = (
    Cause("slow flow", "slow-flow", False, slow_flow),
    Cause("NIC loses", "bad-link", False, lossy_nic),
    Cause("cable loses", "bad-link", False, lossy_cable),
    Cause("link full", "contention", False, contention),
    Cause("NIC full", "incast", False, incast),
    Cause("receiver short of memory", "slow-receiver", False, slow_receiver),
    Cause("class of its own", "class-mismatch", False, class_mismatch),
    Cause("rail not used", "rail-imbalance", False, rail_use, rails=2),
    Cause("NIC flaps", "flapping", False, flapping),
    Cause("clock steps", "", False, clock_steps),
    Cause("clock drifts", "", False, clock_drifts),
    Cause("clock steps, slow flow", "slow-flow", False, besides(clock_steps, slow_flow)),
    Cause("clock drifts, NIC full", "incast", False, besides(clock_drifts, incast)),
    Cause("host busy, sockets", "", False, busy),
    Cause("nothing, sockets", "", False, nothing),
    Cause("rank sleeps", "straggler", True, straggler),
    Cause("data loader waits", "data-stall", True, data_stall),
    Cause("clock steps, rank sleeps", "straggler", True, besides(clock_steps, straggler)),
    Cause("core shared", "host-jitter", True, core_shared),
    Cause("rank stopped", "hang", True, hang),
    Cause("rank killed", "undetermined", True, killed),
    Cause("job ended", "undetermined", True, ended),
    Cause("rank skips a collective", "hang", True, desync),
    Cause("host busy, PyTorch", "", True, busy),
    Cause("nothing, PyTorch", "", True, nothing),
)
