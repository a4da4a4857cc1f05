"""The survey says yes, no or unknown, and names what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.io.capabilities import Capability, stamp_abilities, survey


def rows(root: Path, *nics: str) -> dict[str, Capability]:
    return {row.name: row for row in survey(nics, root)}


def tree(root: Path, effective: int, devices: tuple[str, ...] = ()) -> Path:
    status = root / "proc/self/status"
    status.parent.mkdir(parents=True)
    status.write_text(f"Name:\tx\nCapInh:\t0000000000000000\nCapEff:\t{effective:016x}\n")
    for device in devices:
        (root / "sys/class/infiniband" / device).mkdir(parents=True)
    return root


def test_privileges_are_read_bit_by_bit(tmp_path: Path) -> None:
    found = rows(tree(tmp_path, 1 << 13))
    assert found["CAP_NET_RAW"].ok is True
    assert found["CAP_NET_ADMIN"].ok is False
    assert found["CAP_NET_ADMIN"].remedy == "grant the agent CAP_NET_ADMIN"


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    assert rows(tmp_path)["CAP_NET_RAW"].ok is None


def test_rdma_devices_are_listed(tmp_path: Path) -> None:
    found = rows(tree(tmp_path, 0, ("mlx5_1", "mlx5_0")))["RDMA devices"]
    assert (found.ok, found.detail) == (True, "mlx5_0, mlx5_1")


def test_no_rdma_device_is_a_no(tmp_path: Path) -> None:
    assert rows(tree(tmp_path, 0))["RDMA devices"].ok is False


def test_loopback_stamps_in_software_only() -> None:
    can = stamp_abilities("lo")
    assert can.rx_software
    assert not can.hardware
    found = rows(Path("/"), "lo")
    assert found["lo: hardware stamps"].ok is False
    assert "no clock" in found["lo: hardware stamps"].detail


def test_an_unknown_interface_is_unknown() -> None:
    found = rows(Path("/"), "nosuchnic0")
    assert found["nosuchnic0: kernel stamps"].ok is None
    with pytest.raises(OSError, match="No such device"):
        stamp_abilities("nosuchnic0")
