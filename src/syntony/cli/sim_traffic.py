"""`syntony sim traffic`: a preset as a connection-matrix file."""

from __future__ import annotations

from typing import Any

import click

from syntony.cli.sim_options import make_scene, scene_options
from syntony.sim.fluid.matrix_file import format_matrix


@click.command()
@scene_options
def traffic(**options: Any) -> None:
    """Print --traffic as a connection matrix, to edit or for a packet-level simulator.

    \b
    Example:
      syntony sim traffic --traffic rings-256 > rings.cm
    """
    scene = make_scene(options)
    click.echo(format_matrix(scene.traffic, scene.net.nics), nl=False)
