"""Runs one check on one host: a verdict or `unknown`, never an exception."""

from __future__ import annotations

from syntony.audit.check import HostCheck
from syntony.audit.facts import FactError, Facts
from syntony.audit.result import ComparedValue, Result, Status

MAX_REASON = 300
_OF_SYS = ("DEVICE", "NETDEV", "ADDRESS")
"""Words of commands that stand for names found below /sys."""


def examine(check: HostCheck, host: Facts) -> list[Result | ComparedValue]:
    """The check's verdicts on the host; what could not be read is unknown, with the reason."""
    said: list[Result | ComparedValue] = []
    try:
        said.extend(check.test(host))
    except FactError as error:
        said.append(unknown(check, host.host, str(error)))
    except Exception as error:  # noqa: BLE001 - supervisor: one check's fault is one unknown
        reason = f"the check itself failed: {type(error).__name__}: {error}"
        said.append(unknown(check, host.host, reason))
    if not said:
        said.append(check.result(Status.SKIP, host.host, evidence="nothing here to look at"))
    return [_not_blind(each, check, host) for each in said]


def _not_blind(
    each: Result | ComparedValue, check: HostCheck, host: Facts
) -> Result | ComparedValue:
    """A check whose inputs are all missing cannot decide that it does not apply."""
    if not isinstance(each, Result) or each.status is not Status.SKIP:
        return each
    tops = {f"/{path.split('/')[1]}" for path in check.reads if path.startswith(("/sys", "/proc"))}
    # Commands are asked of what /sys has.
    tops |= {"/sys" for path in check.reads for mark in _OF_SYS if mark in path}
    if not tops or any(host.exists(top) for top in tops):
        return each
    return unknown(check, each.subject, f"no {' or '.join(sorted(tops))} here: {each.evidence}")


def unknown(check: HostCheck, subject: str, reason: str) -> Result:
    """An `unknown` verdict, with the reason."""
    return check.result(Status.UNKNOWN, subject, evidence=reason[:MAX_REASON])
