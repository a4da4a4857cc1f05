"""Answers in pages: bounded, in order, nothing lost or doubled."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.controller.dispatch import QUESTIONS
from syntony.errors import WireError
from syntony.wire import query as wire
from syntony.wire.coding import encode
from syntony.wire.query import Failure, answer_type, decode_answer, join_pages, pages


class Reported(msgspec.Struct, frozen=True, kw_only=True, tag="told"):
    """Two kinds of rows, one of them optional, and what is no row."""

    first: tuple[str, ...]
    second: tuple[tuple[int, str], ...] = ()
    pair: tuple[int, int] = (1, 2)
    name: str = "x"


TOLD = st.builds(
    Reported,
    first=st.lists(st.text(max_size=30), max_size=60).map(tuple),
    second=st.lists(st.tuples(st.integers(0, 9), st.text(max_size=50)), max_size=60).map(tuple),
    name=st.text(max_size=5),
)


@given(reported=TOLD, limit=st.integers(20, 400))
def test_pages_hold_everything_in_order(reported: Reported, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "PAGE_BYTES", limit)
        found = list(pages(reported))
    answers = [decode_answer(page, Reported) for page in found]
    assert not any(isinstance(each, Failure) for each in answers)
    assert join_pages([each for each in answers if isinstance(each, Reported)]) == reported
    for page, each in zip(found, answers, strict=True):
        # Larger only where there is nothing left to divide.
        assert len(page) <= limit or max(len(each.first), len(each.second)) < 2  # type: ignore[union-attr]


def test_a_small_answer_is_one_message_as_ever() -> None:
    reported = Reported(first=("a", "b"))
    assert list(pages(reported)) == [encode(reported)]


def test_what_no_client_could_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_ANSWER_BYTES", 1 << 20)
    with pytest.raises(WireError, match="over the limit of 1; ask for less"):
        pages(Reported(first=("x" * (1 << 21),)))


def test_another_kind_of_answer_is_refused() -> None:
    with pytest.raises(WireError, match="not a message of this protocol"):
        decode_answer(encode(Reported(first=())), Other)


class Other(msgspec.Struct, frozen=True, kw_only=True, tag="other"):
    first: tuple[str, ...]


def test_every_request_names_its_answer() -> None:
    tags: dict[type[Any], object] = {}
    for kind in QUESTIONS:
        found = answer_type(kind)
        assert issubclass(found, msgspec.Struct), kind
        tags[found] = found.__struct_config__.tag
    assert len(set(tags.values())) == len(tags)
