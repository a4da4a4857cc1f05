"""Two jobs on one fabric: ECMP's throughput, and Syntony's, from seed to seed.

    python -m bench.contention --quick             # one seed, about two minutes
    python -m bench.contention --seeds 10          # the table in the docs, about twenty
    python -m bench.contention --seeds 10 --job builtin-all-to-all --hosts 8 --spines 3

Each seed is a lab of its own with other ECMP hashes, and the jobs' ports are the kernel's choice:
one run of `syntony lab drill contention`, every result of every step checked. Nothing is drawn
again where ECMP was lucky: such seeds count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys

import msgspec

from syntony.errors import SyntonyError
from syntony.lab.drill import contention
from syntony.lab.drill.contention_figures import Figures, figures
from syntony.lab.jobs import programs
from syntony.lab.jobs.torch_build import find_torch
from syntony.model import S

QUICK_TIMES = contention.ContentionTimes(alone_ns=3 * S, before_ns=6 * S, after_ns=10 * S)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One seed."""

    seed: int
    figures: Figures | None
    failed: str = ""
    """Why there are no figures."""


def run(requested: argparse.Namespace, seed: int) -> Run:
    framework, kind = programs.by_name(requested.job)
    options = contention.ContentionOptions(
        framework=framework,
        kind=kind,
        python=sys.executable if framework == "builtin" else find_torch(),
        spec=msgspec.structs.replace(
            contention.SPEC, hosts=requested.hosts, spines=requested.spines, seed=seed
        ),
        times=QUICK_TIMES if requested.quick else contention.ContentionTimes(),
    )
    try:
        return Run(seed=seed, figures=figures(contention.drill(options, _say)))
    except SyntonyError as error:
        return Run(seed=seed, figures=None, failed=str(error))


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr)


HEAD = (
    "seed    ECMP  Syntony   alone  optimum   gain  of alone  of optimum  resolved  moves/flow "
    " p99 before  p99 after  wrong"
)


def line(each: Run) -> str:
    found = each.figures
    if found is None:
        return f"{each.seed:4d}  failed: {each.failed}"
    resolved = "–" if found.resolved_s is None else f"{found.resolved_s:.1f} s"
    return (
        f"{each.seed:4d}  {found.before.total_mbps:6.1f}  {found.after.total_mbps:7.1f}  "
        f"{found.alone_mbps:6.1f}  {found.optimum_mbps:7.1f}  {found.gain:5.2f}  "
        f"{_share(found):8.0%}  {found.after.of_optimum:10.0%}  {resolved:>8}  "
        f"{found.moves_per_flow:10.2f}  {_ms(found.before.owd_p99_ms):>11}  "
        f"{_ms(found.after.owd_p99_ms):>9}  {found.wrong:5d}"
    )


def _share(found: Figures) -> float:
    return found.after.total_mbps / found.alone_mbps if found.alone_mbps else 0.0


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} ms"


def summary(runs: list[Run]) -> list[str]:
    """Median and worst of what the docs claim."""
    found = [each.figures for each in runs if each.figures is not None]
    if not found:
        return ["no seed gave figures"]
    gains = sorted(each.gain for each in found)
    shares = sorted(map(_share, found))
    resolved = sorted(each.resolved_s for each in found if each.resolved_s is not None)
    crowded = sum(each.before.shared_links >= 1 for each in found)
    rest = (
        f"undone {sum(each.undone for each in found)}, "
        f"refused {sum(each.refused for each in found)}"
    )
    wrong, lost = sum(each.wrong for each in found), sum(each.lost for each in found)
    return [
        f"{len(found)} of {len(runs)} seeds; ECMP crowded a link in {crowded}",
        f"Syntony / ECMP       median {statistics.median(gains):.2f}, worst {gains[0]:.2f}",
        f"Syntony / alone      median {statistics.median(shares):.0%}, worst {shares[0]:.0%}",
        _resolved(resolved),
        f"moves a flow         worst {max(each.moves_per_flow for each in found):.2f}; {rest}",
        f"wrong results        {wrong}; connections lost {lost}",
    ]


def _resolved(seconds: list[float]) -> str:
    if not seconds:
        return "resolved             nothing to resolve"
    return (
        f"resolved             median {statistics.median(seconds):.1f} s, worst {seconds[-1]:.1f} s"
        f" ({len(seconds)} seeds had something to resolve)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=1, metavar="N")
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--quick", action="store_true", help="shorter phases")
    parser.add_argument(
        "--job", default="builtin", choices=[n for n in programs.BY_NAME if n != "ddp"]
    )
    parser.add_argument("--hosts", type=int, default=contention.SPEC.hosts)
    parser.add_argument("--spines", type=int, default=contention.SPEC.spines)
    parser.add_argument("--json", action="store_true")
    requested = parser.parse_args()
    print(HEAD, file=sys.stderr if requested.json else sys.stdout)
    runs = []
    for seed in range(requested.first, requested.first + requested.seeds):
        runs.append(run(requested, seed))
        print(line(runs[-1]), file=sys.stderr if requested.json else sys.stdout, flush=True)
    if requested.json:
        print(json.dumps(msgspec.to_builtins(runs)))
    else:
        print("\n".join(summary(runs)))
    return 0 if all(each.figures is not None for each in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
