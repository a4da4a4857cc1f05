"""Who manages MPTCP paths in this network namespace: the kernel, or whoever listens."""

from __future__ import annotations

from pathlib import Path

from syntony.errors import MissingError

_SETTINGS = Path("/proc/sys/net/mptcp")
_NEWER, _OLDER = ("path_manager", "userspace"), ("pm_type", "1")
_CHECKSUM = ("checksum_enabled", "1")


class UserspaceManagement:
    """While it is held, new MPTCP connections are managed from user space, and checked end to end.

    Connections that exist keep what they began with. Without MPTCP's own checksum, kernels up to
    6.18 at least can put data at the wrong place of a stream when a subflow ends that lost some
    (docs/decisions/0069); one end that asks for it is enough.

    Raises:
        MissingError: no MPTCP in this kernel, or the settings may not be changed.
    """

    def __init__(self, settings: Path = _SETTINGS) -> None:
        manager = _NEWER if (settings / _NEWER[0]).exists() else _OLDER
        self._before: list[tuple[Path, str]] = []
        for name, wanted in (manager, _CHECKSUM):
            self._set(settings / name, wanted)

    def _set(self, place: Path, wanted: str) -> None:
        try:
            before = place.read_text(encoding="ascii").strip()
            place.write_text(wanted, encoding="ascii")
        except OSError as error:
            self.release()
            if isinstance(error, FileNotFoundError):
                raise MissingError(
                    "this kernel has no MPTCP path manager; "
                    "use Linux 5.19 or newer with CONFIG_MPTCP"
                ) from error
            raise MissingError(
                f"{place}: {error.strerror}; the agent needs CAP_NET_ADMIN to manage paths"
            ) from error
        self._before.append((place, before))

    def release(self) -> None:
        """As it was before. Idempotent."""
        while self._before:
            place, before = self._before.pop()
            place.write_text(before, encoding="ascii")
