"""The interposer under perftest on Soft-RoCE: two machines, their agents, a slow direction."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.live import SYNTONY, eventually, syntony

from syntony.lab.client import Lab, open_lab
from syntony.lab.verbs import image
from syntony.lab.world import missing_tools, unshare_argv
from syntony.model import MS

pytestmark = [pytest.mark.lab, pytest.mark.slow]
NAME = "test-queue-pairs"
SERVER = "172.30.0.3"
"""h1 on the front-end network."""
ADDED_NS = 5 * MS
PATIENCE_S = 240


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    unshare_argv()
    missing = missing_tools(image.TOOLS)
    if missing:
        pytest.skip(
            f"no machines here: {', '.join(missing)} (see syntony doctor): the interposer of "
            "verbs is NOT tested over Soft-RoCE"
        )
    if shutil.which("ib_send_lat") is None:
        pytest.skip(
            "needs perftest (Debian package): the interposer of verbs is NOT tested over Soft-RoCE"
        )
    words = (
        "lab", "verbs", "up", "--name", NAME, "--detach", "--rails", "1", "--spines", "1",
        "--probe-interval-ms", "1000",  # with 500 on two rails the agents report too late
    )  # fmt: skip
    subprocess.run([*SYNTONY, *words], check=True, timeout=600)
    yield open_lab(NAME)
    syntony("lab", "down", "--name", NAME, "--yes")


def listens(lab: Lab, host: str, port: str) -> bool:
    argv = lab.enter_argv(host, ["sh", "-c", f"ss -ltn | grep -q :{port}"])
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


@contextmanager
def perftest(lab: Lab, program: str, *words: str) -> Iterator[None]:
    """Both ends of it, from h0 to h1, until it is ended, with what `syntony run` would set: in a
    machine Python takes a minute to say so itself."""
    dry = syntony("run", "--verbs", "--job", program, "--dry-run", "--json", "--", program)
    given = json.loads(dry.stdout)["environment"]
    argv = ["env", f"LD_PRELOAD={given['LD_PRELOAD'].split()[0]}", f"SYNTONY_JOB={program}"]
    argv += [program, "-d", "rxe_rail0", "-x", "1", "-F", *words]
    running = []
    port = words[words.index("-p") + 1]
    try:
        running.append(subprocess.Popen(lab.enter_argv("h1", argv)))
        eventually(lambda: listens(lab, "h1", port), f"h1 listens at {port}", within_s=PATIENCE_S)
        running.append(subprocess.Popen(lab.enter_argv("h0", [*argv, SERVER])))
        yield
    finally:
        for host in ("h0", "h1"):  # the processes here have no hold on it
            lab.run(host, "sh", "-c", f"pkill -x {program} || true")
        for process in running:
            process.wait(60)


def reported(job: str) -> list[dict[str, Any]]:
    done = syntony("traffic", "queue-pairs", "--lab", NAME, "--job", job, "--json")
    return json.loads(done.stdout)["queue_pairs"] if done.returncode == 0 else []  # no fleet time


def wait_for(job: str, true: Callable[[dict[str, dict[str, Any]]], bool]) -> dict[str, Any]:
    """What the fleet tells of a job, by host, once it is as it should be."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        views = {each["host"]: each for each in reported(job)}
        if len(views) == 2 and true(views):
            return views
        assert time.monotonic() < end_s, json.dumps(views, indent=1)
        time.sleep(2)


def test_a_slow_direction_is_seen_in_that_direction(lab: Lab) -> None:
    def least(views: dict[str, Any]) -> dict[str, int]:
        return {host: view["delay"]["min_ns"] for host, view in views.items()}

    def measured(views: dict[str, Any]) -> bool:
        return all(view["delay"] and view["delay"]["count"] >= 5 for view in views.values())

    with perftest(lab, "ib_send_lat", "-p", "7001", "-e", "-n", "2000000", "-s", "512"):
        before = least(wait_for("ib_send_lat", measured))
        lab.inject("delay", "h0/rail0", {"direction": "from", "add": "5ms"})
        time.sleep(8)
        late = least(wait_for("ib_send_lat", measured))
        lab.clear()
    print(before, late)
    assert ADDED_NS * 0.8 < late["h0"] - before["h0"] < ADDED_NS * 2
    assert abs(late["h1"] - before["h1"]) < ADDED_NS / 2


def test_writes_have_round_trips_only(lab: Lab) -> None:
    with perftest(lab, "ib_write_lat", "-p", "7002", "-n", "2000000"):
        views = wait_for("ib_write_lat", lambda it: bool(it["h0"]["round_trip"]))
    for view in views.values():
        assert view["figures"]["unannounced"] > 0
        assert view["figures"]["sent"] == 0
        assert view["delay"] is None
        assert view["why"] == "it sent nothing that takes a receive"


def test_a_black_hole_stalls_the_job(lab: Lab) -> None:
    """Found from both ends' completions: Soft-RoCE retries for ever, and no port tells of it."""

    def stalls() -> list[dict[str, Any]]:
        said = syntony("incidents", "list", "--lab", NAME, "--all", "--json").stdout
        found = json.loads(said)["incidents"] if said.strip() else []
        return [each for each in found if each["rule"] == "queue-pair-stalled"]

    with perftest(lab, "ib_send_lat", "-p", "7003", "-e", "-n", "2000000", "-s", "512"):
        wait_for(
            "ib_send_lat", lambda it: all(each["figures"]["sent"] > 100 for each in it.values())
        )
        assert not stalls()
        lab.inject("blackhole", "h0/rail0")
        try:
            eventually(lambda: bool(stalls()), "the stall is found", within_s=PATIENCE_S)
        finally:
            lab.clear()
    (found,) = stalls()
    print(found)
    assert found["jobs"] == ["ib_send_lat"]
    assert "rail0" in found["subject"]
