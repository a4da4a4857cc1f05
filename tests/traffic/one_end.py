"""One end of a connection of a job: what it knows and decides at one instant."""

from __future__ import annotations

from syntony.model import S
from syntony.model.paths import FourTuple, LinkEvent, LivenessEvent
from syntony.traffic import events
from syntony.traffic.connection import MptcpConnection, RemoteAddress, Subflow, SubflowState
from syntony.traffic.failover import Failover
from syntony.traffic.health import Health
from syntony.traffic.pairs import LocalNic, WatchedFlow
from syntony.traffic.policy import FailoverMode, Policy
from syntony.traffic.steering import Steering
from syntony.traffic.turn import Turn

POLICY = Policy(mode=FailoverMode.ACT)
APP = 5000
NOW = 100 * S


def here(rail: int) -> str:
    return f"10.{rail}.0.1"


def there(rail: int) -> str:
    return f"10.{rail}.0.2"


def nics(rails: int = 2, *, six: bool = False) -> list[LocalNic]:
    return [
        LocalNic(name=f"nic{k}", rail=k, addresses=(here(k), f"fd0{k}::1") if six else (here(k),))
        for k in range(rails)
    ]


def watched(rails: int = 2) -> list[WatchedFlow]:
    return [
        WatchedFlow(10 * k + n, f"nic{k}", there(k), f"peer/nic{k}", k, (f"fd0{k}::2",))
        for k in range(rails)
        for n in (0, 1)
    ]


def life(flow_id: int, at_ns: int, *, alive: bool) -> LivenessEvent:
    return LivenessEvent(at_ns=at_ns, flow_id=flow_id, alive=alive, since_ns=at_ns, misses=4)


class Host:
    """One end: what it knows, its decisions, one connection of a job."""

    def __init__(
        self, policy: Policy = POLICY, *, accepted: bool = False, rails: int = 2, six: bool = False
    ) -> None:
        self.health = Health(policy, nics(rails, six=six))
        self.health.watch(watched(rails))
        for flow in watched(rails):
            self.health.liveness(life(flow.flow_id, 0, alive=True))
        self.steering = Steering(policy, self.health, 1)
        self.conn = MptcpConnection(7, 0, accepted=accepted)
        self.conn.announced_by_ns = (
            NOW + 1000 * S
        )  # nothing is assumed of what the peer did not say
        self.conn.job = "train"
        local, remote = ("fd00::1", "fd00::2") if six else (here(0), there(0))
        self.conn.local, self.conn.local_port = local, 33_000
        self.first = FourTuple(local, 33_000, remote, APP)
        self.add(self.first, "nic0")

    def add(self, flow: FourTuple, nic: str | None, since_ns: int = 0) -> Subflow:
        subflow = Subflow(flow, nic, SubflowState.UP, since_ns)
        self.conn.subflows[flow] = subflow
        return subflow

    def announced(self, rail: int, port: int = POLICY.port) -> RemoteAddress:
        remote = RemoteAddress(there(rail), port, rail)
        self.conn.remotes[rail + 1] = remote
        return remote

    def kill(self, rail: int, at_ns: int = NOW) -> None:
        """Probes of a rail are no longer answered, and that is believed."""
        for flow in watched():
            if flow.remote_rail == rail:
                self.health.liveness(life(flow.flow_id, at_ns, alive=False))
        assert self.health.decide_deaths(at_ns + POLICY.settle_ns)

    def carrier(self, nic: str, *, up: bool, at_ns: int = NOW) -> None:
        rail = int(nic.removeprefix("nic"))
        event = LinkEvent(at_ns=at_ns, nic=nic, carrier=up, admin_up=True,
                          addresses=(here(rail),), carrier_down_count=0)  # fmt: skip
        assert self.health.link(event)

    def settle(self, now_ns: int = NOW) -> Turn:
        return self.steering.settle(self.conn, now_ns)


def of(turn: Turn, kind: type) -> list:  # type: ignore[type-arg]
    return [each for each in turn.out if isinstance(each, kind)]


def machine() -> Failover:
    found = Failover(POLICY, nics(), 1)
    found.watch(watched(), NOW)
    for flow in watched():
        found.handle(life(flow.flow_id, NOW, alive=True))
    up = events.ConnectionUp(
        at_ns=NOW, token=7, flow=FourTuple(here(0), 33_000, there(0), APP), accepted=False
    )
    found.handle(up)
    found.handle(events.JobFound(at_ns=NOW, token=7, job="train"))
    return found
