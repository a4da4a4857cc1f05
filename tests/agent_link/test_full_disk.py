"""Disks that are really full: a small tmpfs in a mount namespace of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_SPOOL = """
from pathlib import Path
from tests.agent_link.spool_contents import pending
from tests.link import open_spool
disk = Path("{disk}")
spool = open_spool(disk / "spool", 64 << 20)
for number in range(1, 400):
    spool.append("t", 10, bytes([number % 256]) * 1000)
kept = [frame.seq for frame in pending(spool)]
shed = spool.dropped_rows
assert shed > 0, "the disk was not full"
assert len(kept) * 10 + shed == 3990
spool.acknowledge(kept[-1])
assert list(pending(spool)) == []
after = spool.append("t", 10, b"after")
spool.close()
spool = open_spool(disk / "spool", 64 << 20)
assert [(frame.seq, frame.payload) for frame in pending(spool)] == [(after, b"after")]
assert spool.dropped_rows == shed
"""

_STORE = """
from pathlib import Path
import os
from syntony.errors import StoreError
from syntony.store import open_store
from tests.store.rows import T0, fill, probed
disk = Path("{disk}")
store = open_store(str(disk / "store"))
fill(store, [probed("a/n", "b/n")])
filler = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
try:
    while os.write(filler, bytes(4096)) == 4096:
        pass
except OSError:
    pass
refused = 0
for second in range(1, 4):
    try:
        fill(store, [probed("a/n", "b/n", second)])
    except StoreError as error:
        assert len(str(error).splitlines()) == 1, error
        refused += 1
assert refused == 3, refused
os.ftruncate(filler, 0)
fill(store, [probed("a/n", "b/n", 9)])
(cell,) = store.matrix(T0, T0 + 60_000_000_000)
assert cell.sent == 80, cell
store.close()
"""

_STATE = """
from itertools import count
from pathlib import Path
import os
from syntony.errors import StateError
from syntony.state import ControlState
from syntony.wire.control import Issuer
from syntony.wire.failover import Switch
disk, ann = Path("{disk}"), Issuer("ann", "local")
instants = count(1)
def throw(stopped, comment):
    switch = Switch(stopped=stopped, at_ns=next(instants), by="ann", epoch=1)
    state.set_switch(switch, ann, comment)
state = ControlState(disk / "state")
throw(True, "recorded")
filler = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
try:
    while os.write(filler, bytes(4096)) == 4096:
        pass
except OSError:
    pass
refused = kept = 0
for _ in range(40):
    try:
        throw(False, "x" * 2000)
        throw(True, "x" * 2000)
        kept += 2
    except StateError as error:
        assert "full" in str(error) and len(str(error).splitlines()) == 1, error
        refused += 1
assert refused, "the disk was not full"
assert len(state.changes(0, 999)) - kept - 1 in range(refused + 1)
was, changes = state.switch().stopped, len(state.changes(0, 999))
assert state.database.failures == refused
os.ftruncate(filler, 0)
throw(was, "space again")
state.close()
state = ControlState(disk / "state")
assert (state.switch().stopped, len(state.changes(0, 999))) == (was, changes + 1)
throw(False, "after a restart")
assert not state.switch().stopped
state.close()
"""


@pytest.mark.lab
@pytest.mark.parametrize(("script", "size"), [(_SPOOL, "256k"), (_STORE, "48m"), (_STATE, "512k")])
def test_on_a_full_disk(script: str, size: str, tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-Urm", "true"], check=False).returncode:
        pytest.skip("needs user namespaces, for a full disk of its own: full disks are NOT tested")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = f'mount -t tmpfs -o size={size} none "{disk}" && exec "$0" -W error -c "$1"'
    done = subprocess.run(
        [unshare, "-Urm", "sh", "-c", mounted, sys.executable, script.format(disk=disk)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
