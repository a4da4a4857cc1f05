"""Requests as paths and parameters: names, round trips, and one line for what is wrong."""

from __future__ import annotations

import enum
import random
from typing import Any, get_args

import msgspec
import pytest

from syntony.controller.dispatch import QUESTIONS
from syntony.controller.questions import Runs
from syntony.errors import UsageError
from syntony.wire.audit import AuditCommand
from syntony.wire.control import Change, Changes
from syntony.wire.cost import CostQuery
from syntony.wire.enrol import RenewQuery
from syntony.wire.failover import SwitchCommand
from syntony.wire.incidents import IncidentAction, IncidentsQuery
from syntony.wire.links import LinkHistory, LinkHistoryQuery
from syntony.wire.probes import MatrixQuery, Plane
from syntony.wire.query import Query, join_pages
from syntony.wire.rest import (
    CURSOR,
    PAGE_SIZE,
    body,
    from_body,
    from_parameters,
    is_question,
    parameters,
    route_name,
    split_rows,
)

SEEDS = range(30)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (IncidentsQuery, "incidents"),
        (LinkHistoryQuery, "link-history"),
        (SwitchCommand, "switch"),
        (IncidentAction, "incident-action"),
        (RenewQuery, "renew"),
    ],
)
def test_paths_follow_from_names(kind: type[Query[Any]], name: str) -> None:
    assert route_name(kind) == name


def test_names_say_what_changes_something_and_no_two_are_the_same() -> None:
    orders = {kind for kind, known in QUESTIONS.items() if known.runs is Runs.ORDERED}
    assert {kind for kind in QUESTIONS if not is_question(kind)} == orders | {RenewQuery}
    assert len({(is_question(kind), route_name(kind)) for kind in QUESTIONS}) == len(QUESTIONS)


def test_no_field_has_the_name_of_a_paging_parameter() -> None:
    for kind in QUESTIONS:
        assert not {PAGE_SIZE, CURSOR} & set(kind.__struct_fields__)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_request_survives_http(seed: int) -> None:
    draw = random.Random(seed)
    for kind in QUESTIONS:
        query = kind(**{f.name: drawn(draw, f.type) for f in msgspec.structs.fields(kind)})
        if is_question(kind):
            assert from_parameters(kind, parameters(query)) == query, seed
        else:
            assert from_body(kind, body(query)) == query, seed


def drawn(draw: random.Random, kind: Any) -> Any:
    """A value of a field's type."""
    plain: dict[Any, list[Any]] = {
        bool: [True, False],
        float: [0.0, -1.5, 1e300, draw.random()],
        int: [0, 1, -1, 2**63 - 1, -(2**63), draw.getrandbits(40)],
        bytes: [b"", draw.randbytes(draw.randrange(9))],
        str: ["", "h0/rail0", "a&b=c d", "é'\"<script>", "true", "7", "null"],
        dict[str, Any]: [{}, {"b": draw.randrange(9)}],
    }
    if kind in plain:
        return draw.choice(plain[kind])
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return draw.choice(list(kind))
    if get_args(kind)[1:] == (Ellipsis,):
        return tuple(drawn(draw, get_args(kind)[0]) for _ in range(draw.randrange(3)))
    key, value = get_args(kind)
    assert key is str
    return {"a": drawn(draw, value)}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ([("windo_ns", "1")], "unknown parameter 'windo_ns'; did you mean 'window_ns'?"),
        ([("zz", "1")], "unknown parameter 'zz'; known: window_ns, over"),
        ([("window_ns", "1"), ("window_ns", "2")], "parameter 'window_ns' is given twice"),
        ([("window_ns", "ten")], "matrix: Expected `int`, got `str` - at `$.window_ns`"),
        ([("window_ns", "1" + "0" * 19)], "matrix: window_ns does not fit in 64 bits"),
        ([("over", "smoke")], "matrix: Invalid enum value 'smoke' - at `$.over`"),
    ],
)
def test_wrong_parameters_are_one_line(given: list[tuple[str, str]], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_parameters(MatrixQuery, given)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
def test_numbers_are_finite(text: str) -> None:
    with pytest.raises(UsageError, match="cost: "):
        from_parameters(CostQuery, [("restarts_low", text)])


def test_the_largest_integer_of_64_bits_fits() -> None:
    query = from_parameters(MatrixQuery, [("window_ns", str(2**63 - 1)), ("over", "verbs")])
    assert query == MatrixQuery(window_ns=2**63 - 1, over=Plane.VERBS)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"{", "the body is not JSON"),
        (b"[1]", "the body must be a JSON object"),
        (b"[" * 200_000, "the body is not JSON"),
        (b'{"stopped": 1}', "switch: Expected `bool`, got `int`"),
        (b"", "switch: Object missing required field `stopped`"),
        (b'{"stopped": true, "wy": ""}', "did you mean 'why'?"),
        (b'{"type": "switch", "stopped": true}', "unknown parameter 'type'"),
    ],
)
def test_wrong_bodies_are_one_line(data: bytes, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_body(SwitchCommand, data)
    assert line in str(caught.value)


def test_who_orders_may_be_left_out() -> None:
    assert from_body(SwitchCommand, b'{"stopped": true}').by == ""
    assert from_body(AuditCommand, b"{}").by == ""


@pytest.mark.parametrize(("rows", "size", "pages"), [(0, 5, 1), (5, 5, 1), (6, 5, 2), (11, 5, 3)])
def test_pages_join_to_the_answer(rows: int, size: int, pages: int) -> None:
    one = Change(number=1, at_ns=2, who="a", origin="b", what="c", before="", after="", comment="")
    answer = Changes(changes=tuple(msgspec.structs.replace(one, number=n) for n in range(rows)))
    found = split_rows(answer, size)
    assert len(found) == pages
    assert all(len(each.changes) <= size for each in found)  # type: ignore[attr-defined]
    assert join_pages(found) == answer


def test_pages_of_two_lists_hold_both_in_order() -> None:
    answer: Any = LinkHistory(events=tuple("abc"), counters=tuple("wxyz12"), now_ns=7)  # type: ignore[arg-type]
    found = split_rows(answer, 2)
    assert [(each.events, each.counters) for each in found] == [  # type: ignore[attr-defined]
        (("a", "b"), ("w", "x")), (("c",), ("y", "z")), ((), ("1", "2")),
    ]  # fmt: skip
    assert join_pages(found) == answer
