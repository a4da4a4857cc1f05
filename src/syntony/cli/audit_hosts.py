"""The hosts that an audit's option names."""

from __future__ import annotations

import click

from syntony.audit.hostlist import parse_hosts
from syntony.errors import UsageError
from syntony.input_files import MAX_CONFIG_BYTES, read_text

ssh_hosts_option = click.option(
    "--hosts",
    default="",
    show_default=False,
    help="Hosts to reach over SSH: gpu[001-128] or @FILE. They need python3.",
)
every_pair_option = click.option(
    "--every-pair", is_flag=True, help="Test all pairs in N−1 rounds, not a sample in log₂ N."
)
seed_option = click.option("--seed", type=int, default=1, help="Seed of the sample of pairs.")
plan_option = click.option("--plan", is_flag=True, help="Print the rounds as JSON; run nothing.")


def host_names(text: str) -> tuple[str, ...]:
    """``gpu[001-128]``, ``a,b,c`` or ``@FILE`` with one a line. Raises `UsageError`."""
    if text.startswith("@"):
        try:
            text = read_text(text[1:], MAX_CONFIG_BYTES)
        except OSError as error:
            raise UsageError(f"--hosts: {text[1:]} cannot be read: {error.strerror}") from error
    return parse_hosts(text)
