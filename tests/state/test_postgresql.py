"""What only PostgreSQL does: restarts under us, take-overs, a move from SQLite."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from tests.live import eventually
from tests.postgres import Server, server

from syntony.errors import ConfigError, MissingError, StateError, UsageError
from syntony.mesh.key_rotation import KeyRing, Master
from syntony.model import S
from syntony.state import ControlState, InUseError, LeaseLostError, SilentError
from syntony.state import postgresql as postgres
from syntony.state.database import LOST_EPOCHS
from syntony.state.document import Document
from syntony.state.epochs import raise_epoch
from syntony.state.identities import IdentityStore, Record, Token
from syntony.state.postgresql import AHEAD_CHECKS, LEASE_MS, HolderCheck, PostgresDatabase
from syntony.state.transfer import import_sqlite
from syntony.wire.control import Issuer
from syntony.wire.failover import Switch
from syntony.wire.roles import Identity, Role

ANN = Issuer("ann", "local")
NOW_NS = 1_800_000_000 * S
RING = KeyRing(masters=(Master(epoch=7, secret=bytes(range(32))),))


def enrol(state: ControlState) -> None:
    """A token used, one that waits, a certificate and a name that are revoked."""
    identities = IdentityStore(state)
    for digest in ("used", "waits"):
        token = Token("agent", ("h1",), ("10.0.0.1",), 3600 * S, NOW_NS + S, "ann")
        identities.add_token(digest, token, issuer=ANN, at_ns=1, now_ns=NOW_NS, comment="")
    record = Record(Identity(Role.AGENT, "h1"), "ab" * 12, NOW_NS, NOW_NS + 9 * S, "used")
    identities.redeem("used", record, issuer=ANN, at_ns=2, now_ns=NOW_NS)
    for what in ("ab" * 12, "h2"):
        identities.revoke(what, issuer=ANN, at_ns=3, now_ns=NOW_NS, comment="", unseen=True)


def members(state: ControlState) -> tuple[object, ...]:
    identities = IdentityStore(state)
    with pytest.raises(UsageError, match="has been used"):
        identities.token("used", NOW_NS)
    revocations = identities.revocations(NOW_NS)
    assert revocations.covers("ab" * 12, "h1")
    assert revocations.covers("cd" * 12, "h2")
    waiting = identities.token("waits", NOW_NS)
    return revocations, identities.certificates(), identities.tokens(NOW_NS), waiting


@pytest.mark.slow
def test_a_database_that_may_only_be_read_is_one_line(postgresql: Server) -> None:
    """A replica, or a server whose disk is full: refused at the start, an error later."""
    url = postgresql.database()
    with pytest.raises(ConfigError, match=r"read-only transaction; nothing was changed$"):
        ControlState(f"{url}&options=-cdefault_transaction_read_only%3Don")
    with ControlState(url) as state:
        state.record("a", "", at_ns=1, issuer=ANN, comment="")
        name = url.partition("@/")[2].partition("?")[0]
        for setting in ("on", "off"):
            postgresql.run(
                "psql", "-h", str(postgresql.directory), "-U", "syntony", "-d", "postgres",
                "-c", f"ALTER DATABASE {name} SET default_transaction_read_only = {setting}",
                "-c", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'syntony controller'",
            )  # fmt: skip
            if setting == "on":
                with pytest.raises(StateError):  # of the session that ended
                    state.record("b", "", at_ns=2, issuer=ANN, comment="")
                with pytest.raises(StateError, match="read-only transaction") as found:
                    state.record("b", "", at_ns=2, issuer=ANN, comment="")
                assert len(str(found.value).splitlines()) == 1
        with pytest.raises(StateError):
            state.record("b", "", at_ns=2, issuer=ANN, comment="")
        state.record("c", "", at_ns=3, issuer=ANN, comment="")
        assert [each.what for each in state.changes(0, 9)] == ["a", "c"]


@pytest.mark.slow
def test_a_restarted_server_costs_one_error(postgresql: Server) -> None:
    with ControlState(postgresql.database()) as state:
        state.record("a", "", at_ns=1, issuer=ANN, comment="")
        postgresql.stop()
        for _ in range(2):
            with pytest.raises(StateError, match="cannot be written"):
                state.record("b", "", at_ns=2, issuer=ANN, comment="")
        postgresql.start()
        state.record("c", "", at_ns=3, issuer=ANN, comment="")
        assert [each.what for each in state.changes(0, 9)] == ["a", "c"]


@pytest.mark.slow
def test_no_epoch_is_given_twice_after_a_replica_was_promoted() -> None:
    with server() as running:
        url = running.database()
        with ControlState(url) as state:
            assert state.epoch == 1
        running.copy()
        with ControlState(url) as lost:
            assert lost.epoch == 2
            running.promote(replica=True)
            with pytest.raises(StateError):  # of the session that ended
                lost.database.check()
            with pytest.raises(LeaseLostError):
                lost.database.check()
        with ControlState(url) as state:
            assert state.epoch == 2 + LOST_EPOCHS
        with ControlState(url) as state:
            assert state.epoch == 3 + LOST_EPOCHS
            running.promote(replica=False)
            with pytest.raises(StateError):
                state.database.check()
            with pytest.raises(UsageError, match="is not later"):  # than that of the new session
                raise_epoch(state, 5 + LOST_EPOCHS, issuer=ANN, at_ns=0, comment="")
            assert state.epoch == 4 + 2 * LOST_EPOCHS
            assert state.read("SELECT epoch FROM lease") == [(state.epoch,)]


@pytest.mark.slow
def test_who_was_replaced_while_cut_off_writes_nothing_more(postgresql: Server) -> None:
    url = postgresql.database()
    first = ControlState(url)
    with pytest.raises(ConfigError, match=r"in use by another controller \(.* pid \d+\)"):
        ControlState(url)
    # The server forgets the first one's session; a second one comes and goes, or stays.
    postgresql.stop()
    postgresql.start()
    with ControlState(url) as second:
        assert second.epoch == first.epoch + 1
        _cut(first)
        with pytest.raises(LeaseLostError, match="taken over by another controller"):
            first.record("x", "", at_ns=1, issuer=ANN, comment="")
    with pytest.raises(LeaseLostError):
        first.database.check()
    first.close()
    with ControlState(url) as third:
        assert third.changes(0, 9) == ()


@pytest.mark.slow
def test_a_standby_checks_in_one_session(
    postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, sessions = postgresql.database(), list[object]()
    connect = postgres._connect

    def counted(url: str) -> object:
        sessions.append(url)
        return connect(url)

    check = HolderCheck(url)
    assert check.may_take()  # nobody has ever held it
    with ControlState(url) as state:
        monkeypatch.setattr(postgres, "_connect", counted)
        assert [check.may_take() for _ in range(3)] == [False] * 3
        assert len(sessions) == 1
        with state.transaction() as connection:
            connection.execute("UPDATE lease SET renewed_ms = renewed_ms - ?", (2 * LEASE_MS,))
        assert not check.may_take()  # it has just executed a statement
        eventually(check.may_take)
        state.database.check()
        assert not check.may_take()
        postgresql.stop()
        assert check.may_take()  # the attempt says that it cannot be reached
        postgresql.start()
        _cut(state)
        state.database.check()
        assert not check.may_take()
    assert check.may_take()
    assert len(sessions) == 4  # three of the check, one of the holder


@pytest.mark.slow
def test_a_server_that_hangs_is_given_up(
    postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine confirms what it receives: only the missing answer shows it."""
    url = f"{postgresql.database()}&connect_timeout=2"
    with ControlState(url) as state:
        check = HolderCheck(url)
        assert not check.may_take()
        postgresql.signal(signal.SIGSTOP)
        try:
            with monkeypatch.context() as patched:
                patched.setattr(postgres, "ANSWER_S", 1.0)
                for words in ("no answer for 1 s", "timeout", "timeout"):
                    with pytest.raises(StateError, match=words):
                        state.record("a", "", at_ns=1, issuer=ANN, comment="")
                assert check.may_take()
                with pytest.raises(SilentError, match="timeout"):
                    ControlState(url)
        finally:
            postgresql.signal(signal.SIGCONT)
        eventually(lambda: _recorded(state))
        state.database.check()
        assert state.changes(0, 9)[-1].what == "b"


def _recorded(state: ControlState) -> bool:
    try:
        state.record("b", "", at_ns=2, issuer=ANN, comment="")
    except LeaseLostError:
        raise
    except StateError:
        return False
    return True


@pytest.mark.slow
def test_a_session_that_the_server_has_not_missed_yet_is_ended(postgresql: Server) -> None:
    """A firewall has forgotten the connection: the server waits for more, and holds the lock."""
    with ControlState(postgresql.database()) as state:
        database = state.database
        assert isinstance(database, PostgresDatabase)
        lost, database._session = database._session, SimpleNamespace(closed=True)  # type: ignore[assignment]
        state.record("a", "", at_ns=1, issuer=ANN, comment="")
        assert [each.what for each in state.changes(0, 9)] == ["a"]
        with pytest.raises(psycopg.Error):
            lost.execute("SELECT 1")
        lost.close()


@pytest.mark.slow
def test_a_holder_with_a_new_session_can_be_replaced_at_once(postgresql: Server) -> None:
    """It may hang before its lease is due again."""
    url = postgresql.database()
    with ControlState(url) as state:
        postgresql.stop()
        postgresql.start()
        with pytest.raises(StateError):
            state.record("a", "", at_ns=1, issuer=ANN, comment="")
        state.record("a", "", at_ns=1, issuer=ANN, comment="")
        with state.transaction() as connection:
            connection.execute("UPDATE lease SET renewed_ms = renewed_ms - ?", (2 * LEASE_MS,))
        eventually(HolderCheck(url).may_take)
        with ControlState(url) as second:
            assert second.epoch == state.epoch + 1
            with pytest.raises(StateError):
                state.record("b", "", at_ns=2, issuer=ANN, comment="")


@pytest.mark.slow
def test_a_holder_that_hangs_is_replaced_while_the_servers_clock_was_set_back(
    postgresql: Server,
) -> None:
    url = postgresql.database()
    with ControlState(url) as state:
        with state.transaction() as connection:
            connection.execute("UPDATE lease SET renewed_ms = renewed_ms + ?", (3_600_000,))
        with postgres._connect(url) as session:
            eventually(lambda: bool(session.execute(postgres._TAKEABLE.encode()).fetchall()[0][1]))
        with pytest.raises(InUseError):  # it has not watched the holder
            ControlState(url)
        check, checks = HolderCheck(url), 0
        while not check.may_take():
            checks += 1
            time.sleep(0.5)
        assert checks >= AHEAD_CHECKS - 1, "one that runs has renewed its lease by then"
        with ControlState(url) as second:
            assert second.epoch == state.epoch + 1


@pytest.mark.slow
def test_a_holder_that_hangs_before_it_has_read_an_answer_is_replaced(postgresql: Server) -> None:
    url = postgresql.database()
    holder = PostgresDatabase(url)
    try:
        unread = holder._session.pgconn
        unread.send_query(b"SELECT repeat(chr(120), 10000) FROM generate_series(1, 10000)")
        eventually(HolderCheck(url).may_take)
        PostgresDatabase(url).close()
    finally:
        holder.close()


@pytest.mark.slow
def test_a_server_that_cannot_be_reached_is_tried_once_for_all(
    postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, lasts_s, tries = 10.0, 0.0, list[float]()

    def connect(_: str) -> object:
        nonlocal now_s
        tries.append(now_s)
        now_s += lasts_s
        raise psycopg.OperationalError(f"tried at {tries[-1]:.0f}")

    def check() -> str:
        with pytest.raises(StateError) as found:
            state.database.check()
        return str(found.value)

    with ControlState(postgresql.database()) as state:
        postgresql.stop()
        postgresql.start()
        check()  # the session is broken
        with monkeypatch.context() as patched:
            patched.setattr(postgres, "_connect", connect)
            patched.setattr(postgres, "time", SimpleNamespace(monotonic=lambda: now_s))
            assert "tried at 10" in check()
            lasts_s = 5.0
            assert "tried at 10" in check()
            now_s = 19.0
            assert "tried at 10" in check()
            assert tries == [10.0, 10.0]
            now_s = 20.0
            assert "tried at 20" in check()
        state.database.check()


def _cut(state: ControlState) -> None:
    """Its first try meets the broken session."""
    with pytest.raises(StateError):
        state.database.check()


@pytest.mark.slow
def test_a_fleet_moves_from_sqlite_once(postgresql: Server, tmp_path: Path) -> None:
    url = postgresql.database()
    with ControlState(tmp_path) as old:
        old.set_switch(Switch(stopped=True, at_ns=5, by="ann"), ANN, "maintenance")
        Document(old, "probe keys", KeyRing).save(RING)
        enrol(old)
        known = members(old)
        changes = old.changes(0, 9)
        for _ in range(3):
            with old.transaction() as connection:
                connection.execute("INSERT INTO outbox (receiver, body) VALUES ('a', '1')")
        with old.transaction() as connection:
            connection.execute("DELETE FROM outbox WHERE number = 3")
    for _ in range(2):
        with ControlState(url) as new:
            import_sqlite(new, tmp_path)
            assert new.switch() == Switch(stopped=True, at_ns=5, by="ann")
            assert Document(new, "probe keys", KeyRing).load() == RING
            assert new.changes(0, 9) == changes
            assert members(new) == known
    with ControlState(url) as new:
        new.record("next", "", at_ns=6, issuer=ANN, comment="")
        assert new.changes(0, 9)[-1].number == changes[-1].number + 1
        with new.transaction() as connection:
            connection.execute("INSERT INTO outbox (receiver, body) VALUES ('a', '2')")
        assert new.read("SELECT number FROM outbox ORDER BY number") == [(1,), (2,), (4,)]
    assert not (tmp_path / "control.db").exists()


@pytest.mark.slow
def test_an_unknown_database_is_one_line_without_the_password(postgresql: Server) -> None:
    url = f"postgresql://syntony:hunter2@/none?host={postgresql.directory}"
    with pytest.raises(ConfigError, match=r"none.*does not exist") as reported:
        ControlState(url)
    assert "hunter2" not in str(reported.value)
    assert "\n" not in str(reported.value)


@pytest.mark.parametrize("url", ["mysql://x/y", "postgresql://syntony:hunter2@127.0.0.1:1/x"])
def test_what_cannot_be_reached_is_one_line(url: str) -> None:
    with pytest.raises((ConfigError, MissingError)) as reported:
        ControlState(url)
    assert "hunter2" not in str(reported.value)
    assert "\n" not in str(reported.value)
