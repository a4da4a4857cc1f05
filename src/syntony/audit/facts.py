"""The interface by which checks read a host. Live hosts, recorded trees and tests implement it.

Checks are pure: whatever they know comes through `Facts`. The implementations that touch the world
are in `syntony.io.audit`.
"""

from __future__ import annotations

from typing import Protocol

from syntony.links.snapshot import PortSnapshot


class FactError(Exception):
    """Something could not be found out; the text is one line for a person."""


class AbsentError(FactError):
    """Raised if there is no such file, directory or program; the check decides what that means."""


class UnreadableError(FactError):
    """Raised for what may be there but cannot be read: no permission, a time-out, bad output.

    A check that lets it through is ``unknown``.
    """


class ProgramTimeoutError(UnreadableError):
    """A program did not answer in time: it, or the driver below it, hangs."""


class Facts(Protocol):
    """One host, now or as it was recorded. Paths are absolute, as on that host."""

    @property
    def host(self) -> str: ...

    def read(self, path: str) -> str:
        """A file's text without surrounding white space. Raises `FactError`."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """A file's bytes. Raises `FactError`."""
        ...

    def names(self, path: str) -> tuple[str, ...]:
        """A directory's entries, sorted. Raises `FactError`."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory, as far as it can be reported."""
        ...

    def real(self, path: str) -> str:
        """The path with every link followed. Raises `FactError`."""
        ...

    def run(self, *command: str) -> str:
        """A program's standard output, run without a shell in the C locale.

        Raises:
            AbsentError: the program is not installed.
            UnreadableError: it failed, was refused, or took too long.
        """
        ...

    def ports(self) -> tuple[PortSnapshot, ...]:
        """Every network port as `syntony.links` reads it, InfiniBand and Ethernet."""
        ...

    def later(self, after_ns: int) -> Facts | None:
        """The same host at least `after_ns` after its first look; None where there was only one."""
        ...


def text(host: Facts, path: str) -> str:
    """A file's text; empty where it cannot be read."""
    try:
        return host.read(path)
    except FactError:
        return ""


def needed(host: Facts, *command: str) -> str:
    """The output of a program without which nothing is known. Raises `UnreadableError`."""
    try:
        return host.run(*command)
    except AbsentError as error:
        raise UnreadableError(str(error)) from error
