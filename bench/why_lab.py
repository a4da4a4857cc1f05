"""Causes made real in a live lab, one at a time, beside a running job: what `syntony why` answers.

    python -m bench.why_lab --minutes 20 --out FILE [--only slow-flow]

Labs of random shape, real agents, a job of sockets or of PyTorch under `syntony run`. Before each
cause the job runs undisturbed and nothing may be named; then the cause begins, and the recording is
judged every half second as `syntony why` judges it, until the right name or the limit. Seeds are
printed. With --out each episode is appended, and the table is of all that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from syntony.errors import MissingError, RemoteError
from syntony.lab.drill import modes
from syntony.lab.drill.place import NIC, lab_for
from syntony.lab.drill.slow_job import JudgedAnswer, Recorder, busiest_connection, watch
from syntony.lab.jobs.programs import JobSpec
from syntony.lab.jobs.runner import LabJob
from syntony.lab.jobs.torch_build import find_torch
from syntony.lab.plan import FabricSpec, LabPlan, LinkKind, make_plan
from syntony.model import MS, S
from syntony.workload.flows import Flows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from syntony.lab.client import Lab

QUIET_NS = 8 * S
LIMIT_NS = 40 * S
RECORDED_S = 10
"""Seconds of every rank or flow before the quiet phase begins."""
RECORD_S = 90.0
"""At most until they are there."""
ELEMENTS, PAUSE_NS = 8_192, 20 * MS
PROGRAM = Path(__file__).with_name("why_lab_job.py")
PORT = 29_650
START_S = 90.0
RATES = ("1mbit", "1500kbit", "2mbit")


class Begun(NamedTuple):
    """A cause in force."""

    end: Callable[[], object]
    right: Callable[[tuple[str, ...]], bool]
    """Whether a verdict's subjects are the right ones."""


class Cause(NamedTuple):
    """One kind of cause."""

    row: str
    fault: str
    """The class that is right; empty: nothing is to be named."""
    torch: bool
    begin: Callable[[Scene], Begun]


class Episode(NamedTuple):
    """One cause's outcome, as it is written down."""

    row: str
    fault: str
    seed: str
    hosts: int
    detected_s: float | None
    """Until the right class was said first."""
    named_s: float | None
    """… of the right subject and no other of that class."""
    before: tuple[str, ...]
    """What was named of the undisturbed job."""
    besides: tuple[str, ...]
    """Other classes, named since the cause began."""
    said: tuple[str, ...]
    """Subjects of the last answer of the right class."""
    looks: int
    """Answers that were judged."""
    load: float


class Running(NamedTuple):
    """A job."""

    spec: JobSpec
    processes: tuple[subprocess.Popen[bytes], ...]
    """One a rank, of a PyTorch job."""


class Scene(NamedTuple):
    """A running job and its lab."""

    lab: Lab
    plan: LabPlan
    job: Running
    rng: random.Random
    control: Path

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
    cable = scene.rng.choice(
        [each for each in scene.plan.of_kind(LinkKind.FABRIC) if each.a.node.startswith("leaf0")]
    )
    end = scene.inject("loss", cable.name, {"percent": scene.rng.choice(["3", "6", "10"])})
    ends = {cable.a.node, cable.b.node}
    return Begun(
        end,
        lambda subjects: all(node in each for node in ends for each in subjects),
    )


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
    process = scene.job.processes[rank].pid
    os.killpg(process, signal.SIGSTOP)
    return Begun(
        lambda: os.killpg(process, signal.SIGCONT), lambda subjects: subjects == (f"rank {rank}",)
    )


def desync(scene: Scene) -> Begun:
    rank = scene.rng.randrange(len(scene.job.spec.hosts))
    end = scene.order(skip_rank=rank)
    return Begun(end, lambda subjects: subjects == (f"rank {rank}",))


def clock_step(scene: Scene) -> Begun:
    host = scene.rng.choice(scene.job.spec.hosts)
    end = scene.inject("clock-step", host, {"by": scene.rng.choice(["3ms", "-2ms", "10ms"])})
    return Begun(end, lambda _subjects: False)


def busy(scene: Scene) -> Begun:
    end = scene.inject("cpu-hog", scene.rng.choice(scene.job.spec.hosts), {"procs": "2"})
    return Begun(end, lambda _subjects: False)


def nothing(_scene: Scene) -> Begun:
    return Begun(lambda: None, lambda _subjects: False)


CAUSES = (
    Cause("slow flow", "slow-flow", False, slow_flow),
    Cause("NIC loses", "bad-link", False, lossy_nic),
    Cause("cable loses", "bad-link", False, lossy_cable),
    Cause("NIC flaps", "flapping", False, flapping),
    Cause("clock stepped, sockets", "", False, clock_step),
    Cause("host busy, sockets", "", False, busy),
    Cause("nothing, sockets", "", False, nothing),
    Cause("rank sleeps", "straggler", True, straggler),
    Cause("data loader waits", "data-stall", True, data_stall),
    Cause("rank stopped", "hang", True, hang),
    Cause("rank skips a collective", "hang", True, desync),
    Cause("host busy, PyTorch", "", True, busy),
    Cause("nothing, PyTorch", "", True, nothing),
)


@contextmanager
def sockets(lab: Lab, hosts: tuple[str, ...]) -> Iterator[Running]:
    spec = _spec(lab, hosts)
    with LabJob(lab, spec, wrap=modes.SYNTONY_TCP.wrap) as job:
        job.wait_steps(3)
        yield Running(spec, ())


@contextmanager
def training(lab: Lab, hosts: tuple[str, ...], control: Path) -> Iterator[Running]:
    spec = _spec(lab, hosts)
    common = os.environ | {
        "WORLD_SIZE": str(len(hosts)), "OMP_NUM_THREADS": "1", "MASTER_ADDR": spec.addresses[0],
        "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": NIC,
    }  # fmt: skip
    argv = (*modes.SYNTONY_TCP.wrap, find_torch(), "-u", str(PROGRAM), str(control))
    with ExitStack() as stack:
        processes = []
        for rank, host in enumerate(hosts):
            process = subprocess.Popen(
                lab.enter_argv(host, argv), env=common | {"RANK": str(rank)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            stack.enter_context(process)
            stack.callback(_kill, process)
            processes.append(process)
        first = processes[0].stdout
        if first is None or not first.readline().startswith(b"step"):
            raise RemoteError("the job did not start")
        yield Running(spec, tuple(processes))


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _spec(lab: Lab, hosts: tuple[str, ...]) -> JobSpec:
    addresses = lab.addresses(4)
    return JobSpec(
        kind="all-to-all", hosts=hosts, nic=NIC, elements=ELEMENTS, pause_ns=PAUSE_NS,
        addresses=tuple(addresses[f"{host}/{NIC}"] for host in hosts),
    )  # fmt: skip


def run(lab: Lab, cause: Cause, seed: str, keep: Path | None) -> Episode:
    """One job, one cause; the recording of one that was judged wrongly is left in `keep`."""
    rng = random.Random(seed)
    hosts = lab.status().hosts
    plan = make_plan(lab.file().spec)
    with tempfile.TemporaryDirectory(prefix="syntony-why-") as place, ExitStack() as stack:
        control = Path(place) / "control"
        write(control, {"slow_rank": -1, "slow_s": 0.0, "data_s": 0.0, "skip_rank": -1})
        recorder = Recorder(lab, time.monotonic_ns())
        job = stack.enter_context(
            training(lab, hosts, control) if cause.torch else sockets(lab, hosts)
        )
        looks: list[JudgedAnswer] = []
        _wait_recorded(recorder, job)
        watch(recorder, looks, time.monotonic_ns() + QUIET_NS, lambda _look: False)
        before = _classes(looks)
        looks.clear()
        began_ns = time.monotonic_ns()
        begun = cause.begin(Scene(lab, plan, job, rng, control))
        try:
            named = watch(
                recorder, looks, began_ns + LIMIT_NS,
                lambda look: bool(cause.fault) and _right(look, cause.fault, begun.right),
            )  # fmt: skip
            wrong = set(_classes(looks)) - {cause.fault} or named != bool(cause.fault)
            if keep is not None and (before or wrong):
                recorder.keep(keep / seed.replace("/", "-").replace(" ", "-"))
        finally:
            begun.end()

    def until(true: Callable[[JudgedAnswer], bool]) -> float | None:
        return next(((look.at_ns - began_ns) / S for look in looks if true(look)), None)

    said = [_subjects(look, cause.fault) for look in looks]
    return Episode(
        row=cause.row,
        fault=cause.fault,
        seed=seed,
        hosts=len(hosts),
        detected_s=until(lambda look: bool(_subjects(look, cause.fault))),
        named_s=until(lambda look: _right(look, cause.fault, begun.right)),
        before=before,
        besides=tuple(sorted(set(_classes(looks)) - {cause.fault})),
        said=next((each for each in reversed(said) if each), ()),
        looks=len(looks),
        load=round(os.getloadavg()[0], 1),
    )


def _wait_recorded(recorder: Recorder, job: Running) -> None:
    """Until the job is seen as a whole. Raises `RemoteError`: it never was."""
    ranks = len(job.spec.hosts)
    end_s = time.monotonic() + RECORD_S
    while time.monotonic() < end_s:
        bundle = recorder.bundle()
        tables = {} if bundle is None else bundle.tables
        if job.processes and "steps" in tables:
            ends_ns = tables["steps"].ints("end_ns")
            if ends_ns.max() - ends_ns.min() > RECORDED_S * S:
                return
        elif not job.processes and "flows" in tables:
            delays = Flows(tables["flows"]).raw_delay
            enough = np.isfinite(delays).sum(axis=1) >= RECORDED_S
            if len(delays) >= ranks * (ranks - 1) and enough.all():
                return
        time.sleep(0.5)
    raise RemoteError(f"of the job's {ranks} ranks not all were recorded within {RECORD_S:.0f} s")


def _subjects(look: JudgedAnswer, fault: str) -> tuple[str, ...]:
    return tuple(name for each in look.verdicts if each.fault == fault for name in each.subjects)


def _right(look: JudgedAnswer, fault: str, right: Callable[[tuple[str, ...]], bool]) -> bool:
    subjects = _subjects(look, fault)
    return bool(subjects) and right(subjects)


def _classes(looks: Iterable[JudgedAnswer]) -> tuple[str, ...]:
    return tuple(sorted({each.fault for look in looks for each in look.verdicts}))


def measure(arguments: argparse.Namespace, episodes: list[Episode]) -> None:
    end_s = time.monotonic() + arguments.minutes * 60
    turn = 0
    while time.monotonic() < end_s and turn < arguments.labs:
        rng = random.Random(f"{arguments.seed}/{turn}")
        shape = FabricSpec(
            hosts=rng.randrange(3, 6), rails=1, leaves=rng.randrange(2, 4),
            spines=rng.randrange(2, 4), seed=rng.randrange(10_000),
        )  # fmt: skip
        print(f"seed {arguments.seed}/{turn}: {shape}", file=sys.stderr, flush=True)
        wanted = [each for each in CAUSES if arguments.only in each.row]
        rng.shuffle(wanted)
        with lab_for(modes.SYNTONY_TCP, shape) as lab:
            for cause in wanted:
                if time.monotonic() > end_s:
                    return
                try:
                    seed = f"{arguments.seed}/{turn}/{cause.row}"
                    episodes.append(run(lab, cause, seed, arguments.keep))
                except (MissingError, RemoteError) as error:
                    print(f"{cause.row}: {error}", file=sys.stderr, flush=True)
                    continue
                line = json.dumps(episodes[-1]._asdict())
                print(line, flush=True)
                if arguments.out is not None:
                    with arguments.out.open("a", encoding="utf-8") as file:
                        file.write(line + "\n")
        turn += 1


def table(episodes: list[Episode]) -> None:
    """Each cause: how often right, how soon, what else."""
    by_row: dict[str, list[Episode]] = defaultdict(list)
    for each in episodes:
        by_row[each.row].append(each)
    print("| Cause | Episodes | Right class | Right name | Seconds: median, most | Also | Before |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row, some in sorted(by_row.items()):
        named = [each.named_s for each in some if each.named_s is not None]
        took = f"{np.median(named):.1f}, {max(named):.1f}" if named else ""
        also = Counter(name for each in some for name in each.besides)
        before = Counter(name for each in some for name in each.before)
        detected = sum(each.detected_s is not None for each in some)
        print(
            f"| {row} | {len(some)} | {detected if some[0].fault else ''} "
            f"| {len(named) if some[0].fault else ''} | {took} | {_counted(also)} "
            f"| {_counted(before)} |"
        )


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in names.most_common())


def read(path: Path | None) -> list[Episode]:
    if path is None or not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Episode(**each | {name: tuple(each[name]) for name in ("before", "besides", "said")})
        for each in found
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--labs", type=int, default=1_000, help="at most")
    parser.add_argument("--minutes", type=float, default=20, help="begin nothing after so many")
    parser.add_argument("--only", default="", help="part of a row's name")
    parser.add_argument("--out", type=Path, help="append each episode here")
    parser.add_argument("--keep", type=Path, help="write recordings judged wrongly to this folder")
    arguments = parser.parse_args()
    episodes = read(arguments.out)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        measure(arguments, episodes)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        table(episodes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
