"""When a path was left or a flow moved: an instant that can be compared with other logs."""

from __future__ import annotations

import msgspec
import pytest

from syntony.cli import failover, run, traffic
from syntony.model import MS, S
from syntony.wire.failover import FailoverLog, PathEventRow
from syntony.wire.traffic import MoveList, MoveView

AT_NS = 1_796_069_382 * S + 14 * MS + 999_999


def filled(kind: type[msgspec.Struct], **given: object) -> dict[str, object]:
    """Every field of a message that has no default, empty unless given."""
    empty = {int: 0, str: "", float: 0.0, bool: False}
    fields = {each.name: empty.get(each.type) for each in msgspec.structs.fields(kind)
              if each.required}  # fmt: skip
    return fields | given


@pytest.mark.parametrize("command", ["failover log", "traffic moves"])
def test_events_have_a_civil_time(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    event = PathEventRow(**filled(PathEventRow, ts_ns=AT_NS))  # type: ignore[arg-type]
    move = MoveView(**filled(MoveView, ts_ns=AT_NS))  # type: ignore[arg-type]
    monkeypatch.setattr(failover, "ask", lambda *_, **__: FailoverLog(events=(event, event)))
    monkeypatch.setattr(traffic, "ask", lambda *_, **__: MoveList(moves=(move, move)))
    assert run([*command.split(), "--controller", "unix:/nowhere"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("when (UTC) ")
    assert [line[:23] for line in lines] == ["2026-11-30 20:09:42.014"] * 2
