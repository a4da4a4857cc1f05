"""Spares on other hosts, and the loss of a whole host: three network namespaces."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip(
    "torch", reason="needs PyTorch (pip install '.[torch]'): the loss of a whole host is NOT tested"
)

from bench.resilience import JOB, Run, differences, start
from tests.live import SYNTONY, eventually

from syntony.lab.jobs.torch_build import find_torch
from syntony.torch.orders import PRESERVED

pytestmark = [pytest.mark.slow, pytest.mark.lab]
WORDS = ["--epochs", "1", "--batches", "70", "--features", "batchnorm,reduce"]
LAUNCH = Path(__file__).with_name("launch.py")
MINE = f"survive{os.getpid() % 10000}"
HOSTS = ("a", "b", "c")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def hosts() -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip(
            "needs root, for namespaces of networks: the loss of a whole host is NOT tested"
        )
    switch = f"{MINE}-s"
    ip("netns", "add", switch)
    try:
        ip("-n", switch, "link", "add", "name", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for number, name in enumerate(HOSTS, 1):
            space = f"{MINE}-{name}"
            ip("netns", "add", space)
            veth = ("type", "veth", "peer", "name", "eth0", "netns", space)
            ip("-n", switch, "link", "add", "name", f"to-{name}", *veth)
            ip("-n", switch, "link", "set", "dev", f"to-{name}", "master", "br0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "addr", "add", f"10.9.9.{number}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
        yield
    finally:
        for name in HOSTS:
            for pid in pids(name):
                os.kill(pid, signal.SIGKILL)
        for name in (*HOSTS, "s"):
            subprocess.run(["ip", "netns", "del", f"{MINE}-{name}"], check=False)


def pids(host: str) -> list[int]:
    done = subprocess.run(
        ["ip", "netns", "pids", f"{MINE}-{host}"], capture_output=True, text=True, check=False
    )
    return [int(each) for each in done.stdout.split()]


def on(host: str, place: Path, *words: str) -> subprocess.Popen[bytes]:
    with (place / f"{host}.out").open("wb") as output:
        return subprocess.Popen(
            ["ip", "netns", "exec", f"{MINE}-{host}", *words],
            stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip


def job(place: Path, *options: str) -> tuple[Run, dict[str, subprocess.Popen[bytes]]]:
    """Ranks 0 and 1 on host a, where the coordinator is, 2 and 3 on b; two spares on c."""
    out, events = place / "job", place / "job.events"
    out.mkdir()
    meet = ["10.9.9.1:29600", "--secret", str(place / "secret")]
    program = [str(JOB), "--out", str(out), *WORDS, "--pause-ms", "400"]
    ranks = {"a": "0,1", "b": "2,3"}
    launch = {
        host: [find_torch(), str(LAUNCH), "4", each, *program] for host, each in ranks.items()
    }
    run = [*SYNTONY, "run", "--job", f"hosts-{os.getpid()}"]
    head = [*run, "--listen", *meet, "--events", str(events), *options, "--", *launch["a"]]
    started = {"a": on("a", place, *head)}
    eventually((place / "secret").exists, "the secret")
    started["b"] = on("b", place, *run, "--join", *meet, "--", *launch["b"])
    started["c"] = on("c", place, *SYNTONY, "run", "--join", *meet, "--spares", "2")
    return Run(out, started["a"], events), started


def ready(run: Run, place: Path) -> None:
    eventually(
        lambda: len(run.seen("spare-ready")) >= 2 and bool(run.lines(3)), said(place), within_s=180
    )


def said(place: Path) -> str:
    return "".join(f"{name}: {(place / f'{name}.out').read_text()[-1500:]}" for name in HOSTS)


def must_be_the_same(base: Run, run: Run, place: Path) -> None:
    assert run.wait() == 0, said(place)
    assert differences(base, run) == []
    assert {each["rank"] for each in run.seen("lost")} == {2, 3}
    assert all(each["equal"] for each in run.seen("digest"))
    assert run.seen("digest")[-1]["at_ns"] > run.seen("formed")[-1]["at_ns"]


def test_a_host_whose_processes_all_die_is_replaced_by_spares_of_another(
    tmp_path: Path, hosts: None
) -> None:
    base = start(tmp_path, "alone", WORDS)
    base.must_end_well()
    run, started = job(tmp_path)
    ready(run, tmp_path)
    for pid in pids("b"):
        os.kill(pid, signal.SIGKILL)
    must_be_the_same(base, run, tmp_path)
    started["b"].wait(60)
    assert started["c"].wait(60) == 0, "its spares ended with the job"


def test_a_host_that_returns_finds_itself_fenced(tmp_path: Path, hosts: None) -> None:
    base = start(tmp_path, "alone", WORDS)
    base.must_end_well()
    run, started = job(tmp_path)
    ready(run, tmp_path)
    ip("-n", f"{MINE}-s", "link", "set", "to-b", "down")
    eventually(lambda: len(run.seen("lost")) == 2, said(tmp_path), within_s=60)
    assert [each["reason"] for each in run.seen("lost")] == ["silent", "silent"]
    eventually(lambda: len(run.seen("formed")) > 1, said(tmp_path), within_s=60)
    ip("-n", f"{MINE}-s", "link", "set", "to-b", "up")
    eventually(lambda: not pids("b") or started["b"].poll() is not None, "b ends", within_s=90)
    must_be_the_same(base, run, tmp_path)
    started["b"].wait(60)
    assert started["c"].wait(60) == 0
    assert not pids("b")


def drain(host: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SYNTONY, "jobs", "drain", f"hosts-{os.getpid()}", "--host", host, *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_host_is_drained_and_when_no_spare_is_left_fewer_ranks_go_on(
    tmp_path: Path, hosts: None
) -> None:
    base = start(tmp_path, "alone", WORDS)
    base.must_end_well()
    run, started = job(tmp_path, "--checkpoint", str(tmp_path / "kept"))
    ready(run, tmp_path)
    done = drain("10.9.9.2")
    assert done.returncode == 0, done.stderr
    eventually(lambda: len(run.seen("formed")) > 1, said(tmp_path), within_s=60)
    assert {(each["rank"], each["reason"]) for each in run.seen("lost")} == {
        (2, "drained"), (3, "drained")
    }  # fmt: skip
    eventually(lambda: len(run.seen("digest")) > 1, said(tmp_path), within_s=60)
    refused = drain("10.9.9.3")
    assert refused.returncode != 0
    assert "no spare is ready" in refused.stderr
    assert drain("10.9.9.3", "--or-checkpoint").returncode == 0
    assert run.wait() == PRESERVED, said(tmp_path)
    started["b"].wait(60)
    started["c"].wait(60)
    (event,) = run.seen("checkpoint")
    kept = Path(event["path"])
    step = int(kept.name.partition("-")[2])
    for rank in range(4):
        expected = {n: words for n, words in base.steps(rank).items() if n < step}
        assert expected.items() <= run.steps(rank).items(), "as undisturbed until it was kept"
    options = ["--resume", str(kept), "--min-ranks", "3"]
    fewer = start(tmp_path, "job", WORDS, ranks=3, options=options)
    assert fewer.wait() == 0, fewer.out.with_suffix(".out").read_text()[-2000:]
    assert int(fewer.lines(0)[-1][1]) > step, "it went on from there"
    digests = [each for each in fewer.seen("digest") if each["boundary"] > step]
    assert digests
    assert all(each["equal"] for each in digests)
