"""A fleet under faults, simulated from seeds. Exit status 1: something promised did not hold.

python -m bench.world                         # 50 seeds
python -m bench.world --first 7 --seeds 1 --echo
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time

from tests.world.faults import NAMES
from tests.world.planted import NEED_GATEWAYS, PLANTED, SHOWN_BY
from tests.world.run import Ran, command, run
from tests.world.world import Settings

from syntony.controller.main import collect_seldom, leave_out_pandas

REPORT_EACH = 5
"""Seeds between two lines."""


def main() -> int:
    """Run the seeds."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "bench.world", *sys.argv[1:]])  # noqa: S606
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="The first seed.")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--hosts", type=int, default=Settings().hosts)
    parser.add_argument("--controllers", type=int, default=Settings().controllers)
    parser.add_argument("--gateways", type=int, default=Settings().gateways)
    parser.add_argument("--seconds", type=float, default=Settings().faults_s, help="Of faults.")
    parser.add_argument(
        "--gap", type=float, default=Settings().mean_gap_s, help="Seconds between two faults."
    )
    parser.add_argument(
        "--faults", default="", help=f"Only these, by commas, of {', '.join(NAMES)}."
    )
    parser.add_argument(
        "--planted", default="", help=f"One or more, by commas, of {', '.join(PLANTED)}, or all."
    )
    parser.add_argument(
        "--echo", action="store_true", help="Print everything that happens; another digest."
    )
    options = parser.parse_args()
    settings = Settings(
        hosts=options.hosts, controllers=options.controllers, gateways=options.gateways,
        faults_s=options.seconds, mean_gap_s=options.gap, echo=options.echo,
        only=tuple(filter(None, options.faults.split(","))),
    )  # fmt: skip
    collect_seldom()
    leave_out_pandas()
    seeds = range(options.first, options.first + options.seeds)
    if options.planted:
        names = list(PLANTED) if options.planted == "all" else options.planted.split(",")
        return max(_look_for(name, seeds, settings) for name in names)
    return _run_all(seeds, settings)


def _look_for(name: str, seeds: range, settings: Settings) -> int:
    """Find a planted fault. 1: not found."""
    if name in NEED_GATEWAYS:
        settings = settings._replace(gateways=settings.gateways or 2)
    if not settings.only:
        settings = settings._replace(**SHOWN_BY.get(name, {}))
    for seed in seeds:
        ran = run(seed, settings, name)
        if "TypeError: " in ran.broken:
            print(f"{name}: does not fit the code that it replaces: {ran.broken}", flush=True)
            return 1
        if ran.broken:
            first = ran.broken.partition("\n")[0]
            print(f"{name}: seed {seed}, {seed - seeds[0] + 1} tried: {first}", flush=True)
            return 0
    print(f"{name}: not found with {len(seeds)} seeds", flush=True)
    return 1


def _run_all(seeds: range, settings: Settings) -> int:
    began, done = time.process_time(), list[Ran]()
    for seed in seeds:
        ran = run(seed, settings)
        done.append(ran)
        if ran.broken:
            print("\n".join(ran.lines))
            print(f"broken: {ran.broken}\nagain: {command(seed, settings)} --echo")
            return 1
        if len(done) % REPORT_EACH == 0 or seed == seeds[-1]:
            spent_s = time.process_time() - began
            simulated_s = sum(each.simulated_s for each in done)
            print(
                f"seeds={len(done)} simulated_s={simulated_s:.0f} broken=0 "
                f"simulated_s_per_cpu_s={simulated_s / spent_s:.0f} "
                f"checks={sum(each.checks for each in done)} "
                f"batches={sum(each.batches for each in done)} "
                f"pages={sum(each.pages for each in done)} "
                f"moves={sum(each.moves for each in done)}",
                flush=True,
            )
    print("digest=" + hashlib.sha256("".join(each.digest for each in done).encode()).hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
