"""From rows in the store to verdicts: objectives, the past, jobs, and a host in the wrong place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.link import hello
from tests.store.rows import T0, probed, rows_of

from syntony.controller.config import ControllerConfig
from syntony.controller.fleet import Fleet
from syntony.controller.locating import LocateLoop
from syntony.controller.sla import SETTLED_NS, SlaService
from syntony.errors import ConfigError, UsageError
from syntony.model import S
from syntony.model.names import host_of
from syntony.model.sla import SlaStatus
from syntony.store import Store, open_store
from syntony.wire.tables import PATH, PROBE

HOSTS = ("h0", "h1", "h2", "h3")
TOPOLOGY = "".join(
    f'[[device]]\nname = "{name}"\nkind = "leaf"\naddresses = ["10.0.0.{number}"]\n'
    for number, name in enumerate(("leaf0", "leaf1"))
) + "".join(
    f'[[device]]\nname = "{host}/rail0"\n[[cable]]\na = "{host}/rail0"\nb = "leaf0"\n'
    for host in HOSTS
)  # fmt: skip
TERMS = '[[objective]]\nclass = "leaf"\np99 = "50us"\nloss = 0.001\n'
APART_S = 4 * 3600
"""Between two tests' times in the one store they share: longer than any past they look at."""
PAIRS = [(f"{a}/rail0", f"{b}/rail0") for a in HOSTS for b in HOSTS if a != b]


class Desk:
    """A store with rows of four hosts at one leaf, and the desk over it."""

    def __init__(self, directory: Path, store: Store, now_ns: int) -> None:
        (directory / "topology.toml").write_text(TOPOLOGY)
        (directory / "sla.toml").write_text(TERMS)
        self.store, self.now_ns = store, now_ns
        self.newest = (now_ns - SETTLED_NS - T0) // S - 2
        """A second that the newest window holds."""
        config = ControllerConfig(listen="", tls_ca="", tls_cert="", tls_key="")
        self.fleet = Fleet(config)
        for host in HOSTS:
            self.fleet.join(hello(host, "s", rails=1), 0)
        self.locating = LocateLoop(self.store, str(directory / "topology.toml"))
        self.service = SlaService(
            str(directory / "sla.toml"), self.store, self.fleet, self.locating
        )

    def probe(self, ago: int = 0, **changed: dict[str, Any]) -> None:
        """One second of every pair; `changed` by the sending NIC's host."""
        second = self.newest - ago
        rows = [probed(a, b, second, **changed.get(host_of(a), {})) for a, b in PAIRS]
        self.store.insert(PROBE, rows_of(PROBE, rows))

    def learn(self, **first: str) -> None:
        """Every pair's path; `first` names the first hop's address by the sending host."""
        rows = [
            {
                "ts_ns": self.now_ns - 5 * S, "src": a, "dst": b, "sport": 61000, "dport": 8620,
                "hops": first.get(host_of(a), "10.0.0.0"),
            }
            for a, b in PAIRS
        ]  # fmt: skip
        self.store.insert(PATH, rows_of(PATH, rows))
        self.locating.step(self.now_ns, self.now_ns // S - 4, {})

    def verdicts(self) -> dict[str, SlaStatus]:
        rows = self.service.report("pair", 60 * S, self.now_ns, {}).rows
        return {row.subject: row.status for row in rows}

    def items(self, host: str) -> dict[tuple[str, str], SlaStatus]:
        found = self.service.check(host, 60 * S, self.now_ns, [])
        return {(item.check, item.subject): item.status for item in found.items}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened = open_store(str(tmp_path_factory.mktemp("sla") / "store"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def times() -> Iterator[int]:
    return itertools.count(T0 + APART_S * S, APART_S * S)


@pytest.fixture
def service(tmp_path: Path, store: Store, times: Iterator[int]) -> Desk:
    return Desk(tmp_path, store, next(times))


SLOW = {"owd_p99_ns": 90_000, "owd_max_ns": 95_000}


def test_objectives_hold_for_paths_of_their_class(service: Desk) -> None:
    service.probe(h1=SLOW)
    assert set(service.verdicts().values()) == {SlaStatus.OK}, "no class is known yet"
    service.learn()
    verdicts = service.verdicts()
    assert {pair for pair, status in verdicts.items() if status is SlaStatus.BREACH} == {
        f"h1/rail0->{host}/rail0" for host in ("h0", "h2", "h3")
    }
    assert next(iter(verdicts)).startswith("h1/rail0"), "worst first"


def test_a_host_in_its_place_is_well_and_a_slow_one_is_not(service: Desk) -> None:
    service.probe(h1=SLOW)
    service.learn()
    assert set(service.items("h0").values()) == {SlaStatus.OK, SlaStatus.WARNING}
    assert service.items("h0")["latency", "h0/rail0 in"] is SlaStatus.WARNING
    assert service.items("h1")["latency", "h1/rail0 out"] is SlaStatus.BREACH
    assert service.items("h1")["place", "h1/rail0"] is SlaStatus.OK


def test_a_host_at_another_switch_is_misplaced(service: Desk) -> None:
    service.probe()
    service.learn(h2="10.0.0.1")
    assert service.items("h2")["place", "h2/rail0"] is SlaStatus.BREACH
    assert service.items("h0")["place", "h0/rail0"] is SlaStatus.OK
    found = service.service.check("h2", 60 * S, service.now_ns, [])
    assert found.status is SlaStatus.BREACH
    (item,) = [item for item in found.items if item.check == "place"]
    assert item.detail.startswith("at leaf1, the topology says leaf0")


def test_what_was_not_measured_is_unknown(service: Desk) -> None:
    assert service.verdicts() == {}
    assert service.items("h0")["place", "h0/rail0"] is SlaStatus.UNKNOWN
    assert service.items("h0")["latency", "h0/rail0 out"] is SlaStatus.UNKNOWN
    assert service.service.check("h0", 60 * S, service.now_ns, []).status is SlaStatus.UNKNOWN


def test_an_agent_that_left_and_an_incident_are_told(service: Desk) -> None:
    service.probe()
    service.learn()
    service.fleet.leave("h3", 1)
    assert service.items("h3")["agent", "h3"] is SlaStatus.BREACH
    found = service.service.check("h0", 60 * S, service.now_ns, [("h0/rail0", "h0/rail0: flaps")])
    assert (found.status, found.items[-1].detail) == (SlaStatus.BREACH, "h0/rail0: flaps")


def test_a_pair_is_held_against_its_own_past(service: Desk) -> None:
    for ago in range(1200, 1800, 60):
        service.probe(ago)
    service.probe(h1=SLOW)
    rows = service.service.report("pair", 60 * S, service.now_ns, {}).rows
    slower = [row for row in rows if row.status is SlaStatus.WARNING]
    assert {host_of(row.subject) for row in slower} == {"h1"}
    assert slower[0].reasons == ("p99 90 µs, usually 4 µs",)


def test_jobs_are_judged_by_the_nics_they_use(service: Desk) -> None:
    service.probe(h1=SLOW)
    jobs = {
        "slow": frozenset({("h1/rail0", "h2/rail0")}),
        "fast": frozenset({("h0/rail0", "h2/rail0")}),
        "new": frozenset[tuple[str, str]](),
    }
    rows = {
        row.subject: row for row in service.service.report("job", 60 * S, service.now_ns, jobs).rows
    }
    assert rows["slow"].now.p99_ns == 90_000
    assert rows["fast"].now.p99_ns == 4_000
    assert rows["new"].status is SlaStatus.UNKNOWN
    hosts = {row.subject for row in service.service.report("host", 60 * S, service.now_ns, {}).rows}
    assert hosts == {f"{a}->{b}" for a in HOSTS for b in HOSTS if a != b}


def test_what_cannot_be_asked_is_told(service: Desk, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give one of pair, host, rail, job"):
        service.service.report("leaf", S, service.now_ns, {})
    with pytest.raises(UsageError, match="no host 'h9' has attached"):
        service.service.check("h9", S, service.now_ns, [])
    with pytest.raises(ConfigError, match="cannot be read"):
        SlaService(str(tmp_path / "none.toml"), service.store, service.fleet, service.locating)
