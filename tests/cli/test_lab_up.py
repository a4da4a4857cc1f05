"""`syntony lab up` refuses what cannot be before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import click
import pytest
from click.testing import CliRunner

from syntony.cli import run
from syntony.cli.lab import command
from syntony.errors import ConfigError, UsageError
from syntony.lab.client import Lab
from syntony.lab.messages import LabEvent, LabStatus
from syntony.lab.plan import FabricSpec


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--store", "postgresql://127.0.0.1/fleet"), "write clickhouse://"),
        (("--store", "clickhouse://127.0.0.1/fleet?cluster=no-name"), "cannot name a cluster"),
        (("--controllers", "2"), "--state postgresql:///"),
        (("--state", "nonsense://x"), "write postgresql://"),
        (("--latency", "0ms"), "--latency is out of range; give 1 ms to 10 s"),
        (("--probe-interval", "1ns"), "--probe-interval is out of range; give 100 µs to 60 s"),
        (("--burst", "1"), "--burst is out of range; give 2000 to 67108864"),
        (("--seed", "-1"), "--seed is out of range; give 0 to 1000000"),
        (("--console-port", "70000"), "--console-port is out of range; give 0 to 65535"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(command, ["up", "--name", "never", "--detach", *words])
    assert isinstance(done.exception, UsageError | ConfigError)
    assert said in str(done.exception)


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--rules", "not toml", "not TOML"),
        ("--rules", "[[rule]]\nname = 'x'\nabov = 4\n", "did you mean 'above'"),
        ("--sla", "[[objective]]\np999 = '50us'\n", "did you mean 'p99'"),
        ("--sla", "[[objective]]\np99 = '50'\n", "'50' is not a duration"),
    ],
)
def test_a_file_that_its_controller_would_refuse_starts_no_lab(
    tmp_path: Path, option: str, text: str, said: str
) -> None:
    file = tmp_path / "file.toml"
    file.write_text(text)
    done = CliRunner().invoke(command, ["up", "--name", "never", "--detach", option, str(file)])
    assert isinstance(done.exception, ConfigError)
    assert said in str(done.exception)
    assert str(file) in str(done.exception)


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_lab_that_ctrl_c_ends_is_reported_once_it_is_gone(
    interrupted: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class World:
        directory, console_url = Path("lab"), ""

        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            click.echo("removed", err=True)

        def wait_ready(self) -> None: ...

        def events(self) -> Iterator[LabEvent]:
            yield LabEvent(kind="note", text="h0/rail0 is down")
            if interrupted:
                raise KeyboardInterrupt

    status = LabStatus(
        name="lab", directory="lab", age_ns=0, spec=FabricSpec(), hosts=("h0",), leaves=(),
        spines=(), links=(), avoided=(), faults=(), daemons=(),
    )  # fmt: skip
    monkeypatch.setattr("syntony.cli._labup.World", World)
    monkeypatch.setattr("syntony.cli._labup.signal.signal", lambda *_: None)
    monkeypatch.setattr(Lab, "status", lambda _: status)
    assert run(["lab", "up", "--no-agents"]) == (130 if interrupted else 0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:5] == ["Ctrl-C ends it.", "h0/rail0 is down", "removed", "lab lab has ended"]
