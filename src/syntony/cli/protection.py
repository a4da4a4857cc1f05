"""Options of `syntony run` for replacing lost ranks of a PyTorch job."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from syntony.errors import UsageError
from syntony.input_files import MAX_SECRET_BYTES, read_text
from syntony.model import S

if TYPE_CHECKING:
    from syntony.torch.orders import Origin
    from syntony.torch.supervisor import JobOptions

LEAST_SECRET, MOST_PORT = 32, 65_535


class Protection(NamedTuple):
    spares: int
    events: Path | None
    listen: str | None
    join: str | None
    secret: Path | None
    replace_hung: float | None
    replace_slow: float | None
    checkpoint: Path | None
    resume: Path | None
    min_ranks: int

    @property
    def enabled(self) -> bool:
        """Whether a coordinator runs with the job."""
        return bool(self.spares or self.listen or self.checkpoint or self.resume)

    def check(self) -> None:
        """Raises `UsageError`: options that exclude each other."""
        if self.min_ranks and self.resume is None:
            raise UsageError("--min-ranks needs --resume")
        for option, given in (("hung", self.replace_hung), ("slow", self.replace_slow)):
            if given and not (self.spares or self.listen):
                raise UsageError(f"--replace-{option} needs --spares")
        if self.events is not None and (not self.enabled or self.join):
            raise UsageError("--events needs --spares, --listen, --checkpoint or --resume")
        if self.secret is None and (self.listen or self.join):
            raise UsageError(f"--{'listen' if self.listen else 'join'} needs --secret FILE")
        if self.secret is not None and not (self.listen or self.join):
            raise UsageError("--secret needs --listen or --join")
        others = self.listen, self.checkpoint, self.resume, self.replace_hung, self.replace_slow
        if self.join and any(others):
            raise UsageError("--join uses the options given with --listen; leave them out")
        for each in (self.listen, self.join):
            if each is not None:
                _endpoint(each)

    def only_spares(self, words: Sequence[str]) -> bool:
        return bool(self.join and self.spares and not words)

    def _token(self) -> str:
        assert self.secret is not None  # noqa: S101 - `check` has seen to it
        try:
            if self.secret.stat().st_mode & 0o077:
                raise UsageError(f"--secret {self.secret}: others can read it; chmod 600")
            token = read_text(self.secret, MAX_SECRET_BYTES).strip()
        except FileNotFoundError:
            if self.join:
                raise UsageError(f"--secret {self.secret}: no such file") from None
            token = secrets.token_hex(16)
            self.secret.touch(mode=0o600)
            self.secret.write_text(token + "\n")
        except OSError as error:
            raise UsageError(f"--secret {self.secret}: {error.strerror}") from error
        if len(token) < LEAST_SECRET or not token.isalnum():
            raise UsageError(f"--secret {self.secret}: not {LEAST_SECRET} letters and digits")
        return token

    def joining(self) -> dict[str, str]:
        """Environment of a launcher whose ranks join the job of another host."""
        from syntony.torch.messages import VARIABLE

        return {VARIABLE: f"{self.join}:{self._token()}"}

    def lend(self) -> int:
        """Run spares here for the job of another host until it ends; return the exit code."""
        from syntony.torch.spare_host import serve

        return serve(f"{self.join}:{self._token()}", self.spares, print_line)

    def job_options(self, job: str) -> JobOptions:
        """The options passed to the coordinator of a job. Raises `UsageError`."""
        from syntony.torch.orders import Settings
        from syntony.torch.supervisor import JobOptions

        if self.events is not None:
            _must_be_writable(self.events.parent, "--events", self.events)
        if self.checkpoint is not None:
            _must_be_writable(self.checkpoint, "--checkpoint", self.checkpoint)
        settings = Settings(
            self.spares,
            checkpoint="" if self.checkpoint is None else str(self.checkpoint.absolute()),
            hung_ns=int((self.replace_hung or 0) * S),
            slow_ns=int((self.replace_slow or 0) * S),
            min_ranks=self.min_ranks,
        )
        made = JobOptions(settings, job, self.events)
        if self.resume is not None:
            made = made._replace(origin=_origin(self.resume))
        if self.listen is not None:
            address, port = _endpoint(self.listen)
            made = made._replace(address=address, port=port, token=self._token())
        return made


def print_line(text: str) -> None:
    click.echo(f"syntony: {text}", err=True)


def _must_be_writable(directory: Path, option: str, given: Path) -> None:
    """Check, before the job starts, that the directory of `option` can be written; create it if
    needed."""
    try:
        if directory == given:
            directory.mkdir(parents=True, exist_ok=True)
        elif given.exists():
            given.open("ab").close()
            return
        with TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UsageError(f"{option} {given}: cannot be written: {error.strerror}") from None


def _endpoint(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not address or not port.isdigit() or int(port) > MOST_PORT:
        raise UsageError(f"{text!r} is not ADDRESS:PORT, for example 10.0.0.1:29600")
    return address, int(port)


def _origin(place: Path) -> Origin:
    from syntony.torch.checkpoint import CheckpointError, read
    from syntony.torch.orders import Origin

    try:
        found = read(place)
    except CheckpointError as error:
        raise UsageError(f"--resume: {error}") from error
    return Origin(str(place.absolute()), found.boundary, found.world)


_OPTIONS = (
    click.option(
        "--spares",
        type=click.IntRange(0),
        default=0,
        show_default=False,
        metavar="N",
        help="Keep N warm processes that take the place of lost ranks of a PyTorch job.",
    ),
    click.option(
        "--events",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="With --spares: append events to this file, one JSON object per line.",
    ),
    click.option(
        "--listen",
        metavar="ADDRESS:PORT",
        help="Listen here for ranks and spares of other hosts, which --join.",
    ),
    click.option(
        "--join",
        metavar="ADDRESS:PORT",
        help="Join the job that listens at this address; without a command: with spares only.",
    ),
    click.option(
        "--secret",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="With --listen and --join: file with the shared secret; --listen makes it if missing.",
    ),
    click.option(
        "--replace-hung",
        type=click.FloatRange(10),
        metavar="SECONDS",
        help="Replace a rank for whose collective call others have waited this long.",
    ),
    click.option(
        "--replace-slow",
        type=click.FloatRange(60),
        metavar="SECONDS",
        help="Replace, once, a rank that all others wait for in each step, after this long.",
    ),
    click.option(
        "--checkpoint",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="When no spare is left, save the job's state here and end. Also without --spares.",
    ),
    click.option(
        "--resume",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Continue from the state that --checkpoint saved.",
    ),
    click.option(
        "--min-ranks",
        type=click.IntRange(0),
        default=0,
        show_default=False,
        metavar="N",
        help="With --resume: accept fewer ranks than the checkpoint has. Losses will differ.",
    ),
)


def protection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; the command gets `protection`."""

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found = {name: kwargs.pop(name) for name in Protection._fields}
        return command(*args, protection=Protection(**found), **kwargs)

    made: Callable[..., Any] = wrapper
    for option in reversed(_OPTIONS):
        made = option(made)
    return made
