"""`syntony audit pairs`: runs a two-host test over the whole fleet and names the failing host."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import click

from syntony.audit.report.summary import exit_code
from syntony.cli.audit_hosts import every_pair_option, host_names, plan_option, seed_option
from syntony.cli.audit_run import form_options, print_results
from syntony.cli.output import messages, print_json
from syntony.errors import UsageError

if TYPE_CHECKING:
    from syntony.audit.hunt import Pair

MAX_AT_ONCE = 512


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--hosts", required=True, help="Hosts: gpu[001-128], or @FILE with one on each line.")
@every_pair_option
@seed_option
@click.option("--deadline", type=float, default=60.0, help="Time limit of a test, seconds.")
@click.option(
    "--at-least", type=float, help="Least value of the number with which the test's output ends."
)
@plan_option
@form_options
@click.argument("test", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def pairs(
    context: click.Context, *, hosts: str, every_pair: bool, seed: int, deadline: float,
    at_least: float | None, plan: bool, form: str | None, everything: bool, test: tuple[str, ...],
) -> None:  # fmt: skip
    """Run TEST for pairs of hosts, all hosts busy at once, and name the host or pair that fails.

    {a} and {b} in TEST are the two hosts. TEST fails by its exit status, its deadline, or
    --at-least. Suspects are tested again with known good partners. Exit status: 0 all pass, 2 a
    host or pair fails, 3 no result.

    \b
    Examples:
      syntony audit pairs --hosts 'gpu[001-128]' --at-least 384 -- ./ib-pair.sh {a} {b}
      syntony audit pairs --hosts h0,h1,h2,h3 --plan
    """
    from syntony.audit.hunt import PairHunt
    from syntony.audit.pair_verdicts import HuntProgress, verdicts

    names = host_names(hosts)
    if len(names) < 2:
        raise UsageError("pairs need two hosts or more")
    hunt = PairHunt(names, every_pair=every_pair, seed=seed)
    if plan:
        print_json([list(map(list, matching)) for matching in hunt.plan])
        return
    words = test[1:] if test[:1] == ("--",) else test
    if not any("{a}" in word for word in words) or not any("{b}" in word for word in words):
        raise UsageError("give the command to run for a pair, with {a} and {b} for the two hosts")
    said: dict[Pair, str] = {}
    with ThreadPoolExecutor(max_workers=min(MAX_AT_ONCE, len(names))) as pool:
        while found := hunt.next_round():
            messages.print(f"round {hunt.rounds + 1} of at most {hunt.planned}: {len(found)} pairs")
            ended = list(pool.map(lambda pair: _test(words, pair, deadline, at_least), found))
            said |= {pair: why for pair, (_, why) in zip(found, ended, strict=True) if why}
            hunt.report(
                {pair: ok for pair, (ok, _) in zip(found, ended, strict=True) if ok is not None}
            )
    tested = HuntProgress(len(names), hunt.rounds, hunt.tested, hunt.untested)
    results = verdicts(hunt.named(), said, tested)
    print_results(list(results), form, everything=everything)
    context.exit(exit_code(result.status for result in results))


def _test(
    words: Sequence[str], pair: Pair, deadline_s: float, at_least: float | None
) -> tuple[bool | None, str]:
    """Run the test; return whether it passed (None: it could not be started), and why not."""
    from syntony.io.audit.collective import RankCommand, finish

    argv = tuple(word.replace("{a}", pair[0]).replace("{b}", pair[1]) for word in words)
    done = finish([RankCommand(argv, {})], deadline_s)[0]
    if done.trouble:
        return (False if done.started else None), done.trouble
    if at_least is None:
        return True, ""
    last = (done.said.split() or [""])[-1]
    try:
        value = float(last)
    except ValueError:
        return None, f"its last word {last[:40]!r} is no number"
    return value >= at_least, "" if value >= at_least else f"{value:g}, not {at_least:g}"
