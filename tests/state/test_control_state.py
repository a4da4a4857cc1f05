"""Control state on disk: what survives, what is refused, what the audit log holds."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.state.conftest import Open

from syntony.alerts.incidents import BookState, Incident, IncidentState, Streak
from syntony.alerts.rules import Severity
from syntony.alerts.silences import Silence
from syntony.errors import ConfigError, StateError, UsageError
from syntony.mesh.key_rotation import KeyRing, Master
from syntony.state import ControlState
from syntony.state.database import LOST_EPOCHS, migrations, next_epoch
from syntony.state.document import Document
from syntony.state.incident_store import IncidentStore
from syntony.state.outbox import Outbox
from syntony.state.sqlite import FILE
from syntony.wire.control import Issuer
from syntony.wire.failover import Switch

ANN = Issuer("ann", "ipv4:10.0.0.1:5000")


RING = KeyRing(masters=(Master(epoch=7, secret=bytes(range(32))),), hosts=("h0", "h1"))


def switch(at_ns: int, *, stopped: bool) -> Switch:
    return Switch(stopped=stopped, at_ns=at_ns, by="ann", epoch=3)


def test_everything_survives_the_process(reopen: Open) -> None:
    with reopen() as first:
        assert first.switch() is None
        first.set_switch(switch(5, stopped=True), ANN, "maintenance")
        first.set_mode("placement", "observe", "act", at_ns=6, issuer=ANN, comment="")
        first.record("incident 4", "ack", at_ns=7, issuer=ANN, comment="mine")
        assert Document(first, "probe keys", KeyRing).load() is None
        Document(first, "probe keys", KeyRing).save(RING)
        changes = first.changes(0, 10)
    with reopen() as second:
        assert second.switch() == switch(5, stopped=True)
        assert second.mode("placement") == "observe"
        assert second.mode("pacing") is None
        assert Document(second, "probe keys", KeyRing).load() == RING
        assert second.changes(0, 10) == changes
    reported = [(each.number, each.what, each.before, each.after, each.comment) for each in changes]
    assert reported == [
        (1, "failover switch", "", "stopped", "maintenance"),
        (2, "placement mode", "act", "observe", ""),
        (3, "incident 4", "", "ack", "mine"),
    ]
    assert {(each.who, each.origin) for each in changes} == {ANN}


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("switch"), st.booleans()),
            st.tuples(st.sampled_from(["placement", "pacing"]), st.sampled_from(["act", "off"])),
        ),
        max_size=12,
    )
)
def test_the_audit_log_replayed_is_the_state(orders: list[tuple[str, object]]) -> None:
    """Any order of orders: the newest of each counts, and no other touches it."""
    with ControlState(None) as state:
        for at_ns, (what, value) in enumerate(orders, start=1):
            if what == "switch":
                state.set_switch(switch(at_ns, stopped=bool(value)), ANN, "")
            else:
                was = state.mode(what) or "configured"
                state.set_mode(what, str(value), was, at_ns=at_ns, issuer=ANN, comment="")
        replayed: dict[str, str] = {}
        for each in state.changes(0, 100):
            assert each.before == replayed.get(each.what, each.before)
            replayed[each.what] = each.after
        found = state.switch()
        reported = None if found is None else ("running", "stopped")[found.stopped]
        assert reported == replayed.get("failover switch")
        for what in ("placement", "pacing"):
            assert state.mode(what) == replayed.get(f"{what} mode")


def test_the_audit_log_is_append_only(reopen: Open) -> None:
    with reopen() as state:
        state.record("x", "y", at_ns=1, issuer=ANN, comment="")
        for statement in ("UPDATE change SET who = 'eve'", "DELETE FROM change"):
            with (
                pytest.raises(StateError, match="append-only"),
                state.transaction() as connection,
            ):
                connection.execute(statement)
        assert [each.who for each in state.changes(0, 9)] == ["ann"]


def test_a_transaction_is_whole_or_nothing(reopen: Open) -> None:
    with reopen() as state:
        for error in (UsageError, StateError):
            with pytest.raises(error):
                _fail_after_a_write(state, error)
        assert state.mode("a") is None
        assert [state.take_number("n") for _ in range(3)] == [1, 2, 3]


def _fail_after_a_write(state: ControlState, error: type[Exception]) -> None:
    with state.transaction() as connection:
        connection.execute("INSERT INTO mode (what, mode) VALUES ('a', 'b')")
        if error is UsageError:
            raise UsageError("no")
        connection.execute("INSERT INTO nowhere VALUES (1)")


def test_a_book_and_its_messages_come_back(reopen: Open) -> None:
    """Random books, one after the other: what differs is written, what is gone is deleted."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    draw = random.Random(seed)
    book = BookState()
    for _ in range(4):
        with reopen() as state:
            store = IncidentStore(state)
            assert store.load() == book
            for _ in range(3):
                book = drawn(draw, book)
                with state.transaction() as connection:
                    store.save(connection, book)
                assert IncidentStore(state).load() == book


def test_an_all_clear_after_the_resolution_is_stored(reopen: Open) -> None:
    book = drawn(random.Random(1), BookState())
    for each in book.incidents:
        each.state, each.paged = IncidentState.RESOLVED, True
    assert book.incidents
    with reopen() as state:
        store = IncidentStore(state)
        for paged in (True, False):
            for each in book.incidents:
                each.paged = paged
            assert store.differs(book)
            with state.transaction() as connection:
                store.save(connection, book)
        assert not store.differs(book)
        assert IncidentStore(state).load() == book


def drawn(draw: random.Random, book: BookState) -> BookState:
    incidents = [each for each in book.incidents if draw.random() < 0.8]
    for each in incidents:
        each.state = draw.choice([each.state, *IncidentState])
        if each.live or each.paged:  # as in the book: over is what is resolved and cleared
            each.evidence = (draw.choice(["ü", "\0", "'; --", "%s ?"]),)
            each.paged = draw.random() < 0.5
    for _ in range(draw.randrange(4)):
        incidents.append(
            Incident(
                number=book.next_number, rule="r", subject="h0", severity=Severity.INFO,
                state=IncidentState.OPEN, summary="", remedy="", opened_ns=draw.randrange(1 << 62),
                updated_ns=0, value=draw.random(),
            )
        )  # fmt: skip
        book.next_number += 1
    streaks = {f"r|h{n}": Streak(bad=draw.randrange(9)) for n in range(draw.randrange(4))}
    silences = [each for each in book.silences if draw.random() < 0.5]
    silences.append(Silence(number=book.next_silence, last_ns=1, who="ann"))
    return BookState(
        next_number=book.next_number, incidents=incidents, streaks=streaks, silences=silences,
        next_silence=book.next_silence + 1,
    )  # fmt: skip


def test_an_outbox_keeps_order_and_sheds_the_oldest(reopen: Open) -> None:
    with reopen() as state, state.transaction() as connection:
        for number in range(5):
            Outbox(state).append(connection, "a", number // 2, f"{number}")
            Outbox(state).append(connection, "b", number, f"{number}")
        assert Outbox(state).shed(connection, "a", 3) == 2
        assert Outbox(state).shed(connection, "b", 5) == 0
    with reopen() as state:
        outbox = Outbox(state)
        assert (outbox.waiting("a"), outbox.waiting("b"), outbox.waiting("c")) == (3, 5, 0)
        seen = outbox.queued("a")
        assert [(each.incident, outbox.body(each.number)) for each in seen] == [
            (1, "2"), (1, "3"), (2, "4"),
        ]  # fmt: skip
        for each in seen:
            outbox.remove(each.number)
        assert outbox.body(seen[0].number) is None
        with state.transaction() as connection:
            outbox.append(connection, "a", 3, "new")
        (again,) = outbox.queued("a")
        assert again.number > max(each.number for each in seen)


def test_a_newer_schema_is_refused_in_one_line(reopen: Open) -> None:
    with reopen() as state, state.transaction() as connection:
        connection.execute("INSERT INTO schema_migration VALUES (9999)")
    expected = r"has unknown schema 9999.*start the version"
    with pytest.raises(ConfigError, match=expected) as reported:
        reopen()
    assert "\n" not in str(reported.value)


def test_a_full_disk_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    with ControlState(tmp_path) as state:
        state.set_switch(switch(1, stopped=True), ANN, "")
        state.read("PRAGMA max_page_count = 1")  # the file may not grow: SQLITE_FULL
        with pytest.raises(StateError, match="database or disk is full") as reported:
            state.record("x" * 100_000, "", at_ns=2, issuer=ANN, comment="")
        assert "\n" not in str(reported.value)
        assert [each.at_ns for each in state.changes(0, 9)] == [1]
    with ControlState(tmp_path) as state:
        assert state.switch() == switch(1, stopped=True)


def test_a_directory_that_may_not_be_written_is_one_line() -> None:
    """As another user where we are root, who may write everywhere."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "state"
        ControlState(place).close()
        Path(name).chmod(0o755)
        for path, mode in [(place, 0o555), *((each, 0o444) for each in place.iterdir())]:
            path.chmod(mode)
        us = os.geteuid()
        if not us:
            os.seteuid(65_534)
        try:
            with pytest.raises(
                ConfigError, match=r"control state .*; check state_dir$"
            ) as reported:
                ControlState(place)
        finally:
            os.seteuid(us)
            place.chmod(0o755)
        assert "\n" not in str(reported.value)


def test_the_newest_changes_of_a_time_range_in_order(reopen: Open) -> None:
    with reopen() as state:
        for at_ns in range(10):
            state.record(f"c{at_ns}", "", at_ns=at_ns, issuer=ANN, comment="")
        assert [each.what for each in state.changes(3, 4)] == ["c6", "c7", "c8", "c9"]
        assert [each.what for each in state.changes(8, 4)] == ["c8", "c9"]


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    """The log's row and the state's are one transaction."""
    with ControlState(tmp_path) as state:
        state.set_switch(switch(1, stopped=True), ANN, "")
        other = sqlite3.connect(tmp_path / FILE)
        other.execute(
            "CREATE TRIGGER full BEFORE INSERT ON change BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
        other.commit()
        other.close()
        with pytest.raises(StateError, match="cannot be written"):
            state.set_switch(switch(2, stopped=False), ANN, "")
        assert state.switch() == switch(1, stopped=True)
        assert len(state.changes(0, 10)) == 1


def test_an_order_that_is_recorded_again_is_logged_once(reopen: Open) -> None:
    """The answer to the first commit may have been lost."""
    with reopen() as state:
        for at_ns in (1, 1, 2):
            state.set_switch(switch(at_ns, stopped=True), ANN, "")
        assert [each.at_ns for each in state.changes(0, 9)] == [1, 2]


def test_threads_take_turns(reopen: Open) -> None:
    with reopen() as state:
        names = [f"c{number}" for number in range(24)]
        threads = [
            threading.Thread(
                target=lambda name=name: state.record(name, "", at_ns=1, issuer=ANN, comment="")
            )
            for name in names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(each.what for each in state.changes(0, 100)) == sorted(names)


@pytest.mark.parametrize("damage", ["header", "page", "newer"])
def test_a_file_that_cannot_be_trusted_is_kept_and_refused(tmp_path: Path, damage: str) -> None:
    """It may hold a stop order: starting anew would forget it."""
    with ControlState(tmp_path) as state:
        for number in range(200):
            state.record(f"c{number}", "x" * 100, at_ns=number, issuer=ANN, comment="")
    file = tmp_path / FILE
    database = sqlite3.connect(file)
    database.execute("PRAGMA journal_mode = DELETE")  # all pages in the one file
    if damage == "newer":
        database.execute("INSERT INTO schema_migration VALUES (9999)")
        database.commit()
    database.close()
    if damage != "newer":
        data = bytearray(file.read_bytes())
        start = 0 if damage == "header" else len(data) // 2 // 4096 * 4096  # a page's header
        data[start : start + 64] = b"\xff" * 64
        file.write_bytes(data)
    before = file.read_bytes()
    with pytest.raises(ConfigError, match=r"control state .*control\.db"):
        ControlState(tmp_path)
    assert file.read_bytes() == before


def test_the_first_schema_is_migrated_and_then_refused_by_its_own_version(tmp_path: Path) -> None:
    """It counted migrations in user_version and knew one."""
    (first, *_) = migrations("sqlite")
    database = sqlite3.connect(tmp_path / FILE)
    database.executescript(f"BEGIN;{first.script};PRAGMA user_version = 1;COMMIT;")
    database.execute("INSERT INTO switch VALUES (1, 1, 5, 'ann')")
    database.commit()
    database.close()
    for _ in range(2):
        with ControlState(tmp_path) as state:
            assert state.switch() == structs.replace(switch(5, stopped=True), epoch=0)
    database = sqlite3.connect(tmp_path / FILE)
    assert database.execute("PRAGMA user_version").fetchone()[0] > 1
    database.close()


def test_steps_that_two_branches_added_in_either_order_are_all_applied(tmp_path: Path) -> None:
    """A step with a lower number may arrive after one with a higher number."""
    with ControlState(tmp_path) as state, state.transaction() as connection:
        connection.execute("DELETE FROM schema_migration WHERE number = 2")
        connection.execute("DROP TABLE lease")
    with ControlState(tmp_path) as state:
        assert state.epoch == 1


def test_a_second_controller_is_refused_until_the_first_ends(reopen: Open) -> None:
    with (
        reopen() as first,
        pytest.raises(ConfigError, match="in use by another controller"),
    ):
        reopen()
    with reopen() as second:
        assert second.epoch == first.epoch + 1


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="check state_dir"):
        ControlState(tmp_path / "file")


def taken(place: Path, timeline: int) -> int:
    """The next epoch, at a server of this timeline."""
    with sqlite3.connect(place / FILE) as connection:
        return next_epoch(connection, timeline)


def test_no_epoch_is_given_twice_after_two_promotions(tmp_path: Path) -> None:
    """Of two replicas that lack the newest epochs; the second lacks those of the first as well."""
    lost = random.randrange(1, LOST_EPOCHS // 2)
    print(f"{lost} epochs lost in each")
    first, second = tmp_path / "first", tmp_path / "second"
    ControlState(first).close()
    shutil.copytree(first, second)
    given = [taken(first, 1) for _ in range(lost)]
    given += [taken(first, 2) for _ in range(lost)]
    assert given == sorted({*given})
    assert taken(second, 3) > given[-1]


def test_a_promotion_is_noticed_at_a_server_that_began_anew(tmp_path: Path) -> None:
    """It has read a copy of a server that was promoted twice."""
    place, replica = tmp_path / "state", tmp_path / "replica"
    ControlState(place).close()
    epoch = taken(place, 3)
    assert taken(place, 1) == epoch + 1
    assert taken(place, 0) == epoch + 2, "not known for once"
    shutil.copytree(place, replica)
    newest = taken(place, 1)
    assert taken(replica, 2) == newest + LOST_EPOCHS
