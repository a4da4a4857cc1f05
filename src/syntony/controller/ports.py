"""All ports that a controller listens on: agents and command lines, enrolment, metrics, the API."""

from __future__ import annotations

import asyncio

from syntony.controller.api_hub import ApiHub, ApiService, OpenApi
from syntony.controller.config import ControllerConfig
from syntony.controller.join_server import JoinServer
from syntony.controller.listen import ServerCertificate, open_server
from syntony.controller.metrics import Exporter, open_metrics
from syntony.controller.service import FleetService
from syntony.io.scrape import ScrapeServer
from syntony.io.transport import grpc

STOP_GRACE_S = 1.0


class ControllerPorts:
    """Opens all ports on which a controller listens.

    One per controller, on its event loop.

    Args:
        config: where to listen.
        service: handles agents and command lines.
        certificate: the controller's own.
        joining: the enrolment port, if any.

    Raises:
        ConfigError, MissingError: an address that cannot be used.
    """

    def __init__(
        self,
        config: ControllerConfig,
        service: FleetService,
        certificate: ServerCertificate,
        joining: JoinServer | None,
    ) -> None:
        self._config = config
        server, self.port = open_server(config, service.handlers(), certificate)
        self._servers: list[grpc.aio.Server] = [server]
        if joining is not None:
            self._servers.append(joining.server)
        self._scraping: ScrapeServer | None = None
        self.api: ApiService | None = None
        """Set once it is open; None: there is none."""

    async def open(self, exporter: Exporter, open_api: OpenApi | None, hub: ApiHub) -> None:
        """Accept connections. Raises `ConfigError`, `MissingError`."""
        self._scraping = open_metrics(self._config, exporter)
        if self._scraping is not None:
            enrolment = hub.services.membership.enrolment
            self._scraping.revocations = lambda: enrolment.revocations
        if open_api is not None:
            self.api = await asyncio.to_thread(open_api, hub)
            await asyncio.to_thread(self.api.start)
        for each in self._servers:
            await each.start()

    async def close(self) -> None:
        if self.api is not None:
            await asyncio.to_thread(self.api.stop)
        if self._scraping is not None:
            await asyncio.to_thread(self._scraping.close)
        await asyncio.gather(*(each.stop(STOP_GRACE_S) for each in self._servers))
