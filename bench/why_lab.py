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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from bench.why_lab_causes import CAUSES, Begun, Cause, Running, Scene, write
from bench.why_lab_processes import kill

from syntony.errors import MissingError, RemoteError
from syntony.io.bundle_files import write_bundle
from syntony.lab.drill import modes
from syntony.lab.drill.place import NIC, lab_for
from syntony.lab.drill.slow_job import JudgedAnswer, NamedFlow, Recorder, judge_until
from syntony.lab.jobs.programs import JobSpec
from syntony.lab.jobs.runner import LabJob
from syntony.lab.jobs.torch_build import find_torch
from syntony.lab.plan import FabricSpec, make_plan
from syntony.model import MS, S
from syntony.model.names import host_of
from syntony.workload.flows import Flows
from syntony.workload.verdict import FaultClass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from syntony.lab.client import Lab
    from syntony.workload.bundle import Bundle

QUIET_NS = 8 * S
LIMIT_NS = 40 * S
RECORDED_S = 10
"""Seconds of every rank or flow before the quiet phase begins."""
NOW_WINDOWS = 3
"""What a flow that still is has data in one of."""
RECORD_S = 90.0
"""At most until they are there."""
UNKNOWN = "clock UNKNOWN on "
ELEMENTS, PAUSE_NS = 8_192, 20 * MS
PROGRAM = Path(__file__).with_name("why_lab_job.py")
RATE_BPS = 40_000_000
"""Of every link: so slow that two cores can fill one."""
PORT = 29_650


class Episode(NamedTuple):
    """One cause's outcome, as it is written down."""

    row: str
    fault: str
    seed: str
    hosts: int
    detected_s: float | None
    """Until the right class was said first, or one that flows do not tell from it."""
    named_s: float | None
    """… of the right subject and no other of that class."""
    before: tuple[str, ...]
    """What was named of the undisturbed job."""
    besides: tuple[str, ...]
    """Other classes, named since the cause began, without a clock fault of a clock that has one."""
    said: tuple[str, ...]
    """Subjects of the last answer of the right class."""
    looks: int
    """Answers that were judged."""
    load: float
    clock_s: float | None = None
    """Until the answer said whose clock is UNKNOWN, and nobody else's."""
    twin: bool = False
    """The right subject was named among those that flows do not tell from it."""


class Recording(Recorder):
    """Remembers what was judged last."""

    last: tuple[dict[str, pa.Table], dict[str, Any]]

    def tables(self) -> tuple[dict[str, pa.Table], dict[str, Any]]:
        self.last = super().tables()
        return self.last


@contextmanager
def sockets(lab: Lab, hosts: tuple[str, ...], rails: int) -> Iterator[Running]:
    specs = [_spec(lab, hosts, rail) for rail in range(rails)]
    with ExitStack() as stack:
        jobs = [stack.enter_context(LabJob(lab, spec, wrap=modes.SYNTONY_TCP.wrap))
                for spec in specs]  # fmt: skip
        for job in jobs:
            job.wait_steps(3)
        yield Running(specs[0], tuple(group for job in jobs for group in job.groups()), False)


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
            stack.callback(kill, process)
            processes.append(process)
        first = processes[0].stdout
        if first is None or not first.readline().startswith(b"step"):
            raise RemoteError("the job did not start")
        yield Running(spec, tuple(each.pid for each in processes), True)


def _spec(lab: Lab, hosts: tuple[str, ...], rail: int = 0) -> JobSpec:
    addresses, nic = lab.addresses(4), f"rail{rail}"
    return JobSpec(
        kind="all-to-all", hosts=hosts, nic=nic, elements=ELEMENTS, pause_ns=PAUSE_NS,
        addresses=tuple(addresses[f"{host}/{nic}"] for host in hosts), port=PORT + 1 + rail,
    )  # fmt: skip


def run(lab: Lab, cause: Cause, seed: str, keep: Path | None) -> Episode:
    """One job, one cause; the recording of one that was judged wrongly is left in `keep`."""
    rng = random.Random(seed)
    hosts = lab.status().hosts
    plan = make_plan(lab.file().spec)
    with tempfile.TemporaryDirectory(prefix="syntony-why-") as place, ExitStack() as stack:
        control = Path(place) / "control"
        write(control, {"slow_rank": -1, "slow_s": 0.0, "data_s": 0.0, "skip_rank": -1})
        recorder = Recording(lab, time.monotonic_ns())
        job = stack.enter_context(
            training(lab, hosts, control) if cause.torch else sockets(lab, hosts, cause.rails)
        )
        looks: list[JudgedAnswer] = []
        folder = None if keep is None else keep / seed.replace("/", "-").replace(" ", "-")

        def kept(look: JudgedAnswer, *begun: Begun) -> bool:
            """Write down the first recording of which a wrong class is named."""
            wrong = set(_classes([look], *begun)) - ({cause.fault} if begun else set())
            if wrong and folder is not None and not folder.exists():
                write_bundle(folder, *recorder.last)
            return False

        _wait_recorded(recorder, job, cause.rails)
        judge_until(recorder, looks, time.monotonic_ns() + QUIET_NS, kept)
        before = _classes(looks)
        looks.clear()
        began_ns = time.monotonic_ns()
        begun = cause.begin(Scene(lab, plan, job, rng, control, recorder))
        try:
            # A clock is wrong for longer than a cause takes to be named: more may be said of it.
            judge_until(
                recorder, looks, began_ns + LIMIT_NS,
                lambda look: kept(look, begun) or (
                    bool(cause.fault) and not begun.clock and bool(grade(look, cause.fault, begun))
                ),
            )  # fmt: skip
            besides = set(_classes(looks, begun)) - {cause.fault}
            grades = [grade(look, cause.fault, begun) for look in looks]
            named = any(grades)
            unsaid = begun.clock and not any(_says_unknown(each, begun.clock) for each in looks)
            missed = unsaid or named != bool(cause.fault)
            if folder is not None and missed:
                write_bundle(folder.with_name(folder.name + "-end"), *recorder.last)
        finally:
            begun.end()

    def until(true: Callable[[JudgedAnswer], bool]) -> float | None:
        return next(((look.at_ns - began_ns) / S for look in looks if true(look)), None)

    said = [_subjects(look, cause.fault, begun) for look in looks]
    return Episode(
        row=cause.row,
        fault=cause.fault,
        seed=seed,
        hosts=len(hosts),
        detected_s=until(lambda look: bool(_subjects(look, cause.fault, begun))),
        named_s=until(lambda look: bool(grade(look, cause.fault, begun))),
        before=before,
        besides=tuple(sorted(besides)),
        said=next((each for each in reversed(said) if each), ()),
        looks=len(looks),
        load=round(os.getloadavg()[0], 1),
        clock_s=until(lambda look: _says_unknown(look, begun.clock)) if begun.clock else None,
        twin=next(filter(None, grades), "") == "twin",
    )


def _wait_recorded(recorder: Recorder, job: Running, rails: int) -> None:
    """Until the job is seen as a whole. Raises `RemoteError`: it never was, and what is missing."""
    end_s, ranks = time.monotonic() + RECORD_S, len(job.spec.hosts)
    flows = 0 if job.torch else rails * ranks * (ranks - 1)
    while lacks := missing(recorder.bundle(), flows):
        if time.monotonic() > end_s:
            raise RemoteError(f"not recorded within {RECORD_S:.0f} s: {lacks}")
        time.sleep(0.5)


def missing(bundle: Bundle | None, wanted: int) -> str:
    """What a whole recording of a job lacks, of so many flows, 0: of steps; empty: nothing."""
    name = "flows" if wanted else "steps"
    if bundle is None or name not in bundle.tables:
        return f"no {name}"
    if not wanted:
        ends_ns = bundle.tables[name].ints("end_ns")
        known_s = int(ends_ns.max() - ends_ns.min()) / S
        return "" if known_s > RECORDED_S else f"steps of {known_s:.0f} s only"
    flows = Flows(bundle.tables[name])
    seconds = np.isfinite(flows.raw_delay)
    # Connections of the job before, of the same name, may be in the first second as well.
    here, count = seconds[:, -NOW_WINDOWS:].any(axis=1), seconds.sum(axis=1)
    short = [f"{flows.names[each]} ({count[each]} s)"
             for each in np.flatnonzero(here & (count < RECORDED_S))]  # fmt: skip
    known = int((count >= RECORDED_S).sum())
    if known >= wanted and not short:
        return ""
    return f"{known} of {wanted} flows are known; too short: {', '.join(short) or 'none'}"


def _subjects(look: JudgedAnswer, fault: str, begun: Begun) -> tuple[str, ...]:
    return tuple(name for each in look.verdicts if each.fault == fault or begun.twin(each)
                 for name in each.subjects)  # fmt: skip


def grade(look: JudgedAnswer, fault: str, begun: Begun) -> str:
    """``right``: there is a verdict of the class, and each is of the right subjects; ``twin``: none
    is of the class, but one is right as far as flows can tell; empty: neither."""
    found = [each.subjects for each in look.verdicts if each.fault == fault]
    if found:
        return "right" if all(map(begun.right, found)) else ""
    return "twin" if any(map(begun.twin, look.verdicts)) else ""


def _classes(looks: Iterable[JudgedAnswer], begun: Begun | None = None) -> tuple[str, ...]:
    """Classes that were named; since a cause began without its twins, and without that of a host
    whose clock is wrong."""
    found = {
        each.fault
        for look in looks
        for each in look.verdicts
        if begun is None or not (begun.twin(each) or _is_of_clock(each, begun.clock))
    }
    return tuple(sorted(found))


def _is_of_clock(verdict: NamedFlow, clock: str) -> bool:
    """Whether a verdict says that the clock of this host is wrong, and no other's."""
    hosts = {host_of(nic) for nic in verdict.subjects}
    return verdict.fault == FaultClass.CLOCK_FAULT and hosts <= {clock}


def _says_unknown(look: JudgedAnswer, host: str) -> bool:
    """Whether an answer says that this host's clock is UNKNOWN, and no other's."""
    said = [each.removeprefix(UNKNOWN) for each in look.gaps if each.startswith(UNKNOWN)]
    return [each.partition(" ")[0] for each in said] == [host]


def measure(arguments: argparse.Namespace, episodes: list[Episode]) -> None:
    end_s = time.monotonic() + arguments.minutes * 60
    turn = 0
    while time.monotonic() < end_s and turn < arguments.labs:
        rng = random.Random(f"{arguments.seed}/{turn}")
        shape = FabricSpec(
            hosts=rng.randrange(3, 6), rails=rng.choice((1, 1, 2)), rate_bps=RATE_BPS,
            leaves=rng.randrange(2, 4), spines=rng.randrange(2, 4), seed=rng.randrange(10_000),
        )  # fmt: skip
        print(f"seed {arguments.seed}/{turn}: {shape}", file=sys.stderr, flush=True)
        parts = arguments.only.split(",")
        wanted = [each for each in CAUSES if any(part in each.row for part in parts)
                  and each.rails <= shape.rails]  # fmt: skip
        rng.shuffle(wanted)
        with lab_for(shape) as lab:
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
    print("| Cause | Episodes | Right class | Right name | Seconds: median, most | Clock | Also "
          "| Before |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row, some in sorted(by_row.items()):
        named = [each.named_s for each in some if each.named_s is not None]
        took = f"{np.median(named):.1f}, {max(named):.1f}" if named else ""
        also = Counter(name for each in some for name in each.besides)
        before = Counter(name for each in some for name in each.before)
        detected = sum(each.detected_s is not None for each in some)
        clock = sum(each.clock_s is not None for each in some)
        print(
            f"| {row} | {len(some)} | {detected if some[0].fault else ''} "
            f"| {_names(some) if some[0].fault else ''} | {took} "
            f"| {clock if 'clock' in row else ''} | {_counted(also)} | {_counted(before)} |"
        )


def _names(some: list[Episode]) -> str:
    """How many named the right subject, and of these how many among twins."""
    named = sum(each.named_s is not None for each in some)
    twins = sum(each.twin for each in some)
    return f"{named} ({twins} among twins)" if twins else str(named)


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
    parser.add_argument("--only", default="", help="parts of rows' names, by commas")
    parser.add_argument("--out", type=Path, help="append each episode here")
    parser.add_argument(
        "--keep",
        type=Path,
        help="write the first recording of each episode that was judged wrongly, and the last of"
        " one that was missed, to this folder",
    )
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
