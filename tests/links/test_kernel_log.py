"""Drivers' messages, and everybody else's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.io.kernel_log import KernelLog, parse_record
from syntony.links.counters import Kind
from syntony.links.kernel_log import classify


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Port module event: module 0, Cable unplugged", Kind.MODULE),
        ("Port module event[error]: module 0, Cable error, High Temperature", Kind.MODULE),
        ("eth2: Link down", Kind.FLAP),
        ("poll_health:817:(pid 0): device's health compromised - reached miss count", Kind.HOST),
        ("Detected insufficient power on the PCIe slot (27W).", Kind.HOST),
    ],
)
def test_what_a_nic_driver_says(message: str, kind: Kind) -> None:
    finding = classify(f"mlx5_core 0000:5e:00.0: {message}")
    assert finding is not None
    assert (finding.kind, finding.device) == (kind, "0000:5e:00.0")


@pytest.mark.parametrize(
    ("line", "kind", "device"),
    [
        ("NETDEV WATCHDOG: eth3 (mlx5_core): transmit queue 7 timed out", Kind.HOST, "eth3"),
        ("IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready", Kind.TRAFFIC, "eth0"),
        ("systemd-networkd[5398]: ib6: lost carrier", Kind.FLAP, "ib6"),
        (
            "pcieport 0000:80:01.1: AER: Uncorrectable (Fatal) error received",
            Kind.HOST,
            "0000:80:01.1",
        ),
    ],
)
def test_what_the_kernel_says(line: str, kind: Kind, device: str) -> None:
    finding = classify(line)
    assert finding is not None
    assert (finding.kind, finding.device) == (kind, device)


@pytest.mark.parametrize(
    "line",
    [
        "systemd[1]: logrotate.service: Deactivated successfully.",
        "audit: link down for maintenance",
        "usb 1-1: new high-speed USB device",
        "",
    ],
)
def test_what_others_say(line: str) -> None:
    assert classify(line) is None


def test_a_capture_with_six_flaps(captures: Path) -> None:
    lines = (captures / "aznhc/1dev_6flap_syslog").read_text().splitlines()
    found = [finding for finding in map(classify, lines) if finding]
    assert {finding.device for finding in found if finding.kind is Kind.FLAP} == {"ib6"}
    assert sum(finding.kind is Kind.FLAP for finding in found) >= 6


@given(st.text(max_size=2000))
def test_any_line_is_read(line: str) -> None:
    classify(line), classify(f"mlx5_core {line}")


@given(st.binary(max_size=300))
def test_any_record_is_read(record: bytes) -> None:
    parse_record(record)


def test_records() -> None:
    message = parse_record(b"6,3973,227986636,-;IPv6: link becomes ready\n SUBSYSTEM=net\n")
    assert message == "IPv6: link becomes ready"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    device = Path("/dev/kmsg")
    try:
        log = KernelLog(device)
        writer = device.open("w")
    except Exception as error:  # noqa: BLE001 - whichever way this machine refuses
        pytest.skip(
            f"needs to read and write /dev/kmsg (root, not in a container): {error}: the "
            "kernel's log is NOT tested"
        )
    with log, writer:
        writer.write(f"mlx5_core 0000:00:00.0: Link down, a test {tmp_path.name}\n")
        writer.flush()
        texts = log.read()
    assert any(tmp_path.name in text and classify(text) for text in texts)
