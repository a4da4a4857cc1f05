"""The bound of the log: bursts pass, floods do not, and both are told apart by what they are of."""

from __future__ import annotations

import logging
import random
from collections import Counter

import pytest

from syntony.errors import ConfigError
from syntony.io import log_limit
from syntony.io.log_limit import (
    BURST,
    MAX_KINDS,
    REFILL_NS,
    LogLimit,
    bugs_logged,
    lines_held_back,
)


def record(text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("x", logging.WARNING, "", 0, text, values, None)


def passed(limit: LogLimit, text: str, *values: object) -> str | None:
    line = record(text, *values)
    return line.getMessage() if limit.filter(line) else None


def test_a_flood_of_one_host_is_a_burst_and_then_a_line_every_so_often() -> None:
    now_ns = 10**18
    limit = LogLimit(lambda: now_ns)
    lines = [passed(limit, "refused host=%s reason=%s", "h0", each) for each in range(1_000)]
    assert [line for line in lines if line] == [
        f"refused host=h0 reason={each}" for each in range(BURST)
    ]
    assert limit.held_back == 1_000 - BURST
    assert passed(limit, "refused host=%s reason=%s", "h1", 0), "another host's"
    assert passed(limit, "unused host=%s", "h0"), "another line"
    now_ns += REFILL_NS - 1
    assert passed(limit, "refused host=%s reason=%s", "h0", 0) is None
    now_ns += 1
    assert passed(limit, "refused host=%s reason=%s", "h0", "100%") == (
        f"refused host=h0 reason=100% held_back_before={1_001 - BURST}"
    )
    assert passed(limit, "refused host=%s reason=%s", "h0", 0) is None
    now_ns += BURST * REFILL_NS
    lines = [passed(limit, "refused host=%s reason=%s", "h0", 1) for _ in range(BURST + 1)]
    assert [line is None for line in lines] == BURST * [False] + [True]
    assert lines[1] == "refused host=h0 reason=1"


def test_what_has_no_values_is_a_kind_of_its_own() -> None:
    limit = LogLimit(lambda: 0)
    assert [passed(limit, "100% of it") for _ in range(BURST + 1)][-2:] == ["100% of it", None]
    named = logging.LogRecord("x", logging.INFO, "", 0, "%(a)s", ({"a": 1},), None)
    assert limit.filter(named)


def test_kinds_that_are_remembered_are_bounded() -> None:
    limit = LogLimit(lambda: 0)
    for _ in range(BURST):
        passed(limit, "of %s", -1)
    assert passed(limit, "of %s", -1) is None
    for number in range(MAX_KINDS - 1):
        assert passed(limit, "of %s", number)
    assert passed(limit, "of %s", -1) is None, "it is the newest again"
    for number in range(MAX_KINDS):
        assert passed(limit, "of %s", number + MAX_KINDS)
    assert passed(limit, "of %s", -1), "forgotten"
    assert len(limit._kinds) == MAX_KINDS


def test_random_floods_are_counted_to_the_line() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    now_ns, given, told = 0, 0, Counter[str]()
    limit = LogLimit(lambda: now_ns)
    for _ in range(5_000):
        now_ns += rng.choice([0, REFILL_NS // 50])
        host = rng.choice("abc")
        given += 1
        told[host] += passed(limit, "of %s", host) is not None
    assert given == told.total() + limit.held_back
    assert max(told.values()) <= BURST + now_ns // REFILL_NS


def test_all_of_a_process_is_bounded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    log_limit.log_to_stderr("INFO", "%(message)s")
    for _ in range(BURST + 5):
        logging.getLogger("a.b").info("again host=%s", "h0")
    assert capsys.readouterr().err.count("again host=h0\n") == BURST
    assert lines_held_back() == 5


@pytest.mark.parametrize(("error", "lines"), [(KeyError("seq"), 1), (ConfigError("no NIC"), 0)])
def test_a_bug_that_ends_a_daemon_is_logged_with_its_traceback(
    error: Exception, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(type(error)), bugs_logged():
        raise error
    assert len(caplog.records) == lines
    assert all(each.exc_info for each in caplog.records)
