"""Ports from sysfs: real captures, live interfaces, and hostile trees."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.audit.parse.proc_routes import default_routes_4
from syntony.io.ethtool import NicStatistics, module_eeprom
from syntony.io.link_files import LinkFiles, number
from syntony.links.ports import LinkRate, PortState
from syntony.links.roles import LinkRole
from syntony.links.traffic import PortBytes


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


IB = "sys/class/infiniband/mlx5_0/ports/1"
NET = "sys/class/net/eth0"
HEALTHY = {
    f"{IB}/state": "4: ACTIVE\n",
    f"{IB}/phys_state": "5: LinkUp\n",
    f"{IB}/rate": "400 Gb/sec (4X NDR)\n",
    f"{IB}/link_layer": "InfiniBand\n",
    f"{IB}/counters/link_downed": "0\n",
}


def test_a_real_node(captures: Path, tmp_path: Path) -> None:
    (tmp_path / "sys/class").mkdir(parents=True)
    link = tmp_path / "sys/class/infiniband"
    link.symlink_to(captures / "gpud/sys-class-infiniband-h100.0")
    with LinkFiles(tmp_path) as files:
        ports = {port.name: port for port in files.read()}
    assert len(ports) == 9
    fast = [port for port in ports.values() if port.rate == LinkRate(400, 4, "NDR")]
    assert len(fast) == 8
    assert all(port.state is PortState.ACTIVE for port in ports.values())
    assert ports["mlx5_1:1"].counters["ib/counters:link_downed"] == 255
    assert ports["mlx5_bond_0:1"].link_layer == "Ethernet"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7\n", 7), ("N/A (no PMA)\n", None), ("-1\n", None), ("", None), ("1e3", None),
        ("18446744073709551615", 2**64 - 1), ("18446744073709551616", None), ("٣", None),
        ("9" * 5000, None),
    ],
)  # fmt: skip
def test_numbers(text: str, value: int | None) -> None:
    assert number(text) == value


def test_what_cannot_be_read_is_unknown_not_zero(tmp_path: Path) -> None:
    hostile = HEALTHY | {
        f"{IB}/counters/link_downed": "N/A (no PMA)\n",
        f"{IB}/counters/symbol_error": "-3\n",
        f"{IB}/phys_state": "<unknown>\n",
    }
    (port,) = LinkFiles(tree(tmp_path, hostile)).read()
    assert port.counters == {"ib/counters:link_downed": None, "ib/counters:symbol_error": None}
    assert port.state is PortState.ACTIVE


def test_a_driver_that_errors_on_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = LinkFiles(tree(tmp_path, HEALTHY))

    def fails(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", fails)
    (port,) = files.read()
    assert port.counters == {"ib/counters:link_downed": None}


def test_trees_with_holes(tmp_path: Path) -> None:
    assert LinkFiles(tmp_path / "nowhere").read() == ()
    tree(tmp_path, {f"{IB}/gid_attrs/ndevs/0": "gone\n"})
    (port,) = LinkFiles(tmp_path).read()
    assert (port.state, port.rate, port.counters) == (PortState.UNKNOWN, None, {})
    assert port.link_layer == "unknown"


def test_an_interface_and_its_rdma_port_are_one(tmp_path: Path) -> None:
    roce = {f"{IB}/link_layer": "Ethernet\n", f"{IB}/gid_attrs/ndevs/0": "eth0\n"}
    net = {f"{NET}/flags": "0x1003\n", f"{NET}/carrier": "1\n", f"{NET}/speed": "100000\n"}
    (port,) = LinkFiles(tree(tmp_path, HEALTHY | roce | net)).read()
    assert (port.name, port.rdma, port.role) == ("eth0", "mlx5_0:1", LinkRole.COMPUTE)
    assert port.state is PortState.ACTIVE


def test_counters_begin_anew_with_a_new_device(tmp_path: Path) -> None:
    tree(tmp_path, {f"{NET}/flags": "0x1003", f"{NET}/carrier_down_count": "4"})
    with LinkFiles(tmp_path) as files:
        (before,) = files.read()
        (tmp_path / NET).rename(tmp_path / "old")
        tree(tmp_path, {f"{NET}/flags": "0x1003", f"{NET}/carrier_down_count": "0"})
        (after,) = files.read()
    assert before.epoch != after.epoch


def test_files_of_ports_that_are_gone_are_closed(tmp_path: Path) -> None:
    tree(tmp_path, HEALTHY)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with LinkFiles(tmp_path) as files:
        files.read()
        (tmp_path / "sys").rename(tmp_path / "unplugged")
        assert files.read() == ()
        assert len(list(Path("/proc/self/fd").iterdir())) == before


@given(st.text(max_size=300))
def test_any_route_table_is_read(text: str) -> None:
    default_routes_4(text)


def test_default_routes() -> None:
    table = (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n"
        "eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\n"
        "eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n"
    )
    assert default_routes_4(table) == ("eth0",)


def test_this_machine() -> None:
    """Whatever there is has a state, and its counters are those of the kernel."""
    with LinkFiles() as files:
        ports = files.read()
    for port in ports:
        assert port.counters["net:carrier_changes"] is not None
    assert "lo" not in {port.name for port in ports}


def test_driver_statistics_of_this_machine() -> None:
    """ifb, veth and virtio have statistics; loopback refuses."""
    with pytest.raises(OSError, match="not supported"):
        NicStatistics("lo", ())
    with pytest.raises(OSError, match="No such device"):
        NicStatistics("no-such-nic", ())
    # Only CAP_NET_ADMIN is informed whether there is a module.
    with pytest.raises(OSError, match=r"not supported|not permitted"):
        module_eeprom("lo")


def test_bytes_are_those_of_the_interface_or_of_its_rdma_port(tmp_path: Path) -> None:
    """RDMA sends words of four bytes past the interface's counters."""
    bytes_of = {f"{NET}/statistics/tx_bytes": "1000\n", f"{NET}/statistics/rx_bytes": "70000\n"}
    words = {f"{IB}/counters/port_xmit_data": "5000\n", f"{IB}/counters/port_rcv_data": "300\n"}
    tree(tmp_path, HEALTHY | bytes_of | words | {f"{IB}/gid_attrs/ndevs/0": "eth0\n"})
    with LinkFiles(tmp_path) as files:
        assert files.byte_counts(["eth0"]) == {}, "no port is known before the first look"
        files.read()
        assert files.byte_counts(["eth0", "eth9"]) == {"eth0": PortBytes(1000, 70000)}
        tree(tmp_path, {f"{IB}/counters/port_xmit_data": "50000\n"})
        assert files.byte_counts(["eth0"]) == {"eth0": PortBytes(200_000, 1200)}
        tree(tmp_path, {f"{IB}/counters/port_xmit_data": "N/A (no PMA)\n"})
        assert files.byte_counts(["eth0"]) == {"eth0": PortBytes(1000, 70000)}
        tree(tmp_path, {f"{NET}/statistics/rx_bytes": "-1\n"})
        assert files.byte_counts(["eth0"]) == {}
