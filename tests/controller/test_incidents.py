"""From what the store and the controller know to incidents, over restarts."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from tests.controller.judged import CROSSING, JOBS, T0, Control, finding, line, port, standing

from syntony.controller.batches import joined
from syntony.controller.observe import APART, of_links
from syntony.controller.places import Names, Places
from syntony.errors import StateError, UsageError
from syntony.model import ClockState, S
from syntony.model.findings import Queue, QueueFlow
from syntony.model.sla import Latency, SlaRow, SlaStatus
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


@pytest.mark.parametrize("seed", range(8))
def test_a_dead_leaf_is_one_page_however_many_hosts_are_at_it(control: Control, seed: int) -> None:
    """Carriers are reported within two looks, in any order; what localisation says comes later."""
    rng = random.Random(seed)
    hosts = rng.randint(2, 40)
    homes = {
        f"h{host}/rail{rail}": f"leaf{rail}-{host % 2 if hosts > 3 else 0}"
        for host in range(hosts)
        for rail in range(rng.randint(1, 3))
    }
    dead = rng.choice(sorted({at for at in homes.values() if at.startswith("leaf0")}))
    control.homes = homes
    control.fabric = standing() if seed % 2 else None  # the first look at the fabric is not over
    control.store.links.seen = tuple(port(nic) for nic in homes)
    control.tick(3)
    assert not control.pages()
    below = [nic for nic, at in homes.items() if at == dead]
    early = set(rng.sample(below, rng.randint(0, len(below))))
    for gone in (early, set(below)):
        control.store.links.seen = tuple(
            port(nic, state="no-peer" if nic in gone else "active") for nic in homes
        )
        control.tick()
    control.tick(2)
    control.findings = (finding(dead, "leaf"), *(finding(nic, "nic") for nic in below[:3]))
    control.tick(10)
    assert control.pages() == [f"switch-down {dead}"], f"seed {seed}"
    control.findings = ()
    control.store.links.seen = tuple(port(nic) for nic in homes)
    control.tick(20)
    assert control.live() == {}, f"seed {seed}"
    assert len(control.pages()) == 1, f"seed {seed}: none after it is back"


@pytest.mark.parametrize("seed", range(6))
def test_a_leaf_with_one_host_at_it_is_one_page_that_says_what_cannot_be_told(
    control: Control, seed: int
) -> None:
    """Localisation and the carrier may come in either order; NIC, cable and leaf are twins."""
    rng = random.Random(seed)
    hosts = rng.randint(3, 9)
    lone = rng.randrange(hosts)
    nic = f"h{lone}/rail0"
    homes = {
        f"h{n}/rail0": "leaf0-1" if n == lone else rng.choice(["leaf0-0", "leaf0-2"])
        for n in range(hosts)
    }
    names = [nic, f"{nic}--leaf0-1", "leaf0-1"]
    rng.shuffle(names)
    twins = finding(
        names[0], "cable", alternatives=tuple(names[1:]), probabilities=(0.3, 0.3), twins=2
    )
    control.homes = homes
    up, dead = (
        tuple(port(each, state=state if each == nic else "active") for each in homes)
        for state in ("active", "no-peer")
    )
    control.store.links.seen = up
    control.tick(3)
    control.findings = (twins,)
    control.tick(rng.randint(0, 2))
    control.store.links.seen = dead
    control.tick(20)
    assert control.pages() == [f"port-down {nic}"], f"seed {seed}"
    down = next(each for each in control.live_incidents() if each["rule"] == "port-down")
    assert f"no other host is at leaf0-1: {nic}, its cable or leaf0-1" in " ".join(down["evidence"])


def test_a_leaf_with_one_host_is_not_said_of_leaves_that_others_are_at(control: Control) -> None:
    control.homes = {"h0/rail0": "leaf0", "h1/rail0": "leaf0"}
    control.store.links.seen = (port("h0/rail0", state="no-peer"), port("h1/rail0"))
    control.tick(5)
    (down,) = control.live_incidents()
    assert not any("no other host" in line for line in down["evidence"])


def test_what_is_inferred_explains_no_suspect_of_another(control: Control) -> None:
    """A second fault beside one that localisation named is a fault of its own."""
    control.findings = (
        finding("leaf0", "leaf"),
        finding("leaf0->spine0", "link", alternatives=("spine0->leaf1",), twins=1),
    )
    control.tick(9)
    assert sorted(control.pages()) == [
        "ambiguous-loss leaf0->spine0 or spine0->leaf1", "switch-loss leaf0",
    ]  # fmt: skip


def test_ports_of_one_host_or_of_one_that_is_silent_say_nothing_of_a_switch(
    control: Control,
) -> None:
    homes = {"h0/rail0": "leaf0", "h0/rail1": "leaf0", "h1/rail0": "leaf0", "h2/rail0": "leaf1"}
    control.homes = homes
    down = [port(nic, state="no-peer") for nic in ("h0/rail0", "h0/rail1")]
    control.store.links.seen = (*down, port("h1/rail0"), port("h2/rail0"))
    control.tick(9)
    assert control.pages() == ["port-down h0/rail0", "port-down h0/rail1"]
    control.store.links.seen = (*down, port("h1/rail0", state="no-peer"), port("h2/rail0"))
    control.silent = {"h0": 0, "h1": 60 * S}
    control.tick(9)
    assert control.pages()[2:] == ["host-silent h1"]


def test_a_dead_spine_is_one_page_not_one_for_each_leaf(control: Control) -> None:
    lost = {f"leaf{leaf}--spine1": T0 for leaf in range(3)}
    control.homes = {"h0/rail0": "leaf0"}
    control.fabric = standing(lost=lost, gone={"spine1": 3})
    control.tick(3)
    assert control.pages() == ["switch-down spine1"]
    assert set(control.live()) == {"spine1", *lost}


def test_a_link_that_loses_beside_a_dead_spine_pages_although_its_leaf_was_suspected_at_first(
    control: Control,
) -> None:
    """Drawn case 18700008: the leaf's cable to the spine was a suspect, and is not any more."""
    control.homes = {"h0/rail0": "leaf0"}
    lost = {f"leaf{leaf}--spine0": T0 for leaf in range(3)}
    control.fabric = standing(lost=lost, gone={"spine0": 3})
    control.findings = (
        finding("leaf2", "leaf", alternatives=("leaf2--spine1", "leaf2--spine0"), twins=2,
                confidence=0.9, probabilities=(0.05, 0.05)),
    )  # fmt: skip
    control.tick(3)
    control.findings = (finding("spine1->leaf2", "link"),)
    control.tick(6)
    assert control.pages() == ["switch-down spine0", "link-loss spine1->leaf2"]
    control.findings = (finding("spine0->leaf2", "link"),)
    control.tick(20)
    assert len(control.pages()) == 2, "what the spine holds is its evidence"


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


def test_parts_that_are_not_known_one_by_one_are_one_page_for_both_directions(
    control: Control,
) -> None:
    control.findings = (finding("leaf0..*", "group"), finding("*..leaf0", "group"))
    control.tick(9)
    assert control.pages() == ["ambiguous-loss *..leaf0"]
    assert set(control.live()) == {"leaf0..*", "*..leaf0"}
    narrower = (finding("leaf0..leaf1", "group"), finding("leaf0->spine1", "link"))
    control.findings = (*control.findings, *narrower)
    control.tick(9)
    assert control.pages() == ["ambiguous-loss *..leaf0"], "known better, paged once"
    control.findings = (*control.findings, finding("leaf2->spine1", "link"))
    control.tick(9)
    assert control.pages()[1:] == ["link-loss leaf2->spine1"], "elsewhere"
    control.findings = (*control.findings[:2], finding("leaf0", "leaf"))
    control.tick(9)
    assert control.pages()[2:] == ["switch-loss leaf0"]
    number = {each.subject: each.number for each in control.service.live()}["leaf0"]
    reply = control.service.incidents(IncidentsQuery(number=number))
    assert {"leaf0", "leaf0..*", "*..leaf0"} <= {each["subject"] for each in reply.incidents}


def test_a_dead_spine_explains_its_links(control: Control) -> None:
    control.findings = (finding("leaf0-0->spine1", "link"),)
    control.tick()
    control.findings = (finding("spine1", "spine"), finding("leaf0-0->spine1", "link"))
    control.tick()
    reply = control.service.incidents(IncidentsQuery())
    causes = {each["subject"]: each["cause"] for each in reply.incidents}
    assert causes["spine1"] is None
    assert causes["leaf0-0->spine1"] is not None


def test_a_link_that_loses_more_than_its_lossy_switch_pages_for_itself(control: Control) -> None:
    switch, link = finding("spine1", "spine"), finding("leaf0->spine1", "link", loss=0.2)
    control.findings = (switch, link)
    control.tick(6)
    assert sorted(control.pages()) == ["link-loss leaf0->spine1", "switch-loss spine1"]


def test_a_clocks_jump_is_no_fault_of_the_fabric(control: Control) -> None:
    control.findings = (finding("h0", "clock", fault="clock"),)
    control.tick(5)
    assert control.live() == {}


def test_delay_is_an_incident_of_its_own(control: Control) -> None:
    control.findings = (finding("leaf0-0->spine1", "link", fault="delay", delay_ns=30_000.0),)
    control.tick(3)
    assert control.live() == {"leaf0-0->spine1": "component-delay"}


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
    with pytest.raises(UsageError, match="nothing to do"):
        service.act(IncidentAction(number=1, what="delete", by="eve"), EVE, T0)
    with pytest.raises(UsageError, match="give it a time"):
        service.silence(SilenceAction(by="eve"), EVE, T0)
    made = service.silence(SilenceAction(by="eve", for_ns=60 * S, subject="h0"), EVE, T0)
    assert made.silences[0]["subject"] == "h0"
    control.start()
    assert control.service.silence(SilenceAction(by="eve", end=1), EVE, T0).silences == ()


@pytest.mark.parametrize(
    ("wider", "narrower", "holds"),
    [
        ("h0", "h0/rail0", True), ("h0", "h01/rail0", False), ("spine1", "leaf0->spine1", True),
        ("spine1", "leaf0--spine1", True), ("spine1", "leaf0->spine11", False),
        ("h0", "h0/rail0->leaf0", True), ("h0/rail0", "h0/rail0->leaf0", True),
        ("h0", "h0", False), ("leaf0--spine1", "leaf0->spine1", True),
        ("leaf0--spine1", "spine1->leaf0", True), ("leaf0--spine1", "leaf0--spine1", False),
        ("leaf0->spine1", "leaf0--spine1", False),
        ("leaf0 or leaf1", "leaf0", True), ("leaf0", "leaf0 or leaf1", False),
        ("leaf0 or leaf1", "leaf1 or leaf0", True), ("leaf1 or leaf0", "leaf0 or leaf1", False),
        ("leaf0 or leaf1", "leaf1->spine0 or leaf0", True), ("leaf0 or leaf1", "leaf2", False),
        ("a..b or a..* or *..b", "b..a or b..* or *..a", True),
        ("b..a or b..* or *..a", "a..b or a..* or *..b", False),
    ],
)  # fmt: skip
def test_what_contains_what(wider: str, narrower: str, holds: bool) -> None:
    assert Names.holds(wider, narrower) is holds


def test_what_was_last_seen_of_a_stale_port_proves_nothing() -> None:
    stale = port("h0/rail0", state="no-peer", seen_ns=T0 - 3600 * S)
    values = {each.metric: each.value for each in of_links([stale], [], frozenset(), T0)}
    assert values["port_down"] is None
    assert values["flaps_1h"] == 0


@pytest.mark.parametrize(
    ("wider", "narrower", "holds"),
    [
        ("spine0", "h0/rail0->h2/rail0", True), ("spine0", "h0/rail0->h1/rail0", False),
        ("leaf0->spine0", "h0/rail0->h2/rail0", True),
        ("leaf0->spine0", "h2/rail0->h0/rail0", False),
        ("leaf0--spine0", "h2/rail0->h0/rail0", True), ("h0", "h0/rail0->h2/rail0", True),
        ("spine0", "h5/rail0->h6/rail0", False),
        ("h5/rail0", "h5", True), ("h6/rail0", "h6", False), ("leaf9", "h6", True),
    ],
)  # fmt: skip
def test_a_pair_suffers_with_what_its_paths_cross(wider: str, narrower: str, holds: bool) -> None:
    homes = {"h5/rail0": "leaf9", "h6/rail0": "leaf9", "h6/rail1": "leaf9"}
    assert Places(CROSSING, homes).holds(wider, narrower) is holds


def sla(pair: str, status: SlaStatus) -> SlaRow:
    return SlaRow(
        subject=pair, path_class="leaf", now=Latency(sent=9, lost=0, measured=9), usual=None,
        peers=None, status=status, reasons=("p99 1 ms, promised 50 µs",),
    )  # fmt: skip


def test_a_broken_objective_is_explained_by_the_part_its_path_crosses(control: Control) -> None:
    rows = (
        sla("h0/rail0->h2/rail0", SlaStatus.BREACH), sla("h0/rail0->h1/rail0", SlaStatus.OK),
        sla("h0/rail0->h3/rail0", SlaStatus.OK), sla("h2/rail0->h1/rail0", SlaStatus.OK),
        sla("h2/rail0->h3/rail0", SlaStatus.OK),
    )  # fmt: skip
    control.slas = control.slas._replace(rows=rows)
    control.tick(2)
    assert control.live() == {"h0/rail0->h2/rail0": "latency-sla"}
    control.findings = (finding("leaf0->spine0", "link"),)
    control.tick(2)
    by_rule = {each["rule"]: each for each in control.service.incidents(IncidentsQuery()).incidents}
    assert by_rule["latency-sla"]["cause"] == by_rule["link-loss"]["number"]
    assert by_rule["latency-sla"]["evidence"] == ["h0/rail0->h2/rail0: p99 1 ms, promised 50 µs"]


def test_an_incident_names_the_jobs_it_hits(control: Control) -> None:
    control.findings = (finding("leaf0->spine0", "link"), finding("h1/rail0", "nic"))
    control.tick()
    jobs = {
        each["subject"]: each["jobs"]
        for each in control.service.incidents(IncidentsQuery()).incidents
    }
    assert jobs == {"leaf0->spine0": ["far"], "h1/rail0": ["near"]}


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


def test_a_queue_is_one_incident_with_who_shares_it(control: Control) -> None:
    queue = Queue(
        component="leaf0->spine0", delay_ns=300_000.0, since_ns=T0, confidence=1.0,
        alternatives=(), pairs=("h0/rail0->h2/rail0",),
        flows=(QueueFlow(job="far", pair="h0/rail0->h2/rail0", rate_bps=10**9),),
    )  # fmt: skip
    control.slas = control.slas._replace(queues=(queue,))
    control.findings = (finding("leaf0->spine0", "link"),)
    control.tick(2)
    assert control.live() == {"leaf0->spine0": "link-loss"}
    control.tick()
    (incident, loss) = control.service.incidents(IncidentsQuery()).incidents
    assert (incident["rule"], incident["jobs"]) == ("congestion", ["far"])
    assert incident["evidence"] == [
        "shared by h0/rail0->h2/rail0", "job far: h0/rail0->h2/rail0",
    ]  # fmt: skip
    assert loss["cause"] == incident["number"], "a queue that overflows loses packets"
    control.slas = control.slas._replace(queues=())
    control.findings = ()
    control.tick(20)
    assert control.live() == {}


def test_a_queue_at_one_of_two_links_names_both(control: Control) -> None:
    flow = QueueFlow(job="far", pair="h0/rail0->h2/rail0", rate_bps=10**9)
    one, other = "leaf0->spine0", "spine0->leaf1"
    queue = Queue(
        component=one, delay_ns=300_000.0, since_ns=T0, confidence=0.5, alternatives=(other,),
        suspects=(one, other), pairs=(flow.pair,), flows=(flow,),
    )  # fmt: skip
    control.slas = control.slas._replace(queues=(queue,))
    control.tick(4)
    control.slas = control.slas._replace(queues=(msgspec.structs.replace(queue, suspects=()),))
    control.tick(4)
    assert control.pages() == [f"congestion {one} or {other}"]
    reported = next(each for each in control.live_incidents() if not each["cause"])
    assert APART in reported["evidence"]
    control.slas = control.slas._replace(queues=())
    control.tick(40)
    assert control.live() == {}


@pytest.mark.parametrize("rate_bps", [None, 1_000])
def test_a_delay_without_traffic_is_no_congestion(control: Control, rate_bps: int | None) -> None:
    """… and has one name, whether the change of delay or the queue tells of it."""
    flows = () if rate_bps is None else (
        QueueFlow(job="far", pair="h0/rail0->h2/rail0", rate_bps=rate_bps),
    )  # fmt: skip
    queue = Queue(
        component="leaf0->spine0", delay_ns=300_000.0, since_ns=T0, confidence=1.0,
        alternatives=(), pairs=("h0/rail0->h2/rail0",), flows=flows,
    )  # fmt: skip
    slow = finding("leaf0--spine0", "cable", fault="delay", loss=0.0, delay_ns=300_000.0)
    control.slas = control.slas._replace(queues=(queue,))
    control.findings = (slow,)
    control.tick(5)
    assert control.live() == {"leaf0--spine0": "component-delay"}
    # A minute later the change is the rule, and no finding any more; the delay is still there.
    control.findings = ()
    control.tick(100)
    assert control.live() == {"leaf0--spine0": "component-delay"}


def test_twins_are_one_incident_that_names_both_and_condemns_neither(control: Control) -> None:
    twins = finding(
        "leaf0->spine0", "link", confidence=0.5, alternatives=("spine0->leaf1", "leaf0"),
        probabilities=(0.49, 0.01), twins=1,
    )  # fmt: skip
    control.findings = (twins,)
    control.tick()
    (incident,) = control.service.incidents(IncidentsQuery()).incidents
    assert incident["rule"] == "ambiguous-loss"
    assert incident["subject"] == "leaf0->spine0 or spine0->leaf1"
    assert incident["evidence"][1:] == [
        "leaf0->spine0 50%, spine0->leaf1 49%, leaf0 1%", "no path tells these apart",
        "crossed by 1 of 3 pairs of NICs, of 2 hosts",
    ]  # fmt: skip
    rule = next(rule for rule in control.service.rules if rule.name == "ambiguous-loss")
    assert rule.remedy.startswith("look at")


def test_a_nic_and_its_own_cable_are_one_place(control: Control) -> None:
    others = ("h0/rail0--leaf0", "h0")
    control.findings = (
        finding("h0/rail0", "nic", alternatives=others, probabilities=(0.2, 0.2), twins=2),
        finding("leaf1->spine0", "link", alternatives=("leaf1--spine0",), twins=1),
    )
    control.tick()
    assert control.live() == {"h0/rail0": "nic-loss", "leaf1->spine0": "link-loss"}


@pytest.mark.parametrize(("lost", "paths"), [(3.0, 3), (9.0, 4), (50.0, 1)])
def test_a_few_lost_probes_page_nobody(control: Control, lost: float, paths: int) -> None:
    weak = finding("leaf0->spine0", "link", loss=0.001, explains=lost, paths=paths)
    control.findings = (weak,)
    control.tick(30)
    assert control.live() == {}
    control.findings = (finding("leaf0->spine0", "link", explains=10.0, paths=2),)
    control.tick(10)
    assert control.live() == {"leaf0->spine0": "link-loss"}
    # Few losses do not end it either: they show neither that it is over nor that it goes on.
    control.findings = (weak,)
    control.tick(100)
    assert control.live() == {"leaf0->spine0": "link-loss"}


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
    for name in stored:
        if name != "updated_ns":
            assert stored[name] == kept[name], name
    long_ago = stored | {"number": 77, "opened_ns": 5, "summary": "long ago"}
    control.store.rows.append(long_ago)
    reply = control.service.incidents(IncidentsQuery(since_ns=3600 * S), control.now_ns)
    assert [each["number"] for each in reply.incidents] == [1, 77]
    assert reply.incidents[1]["opened"].startswith("1970-01-01T00:00:00")
    with pytest.raises(UsageError, match="kept for 365 days"):
        control.service.incidents(IncidentsQuery(since_ns=10**18), control.now_ns)


def test_a_dark_cable_is_one_incident_however_it_was_found(control: Control) -> None:
    """Its directions may be named before the seconds suffice for the cable."""
    ways = (finding("leaf0->spine0", "link"), finding("spine0->leaf0", "link"))
    control.findings = ways
    control.tick()
    control.findings = (finding("leaf0--spine0", "cable"),)
    control.tick(2)
    incidents = control.service.incidents(IncidentsQuery()).incidents
    (cable,) = [each for each in incidents if not each["cause"]]
    assert cable["subject"] == "leaf0--spine0"
    assert {each["cause"] for each in incidents} == {None, cable["number"]}


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


def test_an_order_and_its_row_of_the_audit_log_are_one(control: Control) -> None:
    assert control.kept is not None
    control.store.links.seen = (port("h0/rail0", flaps=9),)
    control.tick()
    control.service.act(IncidentAction(number=1, what="ack", by="", comment="mine"), EVE, T0)
    control.service.silence(SilenceAction(by="", for_ns=60 * S, subject="h0"), EVE, T0)
    with pytest.raises(UsageError):
        control.service.act(IncidentAction(number=99, what="ack", by=""), EVE, T0)
    reported = [(c.who, c.what, c.before, c.after, c.comment) for c in control.kept.changes(0, 9)]
    assert reported == [
        ("ops eve", "incident 1", "open", "ack", "mine"),
        ("ops eve", "silence of * on h0", "", "for 60 s", ""),
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
