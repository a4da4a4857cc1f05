#!/usr/bin/env python3
"""Drain Slurm nodes that open critical incidents name, and resume them when those are over.

    drain-by-incidents.py [--at-most N] -- --controller syntony.example:8443 --ca … --cert … --key …

Run it every minute, where `scontrol` may drain, with the certificate of a viewer; everything after
`--` is `syntony incidents list`'s. A node is drained for incidents of its own (subject HOST or
HOST/NIC), not for what a switch does to all nor for a silenced one. It is resumed when no critical
incident of it is open, silenced or not, and the one that drained it is known to be over: a
controller that has lost its state resumes nothing. Never more than N nodes (a tenth, at least one)
are ours at once, so that one mistaken rule does not empty a cluster. Nodes that others drained, or
that are down, are left alone.
Exit status: 0; 1 Slurm refused a change, or a node of ours stays drained because the end of its
incident is not known; 3 incidents or nodes could not be read, and nothing was
changed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

OURS = "syntony incident "
REASON_CHARACTERS = 200
"""Of a reason, so that `sinfo -R` stays readable."""
NO_JOBS = ("drain", "down", "fail", "err", "unk", "boot", "reboot", "pow")
"""States of nodes that take no jobs: why is somebody else's reason."""


def output(*argv: str, ok: tuple[int, ...] = (0,)) -> str:
    """What a command prints. Raises `RuntimeError` with its last words."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode not in ok:
        raise RuntimeError(f"{argv[0]} {argv[1]}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def node_states() -> dict[str, tuple[str, str]]:
    """Each node's state and reason, as sinfo prints them."""
    lines = output("sinfo", "-h", "-N", "-o", "%N|%T|%E").splitlines()
    rows = (line.split("|", 2) for line in lines if line.count("|") >= 2)  # reasons may have lines
    return {name: (state, reason) for name, state, reason in rows}


def host_of(incident: dict[str, object]) -> str:
    """The host that a critical incident is about."""
    return str(incident["subject"]).partition("/")[0] if incident["severity"] == "critical" else ""


def reasons(incidents: list[dict[str, object]], nodes: set[str]) -> dict[str, str]:
    """Node to why it should be drained: by its oldest critical incident without another cause."""
    found: dict[str, str] = {}
    for each in sorted(incidents, key=lambda incident: int(str(incident["number"]))):
        standing = each["resolved_ns"] is None and each["cause"] is None and not each["silenced"]
        if standing and host_of(each) in nodes:
            reason = " ".join(f"{OURS}{each['number']}: {each['summary']}".split())
            found.setdefault(host_of(each), reason[:REASON_CHARACTERS])
    return found


def ended(name: str, reason: str, options: list[str]) -> bool:
    """Whether the incident in a reason is known, is about this node, and is over."""
    number = reason.removeprefix(OURS).partition(":")[0]
    try:
        text = output("syntony", "incidents", "show", number, "--json", *options)
        incident = json.loads(text)["incident"]
        over = incident["resolved_ns"] is not None
        over = over and str(incident["subject"]).partition("/")[0] == name
    except (RuntimeError, ValueError, KeyError, OSError, subprocess.TimeoutExpired) as error:
        print(f"{name}: stays drained, incident {number}: {error}", file=sys.stderr)
        return False
    if not over:
        print(f"{name}: stays drained, incident {number} is another one", file=sys.stderr)
    return over


def changed(name: str, *what: str) -> bool:
    """Change a node; say so if Slurm refuses, for the others must not wait for this one."""
    try:
        output("scontrol", "update", f"nodename={name}", *what)
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        print(f"{name}: not changed: {error}", file=sys.stderr)
        return False
    return True


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
        incidents = json.loads(text)["incidents"]
        wanted = reasons(incidents, set(nodes))
        faulty = {host_of(each) for each in incidents if each["resolved_ns"] is None}
    except (RuntimeError, ValueError, KeyError, OSError, subprocess.TimeoutExpired) as error:
        print(f"syntony: nothing was changed: {error}", file=sys.stderr)
        return 3
    ours = {name for name, (state, why) in nodes.items()
            if state.startswith("drain") and why.startswith(OURS)}  # fmt: skip
    refused = False
    for name in sorted(ours - faulty):
        if not ended(name, nodes[name][1], given.options):
            refused = True
        # Not RESUME, which also takes a node that is down back.
        elif changed(name, "state=UNDRAIN"):
            print(f"{name}: resumed")
        else:
            refused = True
    at_most = max(1, len(nodes) // 10) if given.at_most is None else given.at_most
    room = max(0, at_most - len(ours & faulty))
    free = [name for name in sorted(wanted) if not nodes[name][0].startswith(NO_JOBS)]
    for name in free[:room]:
        if changed(name, "state=DRAIN", f"reason={wanted[name]}"):
            print(f"{name}: drained: {wanted[name]}")
        else:
            refused = True
    for name in free[room:]:
        print(f"{name}: not drained, as many as allowed are: {wanted[name]}", file=sys.stderr)
    return int(refused)


if __name__ == "__main__":
    sys.exit(main())
