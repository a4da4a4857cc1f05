"""What an audit finds, and what it costs.

    python -m bench.audit [--quick] [--only faults|cost] [--json]

Faults: every file of tests/audit/fixtures. Each fault is put on one of three hosts of its shape and
counts as named if the check that should see it says so, with the item in its text. Each healthy
shape is audited as three hosts together, as one host alone, and against the specification learnt
from the three; every failure there is a false one.

Cost: the first figure is this machine: all passive checks, as an ordinary user where we are root
(setpriv gives the privileges up), read-only. The others replay a fleet: reports of real checks on
a recorded tree, one host in a thousand with a dark port, written to disk as `syntony audit run`
keeps them and judged by the majority in two passes. Memory is that of the judging process alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from syntony.audit.registry import host_checks
from syntony.audit.result import ComparedValue, HostReport, Result
from syntony.audit.runfile import Head
from syntony.io.audit.examine import examine_tree
from syntony.io.audit.host import recorded_host
from syntony.io.audit.runs import RunWriter
from syntony.model import S
from syntony.model.names import host_of

HOSTS = 10_000
QUICK_HOSTS = 1_000
ONE_IN = 1_000
_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
_AUDIT = (sys.executable, "-m", "syntony", "audit", "run", "--local", "--json")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_HOSTS} hosts")
    parser.add_argument("--only", choices=("faults", "cost"), help="half of the figures")
    parser.add_argument("--json", action="store_true", help="what is found, as JSON; no cost")
    arguments = parser.parse_args()
    if arguments.json:
        print(json.dumps(_found(), indent=1))
        return
    if arguments.only != "cost":
        _print_found(_found())
    if arguments.only != "faults":
        _one_host()
        _fleet(QUICK_HOSTS if arguments.quick else HOSTS)


def _found() -> dict[str, Any]:
    from tests.audit import fixture_fleet as fixtures

    seen = [fixtures.fault(name) for name in fixtures.FAULTS]
    false = {
        f"{shape} ({how})": failures
        for shape in fixtures.SHAPES
        for how, results in fixtures.healthy_runs(shape)
        if (failures := fixtures.failures(results))
    }
    return {
        "faults": len(seen),
        "named": sum(each.named for each in seen),
        "missed": [each.name for each in seen if not each.named],
        "blaming_others": [each.name for each in seen if each.others],
        "shapes": len(fixtures.SHAPES),
        "shapes_with_false_failures": sorted({name.partition(" ")[0] for name in false}),
        "false_failures": false,
    }


def _print_found(found: dict[str, Any]) -> None:
    print(f"{found['named']} of {found['faults']} faults named; missed: "
          f"{' '.join(found['missed']) or 'none'}; blaming another host: "
          f"{' '.join(found['blaming_others']) or 'none'}")  # fmt: skip
    print(f"{found['shapes']} healthy shapes, "
          f"{len(found['shapes_with_false_failures'])} with a false failure")  # fmt: skip
    for name, failures in found["false_failures"].items():
        print(f"  {name}: {failures[0]}")


def _one_host() -> None:
    seconds, results = [], []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)  # the user who audits keeps the run there
        for _ in range(3):
            started_ns = time.monotonic_ns()
            done = subprocess.run(
                [*(_NOBODY if os.geteuid() == 0 else ()), *_AUDIT],
                capture_output=True, text=True, check=False,
                env={**os.environ, "XDG_STATE_HOME": folder, "HOME": folder},
            )  # fmt: skip
            seconds.append((time.monotonic_ns() - started_ns) / S)
            results = json.loads(done.stdout)
    reported = Counter(each["status"] for each in results)
    checks = len({each["check"] for each in results})
    print(f"one host, passive, unprivileged: {statistics.median(seconds):.2f} s (median of 3), "
          f"{checks} checks, {sum(reported.values())} verdicts: {dict(reported)}")  # fmt: skip


def _fleet(hosts: int) -> None:
    from tests.audit.hosts import nvidia_host
    from tests.audit.trees import write

    with tempfile.TemporaryDirectory() as folder:
        tree = write(nvidia_host(), Path(folder) / "gpu")
        checks = [check() for check in host_checks()]
        started_ns = time.monotonic_ns()
        report = examine_tree(recorded_host(tree), checks, 0)
        replay_s = (time.monotonic_ns() - started_ns) / S
        path = Path(folder) / "run.jsonl"
        with RunWriter(path, Head(taken_ns=0)) as writer:
            for number in range(hosts):
                writer.add(_named(report, f"gpu{number:05d}", dark=number % ONE_IN == 7))
        size = path.stat().st_size
        started_ns = time.monotonic_ns()
        reported = Path(folder) / "verdicts.json"
        with reported.open("wb") as out:
            subprocess.run(
                [sys.executable, "-m", "syntony", "audit", "show", str(path), "--json"],
                stdout=out, check=False,
            )  # fmt: skip
        seconds = (time.monotonic_ns() - started_ns) / S
        rss_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        started_ns = time.monotonic_ns()
        subprocess.run(
            [sys.executable, "-m", "syntony", "audit", "show", str(path)],
            stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        tree_s = (time.monotonic_ns() - started_ns) / S
        verdicts, failing = _failing(reported)
    false = sum(
        int(host[3:]) % ONE_IN != 7 or checks != {"be.act.rate"} for host, checks in failing.items()
    )
    print(f"one recorded host replayed: {replay_s * 1000:.0f} ms "
          f"({len(report.results)} verdicts, {len(report.readings)} readings)")  # fmt: skip
    print(f"{hosts} hosts ({size >> 20} MiB of reports): JSON of {verdicts} verdicts in "
          f"{seconds:.1f} s, the tree in {tree_s:.1f} s, {rss_mib:.0f} MiB")  # fmt: skip
    print(f"  injected {-(-(hosts - 7) // ONE_IN)} slow ports; failures on {len(failing)} hosts, "
          f"of which {false} are false")  # fmt: skip


def _failing(reported: Path) -> tuple[int, dict[str, set[str]]]:
    """How many verdicts, and host → checks that fail. Line by line: the list fills the memory."""
    count, last = 0, {"check": "", "status": ""}
    failing: dict[str, set[str]] = {}
    with reported.open(encoding="utf-8") as lines:
        for line in lines:
            name, _, value = line.strip().rstrip(",").partition(": ")
            if name in {'"check"', '"status"'}:
                last[name.strip('"')] = json.loads(value)
            elif name == '"subject"':
                count += 1
                if last["status"] == "fail":
                    host = host_of(json.loads(value))
                    failing.setdefault(host, set()).add(last["check"])
    return count, failing


def _named(report: HostReport, name: str, *, dark: bool) -> HostReport:
    """The report as another host's, whose port 0 is at half its rate if `dark`."""

    def subject(text: str) -> str:
        return name + text.removeprefix(report.host)

    def reading(each: ComparedValue) -> ComparedValue:
        slow = dark and each.key == "be.act.rate" and each.subject.endswith("mlx5_0:1")
        value = "200 Gb/sec (4X HDR)" if slow else each.value
        return msgspec.structs.replace(each, subject=subject(each.subject), value=value)

    def result(each: Result) -> Result:
        return msgspec.structs.replace(each, subject=subject(each.subject))

    return HostReport(
        host=name, taken_ns=0,
        results=tuple(map(result, report.results)), readings=tuple(map(reading, report.readings)),
    )  # fmt: skip


if __name__ == "__main__":
    main()
