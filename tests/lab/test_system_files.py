"""What a lab's private world has of the machine's system files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from syntony.io.oom_kills import OomKills
from syntony.lab.world import unshare_argv

CODE = """
import os
from pathlib import Path
from syntony.io.oom_kills import OomKills
from syntony.lab import netns
before = OomKills().of(Path(f"/proc/{os.getpid()}"))
netns.mount_sys()
print(before, OomKills().of(Path(f"/proc/{os.getpid()}")), *sorted(os.listdir("/sys/class/net")))
"""


@pytest.mark.usefixtures("able")
def test_a_labs_agents_see_kills_for_lack_of_memory_and_its_own_nics() -> None:
    cgroup = OomKills().of(Path(f"/proc/{os.getpid()}"))
    if cgroup is None:
        pytest.skip("no cgroup counts memory here: whether labs see one is NOT tested")
    said = subprocess.run(
        [*unshare_argv(), sys.executable, "-c", CODE], capture_output=True, text=True, check=True
    ).stdout.split()
    assert said[:2] == [str(cgroup)] * 2
    assert said[2:] == ["lo"]
