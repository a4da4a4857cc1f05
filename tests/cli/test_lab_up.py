"""`syntony lab up` refuses what cannot be before anything starts."""

from __future__ import annotations

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
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(command, ["up", "--name", "never", "--detach", *words])
    assert isinstance(done.exception, UsageError | ConfigError)
    assert said in str(done.exception)
