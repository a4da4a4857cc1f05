#!/usr/bin/env python3
"""Drain Slurm nodes that open critical incidents name, and resume them when those are over.

    drain-by-incidents.py [--at-most N] -- --controller syntony.example:8443 --ca … --cert … --key …

Run it every minute, where `scontrol` may drain, with the certificate of a viewer; everything after
`--` is `syntony incidents list`'s. A node is drained for incidents of its own (subject HOST or
HOST/NIC), not for what a switch does to all. Never more than N nodes (a tenth, at least one) are
ours at once, so that one mistaken rule does not empty a cluster. Reasons of others are left alone.
Exit status: 0; 3 incidents or nodes could not be read, and nothing was changed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

OURS = "syntony incident "


def output(*argv: str, ok: tuple[int, ...] = (0,)) -> str:
    """What a command prints. Raises `RuntimeError` with its last words."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode not in ok:
        raise RuntimeError(f"{argv[0]} {argv[1]}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def node_states() -> dict[str, tuple[str, str]]:
    """Each node's state and reason, as sinfo prints them."""
    lines = output("sinfo", "-h", "-N", "-o", "%N|%T|%E").splitlines()
    rows = (line.split("|", 2) for line in lines)
    return {name: (state, reason) for name, state, reason in rows}


def reasons(incidents: list[dict[str, object]], nodes: set[str]) -> dict[str, str]:
    """Node to why it should be drained: by its oldest critical incident without another cause."""
    found: dict[str, str] = {}
    for each in sorted(incidents, key=lambda incident: int(str(incident["number"]))):
        host = str(each["subject"]).partition("/")[0]
        standing = each["resolved_ns"] is None and each["cause"] is None and not each["silenced"]
        if standing and each["severity"] == "critical" and host in nodes:
            found.setdefault(host, f"{OURS}{each['number']}: {each['summary']}")
    return found


def main() -> int:
    """One look, one round of changes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--at-most", type=int, help="nodes drained by us (default: a tenth)")
    parser.add_argument("options", nargs="*", help="of `syntony incidents list`, after --")
    given = parser.parse_args()
    try:
        # 1 and 2 say how bad the worst is.
        text = output("syntony", "incidents", "list", "--json", *given.options, ok=(0, 1, 2))
        nodes = node_states()
        wanted = reasons(json.loads(text)["incidents"], set(nodes))
    except (RuntimeError, ValueError, KeyError, OSError, subprocess.TimeoutExpired) as error:
        print(f"syntony: nothing was changed: {error}", file=sys.stderr)
        return 3
    ours = {name for name, (state, why) in nodes.items()
            if state.startswith("drain") and why.startswith(OURS)}  # fmt: skip
    for name in sorted(ours - wanted.keys()):
        output("scontrol", "update", f"nodename={name}", "state=RESUME")
        print(f"{name}: resumed")
    room = max(0, (given.at_most or max(1, len(nodes) // 10)) - len(ours & wanted.keys()))
    free = [name for name in sorted(wanted) if not nodes[name][0].startswith("drain")]
    for name in free[:room]:
        output("scontrol", "update", f"nodename={name}", "state=DRAIN", f"reason={wanted[name]}")
        print(f"{name}: drained: {wanted[name]}")
    for name in free[room:]:
        print(f"{name}: not drained, as many as allowed are: {wanted[name]}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
