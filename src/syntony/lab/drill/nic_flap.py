"""The three-run experiment: no failure, failure as things are today, failure with Syntony."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from syntony.errors import UsageError
from syntony.lab.drill import modes, scenarios, verbs
from syntony.lab.drill.flows import SS_ARGV, parse_ss
from syntony.lab.drill.place import NIC, SPEC, check_mode, job_spec, lab_for
from syntony.lab.drill.trial import NicFlapTimes, NicFlapTrial, run_trial
from syntony.lab.jobs.nccl_mesh import PLUGIN
from syntony.lab.plan import FabricSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from syntony.lab.client import Lab
    from syntony.lab.drill.modes import JobMode
    from syntony.lab.drill.scenarios import Scenario


class NicFlapOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of one drill."""

    framework: str
    kind: str
    python: str
    fault: str = "link-down"
    outage_ns: int = scenarios.OUTAGE_NS
    spec: FabricSpec = SPEC
    times: NicFlapTimes = NicFlapTimes()
    verbs: bool = False
    """Over RDMA, between virtual machines."""
    nccl: str = ""
    """NCCL's own transport there (`verbs.nccl_transport`)."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One of the three runs."""

    name: str
    mode: JobMode
    faulty: bool


RUNS = (
    Act(name="no failure", mode=modes.PLAIN, faulty=False),
    Act(name="today", mode=modes.PLAIN, faulty=True),
    Act(name="Syntony", mode=modes.SYNTONY, faulty=True),
)


OVER_VERBS = (
    Act(name="no failure", mode=modes.NCCL, faulty=False),
    Act(name="today", mode=modes.NCCL, faulty=True),
    Act(name="Syntony", mode=modes.NCCL_SYNTONY, faulty=True),
)
WITHOUT_NCCL = (
    Act(name="no failure", mode=modes.NCCL_SYNTONY, faulty=False),
    Act(name="Syntony", mode=modes.NCCL_SYNTONY, faulty=True),
)
"""Over verbs, where NCCL is not installed."""


def drill_over_verbs(
    wish: NicFlapOptions, say: Callable[[str], None], *, lab: Lab | None = None
) -> list[NicFlapTrial]:
    """All runs in one lab, for machines take long to boot; a job of two ranks. Without NCCL there
    is nothing to compare with: what the job does today is left out.

    Raises:
        UsageError: there is no such fault, or the lab given has no RDMA.
        MissingError: this machine or installation lacks something.
        RemoteError: the job did not start.
    """
    wish = msgspec.structs.replace(wish, verbs=True, spec=verbs.SPEC)
    scenarios.meaning(wish.fault)
    if wish.fault == "spine-blackhole":
        raise UsageError("over verbs it is not known which spine a job uses; take another --fault")
    runs = OVER_VERBS if wish.nccl else WITHOUT_NCCL
    if lab is not None:
        verbs.check_lab(lab)
        return drill(wish, say, lab=lab, runs=runs)
    with verbs.verbs_lab(say) as own:
        return drill(wish, say, lab=own, runs=runs)


def drill(
    wish: NicFlapOptions,
    say: Callable[[str], None],
    *,
    lab: Lab | None = None,
    runs: tuple[Act, ...] = RUNS,
) -> list[NicFlapTrial]:
    """Runs the job once per act, each in a lab of its own unless one is given.

    Raises:
        UsageError: there is no such fault, or the lab given is too small or has no agents.
        MissingError: this machine or installation lacks something.
        RemoteError: the job did not start.
    """
    scenarios.meaning(wish.fault)
    for act in runs:
        check_mode(act.mode, wish.framework)
    trials: list[NicFlapTrial] = []
    for act in runs:
        say(f"run {len(trials) + 1} of {len(runs)}: {act.name}")
        with lab_for(act.mode, wish.spec, lab) as place:
            trials.append(one(place, wish, act, say))
    return trials


def one(lab: Lab, wish: NicFlapOptions, act: Act, say: Callable[[str], None]) -> NicFlapTrial:
    """One run in a lab that is up."""
    spec = job_spec(
        lab, framework=wish.framework, kind=wish.kind, python=wish.python, ranks=wish.spec.hosts
    )
    if wish.verbs:
        net = wish.nccl if act.mode is modes.NCCL else PLUGIN
        spec = msgspec.structs.replace(spec, net=net, elements=verbs.ELEMENTS)

    def plan() -> Scenario:
        link = _busy_link(lab) if wish.fault == "spine-blackhole" else ""
        faulty = scenarios.make(wish.fault, outage_ns=wish.outage_ns, spine_link=link)
        return faulty if act.faulty else scenarios.calm(faulty.span_ns)

    return run_trial(lab, spec, act.mode, plan, name=act.name, times=wish.times, say=say)


def _busy_link(lab: Lab) -> str:
    """The uplink of the victim's leaf that the job's busiest connection leaves by.

    Raises:
        UsageError: no connection of the victim leaves its leaf.
    """
    names = {address: name for name, address in lab.addresses(4).items()}
    flows = parse_ss(lab.run(scenarios.VICTIM, *SS_ARGV))
    for flow in sorted(flows, key=lambda flow: -flow.sent_bytes):
        src, dst = names.get(flow.local), names.get(flow.peer)
        if src != scenarios.NIC or dst is None or not dst.endswith(NIC):
            continue
        way = lab.paths(src, dst, [flow.local_port], flow.peer_port, proto="tcp")[0]
        if way.spine is not None:
            return f"{way.hops[1]}/{way.spine}"
    raise UsageError(f"no connection of {scenarios.NIC} crosses a spine: nothing to blackhole")
