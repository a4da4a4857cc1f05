"""A host on paper: files, links, commands and ports as a test writes them, nothing on a disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from syntony.audit.check import Check, HostCheck
from syntony.audit.facts import AbsentError, FactError, UnreadableError
from syntony.audit.registry import host_checks
from syntony.audit.result import ComparedValue, Result
from syntony.links.ports import LinkRate, PortState
from syntony.links.roles import LinkRole
from syntony.links.snapshot import PortSnapshot

DENIED = UnreadableError("permission denied")
Text = str | FactError


class PaperHost:
    """`Facts` of ``h0``: what is not written down is absent.

    Args:
        files: path to text, or to the error of anyone who reads it.
        commands: words to what they print.
        ports: as `syntony.links` would read them.
        links: path to where it leads.
        later: the second look.
    """

    host = "h0"

    def __init__(
        self, files: Mapping[str, Text] | None = None, commands: Mapping[str, Text] | None = None,
        ports: Sequence[PortSnapshot] = (), *, links: Mapping[str, str] | None = None,
        later: PaperHost | None = None,
    ) -> None:  # fmt: skip
        self._files, self._commands = dict(files or {}), dict(commands or {})
        self._ports, self._links, self._later = tuple(ports), dict(links or {}), later

    def read(self, path: str) -> str:
        return _given(self._files, path, f"no {path}").strip()

    def read_bytes(self, path: str) -> bytes:
        return self.read(path).encode("latin-1")

    def names(self, path: str) -> tuple[str, ...]:
        top = f"{path}/"
        below = {each[len(top) :].split("/")[0] for each in (*self._files, *self._links)
                 if each.startswith(top)}  # fmt: skip
        if not below:
            raise AbsentError(f"no {path}")
        return tuple(sorted(below))

    def exists(self, path: str) -> bool:
        return any(each == path or each.startswith(f"{path}/")
                   for each in (*self._files, *self._links))  # fmt: skip

    def real(self, path: str) -> str:
        if path in self._links:
            return self._links[path]
        if not self.exists(path):
            raise AbsentError(f"no {path}")
        return path

    def run(self, *command: str) -> str:
        return _given(self._commands, " ".join(command), f"{command[0]} is not installed")

    def ports(self) -> tuple[PortSnapshot, ...]:
        return self._ports

    def later(self, _after_ns: int) -> PaperHost | None:
        return self._later


def _given(known: Mapping[str, Text], name: str, absent: str) -> str:
    found = known.get(name)
    if found is None:
        raise AbsentError(absent)
    if isinstance(found, FactError):
        raise found
    return found


def port(
    rdma: str = "mlx5_0:1", layer: str = "InfiniBand", state: PortState = PortState.ACTIVE,
    *, netdev: str = "", lanes: int | None = 4, counters: Mapping[str, int | None] | None = None,
) -> PortSnapshot:  # fmt: skip
    """A back-end port at 400 Gb/s."""
    rate = LinkRate(400.0, lanes, "NDR") if lanes != 0 else None
    return PortSnapshot(netdev or rdma, netdev, rdma, layer, "mlx5_core", LinkRole.COMPUTE, state,
                        rate, "1", dict(counters or {}))  # fmt: skip


def check(name: str, **limits: Any) -> HostCheck:
    """A check by its id, with some of its limits set."""
    (kind,) = host_checks([name], active=True)
    made: Check = kind(kind.Input(**limits))
    assert isinstance(made, HostCheck)
    return made


def verdicts(name: str, host: PaperHost, **limits: Any) -> list[tuple[str, str, str]]:
    """Status, subject without the host, and what was seen; for unknown and skip no reason."""
    return [(each.status.value, each.subject.partition("/")[2], each.got)
            for each in _all(name, host, limits) if isinstance(each, Result)]  # fmt: skip


def worst(name: str, host: PaperHost, **limits: Any) -> set[str]:
    """All that is not a pass: ``fail mlx5_0:1``."""
    return {f"{status} {at}".strip() for status, at, _ in verdicts(name, host, **limits)
            if status != "pass"}  # fmt: skip


def readings(name: str, host: PaperHost, **limits: Any) -> dict[tuple[str, str], Any]:
    """Key and variant to the value."""
    return {(each.key, each.variant): each.value for each in _all(name, host, limits)
            if isinstance(each, ComparedValue)}  # fmt: skip


def _all(name: str, host: PaperHost, limits: Mapping[str, Any]) -> list[Result | ComparedValue]:
    made = check(name, **limits)
    try:
        return list(made.test(host))
    except FactError as error:
        return [made.unknown(host, str(error))]
