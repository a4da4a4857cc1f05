"""Options of `syntony run` that do not go together are one line, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from syntony.cli.jobs_protected import drain
from syntony.cli.protection import Protection
from syntony.cli.run_job import command
from syntony.errors import UsageError

NONE = Protection(0, None, None, None, None, None, None, None, None, 0)
FILE = Path("secret")


@pytest.mark.parametrize(
    ("protection", "line"),
    [
        (NONE._replace(min_ranks=2), "--min-ranks needs --resume"),
        (NONE._replace(replace_hung=20.0), "--replace-hung needs --spares"),
        (NONE._replace(replace_slow=60.0), "--replace-slow needs --spares"),
        (NONE._replace(join="10.0.0.1:1", secret=FILE, replace_slow=60.0), "--replace-slow needs"),
        (NONE._replace(events=FILE), "--events needs"),
        (NONE._replace(listen="10.0.0.1:1"), "--listen needs --secret FILE"),
        (NONE._replace(spares=1, secret=FILE), "--secret needs --listen or --join"),
        (NONE._replace(join="10.0.0.1:1", secret=FILE, checkpoint=FILE), "--join uses the options"),
        (NONE._replace(join="10.0.0.1", secret=FILE), "is not ADDRESS:PORT"),
        (NONE._replace(listen="10.0.0.1:99999", secret=FILE), "is not ADDRESS:PORT"),
        (NONE._replace(listen=":5", secret=FILE), "is not ADDRESS:PORT"),
    ],
)
def test_what_does_not_go_together(protection: Protection, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        protection.check()


@pytest.mark.parametrize(
    "protection",
    [
        NONE,
        NONE._replace(spares=1, events=FILE, replace_hung=20.0, replace_slow=60.0),
        NONE._replace(checkpoint=FILE),
        NONE._replace(resume=FILE, min_ranks=2),
        NONE._replace(listen="10.0.0.1:0", secret=FILE, spares=1),
        NONE._replace(join="[::1]:1", secret=FILE, spares=1),
    ],
)
def test_what_does(protection: Protection) -> None:
    protection.check()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["night"], "name a rank or a --host"),
        (["night", "3", "--host", "h1"], "name a rank or a --host"),
        (["night", "3", "--or-checkpoint"], "--or-checkpoint goes with --host"),
    ],
)
def test_a_drain_of_nothing_or_of_two_things(words: list[str], line: str) -> None:
    done = CliRunner().invoke(drain, words)
    assert isinstance(done.exception, UsageError)
    assert line in str(done.exception)


@pytest.mark.parametrize(
    ("text", "mode", "line"),
    [("short\n", 0o600, "not 32 letters"), ("x" * 40, 0o644, "others can read it"),
     ("a:b" * 20, 0o600, "not 32 letters"), (None, 0, "no such file")],
)  # fmt: skip
def test_a_secret_that_is_none(tmp_path: Path, text: str | None, mode: int, line: str) -> None:
    secret = tmp_path / "secret"
    if text is not None:
        secret.write_text(text)
        secret.chmod(mode)
    with pytest.raises(UsageError, match=line):
        NONE._replace(join="10.0.0.1:1", secret=secret).joining()


def test_a_secret_is_made_for_this_user_alone_and_shared(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    made = NONE._replace(listen="127.0.0.1:7", secret=secret, spares=1).job_options("night")
    assert secret.stat().st_mode & 0o777 == 0o600
    assert (made.address, made.port, len(made.token)) == ("127.0.0.1", 7, 32)
    joined = NONE._replace(join="127.0.0.1:7", secret=secret).joining()
    assert list(joined.values()) == [f"127.0.0.1:7:{made.token}"]


def test_a_checkpoint_that_is_none_is_refused_before_the_launcher_starts(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    done = CliRunner().invoke(command, ["--resume", str(tmp_path), "--", "touch", str(mark)])
    assert isinstance(done.exception, UsageError)
    assert "no checkpoint" in str(done.exception)
    assert not mark.exists()


def test_what_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    below, made = blocked / "below", tmp_path / "made"
    for protection, option in (
        (NONE._replace(spares=1, events=below), "--events"),
        (NONE._replace(spares=1, checkpoint=below), "--checkpoint"),
    ):
        with pytest.raises(UsageError, match=f"{option} .*below: cannot be written: Not a dir"):
            protection.job_options("job")
    assert NONE._replace(spares=1, events=tmp_path / "new").job_options("job").job == "job"
    assert NONE._replace(spares=1, checkpoint=made).job_options("job").job == "job"
    assert made.is_dir()
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["file"]
