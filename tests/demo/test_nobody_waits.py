"""The act's verdicts on made-up drills: what must hold, and what must not pass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from syntony.demo.nobody_waits import claims
from syntony.lab.drill.contention_figures import ContentionPhase, Figures


def phase(total: float, shared: float, p99_ms: float | None) -> ContentionPhase:
    return ContentionPhase(
        name="x",
        mbps={"red": total / 2, "blue": total / 2},
        total_mbps=total,
        of_optimum=total / 300,
        shared_links=shared,
        owd_p50_ms=None,
        owd_p99_ms=p99_ms,
    )


GOOD = Figures(
    optimum_mbps=300,
    alone_mbps=250,
    before=phase(130, 4, 15.0),
    after=phase(240, 0, 0.9),
    gain=240 / 130,
    resolved_s=1.0,
    moves=2,
    moves_per_flow=0.5,
    flows=4,
    undone=0,
    refused=0,
    wrong=0,
    lost=0,
    finished=True,
)
LUCKY = msgspec.structs.replace(GOOD, before=phase(240, 0, None), gain=1.0, moves=0)


@pytest.mark.parametrize(
    ("found", "change", "held"),
    [
        (GOOD, {}, [True, True, True]),
        (GOOD, {"wrong": 1}, [False, True, True]),
        (GOOD, {"lost": 1}, [False, True, True]),
        (GOOD, {"finished": False}, [False, True, True]),
        (GOOD, {"gain": 1.05}, [True, False, True]),
        (GOOD, {"after": phase(240, 2, None)}, [True, True, False]),
        (LUCKY, {}, [True, True]),
        (LUCKY, {"moves": 4, "gain": 0.95}, [True, True]),
        (LUCKY, {"moves": 5}, [True, False]),
        (LUCKY, {"gain": 0.8}, [True, False]),
    ],
)
def test_verdicts(found: Figures, change: dict[str, Any], held: list[bool]) -> None:
    reported = claims(msgspec.structs.replace(found, **change))
    assert [claim.held for claim in reported] == held
    assert all(claim.measured for claim in reported)


def test_what_held_syntony_up_is_said_where_links_stayed_shared() -> None:
    held_up = "2 of 4 hosts report to this controller; needed: 3"
    late = msgspec.structs.replace(GOOD, held_up=held_up)
    assert "report to" not in claims(late)[-1].measured
    crowded = msgspec.structs.replace(late, after=phase(130, 4, 15.0))
    assert claims(crowded)[-1].measured.endswith(f"({held_up})")
