"""When a rotation of probe keys moves on, and whom it waits for."""

from __future__ import annotations

import pytest
from tests.defaults import meaningful

from syntony.mesh.key_rotation import KeyRing, KeyRotation, Master, RotationPhase
from syntony.model import S

OLD, NEW = Master(epoch=7, secret=b"a" * 32), Master(epoch=8, secret=b"b" * 32)
T0 = 1_000_000 * S


def begun(now_ns: int = T0) -> KeyRotation:
    """A rotation that has just begun, of a controller that started long ago; two hosts."""
    rotation = KeyRotation(KeyRing(masters=(OLD,), hosts=("h0", "h1")), now_ns - 3_600 * S)
    ring = rotation.begin(NEW, now_ns)
    assert ring is not None
    assert rotation.adopt(ring)
    return rotation


def carried_out(rotation: KeyRotation, *hosts: str) -> None:
    for host in hosts:
        rotation.held(host, rotation.ring.epochs, rotation.ring.sending)


def moved(rotation: KeyRotation, now_ns: int) -> RotationPhase | None:
    ring = rotation.next(now_ns)
    if ring is None:
        return None
    rotation.adopt(ring)
    return ring.phase


def test_each_phase_ends_when_everyone_has_carried_it_out() -> None:
    rotation = begun()
    assert rotation.begin(NEW, T0) is None, "one at a time"
    assert (rotation.ring.epochs, rotation.ring.sending) == ((7, 8), 7)
    carried_out(rotation, "h0")
    assert rotation.waiting() == ("h1",)
    assert moved(rotation, T0 + S) is None
    carried_out(rotation, "h1")
    assert moved(rotation, T0 + S) is RotationPhase.SWITCHING
    assert (rotation.ring.epochs, rotation.ring.sending) == ((7, 8), 8)
    assert rotation.waiting() == ("h0", "h1")
    carried_out(rotation, "h0", "h1")
    assert moved(rotation, T0 + 2 * S) is RotationPhase.DRAINING
    assert moved(rotation, T0 + 5 * S - 1) is None, "packets are under way for three seconds"
    assert moved(rotation, T0 + 5 * S) is RotationPhase.STEADY
    assert rotation.ring.epochs == (8,)
    assert moved(rotation, T0 + 9_000 * S) is None
    assert rotation.ring.left_behind == ()


def test_a_host_that_is_away_is_left_behind_after_an_hour() -> None:
    rotation = begun()
    carried_out(rotation, "h1")
    assert moved(rotation, T0 + 3_600 * S - 1) is None
    assert moved(rotation, T0 + 3_600 * S) is RotationPhase.SWITCHING
    assert (rotation.ring.hosts, rotation.ring.left_behind) == (("h1",), ("h0",))
    assert rotation.attached("h0"), "it is new again"
    assert (rotation.ring.hosts, rotation.ring.left_behind) == (("h1", "h0"), ())
    assert not rotation.attached("h0")


def test_nobody_waits_for_a_host_that_belongs_to_the_fleet_no_longer() -> None:
    rotation = begun()
    carried_out(rotation, "h1")
    assert not rotation.forget({"h7"})
    assert rotation.forget({"h0"})
    assert moved(rotation, T0 + S) is RotationPhase.SWITCHING
    assert (rotation.ring.hosts, rotation.ring.left_behind) == (("h1",), ())
    assert rotation.attached("h0"), "it has joined anew"


def test_a_controller_that_just_started_waits_half_a_minute_for_its_agents() -> None:
    ring = begun().ring
    back = KeyRotation(ring, T0 + 4_000 * S)
    carried_out(back, "h0", "h1")
    assert moved(back, T0 + 4_030 * S - 1) is None
    assert moved(back, T0 + 4_030 * S) is RotationPhase.SWITCHING


@pytest.mark.parametrize("apart_s", [-5_000, 0, 3_600, 5_000])
def test_a_controller_that_just_started_leaves_no_host_behind_by_another_hosts_clock(
    apart_s: int,
) -> None:
    """The clock of its host and that of its predecessor are apart."""
    now_ns = T0 + (60 + apart_s) * S
    back = KeyRotation(begun().ring, now_ns)
    carried_out(back, "h1")
    assert moved(back, now_ns + 3_600 * S - 1) is None
    assert moved(back, now_ns + 3_600 * S) is RotationPhase.SWITCHING
    assert back.ring.left_behind == ("h0",)


def test_a_clock_that_was_set_back_lengthens_no_phase() -> None:
    back = KeyRotation(begun().ring, T0 - 9_000 * S)
    assert moved(back, T0 - 9_000 * S + 3_600 * S) is RotationPhase.SWITCHING


@pytest.mark.parametrize(("after_ns", "again"), [(5 * S - 1, ()), (5 * S, ("h1",))])
def test_keys_are_sent_again_after_five_seconds(after_ns: int, again: tuple[str, ...]) -> None:
    rotation = begun()
    for host in ("h0", "h1"):
        rotation.sent(host, T0)
    carried_out(rotation, "h0")
    assert rotation.unconfirmed(("h0", "h1", "h9"), T0 + after_ns) == again
    rotation.attached("h0")
    assert rotation.waiting() == ("h0", "h1"), "what a new agent holds is not known"


def test_who_was_sent_nothing_is_not_sent_it_again() -> None:
    assert begun().unconfirmed(("h0",), T0 + 3_000 * S) == ()


def test_what_is_left_out_of_a_ring_is_nothing() -> None:
    assert meaningful("mesh") == {"KeyRing.phase": RotationPhase.STEADY}
