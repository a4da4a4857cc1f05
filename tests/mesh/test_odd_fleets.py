"""Meshes of fleets in which not every NIC can have its peers, and keys of their pairs."""

from __future__ import annotations

import pytest
from tests.mesh.test_key_rotation import OLD, begun, carried_out
from tests.mesh.test_stats import info

from syntony.mesh.key_rotation import Master, pair_key
from syntony.mesh.plan import mesh, with_spares
from syntony.model import NicRef


@pytest.mark.parametrize("peers", [1, 2, 3])
@pytest.mark.parametrize("rails", [2, 3, 5])
def test_a_host_with_many_nics_beside_one_with_a_single_one_has_a_plan(
    rails: int, peers: int
) -> None:
    """There is no edge to open for those that are short."""
    single = NicRef("b", "rail0")
    adjacency = mesh(
        [single, *(NicRef("a", f"rail{n}") for n in range(rails))], peers=peers, seed=1
    )
    assert len(adjacency[single]) == min(peers, rails)
    assert sum(map(len, adjacency.values())) == 2 * min(peers, rails)


def test_hosts_whose_peers_have_changed_confirm_their_keys_again() -> None:
    rotation = begun()
    carried_out(rotation, "h0", "h1")
    assert rotation.waiting() == ()
    rotation.replanned(["h1", "h7"])
    assert rotation.waiting() == ("h1",)


def test_a_pair_has_one_key_whoever_asks_and_no_other_pair_or_epoch_has_it() -> None:
    key = pair_key(OLD, "h0", "h1")
    assert len(key) == 16
    assert pair_key(OLD, "h1", "h0") == key
    later = Master(epoch=OLD.epoch + 1, secret=OLD.secret)
    other = Master(epoch=OLD.epoch, secret=b"x" * 32)
    keys = [pair_key(OLD, "h0", "h2"), pair_key(later, "h0", "h1"), pair_key(other, "h0", "h1")]
    assert len({key, *keys}) == 4


@pytest.mark.parametrize(("planned", "spares"), [(1, 0), (2, 6), (8, 0), (9, 0)])
def test_a_pair_with_several_paths_has_spare_ports_up_to_a_number(
    planned: int, spares: int
) -> None:
    plan = [info(number).flow for number in range(planned)]
    more = with_spares(plan, 8)[planned:]
    assert [flow.src_port - plan[-1].src_port for flow in more] == list(range(1, spares + 1))
