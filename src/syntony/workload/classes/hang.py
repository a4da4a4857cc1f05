"""Hang or desync: a communicator makes no progress, because a rank did not call the operation,
called another one, is stopped, or is gone."""

from __future__ import annotations

import msgspec
import numpy as np

from syntony.model import format_ns
from syntony.workload.bundle import NULL, Ints
from syntony.workload.classes._deadlock import deadlock, no_meeting
from syntony.workload.classes._excuses import excuse, runs
from syntony.workload.classes._operations import P2P, both_ends, differ, due_kind, kinds_of, name_of
from syntony.workload.classes._peers import (
    MEETING,
    prepared,
    waiting_for_any,
    waiting_ranks,
)
from syntony.workload.classes._progress import (
    MIN_SILENCE_NS,
    Stuck,
    first_open,
    hang_finding,
    hangs,
    is_left,
    least_silence_ns,
    lost_gap,
    lost_ranks,
)
from syntony.workload.classes._waits import places_of, waits_for, without_steps
from syntony.workload.classes._weigh import weigh
from syntony.workload.exits import (
    Cause,
    Ended,
    Manner,
    asked,
    cause,
    manner,
    story,
    together_words,
    words,
)
from syntony.workload.facts import BundleFacts
from syntony.workload.grid import Flags
from syntony.workload.processes import GRACE_NS, SILENT_NS, STATES, Held, first
from syntony.workload.ranks import Comm, Ranks
from syntony.workload.stages import is_from_any, pair_of
from syntony.workload.verdict import Evidence, FaultClass, RuleFinding, confidence

ACTION_GONE = (
    "look why that rank ended (its output, exit status, kernel log: out of memory, Xid), or whether"
    " its host is up; restart the job from its checkpoint"
)
ACTION_ENDED = (
    "look whether somebody ended the job (`sacct`, the launcher's output); if not, why the first"
    " rank ended (its output, exit status, kernel log: out of memory, Xid)"
)
ACTION_FAILED = {
    Manner.CRASHED: "look at its last output and its core dump (`coredumpctl list`); restart the"
                    " job from its checkpoint",
    Manner.KILLED: "look who killed it (`sacct`, `journalctl`, an out-of-memory daemon); restart"
                   " the job from its checkpoint",
    Manner.FAILED: "look at its last output; restart the job from its checkpoint",
}  # fmt: skip
ACTION_OOM = (
    "look what took the memory (`dmesg`, `memory.events` and `memory.peak` of the job's cgroup);"
    " give the job more, or let it take less, then restart it from its checkpoint"
)
ACTION_HELD = {
    "T": "continue the process (`kill -CONT`), or find who stopped it",
    "t": "detach the debugger",
    "D": "look what it waits for (`/proc/PID/stack`, kernel log, mounts of file servers)",
}


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Communicators without progress, and the ranks that they wait for."""
    found = (_found(facts, facts.ranks) if facts.ranks else []) or _ended_between(facts)
    known = found or facts.waits or facts.processes is None or facts.processes.all_ended
    if not known and (silent := without_steps(facts)):
        facts.waits.append(silent)
    return found


def _found(facts: BundleFacts, ranks: Ranks) -> list[RuleFinding]:
    ends, stuck, waiting = _without_progress(facts, ranks)
    for comm, _, seq, _ in stuck:
        waiting |= waiting_ranks(ranks, comm, seq)
    if ends and facts.processes is not None:
        waiting |= facts.processes.ended.keys()  # because of the first of them
    anyone = waiting_for_any(ranks)
    waiting |= anyone
    meeting = no_meeting(facts, ranks, stuck)
    found = []
    for comm, kind, seq, lost in stuck:
        if meeting and comm.name.startswith(MEETING):
            continue
        finding = (
            _desync(facts, ranks, comm, kind, seq)
            or _held(facts, comm, seq)
            or _missing(facts, comm, seq, waiting, lost, anyone=anyone)
        )
        if finding is not None:
            found.append(finding)
    if not (found or ends or meeting):
        found = deadlock(facts, ranks, stuck)
    return _earliest(facts, ends) + meeting + found


def _without_progress(
    facts: BundleFacts, ranks: Ranks
) -> tuple[list[RuleFinding], list[Stuck], set[int]]:
    """Findings of ranks without which an operation cannot end, since they are gone; other
    communicators that make no progress; ranks that wait because of the former."""
    ends, stuck, waiting = list[RuleFinding](), list[Stuck](), set[int]()
    for comm in (prepared(ranks, each) for each in ranks.comms if not is_from_any(each.name)):
        kind, lost = kinds_of(ranks, comm), lost_ranks(ranks, comm)
        seq = first_open(comm, lost)
        # Ranks that call different operations end by themselves, whichever is the first.
        gone = None if differ(kind) else _gone(facts, ranks, comm, kind, seq)
        if gone is not None and seq is not None and not is_left(ranks, comm, seq):
            ends += gone
            waiting |= waiting_ranks(ranks, comm, seq)
            continue
        if not hangs(ranks, comm, facts.end_ns, least_silence_ns(kind)):
            continue
        absent = lost if seq is None else ~comm.present[:, seq]
        if lost[absent].any() and lost[absent].all():
            facts.gaps.append(lost_gap(comm, lost))
        elif seq is not None and not is_left(ranks, comm, seq):
            stuck.append((comm, kind, seq, lost))
    return ends, stuck, waiting


def _earliest(facts: BundleFacts, ends: list[RuleFinding]) -> list[RuleFinding]:
    """Of findings of ends in several communicators those of the first ranks: the others may have
    ended because of them. That it is undetermined why the job ended is said if no rank is named."""
    named = [each for each in ends if each.fault == FaultClass.HANG]
    if facts.processes is None or not named:
        return ends[:1]
    ranks = frozenset[int]().union(*(each.ranks for each in named))
    earliest = facts.processes.earliest(ranks)
    return [each for each in named if each.ranks & earliest]


def _gone(
    facts: BundleFacts, ranks: Ranks, comm: Comm, kinds: Ints, seq: int | None
) -> list[RuleFinding] | None:
    """A finding if an operation that others wait in can never end, because processes of its ranks
    have ended, or their hosts do not report. It names the rank that ended first if that failed by
    itself, as far as is known; else those of these ranks that did not begin the operation, or else
    those that ended first: others may have ended because of them. If all ranks ended within the
    time that a launcher or person gives them (`GRACE_NS`), it names a rank only if no other rank
    can be the reason for its end; if somebody ended the job, there is no finding. None: the ends
    explain nothing."""
    processes = facts.processes
    if processes is None or seq is None:
        return None
    gone = _gone_of(facts, ranks, comm, seq)
    absent = set(comm.ranks[~comm.present[:, seq]].tolist())
    if not processes.ended_together:
        return [_ended_first(facts, comm, seq, gone, absent)] if gone else None
    # If nothing had moved for long when they ended, it hung before, for another reason.
    hung = hangs(ranks, comm, processes.first_end_ns, least_silence_ns(kinds))
    names = processes.ended_first
    why = cause(processes.ended, names, absent)
    # What hangs is killed; that it crashes, or fails before it comes, is what it hung for.
    own = manner(processes.ended[names[0]]) is not Manner.KILLED
    if why is Cause.RANK and (own or not hung):
        return [_failed(facts, names, comm, seq)]
    if hung or why is Cause.ENDED:
        return None if hung else []
    hows = {manner(each) for each in processes.ended.values()}
    told = not hows & {Manner.UNKNOWN, Manner.ORDERLY}
    return [_ended(facts, comm, seq)] if gone or told else []


def _gone_of(facts: BundleFacts, ranks: Ranks, comm: Comm, seq: int) -> dict[int, Ended]:
    """Ranks that are gone and without which an operation can never end; none: some are left that
    can end it, most ended at once, or all wait for one that is there."""
    processes = facts.processes
    assert processes is not None  # noqa: S101 - of a recording with processes
    begun, open_here = comm.present[:, seq], comm.done[:, seq] == NULL
    row = int(comm.row[begun, seq].max(initial=-1))
    between = row >= 0 and both_ends(str(ranks.table.codes("op").at(row))) == P2P
    if row < 0 or (between and pair_of(comm.name) is None):
        return {}  # a send may have ended before its receive began
    known = np.concatenate((comm.enqueue[comm.present], comm.done[comm.done != NULL]))
    gone = processes.gone(comm.ranks[open_here].tolist(), int(known.max()))
    absent, waits = set(comm.ranks[~begun].tolist()), waiting_ranks(ranks, comm, seq)
    ended_it = not (waits - gone.keys() or (waits and open_here.all()))
    if not gone or ended_it or (absent and not absent & gone.keys()):
        return {}
    return {} if 2 * len(first(gone, gone)) > len(comm.ranks) else gone


def _ended_between(facts: BundleFacts) -> list[RuleFinding]:
    """A finding of the rank that ended a job while no operation was open, or only some between two
    ranks. Without one, says if somebody ended the job. A crash when all is done, and the others end
    orderly, is none."""
    processes = facts.processes
    if processes is None or not processes.ended_together:
        return []
    names, ended = processes.ended_first, processes.ended
    why = cause(ended, names, ())
    if why is Cause.ENDED:
        facts.ended = together_words(ended, processes.ended_within_ns)
    orderly = any(manner(each) is Manner.ORDERLY for each in ended.values())
    return [_failed(facts, names)] if why is Cause.RANK and not orderly else []


def _failed(
    facts: BundleFacts, names: list[int], comm: Comm | None = None, seq: int = 0
) -> RuleFinding:
    """A finding of ranks that ended a job by their own ends.

    Args:
        facts: of the bundle.
        names: these ranks.
        comm: the communicator in which others waited; None: in none.
        seq: the operation in which they did.
    """
    processes, waited = facts.processes, comm is not None
    assert processes is not None  # noqa: S101 - they ended
    ended, one = processes.ended, processes.ended[names[0]]
    text = story(ended, names, processes.host(names[0]), waited=waited, over=processes.all_ended)
    evidence = [Evidence("exit_status", text, value=one.status)]
    if comm is not None:
        evidence.append(_progress(comm, seq))
        waited_ns = one.last_ns - int(np.median(comm.enqueue[comm.present[:, seq], seq]))
        here = comm.present[np.isin(comm.ranks, names), seq].any()
        if waited_ns >= MIN_SILENCE_NS and not here:
            text = f"the others had waited {format_ns(waited_ns)} for it when it ended"
            evidence.append(Evidence("enqueue_ns", text))
    return RuleFinding(
        fault=FaultClass.HANG, subjects=tuple(f"rank {rank}" for rank in names),
        onset_ns=one.last_ns, last_ns=max(one.last_ns, facts.end_ns),
        confidence=confidence(0.98, len(names) == 1 or None), evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.STRAGGLER, True, "it does not come at all"),
            weigh(FaultClass.UNDETERMINED, True, "who ends a job ends its ranks in another way"),
        ),
        action=ACTION_OOM if one.oom else ACTION_FAILED[manner(one)], ranks=frozenset(names),
        hosts=frozenset(processes.host(rank) for rank in names),
    )  # fmt: skip


def _ended_first(
    facts: BundleFacts, comm: Comm, seq: int, gone: dict[int, Ended], absent: set[int]
) -> RuleFinding:
    """A finding of those that are gone and did not begin an operation, or else were gone first. Up
    to the grace time later the others may be ending as well."""
    processes, ranks = facts.processes, facts.ranks
    assert processes is not None and ranks is not None  # noqa: S101, PT018 - some are gone
    earliest = first(gone, gone)
    if processes.crashed(earliest):
        return _failed(facts, earliest, comm, seq)
    names = first(gone, absent & gone.keys() or gone)
    one, ago = names[0], format_ns(max(0, facts.end_ns - gone[names[0]].last_ns))
    if one not in processes.ended:
        text = f"no report of {ranks.host.get(one, 'its host')} in the last {ago}"
    else:
        text = f"its process {words(gone[one])} {ago} before the end of the recording"
        if others := len(gone) - len(names):
            text += f", before {others} other{'s' * (others > 1)}"
    evidence = (Evidence("ended", text), _progress(comm, seq))
    found = hang_finding(facts, comm, seq, names, evidence=evidence, action=ACTION_GONE)
    if one not in processes.ended or facts.end_ns - gone[one].last_ns > GRACE_NS:
        return found
    unheard = processes.unheard(absent, gone[one].last_ns)
    if unheard or asked({manner(gone[rank]) for rank in earliest},
                        {manner(each) for each in gone.values()}):  # fmt: skip
        return _ended(facts, comm, seq)
    ending = weigh(FaultClass.UNDETERMINED, False, "somebody may be ending the job: the others had"
                   f" less than {format_ns(GRACE_NS)} for it")  # fmt: skip
    return msgspec.structs.replace(
        found, alternatives=(*found.alternatives, ending),
        confidence=round(0.9 * found.confidence, 3),
    )  # fmt: skip


def _ended(facts: BundleFacts, comm: Comm, seq: int) -> RuleFinding:
    """A job that ended, or is ending, within an operation, of which it is not known why."""
    processes = facts.processes
    assert processes is not None and facts.ranks is not None  # noqa: S101, PT018 - they ended
    ended = processes.ended
    names = ", ".join(map(str, processes.ended_first))
    one = ended[processes.ended_first[0]]
    within = format_ns(processes.ended_within_ns)
    text = f"all {len(ended)} ranks ended within {within}, rank {names} first"
    if not processes.ended_together:
        text = f"of {len(comm.ranks)} ranks {len(ended)} have ended, rank {names} first"
    noticed, left = (manner(one) is each for each in (Manner.FAILED, Manner.ORDERLY))
    return RuleFinding(
        fault=FaultClass.UNDETERMINED,
        subjects=(f"job {comm.job or facts.bundle.manifest.job}".rstrip(),),
        onset_ns=processes.first_end_ns, last_ns=max(processes.first_end_ns, facts.end_ns),
        confidence=confidence(0.98, False),
        evidence=(Evidence("ended", f"{text}, which {words(one)}"), _progress(comm, seq)),
        alternatives=(
            weigh(FaultClass.HANG, False, f"rank {names} {'left' if left else 'failed'}, and the"
                  " others failed because of it"),
            weigh(FaultClass.UNDETERMINED, False, _other_reason(one, noticed=noticed)),
        ),
        action=ACTION_ENDED, ranks=frozenset(comm.ranks.tolist()),
        hosts=frozenset(facts.ranks.host.get(rank, "") for rank in comm.ranks.tolist()),
    )  # fmt: skip


def _other_reason(one: Ended, *, noticed: bool) -> str:
    """Why the rank that ended first may not be the cause."""
    if noticed and one.handles_term:
        return ("somebody ended the job: it handles SIGTERM, and may end with an error then; or its"
                " connection to another rank failed, and it noticed first")  # fmt: skip
    return ("its connection to another rank failed, and it noticed first" if noticed
            else "somebody ended the job")  # fmt: skip


def _held(facts: BundleFacts, comm: Comm, seq: int) -> RuleFinding | None:
    """A finding if processes of ranks have done nothing since the operation was begun: they are
    stopped, or, if no other rank is missing, wait for a device. A process that was stopped later
    does not count: somebody may be examining the hang."""
    if facts.processes is None:
        return None
    begun = comm.enqueue[comm.present[:, seq], seq]
    by_ns = int(np.median(begun)) + SILENT_NS
    held = {rank: each for rank in comm.ranks[comm.done[:, seq] == NULL].tolist()
            if (each := facts.processes.held.get(rank)) and each.since_ns <= by_ns}  # fmt: skip
    absent = set(comm.ranks[~comm.present[:, seq]].tolist())
    stopped = {rank for rank, each in held.items() if each.state != "D"}
    names = sorted(stopped or (held.keys() & absent if absent else held.keys()))
    if not names or len(names) == len(comm.ranks):
        return None
    one = held[names[0]]
    evidence = (Evidence("state", _held_text(facts, one)), _progress(comm, seq))
    return hang_finding(facts, comm, seq, names, evidence=evidence, action=ACTION_HELD[one.state])


def _held_text(facts: BundleFacts, held: Held) -> str:
    return f"its process is {STATES[held.state]} for {format_ns(facts.end_ns - held.since_ns)}"


def _progress(comm: Comm, seq: int) -> Evidence:
    begun, done = comm.present[:, seq], comm.done[:, seq] != NULL
    return Evidence("seq", f"operation {comm.seqs[seq]} of {comm.name}: {begun.sum()} of"
                    f" {len(comm.ranks)} ranks enqueued it, {done.sum()} ended it")  # fmt: skip


def _desync(
    facts: BundleFacts, ranks: Ranks, comm: Comm, kinds: Ints, seq: int
) -> RuleFinding | None:
    """Ranks that enqueued another operation than the predicted one, or than most ranks, under the
    same number."""
    here = np.flatnonzero(kinds[:, seq] >= 0)
    reported = kinds[here, seq].tolist()
    order = sorted(set(reported), key=reported.count, reverse=True)
    if len(order) < 2:
        return None
    due = due_kind(kinds, seq)
    if due in order:
        order.insert(0, order.pop(order.index(due)))
    tied = due not in order and reported.count(order[0]) == reported.count(order[1])
    odd = [int(comm.ranks[each]) for each, kind in zip(here, reported, strict=True)
           if tied or kind != order[0]]  # fmt: skip
    other, usual = (
        name_of(ranks, int(comm.row[here[reported.index(kind)], seq]))
        for kind in (order[1], order[0])
    )
    text = f"its operation {comm.seqs[seq]} of {comm.name} is {other}, the others' {usual}"
    if due in order:
        text += ", which until then always came next"
    return hang_finding(
        facts, comm, seq, odd, evidence=(Evidence("op", text),), sure=not tied,
        other="all ranks came" if len(here) == len(comm.ranks) else
        "those that came differ")  # fmt: skip


def _missing(
    facts: BundleFacts, comm: Comm, seq: int, waiting: set[int], lost: Flags, *, anyone: set[int]
) -> RuleFinding | None:
    """Ranks that never enqueued it, as far as is known, and do not wait elsewhere themselves.
    `anyone`: ranks that wait for whichever other one sends."""
    ranks = facts.ranks
    assert ranks is not None  # noqa: S101 - a communicator
    absent = [int(rank) for rank in comm.ranks[~comm.present[:, seq] & ~lost]]
    roots = [rank for rank in absent if rank not in waiting]
    where = f"operation {comm.seqs[seq]} of {comm.name}"
    text = f"{where}: {len(comm.ranks) - len(absent)} of {len(comm.ranks)} ranks"
    other = "the others have the same operation"
    evidence = [Evidence("seq", f"{text} wait since it was enqueued"), *_unseen(facts, comm, roots)]
    if absent and not roots:
        # They wait in another communicator, which is named instead, or for any rank.
        roots = sorted(ranks.host.keys() - waiting) if anyone & {*absent} else []
        if len(roots) != 1:
            return None
        text = f"rank {absent[0]}, for which others wait in {where}, waits for any other rank"
        evidence, other = [Evidence("seq", text)], "it alone waits for nobody"
    if not roots:
        come = set(comm.ranks[comm.done[:, seq] == NULL].tolist())
        if one := runs(facts, comm, seq, come):
            facts.waits.append(waits_for(facts, comm, seq, [one[0]], one[1]))
            return None
        text += " enqueued the same and none ended it"
        return hang_finding(facts, comm, seq, [], evidence=(Evidence("done_ns", text),),
                            sure=False, other="all ranks have the same operation")  # fmt: skip
    if why := excuse(facts, ranks, comm, seq, roots):
        facts.waits.append(waits_for(facts, comm, seq, roots, why))
        return None
    evidence += places_of(facts, roots)
    return hang_finding(facts, comm, seq, roots, evidence=tuple(evidence), other=other)


def _unseen(facts: BundleFacts, comm: Comm, roots: list[int]) -> list[Evidence]:
    """What is known of ranks that did not come."""
    if facts.processes is None:
        return []
    if held := [each for rank in roots if (each := facts.processes.held.get(rank))]:
        return [Evidence("state", _held_text(facts, held[0]))]
    if comm.present[np.isin(comm.ranks, roots)].any():
        return []
    known = [rank for rank in roots if facts.processes.has(rank)]
    text = "no process of it is recorded: it was not started, or no agent runs on its host"
    if known:
        text = f"its process runs on {facts.processes.host(known[0])}, and has not come there yet"
    return [Evidence("ended", text)]
