"""Transfers between ranks, and groups that jobs form and destroy, by their own interpreters to the
agent's rows."""

from __future__ import annotations

from pathlib import Path

from tests.agent.hooked_processes import Gathered, hooked, seq_of, start

from syntony.agent.operations import JobTelemetry
from syntony.wire.tables import COLLECTIVE


def test_sends_and_receives_are_operations_of_each_direction(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    with hooked(tmp_path, "peers", MASTER_ADDR="h0", MASTER_PORT="29500"):
        rows = Gathered(jobs).of(COLLECTIVE, 12)
    told = sorted((row["comm"], row["seq"], row["op"], row["ranks"], row["bytes"]) for row in rows)
    assert told == [
        ("0.p2p *>2", 0, "recv", 4, 100), ("0.p2p *>2", 1, "recv", 4, 100),
        ("0.p2p 1>2", 0, "recv", 2, 100), ("0.p2p 1>2", 1, "recv", 2, 100),
        ("0.p2p 2>3", 0, "send", 2, 100), ("0.p2p 2>3", 1, "isend", 2, 100),
        ("0.p2p 2>3", 2, "send", 2, 100), ("0.p2p 3>2", 0, "recv", 2, 100),
        ("0.p2p 3>2", 1, "recv", 2, 100), ("0.p2p 3>2", 2, "recv", 2, 100),
        ("rendezvous h0:29500", 0, "rendezvous", 4, 0),
        ("rendezvous h0:29500", 1, "init_process_group", 4, 0),
    ]  # fmt: skip
    assert all(row["done_ns"] for row in rows)
    assert sum(row["dropped"] for row in rows) == 0


def test_groups_are_recorded_where_they_are_formed_and_forgotten_once_they_are_destroyed(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    with hooked(tmp_path, "groups") as said:
        rows = Gathered(jobs).of(COLLECTIVE, 8)
    assert said == ["True", "True", "True"], "their connections and threads are not kept"
    assert sorted((row["comm"], row["seq"], row["op"], row["ranks"]) for row in rows) == [
        ("0.0-3:1", 0, "barrier", 4), ("0.0-3:1#2", 0, "all_reduce", 4),
        ("0.p2p 2>3", 0, "isend", 2), ("1.0-3:1", 0, "all_reduce", 4),
        ("1.p2p *>2", 0, "irecv", 4),
        ("new_group.0-2:1", 0, "new_group", 3), ("new_group.0-2:1", 1, "new_group", 3),
        ("new_group.0-3:1", 0, "new_group", 4),
    ]  # fmt: skip


def test_a_rank_that_a_launcher_has_forked_is_recorded(jobs: JobTelemetry, tmp_path: Path) -> None:
    with hooked(tmp_path, "forks_ranks"):
        (row,) = Gathered(jobs).of(COLLECTIVE)
    assert (row["op"], row["rank"]) == ("all_reduce", 2)


def test_collectives_have_room_however_many_ranks_send_to_each_other(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    with hooked(tmp_path, "many_peers", WORLD_SIZE="100"):
        rows = Gathered(jobs).of(COLLECTIVE, 33)
    assert [row["op"] for row in rows].count("isend") == 32
    assert [row["comm"] for row in rows if row["op"] == "all_reduce"] == ["0.0-99:1"]
    assert sum(row["dropped"] for row in rows) == 99 - 32


def test_groups_that_are_destroyed_leave_their_places_to_others(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    with hooked(tmp_path, "many_groups"):
        gathered, last = Gathered(jobs), {"0.0-3:1#41", "0.p2p 2>3#41"}
        rows = gathered.of(COLLECTIVE)
        while not last <= {row["comm"] for row in rows}:
            rows = gathered.of(COLLECTIVE, len(rows) + 1)
    assert all(row["seq"] == 0 for row in rows if not row["comm"].startswith("new_group."))
    assert sum(row["dropped"] for row in rows) == 0


def test_models_that_are_gone_leave_their_places_to_others(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    """And one whose group is destroyed does not keep others from being recorded."""
    with hooked(tmp_path, "many_models"):
        gathered, last = Gathered(jobs), {"ddp.0.0-3:1#72", "0.0-3:1"}
        rows = gathered.of(COLLECTIVE)
        while not last <= {row["comm"] for row in rows}:
            rows = gathered.of(COLLECTIVE, len(rows) + 1)
    assert sum(row["dropped"] for row in rows) == 1, "the first, when no time is known yet"


def test_a_transfer_that_the_program_lets_go_of_is_not_kept(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    with hooked(tmp_path, "lets_go") as said:
        assert said == ["True"]
        (row,) = Gathered(jobs).of(COLLECTIVE)
    assert (row["op"], row["done_ns"] > 0) == ("isend", True)


def test_a_rank_that_waits_for_others_to_form_a_group_says_so_before_it_has_one(
    jobs: JobTelemetry, tmp_path: Path
) -> None:
    fake = str(Path(__file__).parent / "fake_torch")
    hooked_py = str(Path(__file__).with_name("hooked.py"))
    process = start(tmp_path, hooked_py, "arrives", torch=fake, SPAWNED="0", RANK="", WORLD_SIZE="")
    with process:
        rows = Gathered(jobs).of(COLLECTIVE, 2)
        process.kill()
    met, forming = sorted(rows, key=seq_of)
    assert {row["comm"] for row in rows} == {"rendezvous h0:29500"}
    assert (met["rank"], met["ranks"], met["op"], met["done_ns"] > 0) == (2, 4, "rendezvous", True)
    assert (forming["op"], forming["done_ns"]) == ("init_process_group", 0)
