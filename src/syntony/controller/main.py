"""The controller's process: its limits, its event loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import Any

from syntony.controller.api_hub import OpenApi
from syntony.controller.config import ControllerConfig
from syntony.controller.fleet import Planner
from syntony.controller.gateway_api import OpenGatewayApi
from syntony.controller.gateway_server import GatewayServer
from syntony.controller.memory import collect_seldom, keep_freed
from syntony.controller.server import Controller
from syntony.controller.solve import Solver
from syntony.io import descriptors
from syntony.io.log_limit import bugs_logged
from syntony.store import Store


def run(
    config: ControllerConfig, store: Store, planner: Planner, solver: Solver, api: OpenApi | None
) -> None:
    """A leader's main loop, see `Controller`; returns after SIGTERM or SIGINT."""
    _run(lambda: Controller(config, store, planner, solver, api).serve())


def run_gateway(config: ControllerConfig, store: Store, api: OpenGatewayApi | None) -> None:
    """A gateway's main loop, see `GatewayServer`; returns after SIGTERM or SIGINT."""
    _run(lambda: GatewayServer(config, store, api).serve())


def _run(serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
    import uvloop

    os.umask(0o077)
    descriptors.raise_limit()
    keep_freed()
    collect_seldom()
    with bugs_logged():
        uvloop.run(serve())
