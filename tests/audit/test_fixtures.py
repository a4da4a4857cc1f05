"""Every healthy shape draws no failure, every fault is named: one file each in `fixtures/`."""

from __future__ import annotations

import pytest
from tests.audit.fixture_fleet import FAULTS, SHAPES, failures, fault, healthy_runs, load
from tests.cases import mostly_slow

from syntony.audit.registry import every_check

MIN_SHAPES, MIN_FAULTS = 42, 70
EVERY = 6
"""One file in so many is audited in every run, all of them with the slow tests (a second each)."""


@pytest.mark.parametrize("shape", mostly_slow(SHAPES, SHAPES[::EVERY]))
def test_a_healthy_shape_draws_no_failure(shape: str) -> None:
    for how, results in healthy_runs(shape):
        assert not failures(results), f"{shape} {how}"


@pytest.mark.parametrize("name", mostly_slow(FAULTS, FAULTS[::EVERY]))
def test_a_fault_is_named(name: str) -> None:
    seen = fault(name)
    said = [each for each in seen.results if each not in seen.before]
    assert seen.named, [(each.check, each.status, each.subject, each.got) for each in said]
    assert not failures(seen.others), "a host without the fault is blamed"


@pytest.mark.parametrize("name", mostly_slow(FAULTS, FAULTS[::EVERY]))
def test_a_fault_is_not_named_without_it(name: str) -> None:
    seen = fault(name)
    assert not seen._replace(results=seen.before).named


def test_the_family_is_as_large_as_the_docs_say() -> None:
    assert len(SHAPES) >= MIN_SHAPES
    assert len(FAULTS) >= MIN_FAULTS


def test_every_file_says_what_it_is() -> None:
    checks = {check.id for check in every_check()}
    for kind, names in (("shapes", SHAPES), ("faults", FAULTS)):
        for name in names:
            found = load(kind, name)
            assert found["about"], name
            if kind == "faults":
                assert found["base"] in SHAPES, name
                assert found["expect"]["check"] in checks, name
