"""The plan over verbs: the mesh's pairs whose RDMA ports can reach each other, class by class."""

from __future__ import annotations

import random

import pytest

from syntony.mesh.plan import MeshNic, VerbsClass, make_plan, over_verbs
from syntony.model import MS, NicRef, S


def nic(number: int, rdma: str) -> MeshNic:
    ref = NicRef(f"h{number}", "rail0")
    return MeshNic(ref, number + 1, 0, f"10.0.0.{number + 1}", 8620, ref.host, (), rdma)


def udp_source_port(label: int) -> int:
    """What NICs and kernel make of a flow label (rdma_flow_label_to_udp_sport)."""
    return ((label & 0x3FFF) ^ (label >> 14 & 0x3F)) | 0xC000


@pytest.mark.parametrize("trial", range(10))
def test_every_pair_of_one_kind_in_every_class_and_no_other(trial: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"trial {trial}, seed {seed}")
    rng = random.Random(seed)
    nics = [
        nic(number, rng.choice(["", "roce", "infiniband"]))
        for number in range(rng.randrange(3, 14))
    ]
    by_ref = {each.ref: each for each in nics}
    classes = [
        VerbsClass(dscp=dscp, sl=dscp % 8) for dscp in rng.sample(range(64), rng.randrange(4))
    ]
    plan = make_plan(
        nics, peers=4, ecmp_paths=rng.choice([1, 2, 4]), interval_ns=100 * MS, seed=seed
    )
    verbs = over_verbs(plan, by_ref, classes, 700 * MS)
    wanted = {
        (host, flow.dst, flow.src_port, each.dscp, each.sl)
        for host, flows in plan.items()
        for flow in flows
        for each in classes
        if "" != by_ref[NicRef(host, flow.src)].rdma == by_ref[NicRef.parse(flow.dst)].rdma
    }
    found = [
        (host, flow.dst, flow.src_port, flow.dscp, flow.sl)
        for host, flows in verbs.items()
        for flow in flows
    ]
    assert len(found) == len(set(found))
    assert set(found) == wanted
    assert {flow.interval_ns for flows in verbs.values() for flow in flows} <= {700 * MS}
    for flows in verbs.values():
        assert len({flow.flow_id for flow in flows}) == len(flows)


def test_paths_have_source_ports_of_their_own_where_the_label_makes_them() -> None:
    nics = [nic(0, "roce"), nic(1, "roce")]
    plan = make_plan(nics, peers=1, ecmp_paths=16, interval_ns=100 * MS, seed=1)
    there, back = (
        sorted(flow.flow_label for flow in flows)
        for flows in over_verbs(plan, {each.ref: each for each in nics}, [VerbsClass()], S).values()
    )
    assert there == back, "a reply finds the way back with its request's label"
    assert all(0 < label < 1 << 20 for label in there)
    assert len({udp_source_port(label) for label in there}) >= 0.95 * len(there) > 100
