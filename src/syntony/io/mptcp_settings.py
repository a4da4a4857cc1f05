"""The MPTCP path manager of this network namespace: the kernel's, or one in user space."""

from __future__ import annotations

from pathlib import Path

from syntony.errors import MissingError

_SETTINGS = Path("/proc/sys/net/mptcp")
_NEWER, _OLDER = ("path_manager", "userspace"), ("pm_type", "1")


class UserspaceManagement:
    """While it is held, new MPTCP connections are managed from user space.

    Existing connections keep their manager. A setting that already has the value is not written:
    in a container it may be read-only.

    Raises:
        MissingError: no MPTCP in this kernel, or the setting may not be changed.
    """

    def __init__(self, settings: Path = _SETTINGS) -> None:
        name, self._wanted = _NEWER if (settings / _NEWER[0]).exists() else _OLDER
        self._place = settings / name
        try:
            self._before = self._place.read_text(encoding="ascii").strip()
            self._write(self._wanted)
        except FileNotFoundError as error:
            raise MissingError(
                "this kernel has no MPTCP path manager; use Linux 5.19 or newer with CONFIG_MPTCP"
            ) from error
        except OSError as error:
            raise MissingError(
                f"{self._place}: {error.strerror}; the agent needs CAP_NET_ADMIN to manage paths; "
                f"in a container set it to {self._wanted} on the host"
            ) from error

    def release(self) -> None:
        """Restore the setting."""
        self._write(self._before)

    def _write(self, value: str) -> None:
        if self._before != self._wanted:
            self._place.write_text(value, encoding="ascii")
