"""Links of a namespace of our own: veths, whose events come at once, and a tap, whose events the
kernel throttles as it does a physical NIC's."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.io.namespace import ip, run_alone

from syntony.io.carrier import CarrierWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from syntony.model.paths import LinkEvent

pytestmark = pytest.mark.lab
TUN_DEVICE = "/dev/net/tun"
TUNSETIFF, TUNSETCARRIER = 0x400454CA, 0x400454E2
IFF_TAP, IFF_NO_PI = 0x2, 0x1000
PATIENCE_S = 300.0  # only a hang lasts so long


class Tap:
    """A device with a carrier that we switch; gone when closed."""

    def __init__(self, name: str) -> None:
        self.fd = os.open(TUN_DEVICE, os.O_RDWR)
        fcntl.ioctl(self.fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))

    def carrier(self, on: bool) -> None:
        fcntl.ioctl(self.fd, TUNSETCARRIER, struct.pack("i", on))

    def close(self) -> None:
        os.close(self.fd)


class Follower:
    """The watch as an agent's loop drives it."""

    def __init__(self, watch: CarrierWatch) -> None:
        self.watch = watch
        self.last: dict[str, LinkEvent] = {}
        self.seen: list[LinkEvent] = []
        self.by_event = False
        """Whether the kernel had reported anything when something was last noticed."""

    def until(self, true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < end, f"never: {what}"
            deadline = self.watch.deadline_ns
            left = PATIENCE_S if deadline is None else (deadline - time.monotonic_ns()) / 1e9
            ready, _, _ = select.select([self.watch], [], [], max(0.0, min(left, 0.5)))
            events = self.watch.poll(time.monotonic_ns())
            self.by_event = bool(ready) if events else self.by_event
            self.last.update((event.nic, event) for event in events)
            self.seen += events


def up(follower: Follower, nic: str) -> bool:
    return nic in follower.last and follower.last[nic].carrier


def gone(follower: Follower, nic: str) -> bool:
    event = follower.last.get(nic)
    return event is not None and not event.carrier and not event.admin_up


# --- run in a namespace of their own --------------------------------------------------------------


def veth_events_come_at_once() -> None:
    """The two ends differ in ifindex: nothing is throttled, so no counter is read."""
    ip("link add v0 type veth peer name v1")
    follower = Follower(CarrierWatch())
    follower.until(lambda: "v0" in follower.last, "links told")
    ip("link set v0 up")
    ip("link set v1 up")
    follower.until(lambda: up(follower, "v0"), "carrier")
    assert follower.watch.deadline_ns is None
    before = follower.last["v0"].carrier_down_count
    for _ in range(5):
        ip("link set v1 down")
        ip("link set v1 up")
    follower.until(
        lambda: up(follower, "v0") and follower.last["v0"].carrier_down_count == before + 5,
        "five losses counted",
    )
    assert any(event.nic == "v0" and not event.carrier for event in follower.seen)


def addresses_are_told() -> None:
    ip("link add v0 type veth peer name v1")
    follower = Follower(CarrierWatch(["v0"]))
    follower.until(lambda: "v0" in follower.last, "link told")
    ip("addr add 10.0.0.1/24 dev v0")
    ip("addr add 2001:db8::1/64 dev v0 nodad")
    expected = {"10.0.0.1", "2001:db8::1"}
    follower.until(lambda: set(follower.last["v0"].addresses) == expected, "both addresses")
    ip("addr del 10.0.0.1/24 dev v0")
    follower.until(lambda: follower.last["v0"].addresses == ("2001:db8::1",), "one left")
    assert set(follower.last) == {"v0"}


def renamed_and_gone() -> None:
    ip("link add v0 type veth peer name v1")
    follower = Follower(CarrierWatch(["v0", "new", "never"]))
    follower.until(lambda: "v0" in follower.last, "link told")
    assert gone(follower, "never")
    ip("link set v1 up")
    ip("link set v0 up")
    follower.until(lambda: up(follower, "v0"), "carrier")
    ip("link set v0 down")
    ip("link set v0 name new")
    ip("link set new up")
    follower.until(lambda: up(follower, "new") and gone(follower, "v0"), "renamed")
    ip("link del new")
    follower.until(lambda: gone(follower, "new"), "gone")
    ip("link add v0 type veth peer name v1")
    ip("link set v1 up")
    ip("link set v0 up")
    follower.until(lambda: up(follower, "v0"), "back")


def an_ifindex_is_used_again() -> None:
    follower = Follower(CarrierWatch())
    ip("link add v0 index 77 type veth peer name v1 index 78")
    follower.until(lambda: "v0" in follower.last, "first")
    ip("link del v0")
    ip("link add w0 index 77 type veth peer name w1 index 78")
    follower.until(lambda: "w0" in follower.last and gone(follower, "v0"), "second")


def lost_events_are_made_up_for() -> None:
    """More messages than any socket holds, unread: the state is read again, whole."""
    follower = Follower(CarrierWatch())
    follower.until(lambda: follower.watch.deadline_ns != 0, "first state")
    batch = "\n".join(f"link add a{n} type veth peer name b{n}" for n in range(1500))
    subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)
    ip("link set a7 up")
    ip("link set b7 up")
    follower.until(lambda: up(follower, "a7") and "b1499" in follower.last, "all links")
    assert follower.watch.overruns > 0


def tap_flaps_are_counted_exactly() -> None:
    """Outages of 1 ms, of which events show next to nothing."""
    tap = Tap("tap0")
    ip("link set tap0 up")
    follower = Follower(CarrierWatch())
    follower.until(lambda: up(follower, "tap0"), "tap up")
    assert follower.watch.deadline_ns is not None
    before = follower.last["tap0"].carrier_down_count
    flaps = 60
    for n in range(flaps):
        tap.carrier(False)
        time.sleep(0.001)
        tap.carrier(True)
        follower.until(
            lambda n=n: follower.last["tap0"].carrier_down_count == before + n + 1,  # type: ignore[misc]
            "flap counted",
        )
    follower.until(lambda: up(follower, "tap0"), "tap up again")
    assert follower.last["tap0"].carrier_down_count == before + flaps
    tap.close()
    follower.until(lambda: gone(follower, "tap0"), "tap gone")
    again = Tap("tap0")
    ip("link set tap0 up")
    follower.until(lambda: up(follower, "tap0"), "tap back")
    again.carrier(False)
    follower.until(lambda: not follower.last["tap0"].carrier, "its new counter is read")
    again.close()


def tap_state_is_noticed_by_the_counter() -> None:
    """Before the event, which comes up to a second late; unless the test itself was late."""
    tap = Tap("tap0")
    ip("link set tap0 up")
    follower = Follower(CarrierWatch())
    follower.until(lambda: up(follower, "tap0"), "tap up")
    before_event = 0
    for n in range(60):
        on = bool(n % 2)
        tap.carrier(on)
        follower.until(lambda on=on: follower.last["tap0"].carrier == on, "noticed")  # type: ignore[misc]
        before_event += not follower.by_event
        if before_event == 10:
            break
    assert before_event == 10
    tap.close()


# --- and the tests that run them ------------------------------------------------------------------


needs_tun = pytest.mark.skipif(
    not os.access(TUN_DEVICE, os.R_OK | os.W_OK),
    reason=f"needs {TUN_DEVICE} (module tun, rights to open it): losses of carrier are NOT tested",
)


@pytest.mark.parametrize(
    "scenario",
    [
        veth_events_come_at_once,
        addresses_are_told,
        renamed_and_gone,
        an_ifindex_is_used_again,
        lost_events_are_made_up_for,
        pytest.param(tap_flaps_are_counted_exactly, marks=needs_tun),
        pytest.param(tap_state_is_noticed_by_the_counter, marks=needs_tun),
    ],
)
def test_in_a_namespace(scenario: Callable[[], None]) -> None:
    run_alone(scenario)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
