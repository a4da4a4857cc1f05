"""`syntony controller`: the fleet daemon."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

import click

from syntony.cli.fleet import FleetTarget, ask, fleet_options
from syntony.cli.lazy import HelpGroup
from syntony.cli.output import comment_option, console, log_level_option, messages, print_json
from syntony.config import load_config
from syntony.errors import MissingError
from syntony.extras import install_command
from syntony.io.user_name import user_name
from syntony.model import format_ns
from syntony.model.names import natural, some
from syntony.view import lazy_rich
from syntony.wire.control import ControllerQuery, GatewayStatus, TakeoverCommand
from syntony.wire.messages import Fleet, FleetQuery

if TYPE_CHECKING:
    from syntony.controller.api_hub import OpenApi
    from syntony.controller.config import ControllerConfig
    from syntony.controller.gateway_api import OpenGatewayApi

NEEDS = ("jwt", "pyarrow", "scipy", "starlette", "uvicorn")
"""Packages of the extra `controller`. The embedded store's are not listed: it may run elsewhere."""

_NAMED = 8
"""Hosts of one version that are named."""
ENVIRONMENT = {
    # With a thread a core OpenBLAS spins after each product, until the next one.
    "OPENBLAS_NUM_THREADS": "1",
    # gRPC reads a connection in the polling thread, not in a further one.
    "GRPC_EXPERIMENTS": "-event_engine_listener",
}
"""Defaults for the controller's process; libraries read them when they are loaded
(docs/decisions/0377)."""


@click.group(name="controller", cls=HelpGroup, invoke_without_command=True)
@click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False),
    default="/etc/syntony/controller.toml",
    help="TOML file.",
)
@click.option(
    "--store", "store_url", default=None, help="Store to use in place of the configured one."
)
@log_level_option
@click.pass_context
def command(
    context: click.Context, config_path: str, store_url: str | None, log_level: str
) -> None:
    """Run the fleet's daemon: stores rows, solves clocks, plans probes, answers commands.

    \b
    Example:
      syntony controller --config controller.toml --store /var/lib/syntony/store
    """
    if context.invoked_subcommand is None:
        _run(config_path, store_url, log_level)


@command.command()
@click.option("--above", type=click.IntRange(1), required=True,
              help="Epoch that agents have obeyed; the controller's log names it.")  # fmt: skip
@comment_option
@fleet_options
def takeover(target: FleetTarget, above: int, comment: str, as_json: bool) -> None:
    """Let this controller lead agents that have obeyed a controller with a later epoch.

    Needed after control.db was restored from a backup. Make sure that no other controller runs.

    \b
    Example:
      syntony controller takeover --above 17 --comment "control.db restored"
    """
    order = TakeoverCommand(above=above, by=user_name(), comment=comment)
    raised = ask(target, order)
    if as_json:
        print_json({"epoch": raised.epoch})
        return
    messages.print(f"in charge with epoch {raised.epoch}")


@command.command()
@fleet_options
@click.pass_context
def status(context: click.Context, target: FleetTarget, as_json: bool) -> None:
    """Show which controller leads, since when, and the state of its gateways.

    Exit status: 0 it leads, 1 its control state is not persistent, 2 agents obey a later one.

    \b
    Example:
      syntony controller status --lab lab
    """
    found = ask(target, ControllerQuery())
    if as_json:
        print_json(found)
    else:
        versions = _other_versions(ask(target, FleetQuery()), found.version)
        for name, text in (
            ("in charge", f"{found.name}, version {found.version}, for {format_ns(found.up_ns)}"),
            ("epoch", str(found.epoch)),
            ("agents", f"{found.agents} attached{versions}"),
            ("state", "kept" if found.durable else "in memory: a restart forgets it"),
        ):
            console.print(lazy_rich.Text.assemble((f"{name:<10}", "dim"), text), soft_wrap=True)
        for gateway in found.gateways:
            line = lazy_rich.Text.assemble((f"{'gateway':<10}", "dim"), _gateway(gateway))
            console.print(line, soft_wrap=True)
        if found.seen_epoch > found.epoch:
            messages.print(
                f"agents have obeyed epoch {found.seen_epoch}: another controller took over, or "
                "control state is from a backup (docs/reference/security.md)"
            )
    context.exit(2 if found.seen_epoch > found.epoch else int(not found.durable))


def _other_versions(fleet: Fleet, version: str) -> str:
    """Attached agents that are of another version than the controller, by version."""
    hosts: dict[str, list[str]] = {}
    for agent in fleet.agents:
        if agent.connected and agent.version != version:
            hosts.setdefault(agent.version, []).append(agent.host)
    return "".join(
        f", version {each} on {some(sorted(hosts[each], key=natural), _NAMED)}"
        for each in sorted(hosts, key=natural)
    )


def _gateway(found: GatewayStatus) -> str:
    if found.left:
        return f"{found.name}, stopped on purpose {format_ns(found.silent_ns)} ago"
    if not found.connected:
        return f"{found.name}, absent for {format_ns(found.silent_ns)}: its agents use another one"
    store = "" if found.store_up else ", its store refuses rows"
    return (
        f"{found.name}, version {found.version}, {found.agents} agents, "
        f"lag {format_ns(found.lag_ns)}{store}"
    )


def _run(config_path: str, store_url: str | None, log_level: str) -> None:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from syntony.controller.config import ControllerConfig, check_gateway
    from syntony.io.log_limit import log_to_stderr

    config = load_config(config_path, ControllerConfig)
    log_to_stderr(log_level.upper(), "%(asctime)s %(levelname)s %(name)s %(message)s")
    for module in NEEDS:
        if importlib.util.find_spec(module) is None:
            how = install_command(module)
            raise MissingError(f"the controller needs {module}; install it with: {how}")
    from syntony.controller.main import run, run_gateway
    from syntony.store import open_store

    check_gateway(config)
    store = open_store(store_url or config.store)
    try:
        if config.gateway:
            run_gateway(config, store, _gateway_api(config))
            return
        run(config, store, _api(config))
    finally:
        store.close()


def _api(config: ControllerConfig) -> OpenApi | None:
    """Start the API, whose packages are loaded only if it is configured."""
    if not config.api.listen:
        return None
    from syntony.api.serve import leader_api

    return leader_api


def _gateway_api(config: ControllerConfig) -> OpenGatewayApi | None:
    if not config.api.listen:
        return None
    from syntony.api.serve import gateway_api

    return gateway_api
