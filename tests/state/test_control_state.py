"""Control state on disk: what survives, what is refused, what the audit log holds."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.errors import ConfigError, StateError
from syntony.state import ControlState
from syntony.state.database import FILE, migrations
from syntony.wire.control import Issuer
from syntony.wire.failover import Switch

ANN = Issuer("ann", "ipv4:10.0.0.1:5000")


def switch(at_ns: int, *, stopped: bool) -> Switch:
    return Switch(stopped=stopped, at_ns=at_ns, by="ann")


def test_everything_survives_the_process(tmp_path: Path) -> None:
    with ControlState(tmp_path) as first:
        assert first.switch() is None
        first.set_switch(switch(5, stopped=True), ANN, "maintenance")
        first.set_mode("placement", "observe", "act", at_ns=6, issuer=ANN, comment="")
        first.record("incident 4", "ack", at_ns=7, issuer=ANN, comment="mine")
        key, changes = first.probe_key(), first.changes(0, 10)
    with ControlState(tmp_path) as second:
        assert second.switch() == switch(5, stopped=True)
        assert second.mode("placement") == "observe"
        assert second.mode("pacing") is None
        assert second.probe_key() == key
        assert second.changes(0, 10) == changes
    told = [(each.number, each.what, each.before, each.after, each.comment) for each in changes]
    assert told == [
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
        told = None if found is None else ("running", "stopped")[found.stopped]
        assert told == replayed.get("failover switch")
        for what in ("placement", "pacing"):
            assert state.mode(what) == replayed.get(f"{what} mode")


def test_the_audit_log_is_append_only(tmp_path: Path) -> None:
    with ControlState(tmp_path) as state:
        state.record("x", "y", at_ns=1, issuer=ANN, comment="")
    database = sqlite3.connect(tmp_path / FILE)
    for statement in ("UPDATE change SET who = 'eve'", "DELETE FROM change"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            database.execute(statement)
    database.close()


def test_the_newest_changes_of_a_time_range_in_order() -> None:
    with ControlState(None) as state:
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


def test_threads_take_turns(tmp_path: Path) -> None:
    with ControlState(tmp_path) as state:
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
        database.execute(f"PRAGMA user_version = {len(migrations()) + 1}")
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


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="check state_dir"):
        ControlState(tmp_path / "file")


def test_two_fleets_have_two_keys() -> None:
    with ControlState(None) as one, ControlState(None) as other:
        assert one.probe_key().secret != other.probe_key().secret
        assert 1 <= one.probe_key().key_id <= 0xFF
