"""1.1 Software: the system's image, its boot command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syntony.audit.check import HostCheck, Key, Section
from syntony.audit.facts import FactError, UnreadableError
from syntony.audit.result import Suspect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from syntony.audit.facts import Facts
    from syntony.audit.result import Reading, Result


class OsImage(HostCheck):
    """Distribution and kernel are those of the fleet.

    Expected results: both equal to the expected values; unknown where a file cannot be read.
    """

    id = "sw.os"
    section = Section.SOFTWARE
    reads = ("/etc/os-release", "/proc/sys/kernel/osrelease")
    meaning = "image drift: this host does not run what the fleet runs"
    remedy = "re-image the host, or change the spec"
    suspect = Suspect.CONFIG
    keys = (
        Key("sw.os", "PRETTY_NAME of /etc/os-release"),
        Key("sw.kernel", "kernel release"),
    )

    def test(self, host: Facts) -> Iterator[Result | Reading]:
        yield from self._read(host, "sw.os", "/etc/os-release")
        yield from self._read(host, "sw.kernel", "/proc/sys/kernel/osrelease")

    def _read(self, host: Facts, key: str, path: str) -> Iterator[Result | Reading]:
        try:
            text = host.read(path)
            value = pretty_name(text) if key == "sw.os" else text
        except FactError as error:
            yield self.unknown(host, str(error))
            return
        yield self.reading(host, key, value, evidence=path)


def pretty_name(text: str) -> str:
    """The distribution's name in os-release(5).

    Raises:
        UnreadableError: it is not there.
    """
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "PRETTY_NAME" and value.strip(" \"'"):
            return value.strip(" \"'")
    raise UnreadableError("/etc/os-release has no PRETTY_NAME")
