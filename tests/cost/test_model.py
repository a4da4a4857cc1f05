"""The economics of failure, against published tables and by properties."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.cost import check, cost
from syntony.errors import UsageError
from syntony.model import HOUR_NS, MS, S
from syntony.wire.cost import YEAR_NS, CostQuery

PUBLISHED = [
    # GPUs, restarts a year, mean time to failure in hours
    (1_000, (100, 250), (35, 87)),
    (5_000, (500, 1_250), (7, 18)),
    (10_000, (1_000, 2_500), (3.5, 9)),
    (50_000, (5_000, 12_500), (42 / 60, 105 / 60)),
]
"""As published by the makers of a closed product (docs/reference/cost.md)."""


@pytest.mark.parametrize(("gpus", "restarts", "mttf_h"), PUBLISHED)
def test_published_restarts(
    gpus: int, restarts: tuple[float, float], mttf_h: tuple[float, float]
) -> None:
    report = cost(CostQuery(gpus=gpus))
    assert (report.restarts_per_year.low, report.restarts_per_year.high) == restarts
    for found, published in zip(msgspec.structs.astuple(report.mttf_ns), mttf_h, strict=True):
        assert found / HOUR_NS == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize(("gpus", "gpu_hours"), [(256, 640), (512, 1280), (1024, 2560)])
def test_published_gpu_hours_of_one_failure(gpus: int, gpu_hours: float) -> None:
    assert cost(CostQuery(gpus=gpus)).gpu_hours_per_failure == gpu_hours


def test_published_first_link_failure() -> None:
    report = cost(CostQuery(gpus=1024, links=100_000))
    assert report.first_link_failure_ns == pytest.approx(26.28 * 60 * S)
    alone = cost(CostQuery(gpus=4))
    assert alone.first_link_failure_ns == 5 * YEAR_NS / 4


def test_a_month_by_hand() -> None:
    # 1,000 GPUs fail 120 times a year: 10 a month, 2.5 h each.
    report = cost(CostQuery(gpus=1000, restarts_low=120, restarts_high=240, price=2))
    assert report.today.gpu_hours_per_month.low == pytest.approx(25_000)
    assert report.today.gpu_hours_per_month.high == pytest.approx(50_000)
    assert report.today.share.low == pytest.approx(10 * 2.5 / 730)
    assert report.today.price_per_month is not None
    assert report.today.price_per_month.high == pytest.approx(100_000)
    assert report.engineer_hours_per_month.low == pytest.approx(80)
    assert report.engineer_hours_per_month.high == pytest.approx(480)
    assert cost(CostQuery()).today.price_per_month is None


def test_what_is_survived_by_hand() -> None:
    query = CostQuery(
        gpus=1000, restarts_low=120, restarts_high=120, network_share=0.25, rank_share=0.5,
        nics_per_host=4, failover_ns=36 * S, repair_ns=2 * HOUR_NS, network_time_share=0.3,
        takeover_ns=18 * S,
    )  # fmt: skip
    # A NIC: 36 s and 2 h at a tenth; a rank: 18 s; the rest: 2.5 h.
    each_h = 0.25 * (0.01 + 0.2) + 0.5 * 0.005 + 0.25 * 2.5
    report = cost(query)
    assert report.with_syntony.gpu_hours_per_month.low == pytest.approx(10 * 1000 * each_h)


@pytest.mark.parametrize(
    "cannot",
    [{"nics_per_host": 1}, {"failover_ns": 0}, {"network_share": 0.0}],
    ids=lambda each: next(iter(each)),
)
def test_without_another_way_nothing_is_survived(cannot: dict[str, float]) -> None:
    report = cost(msgspec.structs.replace(CostQuery(), **cannot))
    assert report.with_syntony == report.today


def test_a_job_that_makes_no_progress_loses_all_its_time_and_no_more() -> None:
    report = cost(CostQuery(gpus=50_000))
    assert report.today.share == type(report.today.share)(1.0, 1.0)
    assert report.today.gpu_hours_per_month.high == 50_000 * 730


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpus", 0), ("gpus", 10**10), ("links", -1), ("nics_per_host", 0), ("lost_share", 1.01),
        ("lost_share", -0.01), ("network_share", math.nan), ("recovery_ns", -1),
        ("checkpoint_ns", 200 * YEAR_NS), ("restarts_low", 0.0), ("restarts_high", math.inf),
        ("restarts_high", 99.0), ("engineer_hours_low", 25.0), ("price", -1.0), ("link_mtbf_ns", 0),
        ("rank_share", 0.95), ("network_time_share", 2.0),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(field: str, value: float) -> None:
    query = msgspec.structs.replace(CostQuery(), **{field: value})
    with pytest.raises(UsageError, match=field.removesuffix("_low").removesuffix("_high")):
        check(query)


shares = st.floats(0, 1)
times = st.integers(0, 100 * HOUR_NS)


@given(
    st.builds(
        CostQuery,
        gpus=st.integers(1, 200_000), lost_share=shares, recovery_ns=times, checkpoint_ns=times,
        network_share=st.floats(0, 0.5), rank_share=st.floats(0, 0.5), repair_ns=times,
        nics_per_host=st.integers(1, 16), failover_ns=times, takeover_ns=times,
        network_time_share=shares, price=st.floats(0, 100),
    )
)  # fmt: skip
def test_surviving_never_costs_more_and_no_loss_exceeds_the_job(query: CostQuery) -> None:
    report = cost(query)
    for loss in (report.today, report.with_syntony):
        assert 0 <= loss.share.low <= loss.share.high <= 1
        assert loss.gpu_hours_per_month.high <= query.gpus * 730 * (1 + 1e-9)
    assert report.with_syntony.share.low <= report.today.share.low * (1 + 1e-9)
    assert report.with_syntony.share.high <= report.today.share.high * (1 + 1e-9)
    assert 0 < report.mttf_ns.low <= report.mttf_ns.high


@given(st.integers(1, 50_000), st.integers(2, 16))
def test_more_nics_slow_a_job_less(gpus: int, nics: int) -> None:
    fewer, more = (
        cost(CostQuery(gpus=gpus, nics_per_host=each)).with_syntony.share.low
        for each in (nics, nics + 1)
    )
    assert more <= fewer
    assert cost(CostQuery(failover_ns=MS)).with_syntony.share.low > 0
