"""Fabrics of every shape that nobody tuned for: none is blamed whole, every fault is reported."""

from __future__ import annotations

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.audit.foreign_fabrics import Built

from syntony.audit.cabling import Cabling
from syntony.audit.fabric_check import audit_fabric
from syntony.audit.result import Result, Status
from syntony.fabric.ibnet import parse_subnet
from syntony.model.names import host_of

SEEDS = st.integers(0, 2**31)
TOLD = {Status.FAIL, Status.UNKNOWN}


def audit(text: str) -> list[Result]:
    """What is not right."""
    reported = parse_subnet(text)
    results = audit_fabric(Cabling(reported.topology, reported.rates, reported.says))
    return [r for r in results if r.status in {Status.FAIL, Status.UNKNOWN, Status.WARN}]


def words(results: list[Result]) -> str:
    return " ".join(
        f"{r.subject} {r.got} {r.expected} {r.evidence} {r.remedy}"
        for r in results if r.status in TOLD
    )  # fmt: skip


@settings(max_examples=40)
@given(seed=SEEDS, report=st.booleans())
def test_a_healthy_fabric_of_any_shape_has_no_findings(seed: int, report: bool) -> None:
    fabric = Built(seed)
    assert audit(fabric.ports_report() if report else fabric.full()) == [], fabric.shape


@settings(max_examples=30)
@given(seed=SEEDS)
def test_a_dark_nic_is_one_failure(seed: int) -> None:
    fabric = Built(seed)
    assume(sum(fabric.shape.pods) > 2)
    host = fabric.random.choice(fabric.random.choice(fabric.pod_hosts))
    nic = fabric.random.randrange(fabric.shape.nics)
    fabric.cut(fabric.wire_of(f"{host} mlx5_{nic}"))
    (result,) = audit(fabric.full())
    assert (result.status, result.subject) == (Status.FAIL, f"{host}/mlx5_{nic}"), fabric.shape


@settings(max_examples=30)
@given(seed=SEEDS)
def test_two_rails_of_a_host_exchanged(seed: int) -> None:
    fabric = Built(seed, "rail")
    hosts = fabric.random.choice([each for each in fabric.pod_hosts if len(each) > 1] or [[]])
    assume(hosts)
    host = fabric.random.choice(hosts)
    one, other = sorted(fabric.random.sample(range(fabric.shape.nics), 2))
    fabric.exchange(f"{host} mlx5_{one}", f"{host} mlx5_{other}")
    results = audit(fabric.full())
    if len(hosts) > 2:
        assert [(r.status, r.subject) for r in results] == [
            (Status.FAIL, f"{host}/mlx5_{one}+mlx5_{other}")
        ], fabric.shape
    else:  # of two hosts that differ nobody can say which is right: both are named
        assert {r.status for r in results} == {Status.UNKNOWN}
        assert all(each in words(results) for each in hosts), fabric.shape


@settings(max_examples=30)
@given(seed=SEEDS)
def test_hosts_of_two_racks_exchanged(seed: int) -> None:
    """Also where the last rack has a single host: no other host is blamed for it."""
    fabric = Built(seed, "rack")
    assume(len(fabric.pod_hosts) > 1 and fabric.shape.nics > 2)
    one, other = fabric.random.sample(fabric.pod_hosts, 2)
    hosts = fabric.random.choice(one), fabric.random.choice(other)
    nic = fabric.random.randrange(fabric.shape.nics)
    for each in hosts:
        assert f"{each} mlx5_{nic}" in fabric.boxes
    fabric.exchange(*(f"{each} mlx5_{nic}" for each in hosts))
    results = audit(fabric.full())
    assert {host_of(r.subject) for r in results if r.status is Status.FAIL} <= set(hosts)
    assert all(each in words(results) for each, pod in zip(hosts, (one, other), strict=True)
               if len(pod) > 2), fabric.shape  # fmt: skip


@settings(max_examples=30)
@given(seed=SEEDS)
@example(seed=11_637_545)  # a core that is left with one link looked like a leaf without hosts
@example(seed=1_826_949)  # a core of a single pod that is left with one link did not
def test_a_lost_link_between_switches(seed: int) -> None:
    fabric = Built(seed)
    wires = [w for w in fabric.wires if fabric.boxes[w.a] == fabric.boxes[w.b]]
    wire = fabric.random.choice(wires)
    siblings = {w.a for w in wires if w.b == wire.b} - {wire.a}
    assume(fabric.shape.links > 1 or siblings)  # else the upper switch is gone with its only link
    fabric.cut(wire)
    results = audit(fabric.full())
    reported = words(results)
    assert wire.a in reported, fabric.shape
    assert wire.b in reported, fabric.shape
    assert sum(r.status is Status.FAIL for r in results) <= 1, fabric.shape


@settings(max_examples=40)
@given(seed=SEEDS, level=st.sampled_from([1, 2]))
@example(seed=0, level=1)
@example(seed=0, level=2)
def test_an_absent_spine_or_core_is_told(seed: int, level: int) -> None:
    """Wherever anything is left to tell by: its number or ports among others', or other planes."""
    fabric = Built(seed)
    shape = fabric.shape
    uppers = fabric.uppers(level)
    assume(uppers)
    gone = fabric.random.choice(uppers)
    mates = [x for x in uppers if fabric.below(x) == fabric.below(gone)]
    planes = {fabric.below(x) for x in uppers}
    inner = 0 < mates.index(gone) < len(mates) - 1
    assume(len(mates) > 1 and (inner or len({len(p) for p in planes}) < len(planes)))
    fabric.remove(gone)
    results = audit(fabric.full())
    assert any(r.check == "be.topo.switches" and r.status in TOLD for r in results), (shape, gone)
    assert sum(r.status is Status.FAIL for r in results) <= 1, (shape, gone)
    left = len(mates) - 1
    if left > 1 and any(r.status is Status.FAIL for r in results):
        assert gone in words(results), shape


@settings(max_examples=20)
@given(seed=SEEDS)
def test_an_absent_leaf_of_a_rail_is_told(seed: int) -> None:
    fabric = Built(seed, "rail")
    assume(len(fabric.shape.pods) > 1)
    pod = fabric.random.randrange(len(fabric.shape.pods))
    leaf = fabric.leaf_of[f"{fabric.pod_hosts[pod][0]} mlx5_{fabric.random.randrange(2)}"]
    fabric.remove(leaf)
    results = audit(fabric.full())
    assert any(r.check == "be.topo.attached" and r.status in TOLD for r in results), fabric.shape
    assert sum(r.status is Status.FAIL for r in results) <= 1, fabric.shape
