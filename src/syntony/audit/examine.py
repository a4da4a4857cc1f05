"""One check on one host, whatever the host says: a verdict or `unknown`, never an exception."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syntony.audit.facts import FactError
from syntony.audit.result import Reading, Result, Status

if TYPE_CHECKING:
    from syntony.audit.check import HostCheck
    from syntony.audit.facts import Facts

MAX_REASON = 300


def examine(check: HostCheck, host: Facts) -> list[Result | Reading]:
    """What the check says of the host; what it could not find out is unknown, with the reason."""
    said: list[Result | Reading] = []
    try:
        said.extend(check.test(host))
    except FactError as error:
        said.append(unknown(check, host.host, str(error)))
    except Exception as error:  # noqa: BLE001 - supervisor: one check's fault is one unknown
        reason = f"the check itself failed: {type(error).__name__}: {error}"
        said.append(unknown(check, host.host, reason))
    if not said:
        said.append(check.result(Status.SKIP, host.host, evidence="nothing here to look at"))
    return said


def unknown(check: HostCheck, subject: str, reason: str) -> Result:
    """No verdict, and why."""
    return check.result(Status.UNKNOWN, subject, evidence=reason[:MAX_REASON])
