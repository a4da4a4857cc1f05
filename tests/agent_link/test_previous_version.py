"""The version before and this one on one wire: agent and controller, in both orders.

Its sources come out of git (`tests/wire/before/COMMIT`), and its processes run them beside this
version's: spool, connection and fence of the one, the whole controller of the other.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.link import ControllerProcess, open_spool

from syntony.agent.config import AgentConfig
from syntony.controller.client import ask
from syntony.wire.failover import SwitchCommand
from syntony.wire.messages import MAX_UNACKED

ROOT = Path(__file__).parents[2]
COMMIT = (ROOT / "tests/wire/before/COMMIT").read_text(encoding="ascii").strip()
SECONDS = 2 * MAX_UNACKED
_AT = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__name__.startswith("ScikitBuild")]
sys.path.insert(0, {root!r})
sys.path.insert(0, {source!r})
import syntony
assert syntony.__file__.startswith({source!r}), syntony.__file__
"""
_AGENT = """
import queue, msgspec
from tests.link import hello, probe_rows
from syntony.agent.config import AgentConfig
from syntony.agent.spool import Spool
from syntony.agent.uplink import Uplink
config = msgspec.json.decode(sys.argv[1], type=AgentConfig)
first, last = map(int, sys.argv[2:])
spool = Spool(config.spool_dir, 1 << 24)
spool.open()
told = queue.Queue()
with Uplink(config, lambda stream: hello(config.host, stream), told.put, spool) as uplink:
    for second in range(first, last):
        uplink.submit("probe_1s", *probe_rows(config.host, second))
    heard = set()
    while not {"Plan", "ProbeKeys", "Switch", "Revocations"} <= heard:
        heard.add(type(told.get(timeout=600)).__name__)
    import time
    while spool.acknowledged < spool.last_seq:
        time.sleep(0.02)
print(spool.dropped_rows)
spool.close()
"""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of the version before, with the native parts of this one."""
    git = ["git", "-C", str(ROOT), "archive", COMMIT, "src", "tests/link.py"]
    done = subprocess.run(git, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(
            f"needs git's history (no commit {COMMIT[:12]}): links with the version before are "
            "NOT tested"
        )
    tree = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(tree, filter="data")
    native = importlib.util.find_spec("syntony.io._native")
    assert native is not None
    assert native.submodule_search_locations
    (tree / "src/syntony/io/_native").symlink_to(next(iter(native.submodule_search_locations)))
    return tree


def _at(tree: Path) -> str:
    if tree == ROOT:
        return f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    return _AT.format(root=str(tree), source=str(tree / "src"))


@contextlib.contextmanager
def _controller(directory: Path, tree: Path) -> Iterator[ControllerProcess]:
    controller = ControllerProcess(directory)
    run = _at(tree) + "from syntony.cli.controller import command; command()"
    controller.start(run)
    try:
        yield controller
    finally:
        controller.end()


def _agent(tree: Path, config: AgentConfig, first: int, last: int) -> int:
    """Sends seconds, is informed what it must be reported, and returns how many rows it dropped."""
    # What is as it is by default the version before may not know.
    usual = msgspec.structs.fields(config)
    said = {each.name: getattr(config, each.name) for each in usual}
    given = {each.name: said[each.name] for each in usual if said[each.name] != each.default}
    words = [msgspec.json.encode(given).decode(), str(first), str(last)]
    done = subprocess.run(
        [sys.executable, "-c", _at(tree) + _AGENT, *words],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("newer", ["agent", "controller"])
def test_either_may_be_the_newer_one(previous: Path, tmp_path: Path, newer: str) -> None:
    trees = (ROOT, previous) if newer == "agent" else (previous, ROOT)
    agents, controllers = trees
    with _controller(tmp_path, controllers) as controller:
        ask(f"unix:{controller.socket}", SwitchCommand(stopped=True, by="ann", why="mixed"))
        peer = controller.agent_config("v2")
        assert _agent(agents, peer, 0, 1) == 0  # so that there is a plan
        config = controller.agent_config("v1")
        assert _agent(agents, config, 0, SECONDS) == 0
        status = {each.host: each for each in controller.fleet().agents}["v1"]
        assert (status.rows, status.dropped) == (SECONDS, 0)


@pytest.mark.slow
@pytest.mark.parametrize("upgraded", [True, False])
def test_an_agent_is_replaced_with_rows_in_its_spool(
    previous: Path, tmp_path: Path, *, upgraded: bool
) -> None:
    """Up and down: what one version spooled the other delivers, once."""
    first, then = (previous, ROOT) if upgraded else (ROOT, previous)
    with _controller(tmp_path, ROOT) as controller:
        ask(f"unix:{controller.socket}", SwitchCommand(stopped=True, by="ann", why="mixed"))
        assert _agent(first, controller.agent_config("v2"), 0, 1) == 0
        config = controller.agent_config("v1")
        assert _agent(first, config, 0, 5) == 0
        fill = (
            "from tests.link import probe_rows\nfrom syntony.agent.spool import Spool\n"
            f"spool = Spool({config.spool_dir!r}, 1 << 24)\nspool.open()\n"
            "for second in range(5, 25):\n    spool.append('probe_1s', *probe_rows('v1', second))\n"
        )
        subprocess.run([sys.executable, "-c", _at(first) + fill], check=True, timeout=600)
        assert _agent(then, config, 25, 30) == 0
        status = {each.host: each for each in controller.fleet().agents}["v1"]
        assert (status.rows, status.dropped) == (30, 0)
        spool = open_spool(config.spool_dir, 1 << 24)
        assert spool.acknowledged == spool.last_seq == 30
        spool.close()
