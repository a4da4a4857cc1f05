"""From what the store and the controller know to incidents, over restarts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.controller.judged import JOBS, T0, Control, finding, line, port

from syntony.controller.batches import joined
from syntony.controller.observe import of_links
from syntony.errors import StateError, UsageError
from syntony.model import ClockState, S
from syntony.state import DatabaseConnection
from syntony.store import open_store
from syntony.wire.control import Issuer
from syntony.wire.incidents import IncidentAction, IncidentsQuery, SilenceAction
from syntony.wire.tables import INCIDENT

EVE = Issuer("ops eve", "local")


def test_nine_flaps_within_the_hour(control: Control) -> None:
    control.store.links.seen = (port("h0/rail0", flaps=9), port("h1/rail0", flaps=3))
    control.tick()
    assert control.live() == {"h0/rail0": "link-flapping", "h1/rail0": "link-flaps"}
    reply = control.service.incidents(IncidentsQuery(number=1))
    assert reply.incidents[0]["summary"].endswith("has flapped 9 times within the past hour")


def test_a_flap_says_when_the_carrier_was_lost_last(control: Control) -> None:
    for flaps in (3, 4):
        last_ns = (1_764_000_000 + flaps) * S + 5_000_000
        control.store.links.seen = (
            port("h0/rail0", flaps=flaps, last_flap_ns=last_ns), port("h1/rail0", flaps=3),
        )  # fmt: skip
        control.tick()
    evidence = {each["subject"]: each["evidence"] for each in control.live_incidents()}
    assert evidence["h0/rail0"] == [
        "mlx5_core",
        "carrier lost at 2025-11-24T16:00:04.005Z (2 times)",
    ]
    assert evidence["h1/rail0"] == ["mlx5_core"]


def test_a_management_nic_is_never_an_incident(control: Control) -> None:
    control.store.links.seen = (
        port("h0/bmc0", role="management", state="no-peer", flaps=99),
        port("h0/veth1", role="virtual", state="no-peer", flaps=99),
    )
    control.tick(9)
    assert control.live() == {}


def test_a_hot_module(control: Control) -> None:
    control.store.links.measured = {
        "h0/rail0": ("beyond limit", "temperature 76.0 °C, limit 75.0"),
        "h1/rail0": ("well", "temperature 60.0 °C, limit 75.0"),
    }
    control.tick()
    assert control.live() == {"h0/rail0": "module-limit"}


def test_a_port_at_half_speed_among_equals(control: Control) -> None:
    control.store.links.seen = tuple(
        port(f"h{number}/rail0", gbps=200.0 if number == 2 else 400.0) for number in range(4)
    )
    control.tick(3)
    assert control.live() == {"h2/rail0": "port-degraded"}


def test_a_silent_host_is_one_incident_not_one_for_each_port(control: Control) -> None:
    control.store.links.seen = (port("h0/rail0", state="no-peer"), port("h0/rail1"))
    control.silent["h0"] = 60 * S
    control.timelines = (line("h0", ClockState.HOLDOVER),)
    control.tick(9)
    assert control.live() == {"h0": "host-silent"}


def test_a_host_that_never_came_back_is_not_well_after_a_restart(control: Control) -> None:
    control.silent["h0"] = 60 * S
    control.tick()
    control.start()
    del control.silent["h0"]
    control.tick(99)
    assert control.live() == {"h0": "host-silent"}


def test_a_restart_neither_loses_nor_repeats(control: Control) -> None:
    control.store.links.seen = (port("h0/rail0", flaps=9),)
    control.tick(3)
    control.start()
    control.tick(3)
    reply = control.service.incidents(IncidentsQuery(resolved=True))
    assert [each["number"] for each in reply.incidents] == [2, 1]


def test_a_controller_that_restarts_at_every_evaluation_opens_and_resolves(
    control: Control,
) -> None:
    control.store.links.seen = tuple(
        port(f"h{number}/rail0", gbps=200.0 if number == 2 else 400.0) for number in range(4)
    )
    for _ in range(2):
        assert control.live() == {}
        control.tick()
        control.start()
    assert control.live() == {"h2/rail0": "port-degraded"}
    control.store.links.seen = tuple(port(f"h{number}/rail0") for number in range(4))
    control.now_ns += 3600 * S  # longer than any rule's `stable`
    for _ in range(5):
        control.tick()
        control.start()
    assert control.live() == {}


def test_a_book_that_cannot_be_read_is_one_clear_line(control: Control) -> None:
    assert control.kept is not None
    with control.kept.transaction() as connection:
        connection.execute("INSERT INTO incident (number, body) VALUES (7, '{')")
    with pytest.raises(StateError, match="incident 7 cannot be read"):
        control.start()


def test_commands(control: Control) -> None:
    control.store.links.seen = (port("h0/rail0", flaps=9),)
    control.tick()
    service = control.service
    acked = service.act(IncidentAction(number=1, what="ack", by=""), EVE, T0)
    assert acked.incidents[0]["acknowledged_by"] == "ops eve"
    with pytest.raises(UsageError, match="not an action"):
        service.act(IncidentAction(number=1, what="delete", by="eve"), EVE, T0)
    with pytest.raises(UsageError, match="needs a duration"):
        service.silence(SilenceAction(by="eve"), EVE, T0)
    made = service.silence(SilenceAction(by="eve", for_ns=60 * S, subject="h0"), EVE, T0)
    assert made.silences[0]["subject"] == "h0"
    control.start()
    assert control.service.silence(SilenceAction(by="eve", end=1), EVE, T0).silences == ()


def test_a_silence_that_fits_nothing_now_is_made_with_a_warning(control: Control) -> None:
    """For a host that comes later; a rule that does not exist is never meant."""
    known = frozenset({"gpu001", "gpu001/rail0", "leaf0"})

    def made(subject: str, rule: str = "") -> str:
        action = SilenceAction(by="eve", for_ns=60 * S, subject=subject, rule=rule)
        return control.service.silence(action, EVE, T0, known).warning

    for right in ("", "*", "gpu001", "gpu*", "gpu001/rail0", "leaf?"):
        assert made(right, "link-*") == ""
    assert "nothing is called 'gpu01' now; did you mean 'gpu001'? The silence" in made("gpu01")
    assert "nothing is called 'xyz' now. The silence" in made("xyz")
    assert control.service.silence(SilenceAction(by="eve", end=1), EVE, T0).warning == ""
    before = control.service.incidents(IncidentsQuery()).silences
    assert before[-1]["subject"] == "xyz"
    with pytest.raises(UsageError, match=r"no rule 'link-flap'; did you mean 'link-flap\w+'"):
        made("gpu001", "link-flap")
    assert control.service.incidents(IncidentsQuery()).silences == before
    control.store.links.seen = (port("h0/rail0", flaps=9),)
    control.tick()
    assert made("h0") == "", "an incident is about it"


def test_what_was_last_seen_of_a_stale_port_proves_nothing() -> None:
    stale = port("h0/rail0", state="no-peer", seen_ns=T0 - 3600 * S)
    values = {each.metric: each.value for each in of_links([stale], [], frozenset(), T0)}
    assert values["port_down"] is None
    assert values["flaps_1h"] == 0


def test_so_does_one_of_a_port_or_of_a_silent_host(control: Control) -> None:
    nics = {end for pairs in JOBS.values() for pair in pairs for end in pair}
    (nic, *_) = sorted(end for end in nics if end.startswith("h1/"))
    control.store.links.seen = (port(nic, flaps=9),)
    control.silent["h0"] = 60 * S
    control.tick(2)
    jobs = {
        each["subject"]: each["jobs"]
        for each in control.service.incidents(IncidentsQuery()).incidents
    }
    for subject in (nic, "h0"):
        hit = [
            job
            for job, pairs in JOBS.items()
            if any(end == subject or end.startswith(f"{subject}/") for p in pairs for end in p)
        ]
        assert jobs[subject] == sorted(hit) != []


def test_the_history_is_the_stores_and_the_books_newest_word(
    control: Control, tmp_path: Path
) -> None:
    assert control.service.rows() is None
    control.findings = (finding("leaf0->spine0", "link"),)
    control.tick()
    piece = control.service.rows()
    assert piece is not None
    store = open_store(str(tmp_path / "store"))
    try:
        store.insert(INCIDENT, joined([piece]))
        control.findings = ()
        control.tick(30)
        control.findings = (finding("leaf0->spine0", "link"),)
        control.tick()
        control.findings = ()
        control.tick(30)
        later = control.service.rows()
        assert later is not None
        store.insert(INCIDENT, joined([later]))
        control.store.rows = store.incidents.since(T0)
        assert store.incidents.since(control.now_ns + S) == []
    finally:
        store.close()
    ((stored,), (kept,)) = (
        control.store.rows,
        control.service.incidents(IncidentsQuery(resolved=True)).incidents,
    )
    assert set(stored) == set(kept) - {"opened", "began", "resolved", "clear"}
    assert stored["began_ns"] != stored["opened_ns"], "when it was reopened"
    for name in stored.keys() - {"updated_ns", "unit"}:
        assert stored[name] == kept[name], name
    long_ago = stored | {"number": 77, "opened_ns": 5, "summary": "long ago"}
    control.store.rows.append(long_ago)
    reply = control.service.incidents(IncidentsQuery(since_ns=3600 * S), control.now_ns)
    assert [each["number"] for each in reply.incidents] == [1, 77]
    assert reply.incidents[1]["opened"].startswith("1970-01-01T00:00:00")
    assert set(reply.incidents[1]) == set(kept)
    assert reply.incidents[1]["unit"] == kept["unit"] == "ratio"
    with pytest.raises(UsageError, match="kept for 365 days"):
        control.service.incidents(IncidentsQuery(since_ns=10**18), control.now_ns)


def test_a_new_leader_without_the_store_blames_no_neighbour_of_a_port_that_is_down(
    control: Control,
) -> None:
    near, far = "h0/rail0", "h1/rail0"
    control.pairs = frozenset({(near, far), (far, near)})
    control.homes = dict.fromkeys((near, far), "leaf0")
    control.store.links.seen = (port(near), port(far, state="down", last_flap_ns=T0))
    control.findings = (finding(near, "nic", fault="blackhole", loss=1.0),)
    control.tick(20)
    control.store.links.away = True
    control.start()
    control.tick(60)
    assert control.pages() == [f"port-down {far}"]
    control.store.links.away = False
    control.tick(5)
    assert control.live() == {far: "port-down"}


def test_what_a_full_disk_refuses_has_not_happened(control: Control) -> None:
    """Neither an incident nor an order is told of that is not recorded; all come when it can be."""
    assert control.kept is not None
    kept = control.kept
    control.store.links.seen = (port("h0/rail0", flaps=9),)
    control.tick()
    before = control.service.incidents(IncidentsQuery()).incidents
    kept.read("PRAGMA max_page_count = 1")
    control.findings = tuple(finding(f"leaf0->spine{n}", "link") for n in range(200))
    for _ in range(3):
        with pytest.raises(StateError, match="full"):
            control.tick()
    kept.read("PRAGMA max_page_count = 100000")
    control.start()
    assert control.service.incidents(IncidentsQuery()).incidents == before
    kept = control.kept
    kept.read("PRAGMA max_page_count = 1")
    with pytest.raises(StateError, match="full"):
        control.tick()
    kept.read("PRAGMA max_page_count = 100000")
    control.tick()
    found = control.service.incidents(IncidentsQuery()).incidents
    assert sorted(each["number"] for each in found) == list(range(1, len(before) + 201))
    control.start()
    assert control.service.incidents(IncidentsQuery()).incidents == found


def test_a_commit_whose_answer_is_lost_reaches_the_history(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, whether the server carried it out or not."""
    assert control.kept is not None
    commit = control.kept.transaction
    carried_out = [random.random() < 0.5 for _ in range(12)]
    print(carried_out)
    history: list[tuple[int, str]] = []
    for number, kept in enumerate(carried_out):

        @contextmanager
        def unsure(kept: bool = kept) -> Iterator[DatabaseConnection]:
            with commit() as connection:
                yield connection
                if not kept:
                    raise StateError("no answer")
            raise StateError("no answer")

        control.findings += (finding(f"leaf0->spine{number}", "link"),)
        with monkeypatch.context() as patch:
            patch.setattr(control.kept, "transaction", unsure)
            with pytest.raises(StateError, match="no answer"):
                control.tick()
        control.tick()
        piece = control.service.rows()
        assert piece is not None
        history += [(row["number"], row["change"]) for row in piece.rows.to_pylist()]
    opened = sorted(number for number, change in history if change == "opened")
    assert opened == list(range(1, len(carried_out) + 1))
    assert sum(control.service.opened.values()) == len(carried_out)


def test_an_order_and_its_row_of_the_audit_log_are_one(control: Control) -> None:
    assert control.kept is not None
    control.store.links.seen = (port("h0/rail0", flaps=9),)
    control.tick()
    control.service.act(IncidentAction(number=1, what="ack", by="", comment="mine"), EVE, T0)
    control.service.silence(SilenceAction(by="", for_ns=60 * S, subject="h0"), EVE, T0)
    tonight = SilenceAction(by="", in_ns=30 * S, for_ns=60 * S, subject="h1")
    control.service.silence(tonight, EVE, T0)
    with pytest.raises(UsageError):
        control.service.act(IncidentAction(number=99, what="ack", by=""), EVE, T0)
    reported = [(c.who, c.what, c.before, c.after, c.comment) for c in control.kept.changes(0, 9)]
    assert reported == [
        ("ops eve", "incident 1", "open", "ack", "mine"),
        ("ops eve", "silence of * on h0", "", "for 60 s", ""),
        ("ops eve", "silence of * on h1", "", "in 30 s for 60 s", ""),
    ]
    with control.kept.transaction() as connection:
        connection.execute(
            "CREATE TRIGGER no BEFORE INSERT ON change BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    with pytest.raises(StateError):
        control.service.act(IncidentAction(number=1, what="resolve", by=""), EVE, T0)
    control.start()
    (incident, *_) = control.service.incidents(IncidentsQuery(number=1)).incidents
    assert incident["state"] == "acknowledged"
