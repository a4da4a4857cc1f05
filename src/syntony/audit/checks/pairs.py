"""4.4 and 5: any test of two hosts, run over the whole fleet in perfect matchings."""

from __future__ import annotations

from syntony.audit.check import Check, Section
from syntony.audit.result import Suspect


class PairTest(Check):
    """A test of two hosts passes for every pair that was drawn.

    Expected results: exit status 0 within the deadline and the value asked for. Hosts in failed
    pairs are tested again with partners known to be good; who fails then is named, within
    log₂ N + 2 rounds for a single bad host.
    """

    id = "be.conn.pairs"
    section = Section.CONNECTIVITY
    reads = ("$ the test given to `syntony audit pairs`",)
    meaning = "jobs with this host run as badly as the test did"
    remedy = "take it out of the pool; audit it: syntony audit run --hosts HOST"
    suspect = Suspect.HOST


class FrontEndBandwidth(Check):
    """Every host sends and receives over the front-end network at its line's rate.

    Expected results: TCP between pairs, both ways, at 90 % of the slower interface's rate or more;
    where an interface is virtual or has no rate, 90 % of the upper quartile of all pairs. All hosts
    are busy at once; suspects are tested again as in be.conn.pairs.
    """

    id = "fe.bw"
    section = Section.FRONTEND
    reads = ("TCP between the hosts (syntony audit bandwidth)",)
    meaning = "data loads and checkpoints wait for this host: a link at a lower rate, or drops"
    remedy = "look at fe.iface and fe.errors on it, then at its switch port"
    suspect = Suspect.HOST


class QueuePairConnect(Check):
    """1, 2, 4 and 8 RDMA queue pairs connect between hosts and carry data, on every NIC.

    Expected results: `ib_write_bw -q N` ends well for each N. NICs of one name are tested with each
    other; every NIC is hunted by itself.
    """

    id = "be.conn.qp"
    section = Section.CONNECTIVITY
    reads = ("$ ib_write_bw -d DEVICE -q N (syntony audit bandwidth --rdma)",)
    meaning = "connections do not reach RTS, or break under load: NCCL fails as they do"
    remedy = "look at be.act.*, be.gid.* and be.act.qos of this NIC on both hosts"
    suspect = Suspect.NIC


class RdmaBandwidth(Check):
    """RDMA writes between hosts run at the line's rate, on every NIC.

    Expected results: `ib_write_bw -q 2`, both ways, at 96 % of the port's rate or more (384 of
    400 Gb/s, 192 of 200, 96 of 100).
    """

    id = "be.conn.bw"
    section = Section.CONNECTIVITY
    reads = ("$ ib_write_bw -d DEVICE -q 2 (syntony audit bandwidth --rdma)",)
    meaning = "the rail is slow with this host: PCIe, a link that lost lanes, congestion control"
    remedy = "look at pcie.link, pcie.mrrs, be.act.rate and be.act.counters of this NIC"
    suspect = Suspect.NIC


class GpuDirect(Check):
    """RDMA writes from GPU memory are as fast as from the host's.

    Expected results: `ib_write_bw -q 2 --use_cuda` (AMD: `--use_rocm`) with the nearest GPU reaches
    95 % of the same pair's figure from host memory. Run only when asked for (``--gdr``).
    """

    id = "be.conn.gdr"
    section = Section.CONNECTIVITY
    reads = ("$ ib_write_bw -d DEVICE -q 2 --use_cuda=GPU (syntony audit bandwidth --rdma)",)
    meaning = "GPUDirect RDMA does not work or takes the way through the processor"
    remedy = "load nvidia_peermem (sw.modules); look at pcie.acs, pcie.iommu and pcie.affinity"
    suspect = Suspect.NIC
