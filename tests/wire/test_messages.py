import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.errors import WireError
from syntony.model import ClockState, Edge, Timeline
from syntony.wire import messages as m
from syntony.wire.clocks import Edges, Timelines
from syntony.wire.coding import MAX_MESSAGE_BYTES, encode
from syntony.wire.probes import PairKeys, Plan, ProbeFlow, ProbeKeys

EDGE = Edge(
    a="h0",
    b="h1",
    ref_ns=1,
    theta_ns=2.0,
    drift_ppb=3.0,
    sigma_ns=4.0,
    drift_sigma_ppb=5.0,
    rtt_floor_ns=6.0,
    probes=7,
)
LINE = Timeline(
    node="h0", ref_ns=1, offset_ns=2.0, drift_ppb=3.0, sigma_ns=4.0, state=ClockState.HOLDOVER
)
NIC = m.NicInfo(
    name="rail0", rail=0, addresses=("10.0.0.1",), clock="h0", stamping="kernel", port=8620
)
FLOW = ProbeFlow(
    flow_id=1,
    src="rail0",
    dst="h1/rail0",
    dst_nic_id=2,
    dst_addr="10.0.0.3",
    dst_port=8620,
    src_port=61000,
    interval_ns=1,
)

AGENT: list[m.AgentMessage] = [
    m.Hello(protocol=1, version="0", host="h0", nics=(NIC,), stream="ab"),
    m.Batch(seq=1, table="probe_1s", rows=1, dropped=0, arrow=b"x"),
    Edges(edges=(EDGE,)),
]
CONTROLLER: list[m.ControllerMessage] = [
    Plan(
        generation=1,
        nic_ids={"rail0": 1},
        nic_names={2: "h1/rail0"},
        clocks={"h0/rail0": "h0"},
        flows=(FLOW,),
        others={"h1/rail0": ("fd00::2",)},
    ),
    ProbeKeys(
        epochs=(3, 4),
        sending=3,
        pairs=(PairKeys(host="h1", nics=(2, 5), keys=(b"k" * 16, b"l" * 16)),),
    ),
    m.Ack(seq=1),
    Timelines(timelines=(LINE,)),
    m.Refuse(reason="no"),
]


@pytest.mark.parametrize("message", AGENT, ids=lambda message: type(message).__name__)
def test_agent_messages_round_trip(message: m.AgentMessage) -> None:
    assert m.decode_agent(encode(message)) == message


@pytest.mark.parametrize("message", CONTROLLER, ids=lambda message: type(message).__name__)
def test_controller_messages_round_trip(message: m.ControllerMessage) -> None:
    assert m.decode_controller(encode(message)) == message


@pytest.mark.parametrize("kind", [Edge, Timeline, ProbeFlow])
def test_what_a_controller_has_by_the_million_is_not_examined_for_cycles(
    kind: type[msgspec.Struct],
) -> None:
    """None of its fields can be part of one. Tuples and lists could: the cycle would leak."""
    assert not kind.__struct_config__.gc
    for field in msgspec.structs.fields(kind):
        assert issubclass(field.type, str | int | float)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x81\xa4type\xa4plan", encode(m.Ack(seq=1))])
def test_what_is_not_an_agent_message_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        m.decode_agent(data)


def test_a_message_over_the_limit_is_refused_unread() -> None:
    with pytest.raises(WireError, match="over the limit"):
        m.decode_agent(bytes(MAX_MESSAGE_BYTES + 1))


@given(st.binary(max_size=400))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for decode in (m.decode_agent, m.decode_controller, m.decode_joining):
        try:
            decode(data)
        except WireError:
            continue


@given(st.sampled_from(AGENT), st.data())
def test_a_corrupted_message_decodes_or_is_refused(
    message: m.AgentMessage, data: st.DataObject
) -> None:
    good = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    try:
        m.decode_agent(bytes(good[:cut]))
    except WireError:
        return


@given(sizes=st.lists(st.integers(0, 2 * m.BUNDLE_BYTES), max_size=12))
def test_bundles_hold_everything_in_order_and_no_more_than_they_may(sizes: list[int]) -> None:
    sent: list[m.AgentMessage] = [
        m.Batch(seq=seq, table="t", rows=1, dropped=0, arrow=bytes(size))
        for seq, size in enumerate(sizes, 1)
    ]
    packed = list(m.bundles(map(encode, sent)))
    assert [message for data in packed for message in m.decode_bundle(data)] == sent
    largest = max((len(encode(message)) for message in sent), default=0)
    assert all(len(data) <= max(largest, m.BUNDLE_BYTES + 100) for data in packed)
    # As few as may be: two neighbours would not have fitted into one.
    for one, other in itertools.pairwise(packed):
        assert len(one) + len(other) > m.BUNDLE_BYTES


def test_one_message_is_sent_as_ever() -> None:
    alone = encode(AGENT[1])
    assert list(m.bundles([alone])) == [alone]
    assert list(m.bundles([])) == []


def test_a_bundle_within_a_bundle_is_refused() -> None:
    (inner,) = m.bundles([encode(AGENT[1])] * 2)
    (outer,) = m.bundles([encode(AGENT[1]), inner])
    with pytest.raises(WireError, match="not a message"):
        list(m.decode_bundle(outer))
