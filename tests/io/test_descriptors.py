"""Each port's share of the file descriptors, and the line that says that one is used up."""

from __future__ import annotations

import asyncio
import logging
import os

import pytest

from syntony.io import descriptors
from syntony.io.descriptors import DescriptorWatch, Share


@pytest.mark.parametrize(("most", "connections"), [(1_024, (640, 128, 64)), (3, (1, 1, 1))])
def test_shares_follow_the_limit(
    monkeypatch: pytest.MonkeyPatch, most: int, connections: tuple[int, ...]
) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: most)
    assert tuple(share.connections for share in Share) == connections
    assert sum(share.value for share in Share) < descriptors.PARTS, "something is left for files"


def test_what_is_open_is_counted() -> None:
    before = descriptors.count_open()
    ends = os.pipe()
    assert descriptors.count_open() == before + 2
    for end in ends:
        os.close(end)


def test_one_line_when_a_share_is_used_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: 1_024)
    found = [639, 640, 700, 640, 639, 640]
    watch = DescriptorWatch(lambda: found.pop(0))
    with caplog.at_level(logging.INFO):
        lines = []
        while found:
            caplog.clear()
            asyncio.run(watch.watch_descriptors())
            lines.append([record.levelname for record in caplog.records])
    assert lines == [[], ["WARNING"], [], [], ["INFO"], ["WARNING"]]
