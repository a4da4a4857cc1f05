"""A message in fragments is whole or not there."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.errors import WireError
from syntony.wire import fragments as wire
from syntony.wire.coding import encode
from syntony.wire.fragments import MAX_ASSEMBLED_BYTES, Assembler, Fragment, Fragmenter
from syntony.wire.messages import decode_controller

PIECE = 1_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "FRAGMENT_BYTES", PIECE)


def divided(fragmenter: Fragmenter, message: bytes) -> list[Fragment]:
    found = [decode_controller(data) for data in fragmenter.divide(message)]
    assert all(isinstance(each, Fragment) for each in found)
    return [each for each in found if isinstance(each, Fragment)]


def assembled(fragments: Iterable[Fragment]) -> list[bytes]:
    """What came out; after a refusal the stream is started again, as an uplink does."""
    assembler, found = Assembler(), []
    for fragment in fragments:
        try:
            whole = assembler.take(fragment)
        except WireError:
            assembler = Assembler()
            continue
        if whole is not None:
            found.append(whole)
    return found


def test_small_messages_are_sent_as_ever() -> None:
    assert list(Fragmenter().divide(b"x" * PIECE)) == [b"x" * PIECE]


def test_any_order_loss_or_repetition_gives_whole_messages_or_none() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed={seed}")
    draw = random.Random(seed)
    whole = mixed = 0
    for _ in range(3_000):
        fragmenter = Fragmenter()
        messages = [draw.randbytes(draw.randrange(PIECE + 1, 6 * PIECE)) for _ in range(3)]
        sent = list(itertools.chain.from_iterable(divided(fragmenter, each) for each in messages))
        match draw.randrange(5):
            case 0:
                draw.shuffle(sent)
            case 1:
                del sent[draw.randrange(len(sent))]
            case 2:
                at = draw.randrange(len(sent))
                sent.insert(draw.randrange(len(sent)), sent[at])
            case 3:
                at = draw.randrange(len(sent))
                data = bytearray(sent[at].data)
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
                sent[at] = msgspec.structs.replace(sent[at], data=bytes(data))
            case 4:
                del sent[draw.randrange(len(sent)) :]
        found = assembled(sent)
        assert set(found) <= set(messages), seed
        whole += len(found)
        mixed += len(found) < len(messages)
    assert whole > 100
    assert mixed > 100


def test_messages_in_order_all_arrive() -> None:
    messages = [bytes([number]) * (PIECE * number + 1) for number in range(1, 6)]
    fragmenter = Fragmenter()
    sent = [fragment for each in messages for fragment in divided(fragmenter, each)]
    assert assembled(sent) == messages


@given(
    st.builds(
        Fragment,
        message=st.integers(0, 2),
        offset=st.integers(-5, 20),
        size=st.integers(-5, 20) | st.just(MAX_ASSEMBLED_BYTES + 1),
        crc=st.integers(0, 3),
        data=st.binary(max_size=10),
    )
)
def test_fragments_that_cannot_be_are_refused(fragment: Fragment) -> None:
    assembler = Assembler()
    try:
        assert assembler.take(fragment) is None
    except WireError:
        pass
    else:
        assert fragment.offset == 0 < len(fragment.data) < fragment.size <= MAX_ASSEMBLED_BYTES


def test_memory_is_bounded_by_what_was_announced() -> None:
    announced = Fragment(message=1, offset=0, size=1 << 40, crc=0, data=b"x")
    with pytest.raises(WireError, match="does not fit at most"):
        Assembler().take(announced)
    assert decode_controller(encode(announced)) == announced
