"""Roles that an operator gives the ports of a host."""

from __future__ import annotations

import pytest

from syntony.links.ports import PortState
from syntony.links.roles import LinkRole
from syntony.links.snapshot import PortSnapshot, with_backend

PORTS = tuple(
    PortSnapshot(
        name=name,
        netdev=netdev,
        rdma=rdma,
        link_layer="Ethernet",
        driver="mlx5_core",
        role=role,
        state=PortState.ACTIVE,
        rate=None,
        epoch="",
        counters={},
    )
    for name, netdev, rdma, role in (
        ("rail0", "eth0", "mlx5_0:1", LinkRole.COMPUTE),
        ("rail1", "eth1", "mlx5_1:1", LinkRole.COMPUTE),
        ("store", "eth2", "mlx5_2:1", LinkRole.FRONTEND),
        ("bmc", "eth3", "", LinkRole.MANAGEMENT),
    )
)
C, F, M = LinkRole.COMPUTE, LinkRole.FRONTEND, LinkRole.MANAGEMENT


@pytest.mark.parametrize(
    ("patterns", "roles"),
    [
        ((), [C, C, F, M]),
        (("mlx5_[02]",), [C, F, C, M]),
        (("mlx5_1:1",), [F, C, F, M]),
        (("mlx5_1:2",), [F, F, F, M]),
        (("eth0", "store"), [C, F, C, M]),
        (("ETH0",), [F, F, F, M]),
        (("*",), [C, C, C, C]),
    ],
)
def test_what_is_named_carries_the_job_and_nothing_else_does(
    patterns: tuple[str, ...], roles: list[LinkRole]
) -> None:
    given = with_backend(PORTS, patterns)
    assert [port.role for port in given] == roles
    assert [port._replace(role=C) for port in given] == [port._replace(role=C) for port in PORTS]
