"""`syntony lab up` refuses what cannot be before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from syntony.cli.lab import command
from syntony.errors import ConfigError, UsageError


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
