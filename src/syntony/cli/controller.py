"""`syntony controller`: the fleet daemon."""

from __future__ import annotations

import importlib.util
import logging

import click

from syntony.config import load_config
from syntony.errors import MissingError


@click.group(name="controller", invoke_without_command=True)
@click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False),
    default="/etc/syntony/controller.toml",
    show_default=True,
    help="TOML file.",
)
@click.option("--store", "store_url", default=None, help="Overrides the configured store.")
@click.option("--log-level", default="info", show_default=True, help="debug, info, warning, error.")
@click.pass_context
def command(
    context: click.Context, config_path: str, store_url: str | None, log_level: str
) -> None:
    """Run the fleet daemon: ingest, clock solve, probe plan, questions.

    \b
    Example:
      syntony controller --config controller.toml --store /var/lib/syntony/store
    """
    if context.invoked_subcommand is None:
        _run(config_path, store_url, log_level)


def _run(config_path: str, store_url: str | None, log_level: str) -> None:
    from syntony.controller.config import ControllerConfig

    config = load_config(config_path, ControllerConfig)
    _log_to_stderr(log_level)
    for module in ("pyarrow", "scipy"):
        if importlib.util.find_spec(module) is None:
            raise MissingError(f"the controller needs {module}; pip install 'syntony[controller]'")
    from syntony.clock.anchored import AnchoredSolver
    from syntony.clock.anchors import Anchor
    from syntony.controller.server import run
    from syntony.mesh.plan import make_plan
    from syntony.store import open_store

    anchors = [Anchor(x.node, x.bound_ns, x.reported) for x in config.anchors]
    store = open_store(store_url or config.store)
    try:
        run(config, store, make_plan, AnchoredSolver(anchors, config.utc_step_ns))
    finally:
        store.close()


def _log_to_stderr(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise click.BadParameter(f"{level!r} is not a level", param_hint="--log-level")
    logging.basicConfig(level=number, format="%(asctime)s %(levelname)s %(name)s %(message)s")
