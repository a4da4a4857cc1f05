"""Two controllers, hosts that change sides at will: never both may decide."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.model import MS, S
from syntony.traffic.lease import EXPIRY_NS, LEASE_NS, WAIT_NS, ListeningHost, may_decide

HOSTS = [f"h{k}" for k in range(5)]
REPORT_NS = 400 * MS
STEP_NS = 100 * MS


def test_what_is_needed() -> None:
    steady = {host: ListeningHost(0, 9 * S) for host in HOSTS[:3]}
    assert may_decide(steady, HOSTS, 9 * S + 1) == (True, "")
    assert not may_decide(dict(list(steady.items())[:2]), HOSTS, 9 * S)[0]
    assert not may_decide(steady, HOSTS, 9 * S + LEASE_NS)[0]
    fresh = {host: ListeningHost(8 * S, 9 * S) for host in HOSTS}
    assert "another controller" in may_decide(fresh, HOSTS, 9 * S)[1]
    assert not may_decide({}, (), 0)[0]
    assert not may_decide({f"x{k}": ListeningHost(0, 9 * S) for k in range(9)}, HOSTS, 9 * S)[0]


class Sides:
    """Who listens to whom, and what either controller has heard."""

    def __init__(self, delay_ns: dict[str, int], skew_ns: dict[str, int]) -> None:
        self.side = dict.fromkeys(HOSTS, "A")
        self.heard: dict[str, dict[str, ListeningHost]] = {"A": {}, "B": {}}
        self._delay_ns, self._skew_ns = delay_ns, skew_ns
        self._late: list[tuple[int, str, str, int]] = []

    def change(self, host: str, to: str, *, noticed: bool) -> None:
        """A host goes over; the one it leaves may or may not notice."""
        if self.side[host] == to:
            return
        if noticed and self.side[host] != "-":
            self.heard[self.side[host]].pop(host, None)
        self.side[host] = to
        self._late = [each for each in self._late if each[2] != host]
        if to != "-":
            self.heard[to].pop(host, None)

    def tick(self, now_ns: int) -> None:
        """Reports leave, stamped by clocks that differ a little, and arrive late."""
        if now_ns % REPORT_NS == 0:
            self._late += [
                (now_ns + self._delay_ns[host], to, host, now_ns + self._skew_ns.get(host, 0))
                for host, to in self.side.items()
                if to != "-"
            ]
        for each in [each for each in self._late if each[0] <= now_ns]:
            self._late.remove(each)
            _, to, host, stamp_ns = each
            known = self.heard[to].get(host)
            self.heard[to][host] = ListeningHost(known.since_ns if known else stamp_ns, stamp_ns)


@settings(max_examples=80, deadline=None)
@given(
    switches=st.lists(
        st.tuples(
            st.integers(0, 300), st.sampled_from(HOSTS), st.sampled_from("AB-"), st.booleans()
        ),
        max_size=30,
    ),
    skew_ms=st.dictionaries(st.sampled_from(HOSTS), st.integers(-20, 20)),
    delay_ms=st.lists(st.integers(0, 500), min_size=5, max_size=5),
)
def test_never_two_at_once(
    switches: list[tuple[int, str, str, bool]], skew_ms: dict[str, int], delay_ms: list[int]
) -> None:
    delay_ns = {host: ms * MS for host, ms in zip(HOSTS, delay_ms, strict=True)}
    sides = Sides(delay_ns, {host: ms * MS for host, ms in skew_ms.items()})
    decided_ns = {"A": -10 * S, "B": -10 * S}
    for tick in range(400):
        now_ns = tick * STEP_NS
        for at, host, to, noticed in switches:
            if at == tick:
                sides.change(host, to, noticed=noticed)
        sides.tick(now_ns)
        for name, other in ("AB", "BA"):
            if may_decide(sides.heard[name], HOSTS, now_ns)[0]:
                assert now_ns - decided_ns[other] > EXPIRY_NS, (name, now_ns)
                decided_ns[name] = now_ns
    assert WAIT_NS > LEASE_NS + EXPIRY_NS
