"""`median` against numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.clock.median import median


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 64, 1001])
def test_it_is_numpys_to_the_last_bit(count: int) -> None:
    rng = np.random.default_rng(count)
    for scale in (1e-9, 1.0, 1e15):
        values = np.round(scale * rng.normal(size=count), 3)
        assert median(values) == np.median(values)
