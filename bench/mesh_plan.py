"""Time to plan the probe mesh, and how little of it a joining host changes."""

from __future__ import annotations

import argparse
import time

from syntony.mesh.plan import mesh
from syntony.model import NicRef


def fleet(hosts: int, rails: int) -> list[NicRef]:
    return [NicRef(f"h{host}", f"rail{rail}") for host in range(hosts) for rail in range(rails)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nics", type=int, nargs="*", default=[16, 1024, 16_384, 131_072])
    parser.add_argument("--rails", type=int, default=8)
    args = parser.parse_args()
    print(f"{'NICs':>8} {'pairs':>9} {'plan':>9} {'pairs changed by one more host':>31}")
    for count in args.nics:
        hosts = max(count // args.rails, 2)
        start = time.perf_counter()
        before = mesh(fleet(hosts, args.rails), peers=10, seed=1)
        seconds = time.perf_counter() - start
        after = mesh(fleet(hosts + 1, args.rails), peers=10, seed=1)
        changed = sum(len(others - after[ref]) for ref, others in before.items()) // 2
        pairs = sum(map(len, before.values())) // 2
        print(f"{count:>8} {pairs:>9} {seconds:>8.2f}s {changed:>22} ({changed / pairs:.2%})")


if __name__ == "__main__":
    main()
