"""Debian's chronyd beside a lab's agent: it selects our refclock and says what the fleet says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live import SYNTONY, LiveLab, eventually, live, syntony

from syntony.errors import MissingError
from syntony.lab.world import unshare_argv

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAME = "t-chrony"
HOST = "h1"
CLOSE_S = 500e-6
"""80 ppm between two clocks for some seconds between two commands."""


@pytest.fixture
def lab() -> Iterator[LiveLab]:
    try:
        unshare_argv()
    except MissingError as error:
        pytest.skip(f"no lab here: {error}: chronyd with fleet time is NOT tested")
    if shutil.which("chronyd", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip(
            "needs chrony (sh deploy/system-packages.sh --slow): chronyd with fleet time is NOT "
            "tested"
        )
    with live(NAME, "--hosts", "2", agents=True) as made:
        yield made


def inside(*words: str) -> str:
    return syntony("lab", "exec", "--lab", NAME, HOST, "--", *words).stdout


def feed(lab: LiveLab, socket: Path) -> None:
    """The agent reads its configuration anew when it is started again."""
    config = lab.directory / f"agent-{HOST}.toml"
    text = config.read_text(encoding="utf-8")
    assert 'chrony_sock = ""' in text
    config.write_text(text.replace('chrony_sock = ""', f'chrony_sock = "{socket}"'), "utf-8")
    syntony("lab", "fault", "--lab", NAME, "agent-kill", HOST, "--for", "500ms")


def offset_s() -> float:
    """What the fleet says: fleet time minus the host's clock."""
    found = json.loads(syntony("clock", "status", "--lab", NAME, "--json").stdout)
    return next(float(line["offset_newest_ns"]) for line in found if line["node"] == HOST) * 1e-9


def test_chronyd_selects_our_refclock_and_says_what_we_say(lab: LiveLab) -> None:
    place = lab.directory / "chrony"
    place.mkdir(mode=0o750)
    config = place / "chrony.conf"
    config.write_text(
        f"refclock SOCK {place}/sock poll 0 filter 4 refid SYNT\nport 0\ncmdport 0\n"
        f"bindcmdaddress {place}/cmd\npidfile {place}/pid\n",
        encoding="ascii",
    )
    words = [*SYNTONY, "lab", "exec", "--lab", NAME, HOST, "--", "chronyd"]
    # It ends with the lab: what is started here is only the way into it.
    chronyd = subprocess.Popen([*words, "-d", "-x", "-u", "root", "-f", str(config)])
    requested = ("chronyc", "-c", "-h", f"{place}/cmd")
    try:
        eventually((place / "sock").exists, "chronyd listens")
        feed(lab, place / "sock")
        eventually(lambda: ",SYNT," in inside(*requested, "sources"), "chronyd answers")
        eventually(lambda: inside(*requested, "sources").split(",")[5] != "0", "it hears us")
        eventually(lambda: inside(*requested, "sources").startswith("#,*,SYNT"), "selected")
        # refid, name, stratum, reference time, system time behind NTP time, …
        behind_s = float(inside(*requested, "tracking").split(",")[4])
        assert behind_s == pytest.approx(offset_s(), abs=CLOSE_S)
    finally:
        inside("sh", "-c", f"kill $(cat {place}/pid)")
        chronyd.wait(timeout=600)
