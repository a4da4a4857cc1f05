"""Rows of ports: one a minute, and when their traffic changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from syntony.agent.links import LinkWatch
from syntony.io.link_files import LinkFiles
from syntony.model import S
from syntony.wire.tables import LINK_PORT

ETH = "sys/class/net/eth0"


class Host:
    """A host with one port of 100 Gb/s, and time."""

    def __init__(self, root: Path) -> None:
        self.root, self.now_s, self.sent = root, 1_000, 0
        for name, text in {"type": "1", "flags": "0x1003", "carrier": "1", "speed": "100000",
                           "statistics/rx_bytes": "0"}.items():  # fmt: skip
            path = root / ETH / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.watch = LinkWatch("h1", frozenset({"eth0"}))
        self.watch._files.close()
        self.watch._files = LinkFiles(root, frozenset({"eth0"}))

    def rows(self, seconds: int, gbps: float) -> list[tuple[int, float, float]]:
        """What is stored of the port while it sends at a rate: second, and Gb/s each way."""
        found = []
        for _ in range(seconds):
            self.now_s += 1
            self.sent += int(gbps * 1e9 / 8)
            (self.root / ETH / "statistics/tx_bytes").write_text(str(self.sent))
            report = self.watch.report(self.now_s * S, self.now_s * S)
            for table, columns in report.rows:
                if table is LINK_PORT:
                    (tx,), (rx,) = columns["tx_bps"], columns["rx_bps"]
                    found.append((self.now_s - 1_000, float(tx) / 1e9, float(rx) / 1e9))
        return found


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path)
    yield found
    found.watch.close()


def test_traffic_that_begins_and_ends_is_a_row(host: Host) -> None:
    assert host.rows(10, 0.0) == [(1, 0.0, 0.0)]
    assert host.rows(10, 80.0) == [(11, 80.0, 0.0)]
    assert host.rows(9, 0.0) == [], "it may be between two steps"
    assert host.rows(3, 0.0) == [(30, 0.0, 0.0)]
    assert host.rows(60, 0.0) == [(61, 0.0, 0.0)]


def test_traffic_of_steps_is_one_row(host: Host) -> None:
    host.rows(10, 0.0)
    assert [row for _ in range(10) for row in (*host.rows(1, 90.0), *host.rows(3, 0.0))] == [
        (11, 90.0, 0.0)
    ]


def test_rates_that_double_are_rows_and_those_that_vary_are_none(host: Host) -> None:
    host.rows(10, 0.0)
    assert host.rows(1, 1.0) == [(11, 1.0, 0.0)]
    assert [host.rows(1, each) for each in (1.5, 1.9, 0.9)] == [[], [], []]
    assert host.rows(1, 50.0) == [(15, 50.0, 0.0)]


def test_a_port_that_probes_is_idle(host: Host) -> None:
    host.rows(10, 0.0)
    assert host.rows(40, 0.4) == []
