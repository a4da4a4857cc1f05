"""What the Slurm scripts change, with stand-ins for Slurm's commands and for the audit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deploy.daemons import DEPLOY

SCRIPTS = DEPLOY / "slurm"
_STAND_IN = """\
#!/bin/sh
echo "$(basename "$0") $*" >>{place}/asked
name="$(basename "$0")"
[ -e "{place}/$name $2 $3.out" ] && name="$name $2 $3"
cat "{place}/$name.out"
exit $(cat "{place}/$name.code")
"""


class Site:
    """A directory of stand-ins for `sinfo`, `scontrol` and `syntony`."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "bin").mkdir()
        for name in ("sinfo", "scontrol", "syntony"):
            file = place / "bin" / name
            file.write_text(_STAND_IN.format(place=place))
            file.chmod(0o755)
            self.answers(name, "")

    def answers(self, name: str, text: str, code: int = 0) -> None:
        (self.place / f"{name}.out").write_text(text)
        (self.place / f"{name}.code").write_text(str(code))

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        (self.place / "asked").write_text("")
        env = {
            "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}",
            "SLURMD_NODENAME": "gpu1",
            "SYNTONY_SLURM_ENV": str(self.place / "slurm.env"),
            **more,
        }
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False)

    def changes(self) -> list[str]:
        lines = (self.place / "asked").read_text().splitlines()
        return [line for line in lines if line.startswith("scontrol ")]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def health_check(site: Site) -> list[str]:
    done = site.run(str(SCRIPTS / "healthcheck.sh"))
    assert done.returncode == 0
    return site.changes()


@pytest.mark.parametrize(
    "state",
    [
        "drained new memory", "draining syntony audit: gpu1 fe.iface: down", "down power supply",
        "down* Not responding", "fail replace it", "failing replace it", "reboot^ kernel", "",
    ],
)  # fmt: skip
def test_a_failure_leaves_nodes_that_take_no_jobs(site: Site, state: str) -> None:
    """A node that somebody set down would lose their reason, and be resumed by us afterwards."""
    site.answers("syntony", "gpu1 fe.iface: down\n", 1)
    site.answers("sinfo", f"{state}\n" if state else "", int(not state))
    assert not health_check(site)


@pytest.mark.parametrize("state", ["idle none", "mixed none", "allocated none", "idle old words"])
def test_a_failure_drains_with_the_reason(site: Site, state: str) -> None:
    verdict = 'gpu1 fe.iface: it\'s "down"; rm -rf $HOME'
    site.answers("syntony", f"{verdict}\n", 1)
    site.answers("sinfo", f"{state}\n")
    (change,) = health_check(site)
    assert change == f"scontrol update nodename=gpu1 state=DRAIN reason=syntony audit: {verdict}"


@pytest.mark.parametrize(
    ("state", "resumed"),
    [
        ("drained syntony audit: gpu1 fe.iface: down", True),
        ("drained syntony incident 7: gpu1", False),
        ("drained Prolog error", False),
        ("down syntony audit: gpu1 fe.iface: down", False),
        ("idle none", False),
    ],
)
def test_a_pass_resumes_only_our_own_drains(site: Site, state: str, *, resumed: bool) -> None:
    site.answers("sinfo", f"{state}\n")
    # Not RESUME: it also ends that a node is down.
    expected = ["scontrol update nodename=gpu1 state=UNDRAIN"] if resumed else []
    assert health_check(site) == expected


@pytest.mark.parametrize(
    ("code", "settings", "ends"),
    [
        (0, "", 0), (1, "", 1), (3, "", 0), (2, "", 0), (137, "", 0),
        (3, "SYNTONY_DRAIN_UNKNOWN=1", 1), (3, "SYNTONY_DRAIN_UNKNOWN=yes", 1),
        (0, "SYNTONY_SPEC='unfinished", 0),
    ],
)  # fmt: skip
def test_the_prolog_fails_for_failures_only(
    site: Site, code: int, settings: str, ends: int
) -> None:
    (site.place / "slurm.env").write_text(f"{settings}\n")
    site.answers("sinfo", "allocated none\n")
    site.answers("syntony", "verdict\n", code)
    assert site.run(str(SCRIPTS / "prolog-audit.sh")).returncode == ends


def incident(number: int, subject: str, **more: object) -> dict[str, object]:
    return {
        "number": number, "subject": subject, "severity": "critical", "resolved_ns": None,
        "cause": None, "silenced": False, "summary": f"{subject} is broken", **more,
    }  # fmt: skip


def by_incidents(
    site: Site, nodes: str, *incidents: dict[str, object], options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    site.answers("sinfo", nodes)
    site.answers("syntony", json.dumps({"incidents": incidents}), 2 if incidents else 0)
    for each in incidents:
        site.answers(f"syntony show {each['number']}", json.dumps({"incident": each}))
    script = str(SCRIPTS / "drain-by-incidents.py")
    return site.run(sys.executable, script, *options, "--", "--lab", "x")


def test_an_incident_drains_its_host_once_and_its_end_resumes_it(site: Site) -> None:
    done = by_incidents(site, "gpu1|idle|none\ngpu2|idle|none\n", incident(7, "gpu1/eth2"))
    assert done.returncode == 0, done.stderr
    reason = "syntony incident 7: gpu1/eth2 is broken"
    assert site.changes() == [f"scontrol update nodename=gpu1 state=DRAIN reason={reason}"]
    by_incidents(site, f"gpu1|drained|{reason}\n", incident(7, "gpu1/eth2"))
    assert not site.changes()
    by_incidents(site, f"gpu1|drained|{reason}\n", incident(7, "gpu1/eth2", resolved_ns=5))
    assert site.changes() == ["scontrol update nodename=gpu1 state=UNDRAIN"]


@pytest.mark.parametrize("subject", ["gpu2", None])
def test_a_controller_without_its_state_resumes_nothing(site: Site, subject: str | None) -> None:
    """It knows no incident of that number, or another one."""
    site.answers("syntony show 7", "", 1)
    others = [incident(7, subject, resolved_ns=5)] if subject else []
    done = by_incidents(site, "gpu1|drained|syntony incident 7: gpu1 is broken\n", *others)
    assert done.returncode == 1
    assert "gpu1: stays drained, incident 7" in done.stderr
    assert not site.changes()


@pytest.mark.parametrize("more", [{"silenced": True}, {"cause": 6}])
def test_a_silenced_or_explained_incident_keeps_a_node_as_it_is(
    site: Site, more: dict[str, object]
) -> None:
    """A silence for the time of a repair must not put the host back to work."""
    known = incident(7, "gpu1", **more)
    by_incidents(site, "gpu1|drained|syntony incident 7: gpu1 is broken\n", known)
    assert not site.changes()
    by_incidents(site, "gpu1|idle|none\n", known)
    assert not site.changes()


@pytest.mark.parametrize("state", ["drained", "draining", "down", "down*", "fail", "reboot^"])
def test_nodes_of_others_are_left_alone(site: Site, state: str) -> None:
    by_incidents(site, f"gpu1|{state}|new memory\n", incident(7, "gpu1"))
    assert not site.changes()
    by_incidents(site, f"gpu1|{state}|new memory\n")
    assert not site.changes()


def test_reasons_are_one_short_line(site: Site) -> None:
    long = incident(7, "gpu1", summary="a\nb " + "c" * 500)
    by_incidents(site, "gpu1|idle|none\ngpu2|drained|of\ntwo lines\n", long)
    (change,) = site.changes()
    assert "reason=syntony incident 7: a b ccc" in change
    assert len(change) < 300


def test_a_refused_change_does_not_stop_the_others(site: Site) -> None:
    site.answers("scontrol", "", 1)
    nodes = "gpu1|idle|none\ngpu2|idle|none\n"
    both = (incident(7, "gpu1"), incident(8, "gpu2"))
    done = by_incidents(site, nodes, *both, options=("--at-most", "2"))
    assert done.returncode == 1
    assert len(site.changes()) == 2
    assert "gpu1: not changed" in done.stderr


def test_no_node_is_drained_where_none_is_allowed(site: Site) -> None:
    done = by_incidents(site, "gpu1|idle|none\n", incident(7, "gpu1"), options=("--at-most", "0"))
    assert not site.changes()
    assert "as many as allowed" in done.stderr


def test_without_an_answer_nothing_is_changed(site: Site) -> None:
    site.answers("sinfo", "gpu1|drained|syntony incident 7: x\n")
    site.answers("syntony", "", 4)
    script = str(SCRIPTS / "drain-by-incidents.py")
    done = site.run(sys.executable, script, "--", "--lab", "x")
    assert done.returncode == 3
    assert not site.changes()
