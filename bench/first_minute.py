"""A fault in the first minute of a lab: what is said of it, and when.

Each run brings a lab up with its agents, and injects a fault of a link between switches so many
seconds after `lab up` returned: both directions lose everything, or 5 % of packets. It prints when
all planned paths were known to the controller, what the incident was called and when, and how many
pages there were.
"""

from __future__ import annotations

import argparse
import os
import time

from tests.live import live

from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.wire.fabric import PathsQuery
from syntony.wire.incidents import IncidentsQuery
from syntony.wire.probes import PlanQuery

AFTER_S = (5, 10, 20, 40)
WATCHED_S = 60.0
FABRIC = frozenset({"ambiguous-loss", "link-loss", "nic-loss", "switch-loss", "switch-down"})
LINK = "leaf0-1/spine0"


def measure(after_s: int, kind: str, options: list[str], hosts: int) -> None:
    with live(f"first-{os.getpid()}", *options, agents=True) as lab:
        began_s, target = time.monotonic(), f"unix:{lab.controller_socket}"
        injected = False
        seen: list[str] = []
        pages, known_s = 0, None
        while (now_s := time.monotonic() - began_s) < after_s + WATCHED_S:
            if not injected and now_s >= after_s:
                lab.inject(kind, LINK, {"percent": "5"} if kind == "loss" else {})
                injected = True
            try:
                paths = len(ask(target, PathsQuery()).paths)
                plan = ask(target, PlanQuery())
                incidents = ask(target, IncidentsQuery(resolved=True)).incidents
            except RemoteError:
                time.sleep(0.5)
                continue
            planned = {src.partition("/")[0] for src, _ in plan.flows}
            if known_s is None and len(planned) == hosts and paths >= 2 * len(plan.flows):
                known_s = now_s
            named = [each for each in incidents if each["rule"] in FABRIC and not each["cause"]]
            pages = sum(each["pages"] for each in incidents if each["rule"] in FABRIC)
            words = "; ".join(
                f"{each['summary'].partition(': ')[0]}{' (paged)' * bool(each['pages'])}"
                for each in named
                if each["state"] != "resolved"
            )
            if words and (not seen or not seen[-1].endswith(f" s {words}")):
                seen.append(f"{now_s - after_s:.1f} s {words}")
            time.sleep(0.5)
        known = "not known" if known_s is None else f"known after {known_s:.1f} s"
        load = os.getloadavg()[0]
        print(f"{kind} at {after_s} s, load {load:.0f}: paths {known}; {pages} pages")
        for line in seen:
            print(f"    {line}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--after", type=int, action="append", help="seconds; repeatable")
    parser.add_argument("--kind", choices=("blackhole", "loss"), default="blackhole")
    parser.add_argument("--leaves", type=int, default=2)
    parser.add_argument("--spines", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=8)
    a = parser.parse_args()
    options = [f"--{name}={getattr(a, name)}" for name in ("hosts", "leaves", "spines")]
    print(f"lab up {' '.join(options)}")
    for after_s in a.after or AFTER_S:
        measure(after_s, a.kind, options, a.hosts)


if __name__ == "__main__":
    main()
