"""`syntony cost`: estimates what failures cost a job, without and with Syntony."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from syntony.cli.fleet import ask, certificate_options, fleet_target
from syntony.cli.output import console, json_option, print_json
from syntony.cost import cost
from syntony.errors import UsageError
from syntony.model import DAY_NS, HOUR_NS, S, format_ns, parse_duration_ns
from syntony.view import lazy_rich
from syntony.view.tables import plain_table
from syntony.wire.cost import YEAR_NS, CostQuery, CostReport, Interval

_DEFAULTS = CostQuery()


class _Duration(click.ParamType[int]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_duration_ns(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class _Sizes(click.ParamType[tuple[int, ...]]):
    """``1024`` or ``1000,5000,10000``."""

    name = "gpus"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        try:
            return tuple(int(each) for each in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r}: write a number, or several like 1000,5000", param, ctx)


def _assumption(flag: str, name: str, kind: Any, meaning: str) -> Callable[[Any], Any]:
    """An option for one field of `CostQuery`, with its default."""
    default = getattr(_DEFAULTS, name)
    shown = _humane(default) if isinstance(kind, _Duration) else f"{default:.4g}"
    help_text = f"{meaning}  [default: {shown}]"
    return click.option(flag, name, type=kind, default=default, show_default=False, help=help_text)


def _humane(value_ns: float) -> str:
    """A duration in a readable unit, from seconds to years."""
    if not value_ns:
        return "0 s"
    for unit, scale_ns in (("years", YEAR_NS), ("d", DAY_NS), ("h", HOUR_NS), ("min", 60 * S)):
        if value_ns >= 2 * scale_ns:
            return f"{value_ns / scale_ns:.3g} {unit}"
    return format_ns(value_ns)


@click.command()
@click.option(
    "--gpus", type=_Sizes(), default="1024",
    help="GPUs of the job; several sizes as 1000,5000,10000.",
)  # fmt: skip
@_assumption("--restarts-low", "restarts_low", float, "Failures a year and 1,000 GPUs, at best.")
@_assumption("--restarts-high", "restarts_high", float, "Failures a year and 1,000 GPUs, at worst.")
@click.option(
    "--links", default=0, show_default=False,
    help="Links from NICs to leaves.  [default: one for each GPU]",
)  # fmt: skip
@_assumption("--link-mtbf", "link_mtbf_ns", _Duration(), "Mean time between failures of a link.")
@_assumption("--checkpoint", "checkpoint_ns", _Duration(), "Time between checkpoints.")
@_assumption("--lost-share", "lost_share", float, "Part of that time that a failure loses.")
@_assumption("--recovery", "recovery_ns", _Duration(), "From a failure to the first new step.")
@_assumption("--price", "price", float, "Price of a GPU-hour, in any currency; 0: not known.")
@_assumption("--network-share", "network_share", float, "Part of failures: NIC, cable, switch.")
@_assumption("--rank-share", "rank_share", float, "Part of failures: a GPU, and so a rank.")
@_assumption("--nics-per-host", "nics_per_host", int, "NICs that can stand in for each other.")
@_assumption(
    "--failover", "failover_ns", _Duration(), "Standstill when a NIC is left; 0s: none is."
)
@_assumption("--repair", "repair_ns", _Duration(), "Until a failed NIC or cable works again.")
@_assumption("--network-time", "network_time_share", float, "Part of a step spent on the network.")
@_assumption("--takeover", "takeover_ns", _Duration(), "Standstill when a spare takes a rank's "
             "place; 0s: none does.")  # fmt: skip
@click.option(
    "--history", "history_ns", type=_Duration(), default=0, show_default=False, metavar="T",
    help="Also count the incidents of a fleet in the past T: --lab or --controller.",
)  # fmt: skip
@click.option("--lab", metavar="NAME", help="A lab on this machine; the only one by default.")
@click.option("--controller", metavar="HOST:PORT", help="Controller to ask; needs a certificate.")
@certificate_options
@json_option
def command(
    gpus: tuple[int, ...],
    *,
    lab: str | None,
    controller: str | None,
    ca: str | None,
    cert: str | None,
    key: str | None,
    as_json: bool,
    **assumptions: Any,
) -> None:
    """Estimate what failures cost a job: restarts and lost GPU-hours, without and with Syntony.

    Defaults are published figures (docs/reference/cost.md cites each). No host is contacted,
    except with --history, which also counts the fleet's own incidents.

    \b
    Examples:
      syntony cost --gpus 1024 --price 2.5
      syntony cost --gpus 1000,5000,10000,50000 --json
      syntony cost --gpus 4096 --history 90d --lab lab
    """
    queries = [CostQuery(gpus=each, **assumptions) for each in gpus]
    if queries[0].history_ns:
        target = fleet_target(lab, controller, (ca, cert, key))
        reports = [ask(target, each) for each in queries]
    elif lab or controller:
        raise UsageError("--lab and --controller count a fleet's own incidents: add --history 90d")
    else:
        reports = [cost(each) for each in queries]
    if as_json:
        print_json({"jobs": reports})
        return
    console.print(_table(reports))
    console.print(lazy_rich.Text(_assumed(reports), style="dim"), soft_wrap=True)
    _print_observed(reports[0])


def _table(reports: list[CostReport]) -> lazy_rich.Table:
    table = plain_table("GPUs", *(f">{each.assumed.gpus:,}" for each in reports))
    for label, cell in _rows(reports[0]):
        table.add_row(label, *map(cell, reports))
    return table


def _rows(first: CostReport) -> list[tuple[str, Callable[[CostReport], str]]]:
    rows: list[tuple[str, Callable[[CostReport], str]]] = [
        ("restarts a year", lambda report: _count(report.restarts_per_year)),
        ("mean time to failure", lambda report: _times(report.mttf_ns)),
        ("first link fails after", lambda report: _time(report.first_link_failure_ns)),
        ("GPU-hours lost by one failure", lambda report: f"{report.gpu_hours_per_failure:,.0f}"),
        ("GPU-hours lost a month, today", lambda report: _count(report.today.gpu_hours_per_month)),
        (
            "GPU-hours lost a month, with Syntony",
            lambda report: _count(report.with_syntony.gpu_hours_per_month),
        ),
        ("share of all GPU time, today", lambda report: _percent(report.today.share)),
        ("share of all GPU time, with Syntony", lambda report: _percent(report.with_syntony.share)),
        ("engineer-hours a month, today", lambda report: _count(report.engineer_hours_per_month)),
    ]
    if first.assumed.price:
        rows += [
            ("price a month, today", lambda report: _price(report.today.price_per_month)),
            ("price a month, with Syntony",
             lambda report: _price(report.with_syntony.price_per_month)),
        ]  # fmt: skip
    return rows


def _assumed(reports: list[CostReport]) -> str:
    """The main assumptions, in words."""
    assumed = reports[0].assumed
    survived = []
    if assumed.failover_ns and assumed.nics_per_host > 1:
        survived.append(
            f"network failures ({_share(assumed.network_share)} of all) stop the job for "
            f"{format_ns(assumed.failover_ns)} and slow it until repaired, "
            f"{_humane(assumed.repair_ns)} later"
        )
    if assumed.takeover_ns:
        ranks = f"lost ranks ({_share(assumed.rank_share)})"
        survived.append(f"{ranks} stop it for {format_ns(assumed.takeover_ns)}")
    work_ns = assumed.lost_share * assumed.checkpoint_ns
    text = (
        f"Today a failure loses {_humane(work_ns)} of work and {_humane(assumed.recovery_ns)} of "
        f"recovery on all GPUs. With Syntony: {'; '.join(survived) or 'nothing is survived'}."
    )
    if any(each.today.share.high >= 1 for each in reports):
        text += " A share of 100 %: the job makes no progress; checkpoint more often."
    return text


def _print_observed(report: CostReport) -> None:
    found = report.observed
    if found is None:
        return
    console.print(
        f"This fleet, past {_humane(found.period_ns)}: {found.network} network failures, "
        f"{found.hosts} of hosts, {found.other} other critical incidents; the first two make "
        f"{found.per_year:,.0f} a year.",
        soft_wrap=True,
    )


def _count(values: Interval) -> str:
    return f"{values.low:,.0f} – {values.high:,.0f}"


def _price(values: Interval | None) -> str:
    return "–" if values is None else _count(values)


def _percent(values: Interval) -> str:
    return f"{values.low:.2%} – {values.high:.2%}".replace("%", " %")


def _share(value: float) -> str:
    return f"{100 * value:.3g} %"


def _time(value_ns: float) -> str:
    """In hours, or in minutes below three hours."""
    if value_ns < 3 * HOUR_NS:
        return f"{value_ns / (60 * S):,.4g} min"
    return f"{value_ns / HOUR_NS:,.3g} h"


def _times(values: Interval) -> str:
    return f"{_time(values.low)} – {_time(values.high)}"
