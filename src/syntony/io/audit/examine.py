"""Runs all checks of one host at once, each under its own deadline.

Checks that load the host run one after the other, after the others: two at once would each measure
the other.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence

from syntony.audit.check import HostCheck, examine, unknown
from syntony.audit.facts import Facts
from syntony.audit.result import ComparedValue, HostReport, Result
from syntony.model import S

DEADLINE_NS = 10 * S
"""Deadline of one check. A healthy host answers in a fraction of it; longer is itself a finding."""


def examine_host(
    host: Facts,
    checks: Sequence[HostCheck],
    taken_ns: int,
    *,
    deadline_ns: int = DEADLINE_NS,
) -> HostReport:
    """Every check on its own thread; those that load the host share one.

    A check that is still waiting at its deadline (a driver that hangs in the kernel) is unknown;
    its thread is left behind.

    Args:
        taken_ns: now, UTC.
    """
    answers: queue.SimpleQueue[tuple[int, list[Result | ComparedValue]]] = queue.SimpleQueue()
    numbered = list(enumerate(checks))
    quiet = [_start(host, [each], answers) for each in numbered if not each[1].active]
    _start(host, [each for each in numbered if each[1].active], answers, after=quiet)
    end_ns = time.monotonic_ns() + deadline_ns
    said: dict[int, list[Result | ComparedValue]] = {}
    while len(said) < len(checks):
        try:
            left_s = max(0, end_ns - time.monotonic_ns()) / S
            number, answer = answers.get(timeout=left_s)
        except queue.Empty:
            break
        said[number] = answer
    for number, check in enumerate(checks):
        if number not in said:
            reason = f"no answer in {deadline_ns / S:g} s"
            said[number] = [unknown(check, host.host, reason)]
    return report_of(host, [said[number] for number in range(len(checks))], taken_ns)


def _start(
    host: Facts,
    checks: Sequence[tuple[int, HostCheck]],
    answers: queue.SimpleQueue[tuple[int, list[Result | ComparedValue]]],
    after: Sequence[threading.Thread] = (),
) -> threading.Thread:
    """A thread that asks one check after the other, once others have ended or had their time."""

    def work() -> None:
        end_ns = time.monotonic_ns() + DEADLINE_NS
        for thread in after if checks else ():
            thread.join(max(0, end_ns - time.monotonic_ns()) / S)
        for number, check in checks:
            answers.put((number, examine(check, host)))

    thread = threading.Thread(target=work, name="audit", daemon=True)
    thread.start()
    return thread


def examine_tree(host: Facts, checks: Sequence[HostCheck], taken_ns: int) -> HostReport:
    """The same for a recorded host, which cannot hang: one check after the other."""
    return report_of(host, [examine(check, host) for check in checks], taken_ns)


def report_of(
    host: Facts, said: Sequence[Sequence[Result | ComparedValue]], taken_ns: int
) -> HostReport:
    """Verdicts apart from readings."""
    everything = [each for answer in said for each in answer]
    return HostReport(
        host=host.host,
        taken_ns=taken_ns,
        results=tuple(each for each in everything if isinstance(each, Result)),
        readings=tuple(each for each in everything if isinstance(each, ComparedValue)),
    )
