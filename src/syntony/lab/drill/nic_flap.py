"""NIC-failure drill in three runs: no failure, failure without Syntony, failure with Syntony."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from syntony.errors import UsageError
from syntony.lab.client import Lab
from syntony.lab.drill import modes, scenarios, verbs
from syntony.lab.drill.flows import SS_ARGV, parse_ss
from syntony.lab.drill.modes import JobMode
from syntony.lab.drill.place import NIC, SPEC, check_mode, job_spec, lab_for
from syntony.lab.drill.scenarios import Scenario
from syntony.lab.drill.trial import NicFlapTimes, NicFlapTrial, run_trial
from syntony.lab.jobs.nccl_mesh import PLUGIN
from syntony.lab.plan import FabricSpec


class NicFlapOptions(msgspec.Struct, frozen=True, kw_only=True):
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


class NicFlapRun(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    mode: JobMode
    faulty: bool


RUNS = (
    NicFlapRun(name="no failure", mode=modes.PLAIN, faulty=False),
    NicFlapRun(name="today", mode=modes.PLAIN, faulty=True),
    NicFlapRun(name="Syntony", mode=modes.SYNTONY, faulty=True),
)


OVER_VERBS = (
    NicFlapRun(name="no failure", mode=modes.NCCL, faulty=False),
    NicFlapRun(name="today", mode=modes.NCCL, faulty=True),
    NicFlapRun(name="Syntony", mode=modes.NCCL_SYNTONY, faulty=True),
)
WITHOUT_NCCL = (
    NicFlapRun(name="no failure", mode=modes.NCCL_SYNTONY, faulty=False),
    NicFlapRun(name="Syntony", mode=modes.NCCL_SYNTONY, faulty=True),
)
"""Over verbs, where NCCL is not installed."""


def drill_over_verbs(
    options: NicFlapOptions, say: Callable[[str], None], *, lab: Lab | None = None
) -> list[NicFlapTrial]:
    """Runs the job of two ranks over verbs, all runs in one lab because machines take long to boot.
    Without NCCL there is nothing to compare with, and the run without Syntony is left out.

    Raises:
        UsageError: there is no such fault, or the lab given has no RDMA.
        MissingError: this machine or installation lacks something.
        RemoteError: the job did not start.
    """
    options = msgspec.structs.replace(options, verbs=True, spec=verbs.SPEC)
    scenarios.meaning(options.fault)
    if options.fault == "spine-blackhole":
        raise UsageError("over verbs it is not known which spine a job uses; take another --fault")
    runs = OVER_VERBS if options.nccl else WITHOUT_NCCL
    if lab is not None:
        verbs.check_lab(lab)
        return drill(options, say, lab=lab, runs=runs)
    with verbs.verbs_lab(say) as own:
        return drill(options, say, lab=own, runs=runs)


def drill(
    options: NicFlapOptions,
    say: Callable[[str], None],
    *,
    lab: Lab | None = None,
    runs: tuple[NicFlapRun, ...] = RUNS,
) -> list[NicFlapTrial]:
    """Runs the job once per entry of `runs`, each in a lab of its own unless one is given.

    Raises:
        UsageError: there is no such fault, or the lab given is too small or has no agents.
        MissingError: this machine or installation lacks something.
        RemoteError: the job did not start.
    """
    scenarios.meaning(options.fault)
    for run in runs:
        check_mode(run.mode)
    trials: list[NicFlapTrial] = []
    for run in runs:
        say(f"run {len(trials) + 1} of {len(runs)}: {run.name}")
        with lab_for(options.spec, lab, agents=run.mode.agents) as place:
            trials.append(run_once(place, options, run, say))
    return trials


def run_once(
    lab: Lab, options: NicFlapOptions, run: NicFlapRun, say: Callable[[str], None]
) -> NicFlapTrial:
    spec = job_spec(
        lab,
        framework=options.framework,
        kind=options.kind,
        python=options.python,
        ranks=options.spec.hosts,
    )
    if options.verbs:
        net = options.nccl if run.mode is modes.NCCL else PLUGIN
        spec = msgspec.structs.replace(spec, net=net, elements=verbs.ELEMENTS)

    def plan() -> Scenario:
        link = _busy_link(lab) if options.fault == "spine-blackhole" else ""
        faulty = scenarios.make(options.fault, outage_ns=options.outage_ns, spine_link=link)
        return faulty if run.faulty else scenarios.no_fault(faulty.span_ns)

    return run_trial(lab, spec, run.mode, plan, name=run.name, times=options.times, say=say)


def _busy_link(lab: Lab) -> str:
    """The uplink of the victim's leaf that the job's busiest connection leaves by. Raises
    `UsageError`: no connection of the victim leaves its leaf."""
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
