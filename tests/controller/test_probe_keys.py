"""Rotation of probe keys over a network that loses, delays and restarts everything. Only agents'
and the controller's own decisions are the code's; what carries them is made here."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cases import mostly_slow

from syntony.agent.keyring import Keyring
from syntony.controller import probe_keys
from syntony.controller.config import ControllerConfig
from syntony.controller.fleet import Fleet
from syntony.controller.probe_keys import ProbeKeyDistribution
from syntony.errors import StateError, UsageError
from syntony.io.probe_records import PeerKeys
from syntony.mesh import key_rotation
from syntony.mesh.key_rotation import KeyRing, KeyRotation, Master, RotationPhase, pair_key
from syntony.model import MS, S
from syntony.model.names import NicRef, host_of, nic_number
from syntony.state import ControlState, DatabaseConnection
from syntony.wire.control import Issuer
from syntony.wire.messages import PROTOCOL, Hello, NicInfo
from syntony.wire.probes import KeysHeld, PairKeys, ProbeKeys, RotateKeys

TICK_NS = 50 * MS
ANN = Issuer("ann", "local")
HOSTS = tuple(f"h{number}" for number in range(5))
PAIRS = list(itertools.permutations(HOSTS, 2))
CONFIG = ControllerConfig(listen="", tls_ca="", tls_cert="", tls_key="")
PROBE_NS = 900 * MS
"""From a probe's start to its reply at the most: a lost one is given up after a second."""


RUNNER: list[asyncio.Runner] = []


@pytest.fixture(autouse=True, scope="module")
def _event_loop() -> Iterator[None]:
    with asyncio.Runner() as runner:
        RUNNER[:] = [runner]
        yield


class _Session:
    """What the controller puts into it arrives, or is lost with the stream."""

    def __init__(self, net: _Net, host: str) -> None:
        self._net, self._host, self.outbox = net, host, self

    def put(self, message: Any) -> None:
        self._net.send(self._net.down_queue[self._host], message)


class _Agent:
    def __init__(self) -> None:
        self.keyring = Keyring()
        self.peers: dict[int, PeerKeys] = {}
        self.attached = False
        self.back_ns = 0


class _Net:
    def __init__(self, seed: int, place: Path) -> None:
        self.rng = random.Random(seed)
        self.place = place
        self.now_ns = 1_700_000_000 * S
        self.ahead_ns = 0
        """Of the controller's clock."""
        self.agents = {host: _Agent() for host in HOSTS}
        self.down_queue: dict[str, list[tuple[int, Any]]] = {host: [] for host in HOSTS}
        self.up_queue: dict[str, list[tuple[int, Any]]] = {host: [] for host in HOSTS}
        self.under_way: list[tuple[int, str, str, tuple[int, bytes], bool]] = []
        self.refused: list[str] = []
        self.probes = self.rotations = 0
        self.up_ns = 0
        self.start_controller()

    def play(self, work: Coroutine[Any, Any, Any]) -> None:
        """To its end, on the one event loop."""
        RUNNER[0].run(work)

    def start_controller(self) -> None:
        self.state = ControlState(self.place)
        self.sessions: dict[str, Any] = {}
        self.fleet = Fleet(CONFIG)
        self.keys: ProbeKeyDistribution | None = ProbeKeyDistribution(
            self.state,
            self.sessions,
            0,
            lambda: self.now_ns + self.ahead_ns,
            awake=lambda: self.now_ns,
        )

    def kill_controller(self, away_ns: int) -> None:
        self.keys = None
        self.state.close()
        self.up_ns = self.now_ns + away_ns
        for host in HOSTS:
            self.cut(host, 0)

    def cut(self, host: str, away_ns: int) -> None:
        agent = self.agents[host]
        agent.attached, agent.back_ns = False, self.now_ns + away_ns
        self.down_queue[host].clear()
        self.up_queue[host].clear()
        if self.sessions.pop(host, None) is not None:
            self.fleet.leave(host, self.now_ns)

    def send(self, queue: list[tuple[int, Any]], message: Any) -> None:
        at_ns = self.now_ns + self.rng.choice([1, 5, 20, 300, 2_000]) * MS
        queue.append((max([at_ns, *(due for due, _ in queue)]), message))  # streams keep order

    def attach(self, host: str) -> None:
        assert self.keys is not None
        nic = NicInfo(
            name="eth0", rail=0, addresses=(f"10.0.0.{1 + HOSTS.index(host)}",), clock=host,
            stamping="kernel", port=8620,
        )  # fmt: skip
        self.agents[host].attached = True
        self.sessions[host] = _Session(self, host)
        self.fleet.join(
            Hello(protocol=PROTOCOL, version="", host=host, nics=(nic,), stream="s"), self.now_ns
        )
        self.keys.attached(host)

    def tick(self) -> None:
        self.now_ns += TICK_NS
        if self.keys is None and self.now_ns >= self.up_ns:
            self.start_controller()
        if self.keys is not None:
            for host, agent in self.agents.items():
                if not agent.attached and self.now_ns >= agent.back_ns:
                    self.attach(host)
            if self.fleet.due(self.now_ns):
                self.keys.plan(self.fleet.replan(self.now_ns))
            self.play(self.keys.step())
        for host, agent in self.agents.items():
            for message in _due(self.down_queue[host], self.now_ns):
                self.receive(host, agent, message)
            for report in _due(self.up_queue[host], self.now_ns):
                if self.keys is not None:
                    self.keys.held(host, report)
        self.probe()

    def receive(self, host: str, agent: _Agent, message: ProbeKeys) -> None:
        assert host not in {pair.host for pair in message.pairs}
        peers = agent.keyring.take(message)
        assert peers is not None
        agent.peers = peers
        held = KeysHeld(epochs=message.epochs, sending=message.sending, number=message.number)
        self.send(self.up_queue[host], held)

    def probe(self) -> None:
        """Some pairs start a probe now; those under way arrive, or are refused."""
        arriving = [each for each in self.under_way if each[0] <= self.now_ns]
        self.under_way = [each for each in self.under_way if each[0] > self.now_ns]
        for _, src, dst, key, is_reply in arriving:
            peer = self.agents[dst].peers.get(_number(src))
            if peer is None:
                continue  # it has started anew and has no keys yet: nobody expects an answer
            if key not in (peer.sends, peer.accepts):
                what = "reply" if is_reply else "request"
                self.refused.append(f"{what} {src}->{dst} epoch {key[0]} at {peer}")
            elif not is_reply:
                self.fly(dst, src, key, is_reply=True)
        for src, dst in self.rng.sample(PAIRS, 4):
            peer = self.agents[src].peers.get(_number(dst))
            if peer is not None:
                self.probes += 1
                self.fly(src, dst, peer.sends, is_reply=False)

    def fly(self, src: str, dst: str, key: tuple[int, bytes], *, is_reply: bool) -> None:
        delay_ns = self.rng.randint(1, PROBE_NS // MS // 2) * MS
        self.under_way.append((self.now_ns + delay_ns, src, dst, key, is_reply))

    def disturb(self) -> None:
        if self.rng.random() > 0.04:
            return
        host = self.rng.choice(HOSTS)
        match self.rng.randrange(16):
            case 0 | 1 | 2:
                self.cut(host, self.rng.randint(0, 60) * S)
            case 3:
                self.cut(host, self.rng.randint(0, 5) * S)
                self.agents[host].keyring, self.agents[host].peers = Keyring(), {}
            case 4 if self.keys is not None and self.rng.random() < 0.3:
                self.kill_controller(self.rng.randint(0, 10) * S)
            case 5 | 6 | 7 | 8 if self.keys is not None:
                try:
                    self.play(self.keys.rotate(RotateKeys(by="ann", why="test"), ANN))
                    self.rotations += 1
                except UsageError:
                    pass
            case 9:
                self.ahead_ns += key_rotation.RETURN_NS


def _due(queue: list[tuple[int, Any]], now_ns: int) -> Iterable[Any]:
    while queue and queue[0][0] <= now_ns:
        yield queue.pop(0)[1]


def _number(host: str) -> int:
    return nic_number(NicRef(host, "eth0"))


def _settle(net: _Net, hosts: Sequence[str] = HOSTS, at_most_s: int = 200) -> None:
    for _ in range(at_most_s * S // TICK_NS):
        net.tick()
        status = None if net.keys is None else net.keys.status()
        steady = status is not None and status.phase == RotationPhase.STEADY and not status.waiting
        if steady and len(net.sessions) == len(hosts):
            return
    raise AssertionError("never settled")


@pytest.mark.parametrize("seed", mostly_slow(range(12), {0, 5}))
def test_no_probe_is_refused_whatever_restarts_in_between(seed: int, tmp_path: Path) -> None:
    net = _Net(seed, tmp_path)
    _settle(net)
    for _ in range(6_000):
        net.tick()
        net.disturb()
    assert net.refused == [], seed
    _settle(net)
    assert net.refused == [], seed
    assert net.keys is not None
    net.play(net.keys.rotate(RotateKeys(), ANN))
    _settle(net)
    (epoch,) = net.keys.status().epochs
    for agent in net.agents.values():
        assert {peer.sends[0] for peer in agent.peers.values()} == {epoch}, seed
        assert len(agent.peers) == len(HOSTS) - 1
        assert all(peer.accepts is None for peer in agent.peers.values())
    assert net.rotations >= 2, "else nothing was tried"
    assert net.probes > 10_000
    net.state.close()


@pytest.mark.parametrize("seed", range(5))
def test_a_rotation_waits_for_keys_of_the_pairs_of_the_plan(seed: int, tmp_path: Path) -> None:
    """A new controller has agents before it has a plan."""
    net = _Net(seed, tmp_path)
    _settle(net)
    net.kill_controller(0)
    net.start_controller()
    assert net.keys is not None
    for host in HOSTS:
        net.attach(host)
    net.play(net.keys.rotate(RotateKeys(), ANN))
    planned = net.fleet.due
    net.fleet.due = lambda now_ns: False  # type: ignore[method-assign]  # noqa: ARG005
    for _ in range(2 * key_rotation.RETURN_NS // TICK_NS):
        net.tick()
    assert net.keys.status().phase == RotationPhase.SPREADING
    net.fleet.due = planned  # type: ignore[method-assign]
    _settle(net)
    assert len(net.keys.status().epochs) == 1
    assert net.refused == []
    net.state.close()


def test_what_a_host_holds_of_another_plan_is_no_confirmation(tmp_path: Path) -> None:
    net = _Net(1, tmp_path)
    _settle(net)
    keys = net.keys
    assert keys is not None
    net.play(keys.rotate(RotateKeys(), ANN))
    epochs, sending = keys.status().epochs, keys.status().epochs[0]
    number = keys._numbers["h0"]
    confirm = KeysHeld(epochs=epochs, sending=sending, number=number)
    keys.held("h0", confirm)
    assert "h0" not in keys.status().waiting
    keys.plan(net.fleet.replan(net.now_ns))
    assert "h0" not in keys.status().waiting, "its peers are the same"
    mesh = net.fleet.replan(net.now_ns)
    net.cut("h4", S)
    keys.plan(mesh._replace(flows=dict.fromkeys(mesh.flows, ())))
    keys.plan(mesh)
    assert keys.status().waiting == HOSTS, "attached or not"
    keys.held("h1", KeysHeld(epochs=epochs, sending=sending, number=number))
    assert "h1" in keys.status().waiting, "of the plan before"
    keys.held("h1", KeysHeld(epochs=epochs, sending=sending, number=keys._numbers["h1"]))
    assert "h1" not in keys.status().waiting
    keys.held("h2", KeysHeld(epochs=epochs, sending=sending))
    assert "h2" not in keys.status().waiting, "agents of the version before repeat no number"
    net.state.close()


def test_a_new_plan_brings_keys_to_hosts_with_other_pairs_only(tmp_path: Path) -> None:
    net = _Net(1, tmp_path)
    _settle(net)
    keys = net.keys
    assert keys is not None
    before, mesh = keys._numbers.copy(), net.fleet.mesh
    keys.plan(mesh)
    assert keys._numbers == before
    h0, h1 = (tuple(flow for flow in mesh.flows[host] if "h0" in (host, host_of(flow.dst)))
              for host in ("h0", "h1"))  # fmt: skip
    keys.plan(mesh._replace(flows={"h0": h0, "h1": h1}))
    sent = {host for host, number in keys._numbers.items() if number != before[host]}
    assert sent == set(HOSTS) - {"h0"}, "those without pairs as well: theirs are forgotten"
    net.state.close()


def test_a_peer_that_is_planned_no_more_is_forgotten_once_others_send_with_a_new_key() -> None:
    keyring, nic = Keyring(), 7
    pair = PairKeys(host="h1", nics=(nic,), keys=(b"a" * 16,))
    assert keyring.take(ProbeKeys(epochs=(1,), sending=1, pairs=(pair,))) is not None
    spreading = keyring.take(ProbeKeys(epochs=(1, 2), sending=1, pairs=()))
    assert spreading == {nic: PeerKeys((1, b"a" * 16), None)}
    assert keyring.take(ProbeKeys(epochs=(1, 2), sending=2, pairs=())) == {}


def test_twenty_rotations_in_a_row(tmp_path: Path) -> None:
    net = _Net(1, tmp_path)
    _settle(net)
    assert net.keys is not None
    before = net.keys.status().epochs[0]
    for _ in range(20):
        net.play(net.keys.rotate(RotateKeys(why="drill"), ANN))
        _settle(net)
    assert net.keys.status().epochs == (before + 20,)
    assert net.refused == []
    assert len(net.state.changes(0, 100)) == 20
    net.state.close()


def test_the_event_loop_goes_on_while_the_disk_is_waited_for(tmp_path: Path) -> None:
    """… and a host that attaches meanwhile is neither forgotten nor left without the new key."""
    net = _Net(7, tmp_path)
    net.agents["h4"].back_ns = 1 << 62
    _settle(net, HOSTS[:4])
    keys = net.keys
    assert keys is not None
    free, write = threading.Event(), keys._write

    def slow(ring: KeyRing, log: Callable[[DatabaseConnection], None]) -> None:
        assert free.wait(300)
        write(ring, log)

    async def rotate() -> None:
        keys._write = slow  # type: ignore[method-assign]
        task = asyncio.create_task(keys.rotate(RotateKeys(), ANN))
        await asyncio.sleep(0.05)
        assert not task.done()
        net.attach("h4")
        free.set()
        await asyncio.wait_for(task, 60)
        keys._write = write  # type: ignore[method-assign]

    net.play(rotate())
    assert "h4" in keys.status().waiting
    assert len(keys.status().epochs) == 2
    net.play(keys.step())
    kept = keys._document.load()
    assert kept is not None
    assert set(kept.hosts) == set(HOSTS)
    _settle(net)
    assert net.refused == []
    net.state.close()


def test_a_host_away_holds_a_rotation_up_until_patience_ends_and_is_healed(tmp_path: Path) -> None:
    net = _Net(3, tmp_path)
    _settle(net)
    assert net.keys is not None
    net.cut("h2", key_rotation.PATIENCE_NS * 3)
    net.play(net.keys.rotate(RotateKeys(), ANN))
    for _ in range(2_000):
        net.tick()
    assert net.keys.status().waiting == ("h2",)
    assert net.refused == [], "it measures with the key that everyone still has"
    net.now_ns += key_rotation.PATIENCE_NS
    for _ in range(400):
        net.tick()
    status = net.keys.status()
    assert (status.phase, status.left_behind) == (RotationPhase.STEADY, ("h2",))
    net.agents["h2"].back_ns = 0
    _settle(net)
    for _ in range(2 * S // TICK_NS):
        net.tick()  # what it sent before it was told arrives
    net.refused.clear()
    for _ in range(100):
        net.tick()
    assert net.refused == []
    assert net.keys.status().left_behind == ()
    net.state.close()


def test_a_rotation_does_not_wait_for_a_host_that_is_revoked(tmp_path: Path) -> None:
    net = _Net(3, tmp_path)
    _settle(net)
    assert net.keys is not None
    net.cut("h2", key_rotation.PATIENCE_NS)
    net.play(net.keys.rotate(RotateKeys(), ANN))
    for _ in range(2_000):
        net.tick()
    assert net.keys.status().waiting == ("h2",)
    net.play(net.keys.step({"h2"}))
    assert "h2" not in net.keys.hosts
    for _ in range(400):
        net.tick()
    assert net.keys.status().phase is RotationPhase.STEADY
    net.state.close()


def test_a_host_has_the_keys_of_its_own_pairs_only(tmp_path: Path) -> None:
    net = _Net(5, tmp_path)
    _settle(net)
    keys = {
        host: {nic: peer.sends[1] for nic, peer in agent.peers.items()}
        for host, agent in net.agents.items()
    }
    for one, other in itertools.combinations(HOSTS, 2):
        shared = keys[one][_number(other)]
        assert shared == keys[other][_number(one)]
        strangers = [secret for host in HOSTS if host not in {one, other}
                     for secret in keys[host].values()]  # fmt: skip
        assert shared not in strangers
    net.state.close()


def test_keys_follow_from_names_and_epoch_and_from_nothing_else() -> None:
    master = Master(epoch=7, secret=bytes(range(32)))
    key = pair_key(master, "h1", "h2")
    assert key == pair_key(master, "h2", "h1")
    assert len(key) == 16
    others = [
        pair_key(master, "h1", "h3"),
        pair_key(master, "h", "1h2"),
        pair_key(master, "h1h", "2"),
        pair_key(Master(epoch=8, secret=master.secret), "h1", "h2"),
        pair_key(Master(epoch=7, secret=bytes(32)), "h1", "h2"),
    ]
    assert len({key, *others}) == len(others) + 1


def test_a_clock_set_back_over_a_restart_delays_nothing_for_long() -> None:
    masters = (Master(epoch=1, secret=bytes(32)), Master(epoch=2, secret=bytes(32)))
    ring = KeyRing(masters=masters, phase=RotationPhase.DRAINING, since_ns=10_000 * S)
    rotation = KeyRotation(ring, 100 * S)
    assert rotation.next(100 * S) is None
    following = rotation.next(100 * S + key_rotation.RETURN_NS)
    assert following is not None
    assert following.epochs == (2,)


def test_a_rotation_without_its_row_of_the_audit_log_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ring and row were two transactions: a disk that filled up between them left a new master key
    that nobody had ordered, as far as the log said."""
    net = _Net(8, tmp_path)
    _settle(net, HOSTS)
    keys = net.keys
    assert keys is not None
    before, logged = keys._document.load(), len(net.state.changes(0, 100))

    def full(*_: object) -> None:
        raise StateError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(probe_keys, "log_change", full)
        with pytest.raises(StateError):
            net.play(keys.rotate(RotateKeys(), ANN))
    assert keys._document.load() == before
    assert len(net.state.changes(0, 100)) == logged
    net.play(keys.rotate(RotateKeys(), ANN))
    assert len(net.state.changes(0, 100)) == logged + 1
    net.state.close()
