"""Every limit from both sides: what is just within it, and what is just beyond."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.errors import ConfigError
from syntony.model import US
from syntony.model.sla import Latency, SlaRow, SlaStatus
from syntony.sla.check import NicPosition, check_latency, check_places, worst
from syntony.sla.judge import ENOUGH, judge, peers_by_class
from syntony.sla.subjects import FEW, FLEET, MAX_REASONS, troubles
from syntony.sla.terms import Comparison, History, Objective, Terms, check_terms

BAD = frozenset({SlaStatus.BREACH})


def latency(p50_ns: int = 1000, p99_ns: int = 2000, **fields: int | None) -> Latency:
    values: dict[str, int | None] = {
        "sent": 1000, "lost": 0, "measured": 1000, "p50_ns": p50_ns, "p90_ns": p99_ns,
        "p99_ns": p99_ns, "clk_err_ns": 0,
    }  # fmt: skip
    return Latency(**(values | fields))  # type: ignore[arg-type]


def row(subject: str, status: SlaStatus = SlaStatus.BREACH, reason: str = "slow") -> SlaRow:
    return SlaRow(
        subject=subject, path_class="leaf", now=latency(), usual=None, peers=None, status=status,
        reasons=() if status is SlaStatus.OK else (reason, "and more"),
    )  # fmt: skip


@given(st.integers(1, 10**7), st.integers(0, 1000), st.sampled_from(["p50", "p99"]))
def test_a_promise_is_broken_by_what_clocks_cannot_feign(
    limit_us: int, error_ns: int, percentile: str
) -> None:
    """Four sigmas of the clocks: up to there nobody knows, beyond it is a breach."""
    terms = Terms(
        objective=(msgspec.structs.replace(Objective(), **{percentile: f"{limit_us}us"}),)
    )

    def status(value_ns: int) -> SlaStatus:
        other = {"p50_ns": 0, "p99_ns": 0, "p90_ns": 0} | {f"{percentile}_ns": value_ns}
        return judge("x", "leaf", latency(**other, clk_err_ns=error_ns), terms).status

    limit_ns = limit_us * US
    assert status(limit_ns) is SlaStatus.OK
    assert status(limit_ns + 4 * error_ns + 1) is SlaStatus.BREACH
    if error_ns:
        assert status(limit_ns + 1) is SlaStatus.UNKNOWN
        assert status(limit_ns + 4 * error_ns) is SlaStatus.UNKNOWN


@given(st.integers(0, 10**6), st.floats(1, 5), st.integers(0, 100), st.integers(0, 200))
def test_worse_than_its_like_by_a_factor_and_by_a_margin(
    peers_ns: int, times: float, margin_us: int, error_ns: int
) -> None:
    terms = Terms(peers=Comparison(times=times, margin=f"{margin_us}us"))
    limit_ns = max(times * peers_ns, peers_ns + margin_us * US + 4 * error_ns)

    def status(p50_ns: int) -> SlaStatus:
        now = latency(p50_ns, clk_err_ns=error_ns)
        return judge("x", "leaf", now, terms, peers=latency(peers_ns)).status

    assert status(int(limit_ns)) is SlaStatus.OK
    assert status(int(limit_ns) + 1) is SlaStatus.WARNING


@given(st.integers(0, 10**6), st.floats(1, 5), st.integers(0, 100), st.integers(0, 200))
def test_worse_than_its_past_by_a_factor_and_by_a_margin(
    usual_ns: int, times: float, margin_us: int, error_ns: int
) -> None:
    terms = Terms(history=History(times=times, margin=f"{margin_us}us"))
    limit_ns = max(times * usual_ns, usual_ns + margin_us * US + 4 * error_ns)

    def status(p99_ns: int) -> SlaStatus:
        now = latency(0, p99_ns, clk_err_ns=error_ns)
        return judge("x", "leaf", now, terms, usual=latency(0, usual_ns)).status

    assert status(int(limit_ns)) is SlaStatus.OK
    assert status(int(limit_ns) + 1) is SlaStatus.WARNING


def test_what_was_not_measured_is_compared_with_nothing() -> None:
    slow = latency(10**9, 10**9)
    unmeasured = latency(p50_ns=None, p99_ns=None)  # type: ignore[arg-type]
    for now, other in ((slow, unmeasured), (unmeasured, latency()), (unmeasured, unmeasured)):
        found = judge("x", "leaf", now, Terms(), usual=other, peers=other)
        assert found.status is SlaStatus.OK
    assert judge("x", "leaf", slow, Terms(), usual=None, peers=None).status is SlaStatus.OK
    both = judge("x", "leaf", slow, Terms(), usual=latency(), peers=latency())
    assert [reason[:3] for reason in both.reasons] == ["p99", "p50"]
    few = judge("x", "leaf", slow, Terms(), usual=latency(measured=ENOUGH))
    assert few.status is SlaStatus.WARNING


@pytest.mark.parametrize(
    ("lost", "sent", "status"),
    [(10, 1000, SlaStatus.OK), (11, 1000, SlaStatus.BREACH), (2, 21, SlaStatus.OK),
     (3, 21, SlaStatus.BREACH)],
)  # fmt: skip
def test_losses_beyond_the_promise_and_more_than_two(
    lost: int, sent: int, status: SlaStatus
) -> None:
    terms = Terms(objective=(Objective(loss=0.01),))
    now = latency(lost=lost, sent=sent, measured=ENOUGH)
    assert judge("x", "leaf", now, terms).status is status


def test_medians_are_of_those_that_were_measured_in_classes_of_four() -> None:
    latencies = {name: latency(k, 10 * k) for k, name in enumerate("abcd", start=1)}
    latencies["e"] = latency(10**6, measured=ENOUGH - 1)
    latencies["f"] = latency(10**6)
    classes = dict.fromkeys("abcde", "leaf") | {"f": "spine"}
    (leaf,) = peers_by_class(latencies, classes).values()
    assert (leaf.p50_ns, leaf.p99_ns, leaf.sent) == (2, 25, 4000)
    assert peers_by_class(latencies, dict.fromkeys("abc", "leaf")) == {}
    assert peers_by_class({n: latency(measured=ENOUGH) for n in "abcd"}, classes)["leaf"].measured
    some = latencies | {"a": latency(p50_ns=None)}  # type: ignore[arg-type]
    assert peers_by_class(some, classes)["leaf"].p50_ns == 3


@pytest.mark.parametrize(("until", "fits"), [("59min", True), ("60min", False), ("2h", False)])
def test_the_past_ends_before_now(until: str, fits: bool) -> None:
    terms = Terms(history=History(window="1h", until=until))
    if fits:
        assert check_terms(terms, "f") is terms
    else:
        with pytest.raises(ConfigError, match="ends before it begins"):
            check_terms(terms, "f")


@pytest.mark.parametrize("loss", [0.0, 1.0])
def test_a_share_may_be_none_or_all(loss: float) -> None:
    terms = Terms(objective=(Objective(loss=loss),), peers=Comparison(times=1.0))
    assert check_terms(terms, "f") is terms


# --- what is worth an incident ---


def test_a_nic_is_to_blame_when_half_of_its_pairs_are_bad() -> None:
    good = [row(f"a->z{k}", SlaStatus.OK) for k in range(2)]
    bad = [row(f"a->b{k}") for k in range(2)]
    (found,) = troubles([*good, *bad], BAD)
    assert (found.subject, found.share) == ("a", 0.5)
    assert found.reasons == ("a->b0: slow", "a->b1: slow")
    three = troubles([*good, row("z9->a", SlaStatus.OK), *bad], BAD)
    assert [each.subject for each in three] == ["a->b0", "a->b1"]
    assert [each.share for each in three] == [1.0, 1.0]
    unknown = [row(f"a->u{k}", SlaStatus.UNKNOWN) for k in range(9)]
    assert [each.subject for each in troubles([*good, *bad, *unknown], BAD)] == ["a"]
    (alone,) = troubles([row("a->b")], BAD)
    assert alone.subject == "a->b", "one pair is a pair"
    assert troubles([*good, row("a->w", SlaStatus.WARNING)], BAD) == []


@pytest.mark.parametrize(("pairs", "as_one"), [(FEW, False), (FEW + 1, True)])
def test_very_many_pairs_without_a_common_nic_are_one_thing(pairs: int, as_one: bool) -> None:
    assert FEW == 16
    rows = [row(f"a{k}->b{k}") for k in range(pairs)]
    rows += [row(f"c{k}->d{k}", SlaStatus.OK) for k in range(pairs)]
    found = troubles(rows, BAD)
    assert [each.subject for each in found] == (
        [FLEET] if as_one else [f"a{k}->b{k}" for k in range(pairs)]
    )
    if as_one:
        assert found[0].share == 0.5
        assert len(found[0].reasons) == MAX_REASONS == 5


# --- the replacement check ---


@pytest.mark.parametrize(("broken", "good", "status"), [
    (1, 1, SlaStatus.BREACH), (1, 2, SlaStatus.WARNING), (2, 3, SlaStatus.WARNING),
    (3, 3, SlaStatus.BREACH), (0, 2, SlaStatus.OK),
])  # fmt: skip
def test_half_of_a_directions_pairs_break_it(broken: int, good: int, status: SlaStatus) -> None:
    rows = [row(f"n->b{k}") for k in range(broken)]
    rows += [row(f"n->g{k}", SlaStatus.OK) for k in range(good)]
    rows += [row("n->u", SlaStatus.UNKNOWN), row("b0->n", SlaStatus.OK)]
    out, back = check_latency(["n"], rows)
    assert (out.status, back.status) == (status, SlaStatus.OK)
    assert (out.subject, back.subject) == ("n out", "n in")
    assert out.detail.startswith(f"{good} of {good + broken} pairs OK (leaf)")
    assert back.detail == "1 of 1 pairs OK (leaf)"


def test_three_pairs_are_named_and_of_what_nobody_knows_why() -> None:
    rows = [row(f"n->b{k}", reason=f"slow {k}") for k in range(5)]
    out, back = check_latency(["n"], rows)
    assert out.detail.endswith(": n->b0: slow 0; n->b1: slow 1; n->b2: slow 2")
    assert (back.status, back.detail) == (SlaStatus.UNKNOWN, "none of its pairs is probed yet")
    dark = [row("n->a", SlaStatus.UNKNOWN, "z"), row("n->b", SlaStatus.UNKNOWN, "dark")]
    assert check_latency(["n"], dark)[0].detail == "dark"


def test_places_and_rails() -> None:
    well = NicPosition("h/r0", 0, "leaf0", "leaf0", frozenset({0, 1}))
    table = {
        well: (SlaStatus.OK, SlaStatus.OK),
        well._replace(seen=""): (SlaStatus.UNKNOWN, SlaStatus.UNKNOWN),
        well._replace(expected=""): (SlaStatus.UNKNOWN, SlaStatus.OK),
        well._replace(seen="leaf1"): (SlaStatus.BREACH, SlaStatus.OK),
        well._replace(rails_there=frozenset()): (SlaStatus.OK, SlaStatus.UNKNOWN),
        well._replace(rails_there=frozenset({2, 1})): (SlaStatus.OK, SlaStatus.BREACH),
    }
    for place, statuses in table.items():
        assert tuple(item.status for item in check_places([place])) == statuses, place
    assert "rail 1, 2 is" in check_places([well._replace(rails_there=frozenset({2, 1}))])[1].detail


def test_the_worst_of_several_is_what_is_broken_then_what_nobody_knows() -> None:
    order = [SlaStatus.OK, SlaStatus.WARNING, SlaStatus.UNKNOWN, SlaStatus.BREACH]
    for k, status in enumerate(order):
        assert worst(order[: k + 1]) is status
    assert worst([]) is SlaStatus.UNKNOWN
