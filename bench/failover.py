"""Jobs under failure: what each kind of fault costs, with plain TCP, kernel MPTCP, and Syntony.

    python -m bench.failover --quick                       # within ten minutes
    python -m bench.failover --repeat 10 --modes syntony
    python -m bench.failover --overhead-only
    python -m bench.failover --rate 200mbit --quick        # where there are processors enough

Each trial is one run of a real job on four hosts of a lab (one rank a host, 1 MiB a rank and step,
every result checked) with one fault on schedule. A step is complete when its last rank has it; the
longest step is the longest time between two completions. Links are slow enough (50 Mb/s) that on
two cores they bind the job and not the processors: what is measured of a job that has every core is
how long its ranks and the agents wait for one another.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable, Sequence

import msgspec
from bench.tcp_modes import MODES, prepared

from syntony.errors import MissingError, SyntonyError
from syntony.lab.drill import modes, nic_flap, place, scenarios
from syntony.lab.drill.figures import RunFigures, figures
from syntony.lab.drill.trial import NicFlapTimes
from syntony.lab.jobs import programs
from syntony.lab.jobs.torch_build import find_torch
from syntony.lab.rates import format_rate, parse_rate_bps
from syntony.model import S

JOBS = ("builtin", "builtin-all-to-all", "ddp")
QUICK_PAIRS = {"builtin": scenarios.NAMES, "builtin-all-to-all": ("blackhole",),
               "ddp": ("link-down",)}  # fmt: skip
"""Every fault with the cheapest job, the other jobs with the commonest faults."""
QUICK_OTHERS = {("builtin", "link-down"), ("builtin", "blackhole"), ("builtin", "spine-blackhole"),
                ("ddp", "link-down")}  # fmt: skip
"""What all columns but Syntony's are measured with in a quick run."""
RATE_BPS = 50_000_000
"""At the lab's own 200 Mb/s four ranks, their agents and every hop of their packets fill two cores
(load average 11 with nothing beside it); at this rate they do not (3 to 6)."""
OVERHEAD_ROUNDS, QUICK_ROUNDS = 3, 1
QUICK_TIMES = NicFlapTimes(before_ns=2 * S, after_ns=4 * S, limit_ns=20 * S)
FULL_TIMES = NicFlapTimes(before_ns=4 * S, after_ns=8 * S, limit_ns=60 * S)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, job and mode: all its repetitions."""

    scenario: str
    job: str
    mode: str
    runs: tuple[RunFigures, ...]
    refused: str = ""
    """Why there is no run."""


def wish_for(
    requested: argparse.Namespace, job: str, scenario: str, times: NicFlapTimes
) -> nic_flap.NicFlapOptions:
    framework, kind = programs.by_name(job)
    python = sys.executable if framework == "builtin" else find_torch()
    return nic_flap.NicFlapOptions(
        framework=framework,
        kind=kind,
        python=python,
        fault=scenario,
        outage_ns=round(requested.outage * S),
        spec=msgspec.structs.replace(place.SPEC, rate_bps=requested.rate),
        times=times,
    )


def trial(options: nic_flap.NicFlapOptions, mode: modes.JobMode, *, faulty: bool) -> RunFigures:
    """In a lab of its own: no connection, route or metric of the run before."""
    act = nic_flap.NicFlapRun(name=mode.name, mode=mode, faulty=faulty)
    with place.lab_for(options.spec, agents=mode.agents) as lab, prepared(lab, mode):
        return figures(nic_flap.run_once(lab, options, act, lambda _text: None))


def matrix(
    requested: argparse.Namespace, pairs: Sequence[tuple[str, str]]
) -> tuple[list[Cell], bool]:
    """All cells, and whether all trials were made: if interrupted, the cells are of those that
    were. Modes take turns within each repetition, so that a busy hour hits all of them."""
    times = QUICK_TIMES if requested.quick else FULL_TIMES
    found: dict[tuple[str, str, str], list[RunFigures]] = {
        (scenario, job, name): []
        for job, scenario in pairs
        for name in requested.modes
        if not left_out(requested, name, (job, scenario))
    }
    refused: dict[tuple[str, str, str], str] = {}
    whole = True
    turns = [
        (turn, MODES[name], job, scenario)
        for turn in range(requested.repeat)
        for name in requested.modes
        for job, scenario in pairs
        if (scenario, job, name) in found
    ]
    for turn, mode, job, scenario in turns:
        key = (scenario, job, mode.name)
        progress(f"{turn + 1}/{requested.repeat} {mode.name}: {job}, {scenario}")
        try:
            options = wish_for(requested, job, scenario, times)
            place.check_mode(mode)
            found[key].append(trial(options, mode, faulty=True))
        except SyntonyError as error:
            refused[key] = str(error)
            progress(f"  no run: {error}")
        except KeyboardInterrupt:
            progress("ended early")
            whole = False
            break
    cells = [
        Cell(scenario=k[0], job=k[1], mode=k[2], runs=tuple(runs), refused=refused.get(k, ""))
        for k, runs in found.items()
    ]
    return cells, whole


def left_out(requested: argparse.Namespace, mode: str, pair: tuple[str, str]) -> bool:
    """Whether a quick run has no time for it."""
    chosen = not requested.quick or requested.faults
    return not chosen and mode != modes.SYNTONY.name and pair not in QUICK_OTHERS


def overhead(requested: argparse.Namespace, rounds: int) -> list[Cell]:
    """No fault: the same job in turns with each mode."""
    times = NicFlapTimes(before_ns=4 * S, after_ns=S)
    found: dict[str, list[RunFigures]] = {name: [] for name in requested.modes}
    for turn in range(rounds):
        for mode in (MODES[name] for name in requested.modes):
            progress(f"overhead {turn + 1}/{rounds} {mode.name}")
            options = wish_for(requested, "builtin", "link-down", times)
            found[mode.name].append(trial(options, mode, faulty=False))
    return [
        Cell(scenario="none", job="builtin", mode=name, runs=tuple(runs))
        for name, runs in found.items()
    ]


def progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def table(cells: Iterable[Cell]) -> None:
    """Medians over the repetitions, longest step also at its worst."""
    print(
        "| Job | Fault | With | Ended | Median step | Longest step: median, max | Detected "
        "| Steps/s before, during, after | Resumed | Return gap | Resets | Wrong |"
    )
    print("| --- " * 12 + "|")
    for cell in cells:
        head = f"| {cell.job} | {cell.scenario} | {cell.mode} "
        if cell.runs or cell.refused:
            print(head + row(cell.runs) if cell.runs else f"{head}| {cell.refused} |")


def row(runs: Sequence[RunFigures]) -> str:
    ended = {run.outcome: sum(r.outcome == run.outcome for r in runs) for run in runs}
    longest = [run.longest_step_s for run in runs if run.longest_step_s is not None]
    rates = ", ".join(
        f"{statistics.median(getattr(run, f'throughput_{when}') for run in runs):.1f}"
        for when in ("before", "during", "after")
    )
    cells = (
        ", ".join(f"{count} {word}" for word, count in ended.items()),
        middle([run.step_p50_s for run in runs]),
        f"{middle(longest)}, {span(max(longest))}" if longest else "–",
        middle([None if run.detect_ms is None else run.detect_ms / 1000 for run in runs]),
        rates,
        middle([run.resumed_after_s for run in runs]),
        middle([run.return_gap_s for run in runs]),
        str(sum(run.resets for run in runs)),
        str(sum(run.wrong for run in runs)),
    )
    return f"| {' | '.join(cells)} |"


def middle(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return span(statistics.median(known)) if known else "–"


def span(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def rate(text: str) -> int:
    try:
        return parse_rate_bps(text)
    except SyntonyError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def available(names: Sequence[str]) -> list[str]:
    """Modes that this installation has; says which it lacks."""
    found = []
    for name in names:
        try:
            place.check_mode(MODES[name])
        except MissingError as error:
            progress(f"left out: {error}")
        else:
            found.append(name)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="part of the matrix, short outages")
    parser.add_argument("--repeat", type=int, help="1 with --quick, else 3")
    parser.add_argument("--outage", type=float, help="s; 2 with --quick, else 5")
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--jobs", nargs="+", choices=list(programs.BY_NAME), default=list(JOBS))
    parser.add_argument(
        "--faults", nargs="+", choices=scenarios.NAMES, help="these, and no runs without a fault"
    )
    parser.add_argument("--overhead-only", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--rate", type=rate, default=RATE_BPS, metavar="RATE", help="of every link; 50mbit"
    )
    requested = parser.parse_args()
    requested.repeat = requested.repeat or (1 if requested.quick else 3)
    requested.outage = requested.outage or (2.0 if requested.quick else 5.0)
    requested.modes = available(requested.modes)
    chosen = requested.faults or scenarios.NAMES
    pairs = [
        (job, fault)
        for job in requested.jobs
        for fault in chosen
        if not requested.quick or requested.faults or fault in QUICK_PAIRS.get(job, ())
    ]
    cells, whole = ([], True) if requested.overhead_only else matrix(requested, pairs)
    rounds = QUICK_ROUNDS if requested.quick and not requested.overhead_only else OVERHEAD_ROUNDS
    steady = overhead(requested, rounds) if whole and not requested.faults else []
    if requested.json:
        said = {"rate_bps": requested.rate, "matrix": cells, "overhead": steady}
        print(json.dumps(msgspec.to_builtins(said), indent=1))
        return 0
    print(
        f"Links of {format_rate(requested.rate)}, outages of {requested.outage:g} s "
        f"(the flaps have their own rhythm), load average {os.getloadavg()[0]:.0f} at the end.\n"
    )
    for part in filter(None, (cells, steady)):
        table(part)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
