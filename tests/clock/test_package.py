"""`syntony.clock` as a package: what programs use is loaded at its first use."""

from __future__ import annotations

import pytest

from syntony import clock
from syntony.io import fleet_clock


def test_what_programs_use_is_found_and_nothing_else() -> None:
    for name in clock.__all__:
        assert getattr(clock, name) is getattr(fleet_clock, name)
    with pytest.raises(AttributeError, match="'nothing'"):
        clock.nothing  # noqa: B018
