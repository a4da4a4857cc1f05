"""Who manages MPTCP paths in this network namespace: the kernel, or anyone who listens."""

from __future__ import annotations

from pathlib import Path

from syntony.errors import MissingError

_SETTINGS = Path("/proc/sys/net/mptcp")
_NEWER, _OLDER = ("path_manager", "userspace"), ("pm_type", "1")


class UserspaceManagement:
    """While it is held, new MPTCP connections are managed from user space.

    Connections that exist keep the manager they began with.

    Raises:
        MissingError: no MPTCP in this kernel, or the setting may not be changed.
    """

    def __init__(self, settings: Path = _SETTINGS) -> None:
        name, wanted = _NEWER if (settings / _NEWER[0]).exists() else _OLDER
        self._place = settings / name
        try:
            self._before = self._place.read_text(encoding="ascii").strip()
            self._place.write_text(wanted, encoding="ascii")
        except FileNotFoundError as error:
            raise MissingError(
                "this kernel has no MPTCP path manager; use Linux 5.19 or newer with CONFIG_MPTCP"
            ) from error
        except OSError as error:
            raise MissingError(
                f"{self._place}: {error.strerror}; the agent needs CAP_NET_ADMIN to manage paths"
            ) from error

    def release(self) -> None:
        """As it was before."""
        self._place.write_text(self._before, encoding="ascii")
