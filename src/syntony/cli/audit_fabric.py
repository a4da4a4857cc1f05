"""`syntony audit fabric`: checks the cabling, with or without a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syntony.audit.report.summary import exit_code
from syntony.audit.text import printable
from syntony.cli.audit_run import form_options, print_results
from syntony.cli.output import messages
from syntony.errors import InputError, UsageError
from syntony.input_files import read_bytes

if TYPE_CHECKING:
    from syntony.audit.cabling import Cabling
    from syntony.fabric.ibnet import Subnet
    from syntony.fabric.lldp import Neighbour

_FILE = click.Path(path_type=Path)


@click.command()
@click.option("--ibnetdiscover", "subnet", type=_FILE, help="Output of `ibnetdiscover`.")
@click.option(
    "--lldp",
    type=_FILE,
    multiple=True,
    help="HOST.json with the output of `lldpctl -f json`, or a directory of them; repeatable.",
)
@click.option("--topology", type=_FILE, help="An operator's file: TOML, JSON or dot.")
@click.option("--expected", type=_FILE, help="The expected cabling, in any of these formats.")
@form_options
@click.pass_context
def fabric(
    context: click.Context, *, subnet: Path | None, lldp: tuple[Path, ...], topology: Path | None,
    expected: Path | None, form: str | None, everything: bool,
) -> None:  # fmt: skip
    """Check the cabling: rails, port order, uplinks, speeds, names, hierarchy.

    Hosts and leaves are compared with the majority, or with --expected. Exit status: 0 pass, 1
    warnings, 2 a failure, 3 unknown (also if a file cannot be read: every verdict is then unknown,
    with the reason).

    \b
    Examples:
      ibnetdiscover > fabric.txt; syntony audit fabric --ibnetdiscover fabric.txt
      syntony fabric import fabric.txt --json > plan.json    # a fabric known to be right
      syntony audit fabric --ibnetdiscover fabric.txt --expected plan.json --json
    """
    from syntony.audit.fabric_check import audit_fabric, unreadable

    if sum(map(bool, (subnet, lldp, topology))) != 1:
        raise UsageError("give one of --ibnetdiscover, --lldp, --topology")
    file = subnet or topology
    try:
        found = read_lldp(lldp) if file is None else read_cabling(file, bool(subnet))
        plan = None if expected is None else read_cabling(expected)
        results = audit_fabric(found, plan)
    except InputError as error:
        messages.print(f"syntony: {printable(str(error))}", markup=False, soft_wrap=True)
        results = unreadable(str(error))
    print_results(list(results), form, everything=everything)
    context.exit(exit_code(result.status for result in results))


def read_cabling(file: Path, subnet: bool = False) -> Cabling:
    """Read a fabric from a file of any supported form, or of `ibnetdiscover`. Raises `InputError`:
    it cannot be read, has another form, has no NIC, or is truncated."""
    from syntony.audit.cabling import Cabling
    from syntony.fabric.files import guess_form, parse_topology
    from syntony.fabric.ibnet import parse_subnet

    text = read_text(file)
    try:
        if subnet or guess_form(text) == "ibnetdiscover":
            found = _of_subnet(parse_subnet(text), str(file))
        else:
            found = Cabling(parse_topology(text))
    except InputError as error:
        raise InputError(error.name, f"{file}: {str(error).partition(': ')[2]}") from error
    if not found.attachments:
        raise InputError("no-nics", f"{file}: no NIC is cabled to a switch")
    return found


def read_text(file: Path) -> str:
    """A text file; bytes that are no text are replaced. Raises `InputError`."""
    try:
        return read_bytes(file).decode("utf-8", "replace")
    except OSError as error:
        raise InputError("unreadable", f"{file}: {error.strerror}") from error


def _of_subnet(reported: Subnet, name: str) -> Cabling:
    """Raises `InputError`: more is missing than the skipped lines can explain."""
    from syntony.audit.cabling import Cabling
    from syntony.fabric.lldp import LldpProblem

    if not reported.whole and reported.unlisted:
        raise InputError(
            "cut-off",
            f"{len(reported.unlisted)} devices have no entry of their own, "
            f"first {reported.unlisted[0]}",
        )
    if not reported.whole:
        count, first = len(reported.one_sided), reported.one_sided[0]
        raise InputError("cut-off", f"{count} cables are reported at one end only, first {first}")
    doubts = []
    if reported.skipped:
        lines = reported.skipped
        what = f"{len(lines)} lines make no sense and were skipped, first {lines[0]}"
        doubts.append(LldpProblem(name, what, False))
    return Cabling(reported.topology, reported.rates, reported.says, doubts)


def read_lldp(files: Sequence[Path]) -> Cabling:
    """``HOST.json`` of each host, or directories of such, as one fabric. Raises `InputError`."""
    each = [f for file in files for f in (sorted(file.glob("*.json")) if file.is_dir() else [file])]
    return lldp_cabling({file.stem: read_text(file) for file in each})


def lldp_cabling(reported: Mapping[str, str]) -> Cabling:
    """Combine many hosts' neighbours into one fabric; invalid entries are reported and skipped.

    Args:
        reported: host to the output of `lldpctl -f json` there.

    Raises:
        InputError: no host has a neighbour.
    """
    from syntony.audit.cabling import Cabling
    from syntony.fabric.files import load_json
    from syntony.fabric.lldp import LldpProblem, merge_lldp, read_neighbours

    heard: list[Neighbour] = []
    unread: list[LldpProblem] = []
    for host, text in reported.items():
        try:
            heard += read_neighbours(load_json(text), host)
        except InputError as error:
            unread.append(LldpProblem(host, f"LLDP: {str(error).partition(': ')[2]}", False))
    merged = merge_lldp(heard)
    found = Cabling(merged.topology, doubts=(*unread, *merged.doubts))
    if not found.attachments:
        why = f"; {unread[0].subject}: {unread[0].what}" if unread else ""
        raise InputError(
            "no-nics", f"no interface has an LLDP neighbour on {len(reported)} hosts{why}"
        )
    return found
