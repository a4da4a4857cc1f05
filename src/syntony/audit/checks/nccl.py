"""5 Collectives over all hosts: bandwidth at 1, 2, 4 and 8 queue pairs, the path really used."""

from __future__ import annotations

from syntony.audit.check import Check, Section
from syntony.audit.nccl.plan import Case, cases
from syntony.audit.result import Suspect


class NcclCheck(Check):
    """What all of them share."""

    section = Section.NCCL
    reads = ("$ all_reduce_perf -b 1G -e 16G -f 2 -g 1 -n 20 -c 1 -J REPORT",)
    suspect = Suspect.FABRIC


def _all_reduce(case: Case) -> type[Check]:
    pairs = "1 queue pair" if case.qps == 1 else f"{case.qps} queue pairs"
    order = "ordered by the hierarchy of the fabric" if case.ordered else "as a job gets them"
    rule = _ALL_REDUCE_RULE if case == Case(1, ordered=False) else "as nccl.1qp."

    class AllReduce(NcclCheck):
        __doc__ = (
            f"All-reduce with {pairs} per connection, hosts {order}.\n\nExpected results: {rule}"
        )
        id = case.check
        meaning = "every training step waits for this; see nccl.diagnosis for where to look"
        remedy = "see nccl.diagnosis"

    return AllReduce


_ALL_REDUCE_RULE = (
    "bus bandwidth at least the floor of the node type and number of nodes, or 90 % of the best "
    "case where none is known; 3 runs within 5 %."
)
ALL_REDUCES = tuple(_all_reduce(case) for case in cases())


class Correct(NcclCheck):
    """Every element of every result is right.

    Expected results: no wrong element in any run that checked; unknown if none did.
    """

    id = "nccl.correct"
    meaning = "silent data corruption: a GPU, its memory or a link changes numbers"
    remedy = "halve the fleet to find the host (--hunt), take it out, run its GPU diagnostics"
    suspect = Suspect.GPU


class Path(NcclCheck):
    """NCCL's log says that it used what was meant.

    Expected results: RDMA between hosts and not sockets, as many NICs on every host, GPUDirect
    RDMA, the number of queue pairs that was asked for, no warnings.
    """

    id = "nccl.path"
    reads = ("$ all_reduce_perf … (NCCL_DEBUG=INFO)",)
    meaning = "the job does not use the network that was bought for it"
    remedy = "see why: be.act.*, be.gid.*, sw.modules, sw.env"
    suspect = Suspect.CONFIG


class Size(NcclCheck):
    """There are hosts enough to judge a fabric.

    Expected results: four or more; two take a special path through NCCL (NVLSTree).
    """

    id = "nccl.size"
    meaning = "the figures say little of a fabric"
    remedy = "run it over four hosts or more"
    suspect = Suspect.CONFIG


class Tail(NcclCheck):
    """No iteration takes much longer than most.

    Expected results: p99 (of fewer than 100, the slowest) over p50 of the iterations below 1.2 for
    every size, where the output lists iterations (``-I`` of nccl-tests 2.17, PyTorch).
    """

    id = "nccl.tail"
    meaning = "a flow straggles: one connection shares a link or retransmits"
    remedy = "find the flow: syntony fabric show, one-way delays, be.act.counters"


class CasePattern(NcclCheck):
    """What the pattern of good and low cases comes down to.

    Expected results: no case low. Flat low and ordered good: spines. Few queue pairs low and many
    good: ECMP. All low: hosts, NICs, PCIe, GPUDirect.
    """

    id = "nccl.diagnosis"
    reads = ("the cases above",)
    meaning = "the pattern's meaning"
    remedy = "as the pattern says"


class SlowHost(NcclCheck):
    """The host that makes a collective slow, found by halving the fleet.

    Expected results: nothing to hunt. Run only when asked for (``--hunt``) and a case is low.
    """

    id = "nccl.hunt"
    meaning = "collectives with this host are low, those without it are not"
    remedy = "take it out of the job; audit it: syntony audit run --hosts HOST"
    suspect = Suspect.HOST


class RailBalance(NcclCheck):
    """No rail is slower than the others when all work at once.

    Expected results: with one group of ranks for each GPU of a host, all at the same time
    (``NCCL_TESTS_SPLIT``), the slowest reaches 95 % of their mean, and an eighth of the
    all-reduce's floor where one is known; else each rail is run alone, and those below 95 % of
    their median are named. Run only when asked for (``--rails``).
    """

    id = "nccl.rails"
    reads = ("$ NCCL_TESTS_SPLIT='MOD 8' all_reduce_perf … -a 3",)
    meaning = "one rail is slow on some host or leaf: every collective waits for its slowest rail"
    remedy = "compare be.conn.bw of this rail's NICs; look at its leaf: be.topo.uplinks, counters"


class Operations(NcclCheck):
    """Other collectives than all-reduce are as fast as the same NICs allow.

    Expected results: all_gather and reduce_scatter at the floor of an all-reduce, alltoall and
    sendrecv at an eighth of it (one NIC a GPU limits them); no wrong element. These floors are
    derived, not published, so a lower figure is a warning. Run only when asked for (``--ops``).
    """

    id = "nccl.ops"
    reads = ("$ all_gather_perf, reduce_scatter_perf, alltoall_perf, sendrecv_perf",)
    meaning = "models with experts or sharded weights wait where an all-reduce does not"
    remedy = "alltoall alone low: paths between leaves (nccl.diagnosis, be.conn.paths), PXN"


class InNetwork(NcclCheck):
    """Switches reduce (SHARP) when they are asked to, and it helps.

    Expected results: with NCCL_COLLNET_ENABLE=1, NCCL's log lists CollNet channels and the bus
    bandwidth is not below that without (give or take 5 %). Run only when asked for (``--sharp``).
    """

    id = "nccl.sharp"
    reads = ("$ NCCL_COLLNET_ENABLE=0|1 all_reduce_perf …",)
    meaning = "SHARP is paid for and not used, or it slows down"
    remedy = "start sharp_am and the NCCL plugin (nccl-rdma-sharp-plugins); see NCCL's warnings"
    suspect = Suspect.CONFIG
