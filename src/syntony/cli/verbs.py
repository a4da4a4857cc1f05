"""`syntony lab verbs`: a lab whose hosts have RDMA devices."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from syntony.cli import lab
from syntony.cli._labup import bring_up
from syntony.cli.lazy import HelpGroup
from syntony.cli.output import json_option
from syntony.lab.plan import FabricSpec
from syntony.lab.rates import parse_rate_bps
from syntony.lab.verbs.boot import wait_for_machines
from syntony.lab.verbs.image import image
from syntony.lab.world import new_lab

DEFAULT_NAME = "verbs"


@click.group(name="verbs", cls=HelpGroup)
def command() -> None:
    """A lab of virtual machines with Soft-RoCE: real verbs without RDMA hardware.

    Fabric, faults, controller and agents are those of every lab. Emulated machines are slow: they
    show what works, not how fast.

    Example: syntony lab verbs up --detach && syntony lab exec h0 -- ibv_devinfo
    """


@command.command()
@click.option(
    "--name", "--lab", "name", default=DEFAULT_NAME, metavar="NAME", help="Name of the lab."
)
@click.option("--hosts", type=click.IntRange(2, 8), default=2, help="Virtual machines.")
@click.option("--rails", type=click.IntRange(1, 4), default=2, help="NICs of each host.")
@click.option("--spines", type=click.IntRange(1, 4), default=2, help="Spines, shared by the rails.")
@click.option("--rate", default="200mbit", help="Rate of every fabric link.")
@click.option("--seed", default=1, help="Seed of ECMP hashes and probe plan.")
@click.option("--probe-interval-ms", type=click.IntRange(10, 10_000), default=200,
              help="Time between two probe pairs on one path.")  # fmt: skip
@click.option(
    "--no-agents", is_flag=True, help="Start the machines only, without controller and agents."
)
@click.option("--detach", is_flag=True, help="Leave the lab running; `syntony lab down` ends it.")
@json_option
def up(name: str, detach: bool, as_json: bool, **options: Any) -> None:
    """Boot the hosts and bring the lab up; without --detach it lasts until Ctrl-C.

    The first run fetches Debian's kernel (70 MB) and makes an image.

    Example: syntony lab verbs up --detach
    """
    spec = FabricSpec(
        hosts=options["hosts"],
        rails=options["rails"],
        leaves=min(2, options["hosts"]),
        spines=options["spines"],
        rate_bps=parse_rate_bps(options["rate"]),
        seed=options["seed"],
    )
    click.echo("image of the machines: kernel and modules of Debian, made once", err=True)
    file = new_lab(
        name,
        spec,
        agents=not options["no_agents"],
        options={"probe_interval_ns": options["probe_interval_ms"] * 1_000_000},
        image=str(image()),
    )
    booted = partial(wait_for_machines, say=partial(click.echo, err=True))
    bring_up(file, detach=detach, as_json=as_json, booted=booted)


for _same in (lab.status, lab.exec_, lab.fault, lab.down):
    command.add_command(_same)
