"""Rotates the identities of a live lab again and again: probe seconds lost meanwhile, time taken.

    python -m bench.key_rotation [--rotations 20] [--hosts 4]     # of the fleet's probe keys
    python -m bench.key_rotation --certificates                   # and of an agent's certificate
    python -m bench.key_rotation --certificates --job --hogs 2    # under load

With `--certificates` each rotation of the keys has one of an agent's certificate and key in it, one
host after the other: the old certificate is revoked, so that its agent has to come back. Probes
that did not arrive are counted, and seconds of a pair of NICs without a row. With `--job` a checked
job runs over two rails meanwhile, of which no path may be torn. Exit status 1: there was
one of these.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

from bench.control_deaths import patient, progress
from bench.hogs import hogs
from tests.fleet.failing import Fleet
from tests.live import LiveLab, eventually, live

from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.lab.provision import TLS
from syntony.model import S
from syntony.wire.enrol import IdentitiesQuery
from syntony.wire.probes import KeysQuery, MatrixQuery, RotateKeys, SeriesQuery
from syntony.wire.x509 import read_certificate

NAME, JOB = "bench-keys", "llm"
LATE_NS = 10 * S
"""Rows of a second may be stored so much later."""
PATIENCE_S = 120.0
SETTLE_S = 5


class Sent(NamedTuple):
    """Probes of one second of one pair of NICs."""

    sent: int
    lost: int


Seconds = defaultdict[tuple[str, str], dict[int, Sent]]
"""Pair of NICs to its seconds."""


class Rotations:
    """Of one lab."""

    def __init__(self, lab: LiveLab, hosts: int) -> None:
        self._lab = lab
        self._target = f"unix:{lab.controller_socket}"
        self._pairs = 4 * hosts * (hosts - 1)

    def healthy(self) -> bool:
        """Whether every pair has rows and none has loss."""
        try:
            seen = ask(self._target, MatrixQuery(window_ns=5 * S)).cells
        except RemoteError:
            return False
        return len(seen) == self._pairs and not any(cell.lost for cell in seen)

    def keys(self, within: Callable[[], None]) -> float:
        """Rotate the probe keys, and do something within; seconds until all hosts have them."""
        began_ns = time.monotonic_ns()
        ask(self._target, RotateKeys(by="bench", why="bench"))
        within()
        eventually(
            lambda: ask(self._target, KeysQuery()).phase == "steady",
            "everyone has the new key", within_s=PATIENCE_S,
        )  # fmt: skip
        return (time.monotonic_ns() - began_ns) / S

    def certificate(self, host: str) -> float:
        """Rotate an agent's certificate; seconds until it is attached with the new one."""
        began_ns = time.monotonic_ns()
        self._lab.inject("cert-rotate", host)
        pem = (self._lab.directory / TLS / f"{host}.crt").read_bytes()
        serial = read_certificate(pem).serial

        def used() -> bool:
            known = ask(self._target, IdentitiesQuery()).certificates
            return any(each.serial == serial and each.seen_ns for each in known)

        eventually(used, f"{host} attached with its new certificate", within_s=PATIENCE_S)
        return (time.monotonic_ns() - began_ns) / S

    def collect(self, seconds: Seconds, since_ns: int) -> None:
        """Add what the store has by now of this time (CLOCK_MONOTONIC) and what came late."""
        window_ns = time.monotonic_ns() - since_ns + LATE_NS
        for each in ask(self._target, SeriesQuery(window_ns=window_ns), timeout_ns=60 * S).points:
            seconds[each.src, each.dst][each.ts_ns // S] = Sent(each.sent, each.lost)


def missing(seconds: Seconds) -> int:
    """Seconds between a pair's first and last in which it has no row. Pure."""
    return sum(max(known) - min(known) + 1 - len(known) for known in seconds.values())


class Beside:
    """The load beside the rotations: busy loops, and a job if there is to be one."""

    def __init__(self, lab: LiveLab, stack: ExitStack, count: int, *, job: bool) -> None:
        self._fleet = Fleet(lab)
        self._job = stack.enter_context(self._fleet.job(JOB)) if job else None
        if job:
            both = patient(lambda: self._fleet.both(JOB))
            eventually(both, "both rails joined", within_s=PATIENCE_S)
        stack.enter_context(hogs(count))

    def reported(self) -> dict[str, Any]:
        """The job's account, and how many of its paths were torn; empty without one."""
        if self._job is None:
            return {}
        log = self._fleet.log(JOB)
        torn = sum(row.action == "destroy" and row.cause != "join" for row in log)
        return {**self._job.account(), "torn": torn}


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rotations", type=int, default=20)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--certificates", action="store_true")
    parser.add_argument("--job", action="store_true", help="a checked job over two rails")
    parser.add_argument("--hogs", type=int, default=0, help="busy loops beside the lab")
    parser.add_argument("--json", action="store_true")
    requested = parser.parse_args()
    if requested.rotations < 1:
        parser.error("--rotations: at least 1")
    keys: list[float] = []
    certificates: list[float] = []
    seconds: Seconds = defaultdict(dict)
    with live(NAME, "--hosts", str(requested.hosts), agents=True) as lab, ExitStack() as stack:
        rotations = Rotations(lab, requested.hosts)
        eventually(rotations.healthy, "a fleet without loss", within_s=PATIENCE_S)
        beside = Beside(lab, stack, requested.hogs, job=requested.job)
        for number in range(requested.rotations):

            def within(host: str = f"h{number % requested.hosts}") -> None:
                if requested.certificates:
                    certificates.append(rotations.certificate(host))

            began_ns = time.monotonic_ns()
            keys.append(rotations.keys(within))
            rotations.collect(seconds, began_ns)
            progress(f"{number + 1}/{requested.rotations} {keys[-1]:.1f} s")
        time.sleep(SETTLE_S)
        rotations.collect(seconds, began_ns)
        job = beside.reported()
    reported = [each for known in seconds.values() for each in known.values()]
    lost, sent = sum(each.lost for each in reported), sum(each.sent for each in reported)
    gaps = missing(seconds)
    found = {
        "rotations": requested.rotations, "hosts": requested.hosts,
        "probes": sent, "probes_lost": lost,
        "seconds": len(reported), "seconds_missing": gaps, "keys_s": keys,
        "certificates_s": certificates, "job": job,
    }  # fmt: skip
    if requested.json:
        print(json.dumps(found))
    else:
        print(
            f"{requested.rotations} rotations, {requested.hosts} hosts: "
            f"{lost} of {sent} probes lost, "
            f"{gaps} of {len(reported) + gaps} seconds of pairs missing"
        )
        for what, taken in (("keys", keys), ("certificates", certificates)):
            if taken:
                median_s, longest_s = statistics.median(taken), max(taken)
                print(f"{what}: median {median_s:.1f} s, longest {longest_s:.1f} s each")
        if job:
            print(
                f"job: {job['torn']} paths torn, {job['steps']} steps, longest "
                f"{job['longest_s']:.2f} s, {job['wrong']} wrong answers (decision 0069)"
            )
    return 1 if lost or gaps or job.get("torn") else 0


if __name__ == "__main__":
    sys.exit(main())
