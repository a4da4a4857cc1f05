"""What a peer's reports cannot say: refused where they are decoded, at every field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest

from syntony.errors import WireError
from syntony.wire.bounds import (
    MAX_COUNT,
    MAX_REASONS,
    MAX_VIEWS,
    Count,
    Number,
    Port,
    Signed,
    Text,
    Unsigned,
    Word,
)
from syntony.wire.failover import (
    MAX_PROCESS_FLOWS,
    MAX_PROCESSES,
    MAX_SUBFLOWS,
    ConnectionView,
    PathsReport,
    ProcessFlowView,
    ProcessView,
    SubflowView,
)
from syntony.wire.messages import AgentMessage, decode_agent
from syntony.wire.probes import LossReport, PairLosses
from syntony.wire.queue_pairs import QueuePairFigures, QueuePairsReport
from syntony.wire.segments import SegmentFlow, SegmentsReport
from syntony.wire.traffic import MAX_HOPS, FlowsReport, FlowView, MoveOutcome, ProbeDelay

REPORTS = (PathsReport, FlowsReport, QueuePairsReport, SegmentsReport, LossReport)
PARTS: dict[type[msgspec.Struct], tuple[type[msgspec.Struct], str]] = {
    ConnectionView: (PathsReport, "connections"),
    ProcessView: (PathsReport, "processes"),
    SubflowView: (ConnectionView, "subflows"),
    ProcessFlowView: (ProcessView, "flows"),
    FlowView: (FlowsReport, "flows"),
    MoveOutcome: (FlowsReport, "outcomes"),
    ProbeDelay: (FlowsReport, "delays"),
    QueuePairFigures: (QueuePairsReport, "queue_pairs"),
    SegmentFlow: (SegmentsReport, "flows"),
    PairLosses: (LossReport, "pairs"),
}
"""Struct to where in which other it is."""
OF_PROCESSES = (ProcessFlowView, ProcessView, QueuePairFigures)
"""Their numbers are a process's word, of 64 bits: an agent passes them on as they are."""


def fields() -> Iterator[Any]:
    structs: list[type[msgspec.Struct]] = [*REPORTS, *PARTS]
    for struct in structs:
        for each in msgspec.structs.fields(struct):
            base = msgspec.inspect.type_info(each.type)
            kind = {
                msgspec.inspect.IntType: "number",
                msgspec.inspect.StrType: "text",
            }.get(type(base))
            if kind:
                yield pytest.param(
                    struct, each.encode_name, kind, id=f"{struct.__name__}.{each.name}"
                )


def least(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The least that is such a struct."""
    zero: dict[Any, Any] = {
        msgspec.inspect.IntType: 0, msgspec.inspect.StrType: "", msgspec.inspect.BoolType: False,
        msgspec.inspect.BytesType: b"", msgspec.inspect.FloatType: 0.0,
        msgspec.inspect.VarTupleType: (),
    }  # fmt: skip
    found = {
        each.encode_name: zero[type(msgspec.inspect.type_info(each.type))]
        for each in msgspec.structs.fields(struct)
        if each.required
    }
    tag = struct.__struct_config__.tag
    return {"type": tag, **found} if tag else found


def sent(struct: type[msgspec.Struct], said: dict[str, Any]) -> bytes:
    """A report with it in."""
    while struct in PARTS:
        struct, place = PARTS[struct]
        said = {**least(struct), place: [said]}
    return msgspec.msgpack.encode(said)


@pytest.mark.parametrize(("struct", "name", "kind"), list(fields()))
def test_every_number_and_text_is_bounded(
    struct: type[msgspec.Struct], name: str, kind: str
) -> None:
    """One report with a rate of 2^64 - 1 once cost the fleet a second of every job's flows."""
    decode_agent(sent(struct, least(struct)))
    if kind == "text":
        wrong: list[object] = ["x" * 100_000]
    elif struct in OF_PROCESSES:
        wrong = []
    else:
        wrong = [1 << 63, -(1 << 63), MAX_COUNT + 1]
    for value in wrong:
        with pytest.raises(WireError, match=name):
            decode_agent(sent(struct, {**least(struct), name: value}))


@pytest.mark.parametrize(
    ("struct", "name", "most"),
    [
        (PathsReport, "connections", MAX_VIEWS),
        (PathsReport, "processes", MAX_PROCESSES),
        (ConnectionView, "subflows", MAX_SUBFLOWS),
        (ProcessView, "flows", MAX_PROCESS_FLOWS),
        (FlowsReport, "flows", MAX_VIEWS),
        (FlowsReport, "outcomes", MAX_VIEWS),
    ],
)
def test_lists_are_bounded(struct: type[msgspec.Struct], name: str, most: int) -> None:
    inner = next(part for part, place in PARTS.items() if place == (struct, name))
    whole = least(struct)
    decode_agent(sent(struct, {**whole, name: [least(inner)] * most}))
    with pytest.raises(WireError, match=name):
        decode_agent(sent(struct, {**whole, name: [least(inner)] * (most + 1)}))


@pytest.mark.parametrize("name", ["tx_bps", "rx_bps", "rtt_ns", "retransmits", "windows"])
def test_what_counts_up_is_not_negative(name: str) -> None:
    with pytest.raises(WireError, match=name):
        decode_agent(sent(FlowView, {**least(FlowView), name: -1}))


def test_hops_are_bounded() -> None:
    with pytest.raises(WireError, match="hops"):
        decode_agent(sent(FlowView, {**least(FlowView), "hops": [""] * (MAX_HOPS + 1)}))


@pytest.mark.parametrize("name", ["bytes_done", "bytes_outstanding", "outstanding", "errors"])
def test_a_processs_own_word_ends_no_agents_stream(name: str) -> None:
    """Any local process may write 2^64 - 1 into its page."""
    decode_agent(sent(ProcessFlowView, {**least(ProcessFlowView), name: (1 << 64) - 1}))


def test_reports_are_what_agents_send() -> None:
    assert set(REPORTS) < set(get_args(AgentMessage))


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Count, (0, 1 << 62), (-1, (1 << 62) + 1)),
        (Unsigned, (0, (1 << 64) - 1), (-1,)),
        (Signed, (-(1 << 62), 1 << 62), (-(1 << 62) - 1, (1 << 62) + 1)),
        (Number, (0, (1 << 32) - 1), (-1, 1 << 32)),
        (Port, (0, 65_535), (-1, 65_536)),
        (Word, ("", "x" * 256), ("x" * 257,)),
        (Text, ("", "x" * 2_000), ("x" * 2_001,)),
    ],
)
def test_what_each_bound_is(kind: Any, good: tuple[Any, ...], bad: tuple[Any, ...]) -> None:
    for value in good:
        assert msgspec.convert(value, kind) == value
    for value in bad:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(value, kind)


def test_what_the_docs_promise_of_lists() -> None:
    assert (MAX_VIEWS, MAX_REASONS) == (2_000, 64)
