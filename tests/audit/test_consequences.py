"""What a dead port makes fail is reported once."""

from __future__ import annotations

import pytest

from syntony.audit.reported import Consequences
from syntony.audit.result import Result, Status

F, P, S, U = Status.FAIL, Status.PASS, Status.SKIP, Status.UNKNOWN


def said(check: str, subject: str, status: Status = F, evidence: str = "") -> Result:
    return Result(check=check, subject=subject, status=status, got="bad", evidence=evidence)


def reported(*results: Result) -> dict[str, tuple[Status, str]]:
    consequences = Consequences(results)
    return {r.check: (r.status, r.follows) for r in map(consequences.reported, results)}


RAIL = said("be.conn.rail", "h0/rail3", evidence="port mlx5_3:1; dead with h1/rail3")


@pytest.mark.parametrize("first", ["be.init.phys", "be.act.state"])
def test_a_port_goes_by_several_names(first: str) -> None:
    why = f"{first} h0/mlx5_3:1"
    assert reported(
        said("be.topo.attached", "h0/mlx5_3"), RAIL, said("be.gid.table", "h0/mlx5_3:1", U),
        said("be.conn.mtu", "h0/rail3"), said(first, "h0/mlx5_3:1"),
        said("be.act.counters", "h0/mlx5_3:1"), said("be.topo.rail", "h0/mlx5_3"),
    ) == {
        "be.topo.attached": (S, why), "be.conn.rail": (S, why), "be.gid.table": (S, why),
        "be.conn.mtu": (S, why), first: (F, ""), "be.act.counters": (F, ""),
        "be.topo.rail": (F, ""),
    }  # fmt: skip


def test_no_packet_explains_no_missing_address() -> None:
    assert reported(RAIL, said("be.gid.ip", "h0/mlx5_3:1"), said("be.conn.mtu", "h0/rail3")) == {
        "be.conn.rail": (F, ""), "be.gid.ip": (F, ""),
        "be.conn.mtu": (S, "be.conn.rail h0/rail3"),
    }  # fmt: skip


def test_others_are_not_explained() -> None:
    """Another port, another host, or a cause that only might be one."""
    results = [
        said("be.init.phys", "h0/mlx5_0:1"), said("be.act.rate", "h0/mlx5_1:1"),
        said("be.act.mtu", "h1/mlx5_0:1"), said("be.gid.same", "h0"),
    ]  # fmt: skip
    assert all(status is F and not follows for status, follows in reported(*results).values())
    warned = [said("be.init.phys", "h0/mlx5_0:1", U), said("be.act.rate", "h0/mlx5_0:1")]
    assert reported(*warned) == {"be.init.phys": (U, ""), "be.act.rate": (F, "")}


def test_the_cause_lists_them() -> None:
    results = [said("be.init.phys", "h0/mlx5_0:1"), said("be.act.rate", "h0/mlx5_0:1")]
    consequences = Consequences(results)
    assert consequences.reported(results[0]).evidence.endswith("hence also be.act.rate (bad)")
    assert (
        "follows from be.init.phys h0/mlx5_0:1: bad" in consequences.reported(results[1]).evidence
    )
