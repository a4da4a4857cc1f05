"""A live lab: learnt paths against the switches' own answer, and broken parts called by name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from tests.fleet import waiting
from tests.live import LiveLab, live, syntony

from syntony.controller.client import ask
from syntony.errors import MissingError
from syntony.fabric.names import GROUP
from syntony.lab.plan import LinkKind, make_plan
from syntony.lab.world import unshare_argv
from syntony.wire.fabric import FindingsQuery, LearntPath, PathsQuery

pytestmark = pytest.mark.lab
NAME = "t-locate"
PEERS, PORTS = 4, 8
PATIENCE_S = 120.0


class Located:
    """A lab and what its controller knows."""

    def __init__(self, lab: LiveLab) -> None:
        self.lab = lab
        self._target = f"unix:{lab.controller_socket}"

    def paths(self) -> tuple[LearntPath, ...]:
        return ask(self._target, PathsQuery()).paths

    def blamed(self) -> set[str] | None:
        """None while nothing was measured."""
        answer = ask(self._target, FindingsQuery())
        return {each.component for each in answer.findings} if answer.ts_ns else None

    def learn(self) -> None:
        """Wait for all paths."""
        nics = len(make_plan(self.lab.file().spec).of_kind(LinkKind.RAIL))
        wanted = 2 * nics * PEERS * PORTS
        await_true(lambda: len(self.paths()) == wanted, f"{wanted} paths learnt")

    def name(self, faults: list[tuple[str, str, dict[str, str]]], component: str) -> None:
        """Inject faults, wait until the part is named, and nothing else."""
        self.lab.clear()
        await_true(lambda: self.blamed() == set(), "a fleet with nothing to blame")
        for kind, target, options in faults:
            self.lab.inject(kind, target, options)
        await_true(
            lambda: self.blamed() == {component},
            f"{component} named, and nothing else, but",
            instead=self.blamed,
        )


await_true = partial(waiting.await_true, patience_s=PATIENCE_S, pause_s=0.2)


@pytest.fixture(scope="module", autouse=True)
def _labs() -> None:
    try:
        unshare_argv()
    except MissingError as error:
        pytest.skip(f"no lab here: {error}: names of live faults are NOT tested")


@pytest.fixture(scope="module")
def located() -> Iterator[Located]:
    with live(NAME, "--hosts", "4", "--mesh-peers", str(PEERS), agents=True) as lab:
        found = Located(lab)
        found.learn()
        yield found


def test_learnt_paths_are_those_the_switches_choose(located: Located) -> None:
    for path in located.paths()[::7]:
        (way,) = located.lab.paths(path.src, path.dst, [path.sport], path.dport)
        devices = [name for name in path.components if "->" not in name]
        assert devices == [path.src, *way.hops[1:-1], path.dst], path.path_id


@pytest.mark.parametrize(
    ("faults", "component"),
    [
        ([("blackhole", "leaf0-0/spine1", {})], "leaf0-0--spine1"),
        ([("loss", "leaf0-1/spine0", {"percent": "5"})], "leaf0-1--spine0"),
        ([("blackhole", "h2/rail1", {})], "h2/rail1"),
        ([("loss", "h1/rail0", {"percent": "5"})], "h1/rail0"),
        (
            [
                ("loss", f"leaf{leaf}/spine1", {"percent": "5"})
                for leaf in ("0-0", "0-1", "1-0", "1-1")
            ],
            "spine1",
        ),
    ],
    ids=["cable dark", "cable 5 %", "NIC dark", "NIC 5 %", "spine 5 %"],
)
def test_the_broken_part_is_named(
    located: Located, faults: list[tuple[str, str, dict[str, str]]], component: str
) -> None:
    located.name(faults, component)


def test_the_command_line_says_the_same(located: Located) -> None:
    done = syntony("fabric", "paths", "h0/rail0", "--lab", NAME)
    assert done.returncode == 0, done.stderr
    assert "h0/rail0 → leaf0-0" in done.stdout
    assert syntony("fabric", "show", "--lab", NAME).returncode in {0, 2}


def test_an_ipv6_fabric_is_learnt_and_its_parts_are_named() -> None:
    options = ("--hosts", "5", "--rails", "1", "--leaves", "3", "--mesh-peers", str(PEERS))
    with live(f"{NAME}-6", *options, "--family", "ipv6", agents=True) as lab:
        found = Located(lab)
        found.learn()
        assert not any(GROUP in part for path in found.paths() for part in path.components)
        found.name([("blackhole", "leaf0-0/spine1", {})], "leaf0-0--spine1")
