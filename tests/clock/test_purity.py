import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.clock.purity import CLASS_EDGES_NS, CLASSES, UNPAIRED, purity_classes


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("change_ns", "purity"),
    [(0, 0), (15, 0), (-15, 0), (16, 1), (100, 2), (500, 3), (-2_000, 4), (5_000, 5)],
)
def test_a_pair_is_judged_by_how_its_spacing_changed(change_ns: int, purity: int) -> None:
    tx, rx = ints(0, 10_000), ints(7_000, 17_000 + change_ns)
    assert purity_classes(tx, rx, ints(4, 4)).tolist() == [purity, purity]


def test_every_class_has_probes() -> None:
    """An empty one would be learned of for nothing."""
    change_ns = np.arange(0, 6_000, 10).repeat(2) * np.tile([0, 1], 600)
    tx = np.tile(ints(0, 10_000), 600)
    paired = purity_classes(tx, tx + 7_000 + change_ns, np.arange(1_200) // 2)
    assert {*paired.tolist(), UNPAIRED} == set(range(CLASSES))


def test_who_has_no_partner_has_a_class_of_its_own() -> None:
    tx = ints(0, 10, 20, 30, 40, 50)
    classes = purity_classes(tx, tx + 5, ints(1, 2, 2, 3, 3, 3))
    assert classes.tolist() == [UNPAIRED, 0, 0, UNPAIRED, UNPAIRED, UNPAIRED]
    assert purity_classes(tx, tx + 5, None).tolist() == [UNPAIRED] * 6


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 20))),
    st.randoms(use_true_random=False),
)
def test_the_order_of_probes_does_not_matter(
    probes: list[tuple[int, int, int]], shuffler: random.Random
) -> None:
    order = list(range(len(probes)))
    shuffler.shuffle(order)
    table = np.array(probes, dtype=np.int64).reshape(-1, 3)
    tx, rx, pair = table[:, 0], table[:, 0] + table[:, 1], table[:, 2]
    classes = purity_classes(tx, rx, pair)
    assert purity_classes(tx[order], rx[order], pair[order]).tolist() == classes[order].tolist()
    assert len(CLASS_EDGES_NS) < CLASSES
    assert np.all((classes >= 0) & (classes < CLASSES))
