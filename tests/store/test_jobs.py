"""What the store tells of jobs."""

from __future__ import annotations

import pytest
from tests.store.rows import T0, probed, rows_of

from syntony.errors import UsageError
from syntony.model import S
from syntony.store import Store
from syntony.wire.tables import CLOCK, COLLECTIVE, JOB_FLOW, JOB_PROCESS, LINK_PORT, PROBE, TAKEOVER

END = T0 + 60 * S


def fill(store: Store) -> None:
    store.insert(
        JOB_PROCESS,
        rows_of(
            JOB_PROCESS,
            [
                {"host": host, "job": job, "pid": pid, "rank": rank, "ranks": 4, "window_ns": 2 * S,
                 "began_ns": began, "ts_ns": T0 + second * S, "program": "python", "ended": ended}
                for host, job, pid, rank, began, second, ended in (
                    ("h0", "night", 1, 0, T0 - 9, 0, 0), ("h0", "night", 1, 0, T0 - 9, 2, 1),
                    ("h1", "night", 1, 1, T0 - 5, 2, 0), ("h1", "day's", 2, -1, T0 - 1, 2, 0),
                )
            ],
        ),
    )  # fmt: skip
    store.insert(
        JOB_FLOW,
        rows_of(JOB_FLOW, [{"job": "night", "src": "h0/a", "dst": "h1/a", "ts_ns": T0}]),
    )
    store.insert(PROBE, rows_of(PROBE, [probed("h0/a", "h1/a"), probed("h0/a", "h9/a")]))
    store.insert(CLOCK, rows_of(CLOCK, [{"node": "h1"}, {"node": "h9"}]))
    store.insert(LINK_PORT, rows_of(LINK_PORT, [{"nic": "h1/a"}, {"nic": "h1/b"}]))
    seqs = [{"job": job, "seq": seq} for job in ("night", "day's") for seq in range(3)]
    store.insert(COLLECTIVE, rows_of(COLLECTIVE, seqs))


def test_jobs_by_their_processes(store: Store) -> None:
    fill(store)
    day, night = store.jobs.jobs(T0, END)
    assert (night.job, night.hosts, night.processes, night.running) == ("night", ("h0", "h1"), 2, 1)
    assert (night.began_ns, night.seen_ns, night.ranks) == (T0 - 9, T0 + 4 * S, 4)
    assert night.programs == ("python",)
    assert (day.job, day.processes, day.running) == ("day's", 1, 1)
    assert store.jobs.jobs(T0 + 20 * S, END) == ()


def test_hosts_of_a_job_by_their_newest_rows(store: Store) -> None:
    fill(store)
    rows = [{"host": "h1", "job": "night", "pid": pid, "ts_ns": T0 + 9 * S, "window_ns": 2 * S,
             "ended": 0} for pid in (1, 3)]  # fmt: skip
    store.insert(JOB_PROCESS, rows_of(JOB_PROCESS, rows))
    assert store.jobs.hosts("night", T0, END) == (("h0", T0 + 4 * S, 0), ("h1", T0 + 11 * S, 2))
    assert store.jobs.hosts("night", T0 + 20 * S, END) == ()


def test_protected_jobs_tell_their_spares_and_losses(store: Store) -> None:
    fill(store)
    rows = [
        ("night", "spares", 0, 0, 2, ""), ("night", "replaced", 1, 1, -1, "killed"),
        ("night", "replaced", 2, 1, -1, "drained"), ("night", "spares", 3, 1, 1, ""),
        ("night", "straggler", 3, 1, -1, "late"), ("night", "no-straggler", 4, 1, -1, ""),
        ("day's", "replaced", 1, 1, -1, "killed"), ("gone", "spares", 1, 7, 7, ""),
    ]  # fmt: skip
    made = [
        {"job": job, "what": what, "ts_ns": T0 + second * S, "generation": generation,
         "spares": spares, "reason": reason, "rank": 3, "stall_ns": S}
        for job, what, second, generation, spares, reason in rows
    ]  # fmt: skip
    store.insert(TAKEOVER, rows_of(TAKEOVER, made))
    day, night = store.jobs.jobs(T0 + 2 * S, END)
    assert (night.generation, night.spares, night.replaced) == (1, 1, 1), "since it began"
    assert (day.generation, day.spares, day.replaced) == (None, None, 1), "an earlier version"
    told = store.jobs.takeovers_of("night", T0, END)
    assert [(each.ts_ns - T0, each.reason) for each in told] == [
        (S, "killed"), (2 * S, "drained"), (3 * S, "late")
    ]  # fmt: skip
    (lost,) = store.jobs.takeovers_of("day's", T0, END)
    assert (lost.what, lost.rank, lost.generation, lost.stall_ns) == ("replaced", 3, 1, S)
    assert store.jobs.takeovers_of("day's", T0 + 2 * S, END) == ()


def test_a_recording_has_what_the_job_used_and_nothing_else(store: Store) -> None:
    fill(store)
    found = store.jobs.recording("night", T0, END)
    assert [len(found[table.name]["ts_ns"]) for table in (JOB_PROCESS, COLLECTIVE)] == [3, 3]
    assert found[PROBE.name]["dst"] == ["h1/a"]
    assert found[CLOCK.name]["node"] == ["h1"]
    assert found[LINK_PORT.name]["nic"] == ["h1/a"]
    none = store.jobs.recording("nobody' OR 1 = 1", T0, END)
    assert all(not some["ts_ns"] for some in none.values())
    assert len(store.jobs.recording("day's", T0, END)[COLLECTIVE.name]["seq"]) == 3


def test_a_job_that_begins_no_operation_is_recorded_with_its_last(store: Store) -> None:
    """It stands still for an hour; one of its two processes ended a minute after the last."""
    fill(store)
    first_ns = T0 + 3600 * S
    ends = {"ts_ns": T0 + 60 * S, "host": "h0", "pid": 1, "ended": 1}
    runs = [{"ts_ns": first_ns + second * S, "host": "h1", "pid": 1} for second in range(0, 60, 2)]
    rows = [row | {"job": "night", "window_ns": 2 * S, "began_ns": T0} for row in (ends, *runs)]
    store.insert(JOB_PROCESS, rows_of(JOB_PROCESS, rows))
    found = store.jobs.recording("night", first_ns, first_ns + 120 * S)
    assert sorted(found[COLLECTIVE.name]["seq"]) == [0, 1, 2]
    assert len(found[JOB_PROCESS.name]["ts_ns"]) == 4 + len(runs)
    assert sum(found[JOB_PROCESS.name]["ended"]) == 2
    late = [{"job": "night", "seq": 9, "ts_ns": first_ns + S}]
    store.insert(COLLECTIVE, rows_of(COLLECTIVE, late))
    assert store.jobs.recording("night", first_ns, END + 3600 * S)[COLLECTIVE.name]["seq"] == [9]


def test_too_much_is_refused(store: Store) -> None:
    fill(store)
    most = max(len(each["ts_ns"]) for each in store.jobs.recording("night", T0, END).values())
    store.jobs.recording("night", T0, END, most)
    with pytest.raises(UsageError, match="shorter window"):
        store.jobs.recording("night", T0, END, most - 1)
