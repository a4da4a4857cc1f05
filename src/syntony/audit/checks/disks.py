"""2 Node: its disks and local file systems."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from syntony.audit.check import HostCheck, Section
from syntony.audit.facts import AbsentError, Facts, UnreadableError, text
from syntony.audit.parse.text import json_of
from syntony.audit.result import ComparedValue, Result, Suspect

_DF = ("df", "-P", "-k", "--local", "--exclude-type=tmpfs", "--exclude-type=devtmpfs",
       "--exclude-type=squashfs", "--exclude-type=overlay", "--exclude-type=efivarfs")  # fmt: skip
_FSTAB_RO = re.compile(r"(?:^|,)(?:ro|noauto|user)(?:,|$)")
_DF_ROW = re.compile(r"^(\S+)\s+(\d{1,18})\s+(\d{1,18})\s+(-?\d{1,18})\s+\d+%\s+(/.*)$")
_MUST_WRITE = frozenset({"ext4", "xfs", "btrfs"})


class Disks(HostCheck):
    """Disks have room, are writable and are in good health.

    Expected results: at least `free` of every local file system that can be written free; none of
    ext4, xfs or btrfs made read-only by the kernel, or read-only although /etc/fstab wants it
    writable (images of a system and configuration drives are read-only on purpose); every NVMe
    controller live and without a critical warning.
    """

    id = "node.disk"
    section = Section.NODE
    reads = (f"$ {' '.join(_DF)}", "/proc/mounts", "/proc/self/mountinfo", "/etc/fstab",
             "/sys/class/nvme/*/state", "/sys/class/nvme/*",
             "$ nvme smart-log -o json /dev/NVME")  # fmt: skip
    meaning = "a disk is full, failing, or was made read-only by the kernel after an error"
    remedy = "free space; look at the kernel log; replace the disk"
    suspect = Suspect.DISK

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        free: float = 0.05

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        yield from self.part(host, self._room(host))
        yield from self.part(host, self._mounts(host))
        yield from self.part(host, self._controllers(host))

    def _room(self, host: Facts) -> Iterator[Result]:
        try:
            table = host.run(*_DF)
        except UnreadableError as error:
            if "no file systems processed" not in str(error):
                raise
            table = ""
        rows = [_DF_ROW.match(line) for line in table.splitlines()[1:]]
        found = [row for row in rows if row is not None and int(row[2]) > 0]
        if table and not found:
            raise UnreadableError("`df` reported no local file system")
        if not found:
            yield self.skip(host, "no local file system here (`df` reported none)", "room")
        fixed = {mount.where for mount in _read_only(host)}
        for row in found:
            if row[5] in fixed:
                continue  # an image is as full as it was made
            free = max(0, int(row[4])) / int(row[2])
            yield self.verdict(free >= self.limits.free, host, f"{100 * free:.0f} % free",
                               f"≥ {100 * self.limits.free:g} % free", "df", at=row[5])  # fmt: skip

    def _mounts(self, host: Facts) -> Iterator[Result]:
        if not mounts_of(host.read("/proc/mounts")):
            raise UnreadableError("/proc/mounts reports no mount")
        stuck = [mount for mount in _read_only(host) if mount.kind in _MUST_WRITE]
        bad = _made_read_only(host, stuck)
        got = " ".join(f"{mount.where} ({mount.source})" for mount in bad)
        yield self.verdict(not bad, host, got or "none", "none made read-only", "/proc/mounts",
                           at="read-only")  # fmt: skip

    def _controllers(self, host: Facts) -> Iterator[Result]:
        try:
            names = host.names("/sys/class/nvme")
        except AbsentError:
            return
        for name in names:
            path = f"/sys/class/nvme/{name}/state"
            state = host.read(path)
            yield self.verdict(state == "live", host, state, "live", path, at=name)
            yield from self._smart(host, name)

    def _smart(self, host: Facts, name: str) -> Iterator[Result]:
        try:
            reported = json_of(host.run("nvme", "smart-log", "-o", "json", f"/dev/{name}"), "nvme")
        except AbsentError:
            return
        except UnreadableError as error:
            yield self.unknown(host, str(error), name)
            return
        warning = reported.get("critical_warning") if isinstance(reported, dict) else None
        if isinstance(warning, dict):
            warning = warning.get("value")
        if not isinstance(warning, int):
            yield self.unknown(host, "nvme reports no critical_warning", name)
            return
        yield self.verdict(warning == 0, host, f"critical_warning {warning}", "0",
                           "nvme smart-log", at=name)  # fmt: skip


class Mount(NamedTuple):
    """One line of a table of mounts."""

    source: str
    where: str
    kind: str
    options: tuple[str, ...]


def mounts_of(text: str) -> tuple[Mount, ...]:
    """Parse the text of /proc/mounts or fstab(5); comments and incomplete lines are left out."""
    rows = (line.split() for line in text.splitlines() if not line.lstrip().startswith("#"))
    return tuple(Mount(row[0], row[1], row[2], tuple(row[3].split(","))) for row in rows
                 if len(row) > 3 and row[1].startswith("/"))  # fmt: skip


def _read_only(host: Facts) -> list[Mount]:
    return [mount for mount in mounts_of(text(host, "/proc/mounts")) if "ro" in mount.options]


def _made_read_only(host: Facts, mounts: list[Mount]) -> list[Mount]:
    """Mounts that became read-only although they were not mounted so.

    The kernel turns only the superblock read-only after an error, while a mount that is meant to be
    read-only says so itself (/proc/self/mountinfo has both). Where the file says otherwise, or
    fstab wants it writable, it is a fault too.
    """
    meant = _meant_read_only(host)
    wanted = {mount.where: mount for mount in mounts_of(text(host, "/etc/fstab"))}
    bad = []
    for mount in mounts:
        line = wanted.get(mount.where)
        writable = line is not None and not _FSTAB_RO.search(",".join(line.options))
        by_error = "errors=remount-ro" in mount.options or "emergency_ro" in mount.options
        reported = meant.get(mount.where)
        if reported is None:
            reported = not by_error and _is_image(mount.where)
        if writable or by_error or not reported:
            bad.append(mount)
    return bad


def _meant_read_only(host: Facts) -> dict[str, bool]:
    """Mount point → whether its own options, before those of its superblock, say ro."""
    found = {}
    for line in text(host, "/proc/self/mountinfo").splitlines():
        cells = line.split()
        if len(cells) > 6 and cells[4].startswith("/"):
            found[cells[4]] = "ro" in cells[5].split(",")
    return found


_IMAGES = ("/usr", "/boot", "/sysroot", "/oem", "/nix/store", "/snap", "/media", "/mnt/cdrom")


def _is_image(where: str) -> bool:
    """Whether systems mount images there; for recordings without mountinfo."""
    return where == "/" or any(where == top or where.startswith(f"{top}/") for top in _IMAGES)
