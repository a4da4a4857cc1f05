"""Why a job is slow, in three sentences for the user. Pure."""

from __future__ import annotations

from syntony.model import format_ns
from syntony.workload.diagnose import Diagnosis
from syntony.workload.exits import time_of_day
from syntony.workload.verdict import FaultClass, Verdict

ALONE = "no operation of all ranks was open then"


def sentences(job: str, result: Diagnosis, length_ns: int) -> tuple[str, str, str]:
    """The answer: the cause, its evidence and cost, the remedy.

    Args:
        job: the requested one.
        result: of its recording.
        length_ns: of the recording.
    """
    span = format_ns(length_ns)
    if result.ended and not result.verdicts:
        how = "has ended" if result.orderly else "was ended by somebody"
        return (
            f"{job} {how}: no fault.",
            f"{_capital(result.ended)}.",
            "There is nothing to do." if result.orderly
            else "`sacct` and the launcher's output may say who did.",
        )  # fmt: skip
    if not result.verdicts:
        return _without_verdict(job, result, span)
    first = result.verdicts[0]
    cost = _cost(first, over=result.over)
    if first.evidence[0].signal == "exit_status":
        others = _other_causes(len(result.verdicts) - 1)
        return (
            f"{job} stopped because {first.evidence[0].text}{others}.",
            f"{_capital(first.evidence[1].text if first.evidence[1:] else ALONE)}{cost}.",
            f"To do: {first.action}.",
        )
    if first.fault == FaultClass.UNDETERMINED and first.evidence[0].signal == "ended":
        others = _other_causes(len(result.verdicts) - 1)
        state = "has ended" if result.over else "is ending"
        return (
            f"{job} {state}, and it is undetermined why{others}.",
            f"{_capital(first.evidence[0].text)}{cost}.",
            f"To do: {first.action}.",
        )
    state = "stands still" if first.fault == FaultClass.HANG else "is slow"
    if first.evidence[0].signal == "ended":
        state = "cannot go on"
    return (
        f"{job} {state} because of {_name(first)}{_other_causes(len(result.verdicts) - 1)}.",
        f"{_capital(first.evidence[0].text)}{cost}.",
        f"To do: {first.action}.",
    )


def _without_verdict(job: str, result: Diagnosis, span: str) -> tuple[str, str, str]:
    if result.waits:
        first = result.waits[0]
        whom = f" for {', '.join(first.subjects)}" if first.subjects[0].startswith("rank ") else ""
        since = f"{job} waits{whom} since {time_of_day(first.onset_ns)}"
        return (
            f"{since}, and it is undetermined whether it hangs.",
            f"{_capital(first.evidence[0].text)}.",
            f"To do: {first.action}.",
        )
    blind = sorted({gap.table for gap in result.gaps if gap.limits})
    if not blind:
        return (
            f"Nothing is wrong with {job}, as far as the last {span} show.",
            "Every table that a verdict could come from was recorded.",
            "If it is slow nevertheless, compare it with an earlier run of the same job.",
        )
    return (
        f"It is undetermined whether anything slows {job} down: the last {span} show nothing.",
        f"Not recorded: {', '.join(blind)}.",
        "The notes say what cannot be concluded without them.",
    )


def _name(verdict: Verdict) -> str:
    subjects = " or ".join(verdict.subjects)
    if verdict.fault == FaultClass.UNDETERMINED:
        rivals = ", ".join(each.fault for each in verdict.alternatives[:2])
        return f"something undetermined ({rivals}) at {subjects}"
    return f"{verdict.fault}: {subjects}"


def _other_causes(others: int) -> str:
    return f", and of {others} more cause{'s' if others > 1 else ''}" if others else ""


def _cost(verdict: Verdict, *, over: bool) -> str:
    radius = verdict.blast_radius
    many, parts = radius.ranks > 1, []
    if radius.ranks and not over:
        parts.append(f"{radius.ranks} rank{'s' * many} wait{'s' * (not many)} for it")
    if radius.slowdown is not None:
        parts.append(f"steps take {radius.slowdown:.2f} times as long")
    return "".join(f"; {part}" for part in parts)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
