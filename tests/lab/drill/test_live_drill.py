"""A short drill on a real lab, and the command line around it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.live import LiveLab, live

from bench import tcp_modes
from syntony import cli
from syntony.errors import MissingError, UsageError
from syntony.lab.drill import modes, nic_flap, place, scenarios
from syntony.lab.drill.chart import make_chart
from syntony.lab.drill.report import check_out, make_report, save
from syntony.lab.drill.trial import NicFlapTimes, NicFlapTrial
from syntony.lab.plan import FabricSpec
from syntony.model import S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OUTAGE_NS = S
WISH = nic_flap.NicFlapOptions(
    framework="builtin",
    kind="all-reduce",
    python=sys.executable,
    fault="link-down",
    outage_ns=OUTAGE_NS,
    times=NicFlapTimes(before_ns=S, after_ns=2 * S, limit_ns=20 * S),
)
CALM = nic_flap.NicFlapRun(name="no failure", mode=modes.PLAIN, faulty=False)
TODAY = nic_flap.NicFlapRun(name="today", mode=modes.PLAIN, faulty=True)


@pytest.fixture(scope="module")
def lab(able: None) -> Iterator[LiveLab]:
    with live("t-drill", "--hosts", "4") as found:
        yield found


@pytest.mark.lab
def test_a_failure_stalls_plain_tcp_for_as_long_as_it_lasts(lab: LiveLab, tmp_path: Path) -> None:
    said: list[str] = []
    trials = nic_flap.drill(WISH, said.append, lab=lab, runs=(CALM, TODAY))
    calm, today = (make := make_report("nic-flap", "link-down", "x", trials)).runs
    assert (calm.outcome, calm.wrong, calm.resets) == ("finished", 0, 0)
    assert (today.outcome, today.wrong, today.resets) == ("finished", 0, 0)
    assert min(calm.throughput_before, calm.throughput_during, calm.throughput_after) > 0
    assert today.longest_step_s is not None
    assert today.longest_step_s > 0.8 * OUTAGE_NS / S
    assert today.throughput_during < today.throughput_before
    assert today.resumed_after_s is not None
    assert any("link-down h1/rail0" in line for line in said)
    whole = save(make, make_chart(trials, make.runs, make.meaning), trials, tmp_path / "new")
    assert {file.rsplit(".", 1)[1] for file in whole.files} == {"png", "svg", "jsonl", "json"}
    assert json.loads((tmp_path / "new" / "nic-flap.json").read_text())["runs"][1]["resets"] == 0
    lines = (tmp_path / "new" / "nic-flap.trials.jsonl").read_bytes().splitlines()
    again = [msgspec.json.decode(line, type=NicFlapTrial) for line in lines]
    assert make_report("nic-flap", "link-down", "x", again).runs == make.runs


@pytest.mark.lab
def test_a_spine_blackhole_hits_what_the_job_uses(lab: LiveLab) -> None:
    options = msgspec.structs.replace(WISH, fault="spine-blackhole")
    (trial,) = nic_flap.drill(options, lambda _text: None, lab=lab, runs=(TODAY,))
    assert trial.outages[0].target.startswith("leaf0-0/spine")
    found = make_report("nic-flap", "spine-blackhole", "x", [trial]).runs[0]
    assert found.longest_step_s is not None
    assert found.longest_step_s > 0.8 * OUTAGE_NS / S


@pytest.mark.lab
def test_a_job_that_does_not_end_in_time_hangs(lab: LiveLab) -> None:
    """TCP's next retry comes later than anybody waits."""
    times = NicFlapTimes(before_ns=S // 2, after_ns=0, limit_ns=1)
    options = msgspec.structs.replace(WISH, fault="blackhole", outage_ns=4 * S, times=times)
    said: list[str] = []
    (trial,) = nic_flap.drill(options, said.append, lab=lab, runs=(TODAY,))
    found = make_report("nic-flap", "blackhole", "x", [trial]).runs[0]
    if trial.hung:
        assert found.outcome == "hung"
        assert "hangs; ranks" in said[-1]
    assert found.longest_step_s is not None
    assert found.longest_step_s > 0.9 * 4
    assert lab.status().faults == ()


@pytest.mark.lab
def test_an_interrupted_drill_takes_its_fault_back(
    lab: LiveLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ctrl_c(at_ns: int) -> None:
        if lab.status().faults:
            raise KeyboardInterrupt

    monkeypatch.setattr("syntony.lab.drill.trial._until", ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        nic_flap.drill(WISH, lambda _text: None, lab=lab, runs=(TODAY,))
    assert lab.status().faults == ()


@pytest.mark.lab
@pytest.mark.parametrize("name", ["tuned-tcp", "kernel-mptcp"])
def test_hosts_are_afterwards_as_they_were(lab: LiveLab, name: str) -> None:
    look = ("sh", "-c", "sysctl net.ipv4.tcp_rto_max_ms net.ipv4.tcp_retries2; ip mptcp endpoint")
    before = lab.run("h1", *look)
    with tcp_modes.prepared(lab, tcp_modes.MODES[name]):
        assert lab.run("h1", *look) != before
    assert lab.run("h1", *look) == before


@pytest.mark.lab
def test_kernel_mptcp_survives_run_after_run() -> None:
    """The port that the kernel let peers join at is not free at once."""
    act = nic_flap.NicFlapRun(name="kernel", mode=tcp_modes.KERNEL_MPTCP, faulty=False)
    options = msgspec.structs.replace(
        WISH, outage_ns=1, times=NicFlapTimes(before_ns=S, after_ns=0)
    )
    trials: list[NicFlapTrial] = []
    with place.lab_for(place.SPEC, agents=False) as lab:
        for _ in range(2):
            with tcp_modes.prepared(lab, tcp_modes.KERNEL_MPTCP):
                trials += nic_flap.drill(options, lambda _text: None, lab=lab, runs=(act,))
    assert [(t.finished, t.hung) for t in trials] == [(True, ())] * 2


@pytest.mark.lab
def test_a_lab_that_does_not_fit(lab: LiveLab) -> None:
    quiet = lambda _text: None  # noqa: E731
    with pytest.raises(UsageError, match="has 4 hosts; needed: 9"):
        nic_flap.drill(
            msgspec.structs.replace(WISH, spec=FabricSpec(hosts=9)), quiet, lab=lab, runs=(CALM,)
        )
    with pytest.raises(UsageError, match="no fault 'x'"):
        nic_flap.drill(msgspec.structs.replace(WISH, fault="x"), quiet, lab=lab, runs=(CALM,))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--job", "x"], "'x' is not one of"),
        (["--fault", "x"], "'x' is not one of"),
        (["--outage", "0s"], "--outage 0s: give a time up to an hour"),
        (["--outage", "soon"], "soon"),
        (["--lab", "nonesuch"], "nonesuch"),
    ],
)
def test_wrong_words_are_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["lab", "drill", "nic-flap", "--job", "builtin", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert line in captured.err
    assert captured.err.count("\n") == 1


def test_without_pytorch_the_job_is_the_built_in_one_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def drill(options: nic_flap.NicFlapOptions, *_: object, **__: object) -> None:
        raise UsageError(f"a job of {options.framework}")

    monkeypatch.setenv("SYNTONY_TORCH_PYTHON", "/bin/false")
    monkeypatch.setattr(nic_flap, "drill", drill)
    assert cli.run(["lab", "drill", "nic-flap"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("going on with plain sockets: PyTorch with gloo is not in /bin/false")
    assert "a job of builtin" in said


@pytest.mark.parametrize("drill", ["nic-flap", "contention --job all-reduce", "incast", "slow-job"])
def test_a_wrong_lab_or_directory_is_said_before_pytorch_is_looked_for(
    drill: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SYNTONY_TORCH_PYTHON", "/bin/false")
    for option, line in (
        ("--lab nonesuch", "no lab 'nonesuch'"),
        ("--out /dev/null", "--out /dev/n"),
    ):
        assert cli.run(["lab", "drill", *drill.split(), *option.split()]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"syntony: error: {line}")
        assert said.count("\n") == 1


def test_where_files_cannot_be_written_is_said_before_the_drill(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(MissingError, match=r"--out .*file"):
        check_out(file / "below")
    check_out(tmp_path / "new")


def test_charts_without_matplotlib_name_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingError, match=r"pip install 'syntony\[report\]'"):
        check_out(tmp_path)


def test_a_mode_that_needs_what_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syntony.io.__path__", [str(tmp_path)])
    with pytest.raises(MissingError, match=r"libsyntony_tcp\.so is not installed"):
        place.check_mode(modes.SYNTONY)
    place.check_mode(modes.PLAIN)


@pytest.mark.parametrize(
    ("hosts", "count", "wanted"),
    [(4, 4, "0123"), (8, 4, "0145"), (5, 4, "0134"), (8, 3, "014"), (3, 3, "012")],
)
def test_ranks_are_on_both_sides_of_the_spines(hosts: int, count: int, wanted: str) -> None:
    names = tuple(f"h{i}" for i in range(hosts))
    assert "".join(name[1:] for name in place.spread(names, count)) == wanted


def test_every_scenario_is_offered_and_explained() -> None:
    assert all(scenarios.meaning(name) for name in scenarios.NAMES)
