"""A survey of 4,096 hosts with eight rails, one NIC of them dead: rounds, time and memory.

    .venv/bin/python -m bench.audit_network [--quick] [--json]

The conductor and the judge are the real ones; the hosts' programs are functions that answer its
orders by a model (tests/audit/simulated.py), in this process: the time of the conductor, of the
judge and of the model together, no network. --quick: 1,024 hosts with four rails.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import time

from tests.audit.simulated import Fleet

from syntony.audit.reach import HostNic
from syntony.audit.reach_judge import judge
from syntony.audit.result import Status
from syntony.io.audit.survey import SurveyOptions, conduct
from syntony.model.names import host_of

HOSTS, RAILS = 4096, 8
QUICK_HOSTS, QUICK_RAILS = 1024, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_HOSTS} hosts")
    parser.add_argument("--seed", type=int, default=1, help="which NIC is dead")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    hosts, rails = (QUICK_HOSTS, QUICK_RAILS) if given.quick else (HOSTS, RAILS)
    draw = random.Random(given.seed)
    bad = f"h{draw.randrange(hosts)}/rail{draw.randrange(rails)}"
    host = host_of(bad)

    def passes(src: HostNic, dst: HostNic, _port: int, _size: int) -> bool:
        return not (host in {src.host, dst.host} and bad in {str(src), str(dst)})

    fleet = Fleet(hosts, rails, passes)
    before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began_s = time.monotonic()
    seen = conduct(fleet.hosts, {}, SurveyOptions(), lambda _: None)
    asked_s = time.monotonic() - began_s
    results = judge(seen)
    judged_s = time.monotonic() - began_s - asked_s
    named = [(r.check, r.subject) for r in results if r.status in {Status.FAIL, Status.WARN}]
    found = {
        "hosts": hosts, "nics": hosts * rails, "dead": bad, "named": named,
        "rounds": seen.rounds, "limit": math.ceil(math.log2(hosts)) + 2,
        "directions": len(seen.seen), "requests": fleet.requested,
        "asked_s": round(asked_s, 1), "judged_s": round(judged_s, 1),
        "rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "rss_before_mib": round(before_mib),
    }  # fmt: skip
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(f"{name:15} {value}" for name, value in found.items()))
    if named != [("be.conn.rail", bad)]:
        raise SystemExit(f"{bad} is dead, and {named} was named")


if __name__ == "__main__":
    main()
