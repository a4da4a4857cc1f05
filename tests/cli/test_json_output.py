"""`--json` prints one JSON document on stdout and nothing else, whatever is said on stderr.

Every command that asks the controller is run against one that answers with the least that the
protocol allows, and with one of everything.
"""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from tests.cli.test_help import EVERY

from syntony.alerts.incidents import Incident
from syntony.cli import run
from syntony.cli.lazy import HelpGroup
from syntony.controller import client
from syntony.wire.incidents import IncidentsReply
from syntony.wire.query import Query, answer_type

NIC = "h0/rail0"
WORDS = {
    "agent parts": "", "controller takeover": "--above 3", "probe history": f"{NIC} h1/rail0",
    "traffic mode": "observe", "traffic pacing": "observe", "fabric paths": f"{NIC} h1/rail0",
    "incidents ack": "1", "incidents resolve": "1", "incidents show": "1",
    "incidents silence": f"{NIC} --for 1h", "enrol api revoke": "1",
    "enrol api token": "viewer night", "enrol revoke": "h0", "enrol token": "agent h0",
    "links history": NIC, "sla check": "h0", "jobs show": "night", "clock history": "h0",
    "cost": "--history 90d",
}  # fmt: skip
PLAIN: dict[Any, Any] = {int: 1, float: 1.0, str: NIC, bool: True, bytes: b"", Any: NIC}
LOCAL = (
    "version", "audit checks", "metrics list", "context list", "lab list", "cost",
    "links counters", "links show", "agent check lo", "doctor --for agent --config none.toml",
)  # fmt: skip
"""Commands about this host or about nothing."""
OTHERWISE = {
    "audit": "asks agents to run programs",
    "record": "writes a file",
    "diff": "needs two recordings",
    "enrol renew": "replaces files",
    "watch": "never ends",
    "jobs top": "never ends",
    "job flows": "needs a recording",
    "why": "needs a recording",
}
"""Commands that are not run here, by a part of their name."""


def name_of(context: click.Context) -> str:
    return context.command_path.removeprefix("syntony ")


ASKING = [
    name_of(each)
    for each in EVERY
    if not isinstance(each.command, HelpGroup)
    and {"as_json", "controller"} <= {option.name for option in each.command.params}
    and not any(part in name_of(each) for part in OTHERWISE)
]


def made(kind: Any, *, filled: bool) -> Any:
    """A value of a type: the least, or one of everything in it."""
    make = partial(made, filled=filled)
    if typing.get_origin(kind) is not None:
        return of_several(typing.get_origin(kind), typing.get_args(kind), make, filled=filled)
    if kind in PLAIN:
        return PLAIN[kind]
    if issubclass(kind, enum.Enum):
        return next(iter(kind))
    if issubclass(kind, msgspec.Struct):
        fields = [each for each in msgspec.structs.fields(kind) if each.required or filled]
        return kind(**{each.encode_name: make(each.type) for each in fields})
    return kind(*map(make, typing.get_type_hints(kind).values()))  # a named tuple


def of_several(
    origin: Any, inner: tuple[Any, ...], make: Callable[[Any], Any], *, filled: bool
) -> Any:
    """A value of a type that is made of others."""
    if origin in {typing.Union, types.UnionType}:
        kinds = [each for each in inner if each is not types.NoneType]
        return make(kinds[0]) if filled or len(kinds) == len(inner) else None
    if origin is typing.Annotated:
        return make(inner[0])
    if origin is tuple and Ellipsis not in inner:
        return tuple(map(make, inner))
    return origin([tuple(map(make, inner)) if origin is dict else make(inner[0])] if filled else ())


@pytest.mark.parametrize("filled", [False, True], ids=["least", "one"])
@pytest.mark.parametrize("name", ASKING)
def test_stdout_is_one_document(
    name: str, filled: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    def ask(_target: str, query: Query[Any], **_: object) -> Any:
        answer = made(answer_type(type(query)), filled=filled)
        if isinstance(answer, IncidentsReply):  # they are not typed on the wire
            incident = msgspec.to_builtins(made(Incident, filled=filled))
            return msgspec.structs.replace(answer, incidents=(incident,))
        return answer

    monkeypatch.setattr(client, "ask", ask)
    monkeypatch.chdir(tmp_path)
    words = [*name.split(), *WORDS.get(name, "").split()]
    code = run([*words, "--controller", "unix:/nowhere", "--json"])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    if said.err.startswith("syntony: error: "):
        assert (said.out, code > 1) == ("", True)
    else:
        json.loads(said.out)


@pytest.mark.parametrize("words", LOCAL)
def test_stdout_is_one_document_of_this_host(
    words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    run([*words.split(), "--json"])
    json.loads(capsys.readouterr().out)


def test_what_is_left_out_exists() -> None:
    known = {name_of(each) for each in EVERY}
    assert not [part for part in OTHERWISE if not any(part in name for name in known)]
    assert not set(WORDS) - known
    assert len(ASKING) > 40
