"""A controller that is killed before each statement of a migration of the embedded store: the next
one goes on from there, and every row answers as before."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cases import mostly_slow
from tests.store.rows import T0, fill, probed
from tests.store.test_migrations import ALL, versions

from syntony.model import HOUR_NS, S
from syntony.store import open_store
from syntony.store.migrations import VERSIONS
from syntony.store.queries import HOURS
from syntony.wire.tables import CLOCK

ROOT = Path(__file__).parents[2]
LATER_NS = T0 + 3 * HOUR_NS
_UPGRADE = """
import os, signal, sys
from syntony.store import open_store
from syntony.store.embedded import EmbeddedEngine
left, execute = [int(sys.argv[2])], EmbeddedEngine.execute
def counted(self, sql):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    execute(self, sql)
EmbeddedEngine.execute = counted
open_store(sys.argv[1]).close()
"""


def killed_before(place: Path, number: int) -> bool:
    """Open the store in a process that is killed before its statement of this number; False: it
    has fewer."""
    words = [sys.executable, "-c", _UPGRADE, str(place), str(number)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode != 0


def of_before(place: Path) -> None:
    """A store of a version that had neither versions nor a table of summed hours, with rows."""
    store = open_store(str(place))
    fill(store, [probed("a/n", "b/n", second) for second in range(60)])
    assert store.minutes.sum_up(LATER_NS) == 1
    for table in (VERSIONS, HOURS, CLOCK.name):
        store._engine.execute(f"DROP TABLE {table}")
    store.close()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("stride", mostly_slow([1, 40], [40]))
def test_killed_before_each_statement(tmp_path: Path, stride: int, *, before: bool) -> None:
    original = tmp_path / "original"
    if before:
        of_before(original)
    number = 1
    while True:
        place = tmp_path / f"{number}"
        if before:
            shutil.copytree(original, place, symlinks=True)
        if not killed_before(place, number):
            break
        store = open_store(str(place))
        assert versions(store._engine) == ALL
        assert store.clock_history(0, 1 << 60) == ()
        points = store.series(T0, T0 + 60 * S, "a/n", "b/n", 60)
        assert sum(each.sent for each in points) == (2400 if before else 0)
        assert store.minutes.hours() == ({T0 // HOUR_NS} if before else set())
        store.close()
        shutil.rmtree(place)
        number += stride
    assert number > 5, "else it was not a migration that was killed"
