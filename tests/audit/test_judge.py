"""Expected values: spec before golden host before majority, undecided where nobody can say."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.audit.fixture_fleet import judge_all

from syntony.audit.learn import learn
from syntony.audit.result import ComparedValue, HostReport, Result, Status, Value
from syntony.audit.spec import EMPTY, Spec, holds, parse_spec
from syntony.errors import ConfigError
from syntony.model.names import host_of


def host(name: str, value: Value, key: str = "sw.kernel", variant: str = "") -> HostReport:
    reading = ComparedValue(check="sw.os", key=key, subject=name, value=value, variant=variant)
    return HostReport(host=name, taken_ns=0, readings=(reading,))


def fleet(*values: Value, **how: str) -> list[HostReport]:
    return [host(f"h{at}", value, **how) for at, value in enumerate(values)]


def statuses(results: list[Result]) -> list[Status]:
    return [result.status for result in results]


P, F, U, N = Status.PASS, Status.FAIL, Status.UNKNOWN, Status.NOT_COMPARED


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("a", "a", "b"), [P, P, F]),
        (("a", "a", "a"), [P, P, P]),
        (("a", "b"), [U, U]),
        (("a",), [N]),
        (("a", "a"), [N, N]),
        (("a", "a", "b", "b"), [U, U, U, U]),
        (("a", "b", "c"), [U, U, U]),
        (("a", "a", "b", "c"), [U, U, U, U]),
        (("a", "a", "b", "c", "d"), [U] * 5),
        (("a", "a", "a", "b", "c"), [P, P, P, F, F]),
    ],
)
def test_the_majority_decides_if_it_is_one(values: tuple[str, ...], expected: list[Status]) -> None:
    assert statuses(judge_all(fleet(*values))) == expected


def test_an_undecided_value_names_both_candidates_and_who_has_them() -> None:
    (said, *_) = judge_all(fleet("a", "a", "b", "b", "c"))
    assert said.evidence == "sw.kernel: undecided: 'a' on 2 (h0, h1), 'b' on 2 (h2, h3) of 5 hosts"


def test_amounts_are_compared_with_what_more_than_half_are_near() -> None:
    results = judge_all(fleet(1000, 1010, 1005, 900, 1001, key="mem.total"))
    assert statuses(results) == [P, P, P, F, P]
    assert results[3].expected == "1001 B ± 3 %"


@pytest.mark.parametrize("key", ["mem.total", "mem.bw"])
def test_two_against_two_by_amounts_fails_nobody(key: str) -> None:
    results = judge_all(fleet(1000, 500, 1000, 500, key=key))
    assert statuses(results) == [U] * 4
    assert all("500.0 on 2 (h1, h3), 1000.0 on 2 (h0, h2)" in r.evidence for r in results)


def test_a_host_has_one_vote_however_many_nics() -> None:
    def nics(name: str, value: str, count: int) -> HostReport:
        return HostReport(host=name, taken_ns=0, readings=tuple(
            ComparedValue(check="sw.nic-fw", key="sw.nic-fw", subject=f"{name}/mlx5_{at}",
                          value=value,
                    variant="MT_1") for at in range(count)))  # fmt: skip

    results = judge_all([nics("odd", "28.41", 8), *(nics(f"h{n}", "28.43", 1) for n in range(6))])
    assert {host_of(r.subject) for r in results if r.status is F} == {"odd"}
    assert statuses(results).count(P) == 6


def _shares(values: list[int]) -> list[int]:
    return [values.count(each) for each in values]


@given(values=st.lists(st.integers(0, 3), min_size=1, max_size=12), nics=st.data())
def test_more_than_half_of_the_hosts_decide_and_nothing_else(
    values: list[int], nics: st.DataObject
) -> None:
    """Beside a count by hand, whatever number of readings each host sends."""
    reports = [
        HostReport(host=f"h{at}", taken_ns=0, readings=tuple(
            ComparedValue(check="sw.os", key="sw.kernel", subject=f"h{at}/{n}", value=f"v{value}")
            for n in range(nics.draw(st.integers(1, 9)))))
        for at, value in enumerate(values)
    ]  # fmt: skip
    decided = len(values) >= 3 and any(2 * share > len(values) for share in _shares(values))
    alike = len(set(values)) == 1
    for result in judge_all(reports):
        share = values.count(int(result.got[1:]))
        if decided:
            assert result.status is (P if 2 * share > len(values) else F)
        else:
            assert result.status is (N if alike else U)


@given(
    values=st.lists(st.sampled_from([100.0, 101.0, 102.0, 150.0, 200.0]), min_size=3, max_size=9)
)
def test_amounts_are_never_failed_by_half_or_fewer(values: list[float]) -> None:
    results = judge_all(fleet(*values, key="mem.total"))
    for value, result in zip(values, results, strict=True):
        near = [each for each in values if abs(each - value) <= 0.03 * value]
        if result.status is F:
            assert 2 * len(near) <= len(values)
        if 2 * len(near) > len(values):
            assert result.status is not U


def test_a_message_that_most_hosts_do_not_have_is_odd() -> None:
    silent = [HostReport(host=f"s{at}", taken_ns=0) for at in range(3)]
    odd = host("h0", "some", key="node.kmsg", variant="fatal error #")
    assert statuses(judge_all([*silent, odd])) == [F]
    common = [host(f"h{at}", "some", key="node.kmsg", variant="fatal error #") for at in range(4)]
    assert statuses(judge_all([*silent, *common])) == [P, P, P, P]


def test_spec_before_golden_before_majority() -> None:
    spec = parse_spec({"roles": {"r": {"expect": {"sw.kernel": "c"}}}}, "spec")
    reports, golden = fleet("a", "a", "b", "c"), host("g", "b")
    assert statuses(judge_all(reports)) == [U] * 4
    assert statuses(judge_all(reports, golden=golden)) == [F, F, P, F]
    assert statuses(judge_all(reports, spec, golden)) == [F, F, F, P]


def test_roles_are_compared_among_themselves() -> None:
    spec = parse_spec({"roles": {"gpu": {"hosts": ["g*"]}, "cpu": {"hosts": ["c*"]}}}, "spec")
    reports = [host(f"g{at}", "a") for at in range(3)] + [host(f"c{at}", "b") for at in range(3)]
    assert statuses(judge_all(reports, spec)) == [P] * 6
    assert statuses(judge_all(reports)) == [U] * 6


def test_many_nics_of_one_host_are_no_peers() -> None:
    readings = tuple(
        ComparedValue(check="be.act.rate", key="be.act.rate", subject=f"h0/mlx5_{at}:1", value=rate)
        for at, rate in enumerate(("400", "400", "400", "200"))
    )
    assert statuses(judge_all([HostReport(host="h0", taken_ns=0, readings=readings)])) == [U] * 4


def test_a_host_that_does_not_answer_fails_once() -> None:
    (result,) = judge_all([HostReport(host="h0", taken_ns=0, unreachable="no route")])
    assert (result.status, result.check, result.evidence) == (F, "node.reach", "no route")


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ({"min": "535.129.03"}, "535.129.10", "535.54.03"),
        ({"min": "535.129.03", "max": "550"}, "545.0", "555.1"),
        ({"about": 100, "within": 0.1}, 109, 111),
        (["1.0", "1.1"], "1.1", "1.2"),
        ({"min": 8}, 8, 7),
        (8, 8, 7),
    ],
)
def test_rules(rule: Any, good: Value, bad: Value) -> None:
    spec = parse_spec({"roles": {"r": {"expect": {"sw.driver": rule}}}}, "spec")
    read = spec.rule("h0", "sw.driver", "")
    assert read is not None
    assert holds(read, good)
    assert not holds(read, bad)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"roles": {"r": {"expect": {"sw.kernl": "a"}}}}, "'sw.kernl'; did you mean 'sw.kernel'?"),
        ({"role": {}}, "did you mean 'roles'?"),
        ({"roles": {"r": {"host": ["*"]}}}, "did you mean 'hosts'?"),
        ({"checks": {"node.gpu-helth": {}}}, "did you mean 'node.gpu-health'?"),
        ({"checks": {"node.gpu-health": {"hot": 80}}}, "did you mean 'hot_c'?"),
        ({"checks": {"node.gpu-health": {"hot_c": "warm"}}}, "checks.node.gpu-health"),
        ({"checks": {"fe.mesh": {"peers": ["-oProxyCommand=x"]}}}, "checks.fe.mesh"),
        ({"checks": {"sw.limits": {"process": "../../etc"}}}, "checks.sw.limits"),
        ({"roles": {"r": {"expect": {"sw.driver": {"mn": 3}}}}}, "did you mean 'min'?"),
    ],
)
def test_what_is_misspelt_is_said_with_the_nearest_word(data: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_spec(data, "spec.toml")
    assert says in str(error.value)
    assert str(error.value).startswith("spec.toml: ")
    assert "\n" not in str(error.value)


_VALUES = st.one_of(st.text(max_size=30), st.integers(-(2**40), 2**40), st.booleans(),
                    st.floats(allow_nan=False, allow_infinity=False))  # fmt: skip


@given(value=_VALUES, variant=st.text(max_size=10))
def test_what_is_learnt_is_kept(value: Value, variant: str) -> None:
    """A spec learnt from a fleet is TOML, and the fleet passes it, whatever it reads."""
    reports = fleet(value, value, key="sw.kernel", variant=variant)
    spec = parse_spec(tomllib.loads(learn(reports, EMPTY)), "learnt")
    assert statuses(judge_all(reports, spec)) == [P, P]


def test_learning_again_changes_nothing_and_tells_what_is_undecided() -> None:
    reports = [*fleet("a", "b"), *fleet(1, 1, key="be.ports")]
    text = learn(reports, EMPTY)
    assert learn(list(reversed(reports)), EMPTY) == text
    assert "# sw.kernel: undecided" in text
    assert '"be.ports" = 1' in text


def test_limits_and_roles_of_the_spec_are_kept() -> None:
    spec = parse_spec({"roles": {"gpu": {"hosts": ["h*"]}},
                       "checks": {"node.gpu-health": {"hot_c": 80.0}}}, "s")  # fmt: skip
    learnt = parse_spec(tomllib.loads(learn(fleet("a"), spec)), "learnt")
    assert isinstance(learnt, Spec)
    assert learnt.checks == spec.checks
    assert learnt.rule("h1", "sw.kernel", "") == "a"
