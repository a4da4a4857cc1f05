"""Functional collectives, as DTensor and compiled graphs call them: operators of a fake torch."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from syntony.io.job_hook import hook_directory

sys.path.append(str(hook_directory()))
from syntony_job_peers import Functional  # type: ignore[import-not-found]

sys.path.pop()


class Tensor:
    def __init__(self, address: int, kind: str = "cpu") -> None:
        self._address, self.device = address, SimpleNamespace(type=kind)

    def data_ptr(self) -> int:
        return self._address


class FakeTensor(Tensor):
    """Of a graph that is being compiled."""


class Operator:
    """A packet, and its overload, that calls `_op` as torch's do."""

    def __init__(self, function: Any) -> None:
        self._op = function
        self.default = SimpleNamespace(_op=function)

    def __call__(self, *args: Any) -> Any:
        return self._op(*args)


class Recorder:
    """In the place of the hook."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def _resolve(self, name: str) -> str:
        return f"group {name}"

    def _begin(self, operation: int, what: Any, group: Any) -> tuple[Any, ...]:
        self.said.append(("begin", operation, group))
        return 0, operation, len(self.said), False

    def _returned(self, opened: tuple[Any, ...], _result: Any) -> None:
        self.said.append(("end", opened[1]))


def wrapped() -> tuple[SimpleNamespace, Recorder]:
    operators = SimpleNamespace(
        all_reduce=Operator(lambda tensor, _op, _group: Tensor(tensor.data_ptr() + 1)),
        all_gather_into_tensor_coalesced=Operator(
            lambda tensors, _size, _group: [Tensor(each.data_ptr() + 1) for each in tensors]
        ),
        wait_tensor=Operator(lambda tensor: tensor),
    )
    hook = Recorder()
    Functional(hook).wrap(operators, number)
    return operators, hook


def number(name: str) -> int:
    return {"all_reduce": 0, "all_gather": 3}.get(name, 9)


def test_an_operation_ends_when_its_result_has_been_waited_for() -> None:
    operators, hook = wrapped()
    result = operators.all_reduce(Tensor(7), "sum", "0")
    assert hook.said == [("begin", 0, "group 0")]
    operators.wait_tensor(Tensor(99))
    operators.wait_tensor.default._op(result)
    assert hook.said[1:] == [("end", 0)]
    operators.wait_tensor(result)
    assert len(hook.said) == 2


def test_several_results_are_one_operation() -> None:
    operators, hook = wrapped()
    results = operators.all_gather_into_tensor_coalesced([Tensor(7), Tensor(17)], 2, "0")
    for each in results:
        operators.wait_tensor(each)
    assert hook.said == [("begin", 3, "group 0"), ("end", 3)]


def test_a_result_that_nobody_waits_for_ends_when_it_is_forgotten_or_replaced() -> None:
    operators, hook = wrapped()
    result = operators.all_reduce(Tensor(7), "sum", "0")
    again = operators.all_reduce.default._op(Tensor(7), "sum", "0")
    assert hook.said == [("begin", 0, "group 0"), ("begin", 0, "group 0"), ("end", 0)]
    del again, result
    assert hook.said[3:] == [("end", 0)]


def test_no_error_of_the_hook_reaches_the_program(recwarn: pytest.WarningsRecorder) -> None:
    """As in a forked child, or after an error of the GPU."""
    operators, hook = wrapped()
    kept = operators.all_reduce(Tensor(7), "sum", "0")
    hook._returned = Mock(side_effect=AttributeError)  # type: ignore[method-assign]
    del kept
    lost = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    operators.all_reduce_ = Operator(lambda *_: lost)
    Functional(hook).wrap(operators, number)
    assert operators.all_reduce_(Tensor(7), "sum", "0") is lost
    assert hook._returned.call_count == 2
    gc.collect()
    assert not recwarn.list


def test_nothing_is_recorded_while_a_graph_is_compiled_or_by_a_mode_again() -> None:
    operators, hook = wrapped()
    operators.all_reduce(FakeTensor(7), "sum", "0")
    operators.all_reduce(Tensor(7, "meta"), "sum", "0")
    assert hook.said == []
    inner = operators.all_reduce.default._op
    outer = Operator(inner)
    Functional(hook).wrap(SimpleNamespace(all_reduce=outer), number)
    kept = outer(Tensor(7), "sum", "0")
    assert kept.data_ptr() == 8
    assert [each[0] for each in hook.said].count("begin") == 2, "two hooks, each once"


def test_an_operator_stays_the_same_key_of_tables() -> None:
    operators, _ = wrapped()
    function = operators.wait_tensor.default._op
    plain = function._function
    assert hash(function) == hash(plain)
    assert function == plain
    assert function.__code__ is plain.__code__
