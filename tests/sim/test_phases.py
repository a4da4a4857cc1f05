"""Periodic jobs on one link, where the answer can be worked out."""

from __future__ import annotations

import pytest
from bench.simulated.phases import Periodic, iteration_s


def test_a_job_alone_takes_what_it_takes() -> None:
    assert iteration_s([Periodic(0.6, 0.4)]) == pytest.approx([1.0])
    assert iteration_s([Periodic(0.6, 0.4, limit=0.5)]) == pytest.approx([1.4])


def test_two_in_step_share_and_stay_in_step() -> None:
    assert iteration_s([Periodic(0.6, 0.4)] * 2) == pytest.approx([1.4, 1.4])


def test_two_that_take_turns_lose_nothing() -> None:
    jobs = [Periodic(0.6, 0.4), Periodic(0.6, 0.4, start_s=0.5)]
    assert iteration_s(jobs) == pytest.approx([1.0, 1.0])


def test_unequal_weights_make_phases_slide_apart() -> None:
    jobs = [Periodic(0.6, 0.4, weight=2), Periodic(0.6, 0.4)]
    assert iteration_s(jobs, turns=400, settle=200) == pytest.approx([1.0, 1.0], rel=1e-3)


def test_more_than_fits_fills_the_link() -> None:
    times = iteration_s([Periodic(0.2, 0.8), Periodic(0.2, 0.8, start_s=0.3)])
    assert times == pytest.approx([1.6, 1.6], rel=0.01)
