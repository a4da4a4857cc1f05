"""Which traces replace a known path, where hops do not answer."""

from __future__ import annotations

from syntony.fabric.book import LEFT_NS, LEFT_TRACES, SILENT, PathBook, Way
from syntony.fabric.graph import Cable, Device, Topology, make_topology
from syntony.fabric.names import GROUP, ComponentKind
from syntony.model import S

WAY, BESIDE = (Way("h0/rail0", "h1/rail0", port, 8620) for port in (61_000, 61_001))
KNOWN, QUIET = ["leaf0", "spine0", "leaf1"], ["leaf0", SILENT, "leaf1"]
STEP_NS = 5 * S
T0 = 1_000 * S


def book() -> PathBook:
    found = PathBook()
    for way in (WAY, BESIDE):
        assert found.learn(way, KNOWN, T0)
    return found


def traces(book: PathBook, hops: list[str], beside: list[str], many: int) -> list[bool]:
    """Trace the path, and then another that crossed the same hops; what the first was taken for."""
    took = []
    for step in range(1, many + 1):
        took.append(book.learn(WAY, hops, T0 + step * STEP_NS))
        book.learn(BESIDE, beside, T0 + step * STEP_NS + S)
    return took


def test_a_path_that_moved_to_a_switch_that_never_answers() -> None:
    """Its old switch answers the path beside it."""
    known = book()
    assert traces(known, QUIET, KNOWN, 4) == [False, False, True, False]
    assert "spine0" not in known.components(WAY)
    assert any(GROUP in name for name in known.components(WAY))
    assert "spine0" in known.components(BESIDE)
    assert known.turned() == {WAY: T0 + STEP_NS}, "since the first trace that was not answered"
    assert known.learn(WAY, KNOWN, T0 + 100 * S), "it is back"
    assert known.components(WAY) == known.components(BESIDE)


def test_a_switch_that_answers_nobody_keeps_its_paths() -> None:
    """It has stopped to answer, or limits its answers: nothing has moved."""
    known = book()
    assert traces(known, QUIET, QUIET, 20) == [False] * 20
    assert "spine0" in known.components(WAY)
    assert known.turned() == {}


def test_a_path_that_ends_early_is_as_it_was() -> None:
    """The remote host, or its switch, is dead; packets do not get there."""
    known = book()
    for hops in (["leaf0", SILENT], ["leaf0", SILENT, SILENT], ["leaf0"]):
        assert traces(known, hops, KNOWN, 9) == [False] * 9
    assert "spine0" in known.components(WAY)


def test_the_traces_are_in_a_row() -> None:
    known = book()
    for step in range(20):
        hops = QUIET if step % LEFT_TRACES else KNOWN
        assert not known.learn(WAY, hops, T0 + (step + 1) * STEP_NS)
        known.learn(BESIDE, KNOWN, T0 + (step + 1) * STEP_NS)
    assert "spine0" in known.components(WAY)


def test_the_traces_take_some_time() -> None:
    """An outage or a burst of questions is over by then."""
    known = book()
    for step in range(LEFT_TRACES + 3):
        at_ns = T0 + S + step * (LEFT_NS - 1) // (LEFT_TRACES + 3)
        assert not known.learn(WAY, QUIET, at_ns)
        known.learn(BESIDE, KNOWN, at_ns + 1)
    assert known.learn(WAY, QUIET, T0 + S + LEFT_NS)


def test_a_switch_with_an_address_on_each_side_is_one_by_the_topology() -> None:
    """It answers with the address of the interface at which the packet arrived. Without a topology
    nothing shows that its other interfaces still answer."""
    spine = Device(
        name="spine0", kind=ComponentKind.SPINE, addresses=("10.0.0.1", "10.0.1.1")
    )  # fmt: skip
    far = Way("h1/rail0", "h0/rail0", 61_000, 8620)
    for topology in (None, Topology(devices=(spine,), cables=())):
        known = PathBook(topology)
        known.learn(WAY, ["leaf0", "10.0.0.1", "leaf1"], T0)
        took = []
        for step in range(1, 5):
            took.append(known.learn(WAY, QUIET, T0 + step * STEP_NS))
            known.learn(far, ["leaf1", "10.0.1.1", "leaf0"], T0 + step * STEP_NS)
        assert any(took) == (topology is not None)


def test_what_is_cabled_to_the_destinations_switch_sends_there() -> None:
    """A link that lost everything before paths were known; a peer link sends nothing."""
    ends = ("leaf0", "spine0"), ("leaf1", "spine0"), ("leaf0", "leaf1"), ("h0/rail0", "leaf0")
    cables = [Cable(a=a, b=b) for a, b in (*ends, ("h1/rail0", "leaf1"))]
    names = {end for cable in cables for end in (cable.a, cable.b)}
    known = PathBook(make_topology([Device(name=name) for name in names], cables))
    known.learn(WAY, ["leaf0", "spine0"], T0)
    known.learn(BESIDE, ["leaf0"], T0)
    assert known.components(WAY)[4:7] == ("spine0", "spine0->leaf1", "leaf1")
    assert known.components(BESIDE)[3] == "leaf0..leaf1"
    plain = PathBook()
    plain.learn(WAY, ["leaf0", "spine0"], T0)
    assert "leaf1" not in plain.components(WAY)


def test_a_short_trace_with_another_address_of_a_switch_is_no_other_path() -> None:
    """Its last answers were lost: taken for the path, the NIC would be at the spine."""
    spine = Device(name="spine0", kind=ComponentKind.SPINE, addresses=("10.0.0.1", "10.0.1.1"))
    known = PathBook(Topology(devices=(spine,), cables=()))
    known.learn(WAY, ["leaf0", "10.0.0.1", "leaf1"], T0)
    before = known.components(WAY)
    for hops in (["leaf0", "10.0.1.1"], ["leaf0", "10.0.1.1", SILENT], [SILENT, "10.0.1.1"]):
        assert not known.learn(WAY, hops, T0 + STEP_NS)
    assert known.components(WAY) == before


def test_a_path_has_left_silent_switches_only_if_each_answers_others() -> None:
    """A filter at one of them does not show that the path has left the other."""
    deep = ["leaf0", "spine0", "core0", "spine1", "leaf1"]
    for others, left in ((deep, True), (["leaf0", "spine0", SILENT, "spine1", "leaf1"], False)):
        known = PathBook()
        for way in (WAY, BESIDE):
            known.learn(way, deep, T0)
        took = traces(known, ["leaf0", SILENT, SILENT, "spine1", "leaf1"], others, 4)
        assert any(took) is left
