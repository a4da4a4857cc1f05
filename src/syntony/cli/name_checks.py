"""Checks names that users pass to commands, so that a mistyped name does not give an empty answer.

A host or NIC must belong to an agent that has attached; any other is an error. A job may begin
later, so an unknown one gives an empty answer and a warning.
"""

from __future__ import annotations

from syntony.cli.fleet import FleetTarget, ask
from syntony.cli.output import messages
from syntony.errors import UsageError
from syntony.model import DAY_NS
from syntony.model.names import did_you_mean
from syntony.wire.jobs import JobsQuery
from syntony.wire.messages import AgentStatus, FleetQuery

JOBS_NS = DAY_NS
"""Jobs that ran within this time are known."""


def check_hosts(target: FleetTarget, *hosts: str) -> None:
    """Raise `UsageError` if one of these is no host of the fleet; empty names are ignored."""
    wanted = [host for host in hosts if host]
    known = {agent.host for agent in _agents(target)} if wanted else set()
    for host in wanted:
        if host not in known:
            raise unknown_host(host, known)


def unknown_host(host: str, known: set[str]) -> UsageError:
    return UsageError(
        f"no agent of {host!r} has attached to the controller{did_you_mean(host, known)}"
    )


def check_nics(target: FleetTarget, *nics: str) -> None:
    """Likewise for NICs (``h0/rail0``)."""
    wanted = [nic for nic in nics if nic]
    known = {f"{each.host}/{nic.name}" for each in _agents(target) for nic in each.nics}
    for nic in wanted:
        if nic not in known:
            raise UsageError(f"no NIC {nic!r} is known{did_you_mean(nic, known)}")


def warn_if_job_unknown(target: FleetTarget, job: str) -> None:
    """Warn if no job of this name is known; called when an answer is empty. No warning without a
    name."""
    if not job:
        return
    try:
        jobs = {each.job for each in ask(target, JobsQuery(window_ns=JOBS_NS)).jobs}
    except UsageError:
        return  # there is no fleet time yet
    if job not in jobs:
        hint = did_you_mean(job, jobs)
        messages.print(
            f"warning: no process of job {job!r} was seen in the last day{hint}",
            style="yellow", markup=False,
        )  # fmt: skip


def _agents(target: FleetTarget) -> tuple[AgentStatus, ...]:
    return ask(target, FleetQuery()).agents
