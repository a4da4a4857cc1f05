"""The gateway process: its port, its certificate, its connection to the leader."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from syntony.controller.api_hub import ApiService
from syntony.controller.config import ControllerConfig, check_gateway
from syntony.controller.gateway import Gateway
from syntony.controller.gateway_api import GatewayApiHub, OpenGatewayApi
from syntony.controller.hello_check import prefixes
from syntony.controller.leader_link import Call
from syntony.controller.listen import ServerCertificate, open_server
from syntony.controller.loops import Loops
from syntony.controller.metrics import new_sheet, open_metrics, put_ingest
from syntony.controller.ports import STOP_GRACE_S
from syntony.controller.retention import learn_minutes
from syntony.controller.service import FleetService
from syntony.errors import RemoteError
from syntony.io.credentials import civil_now, load_credentials
from syntony.io.descriptors import DescriptorWatch
from syntony.io.dialling import channel_credentials, channel_options, explain
from syntony.io.renewal import Renewal
from syntony.io.transport import grpc
from syntony.metrics.sheet import Sheet
from syntony.model import S
from syntony.model.tls_files import TlsFiles
from syntony.store import Store
from syntony.wire.coding import encode
from syntony.wire.enrol import Issued, RenewQuery, Revocations
from syntony.wire.gateways import RELAY, RELAY_QUERY, RelayedRequest
from syntony.wire.query import Failure, decode_answer

_log = logging.getLogger(__name__)

LEARN_S = 60.0
"""Interval at which the leader's aggregated minutes are read."""
ASK_TIMEOUT_S = 70.0
"""A leader's slowest answer takes 60 s."""


class GatewayServer:
    """Runs one gateway: serves agents, stores their rows, and relays to the leader.

    Args:
        config: where to listen, which leaders to follow.
        store: open; its opener closes it.
        open_api: `syntony.api.serve.gateway_api`; None: no API, whatever is configured.

    Raises:
        ConfigError: the configuration is not a gateway's.
    """

    def __init__(
        self, config: ControllerConfig, store: Store, open_api: OpenGatewayApi | None = None
    ) -> None:
        check_gateway(config)
        self._config, self._store, self._open_api = config, store, open_api
        self._api: ApiService | None = None
        dial = _Dial(config.tls, several=len(config.leaders) > 1)
        self._gateway = Gateway(config.leaders, store, dial.open, civil_now)
        self._stop = asyncio.Event()
        self.port = 0
        """Port to which agents attach."""

    async def serve(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT, or until cancelled.

        Args:
            ready: called once connections are accepted.

        Raises:
            ConfigError, MissingError: certificates or addresses that cannot be used.
        """
        service = FleetService(self._gateway, prefixes(self._config.nic_prefixes))
        certificate = ServerCertificate(self._config)
        server, self.port = open_server(self._config, service.handlers(), certificate)
        scraping = open_metrics(self._config, _Exporter(self._gateway, certificate))
        if scraping is not None:
            scraping.revocations = lambda: self._gateway.revocations or Revocations()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        try:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(self._gateway.run())
                opening = group.create_task(self._open(server, ready))
                background = [
                    group.create_task(self._renew_in_time()),
                    group.create_task(self._learn_minutes()),
                    group.create_task(Loops().every(S, DescriptorWatch().watch_descriptors)),
                ]
                await self._stop.wait()
                opening.cancel()
                for task in background:
                    task.cancel()
                if self._api is not None:
                    await asyncio.to_thread(self._api.stop)
                self._gateway.close()
                await server.stop(STOP_GRACE_S)
                running.cancel()
        finally:
            if scraping is not None:
                await asyncio.to_thread(scraping.close)
            _log.info("gateway down")

    async def _open(self, server: grpc.aio.Server, ready: Callable[[], None] | None) -> None:
        _log.info("gateway, waiting for a leader leaders=%s", ", ".join(self._config.leaders))
        await self._gateway.ready.wait()
        await server.start()
        if self._open_api is not None:
            hub = GatewayApiHub(self._config, self._gateway, asyncio.get_running_loop())
            self._api = await asyncio.to_thread(self._open_api, hub)
            await asyncio.to_thread(self._api.start)
        _log.info("gateway up listen=%s port=%d", self._config.listen, self.port)
        if ready is not None:
            ready()

    async def _learn_minutes(self) -> None:
        while True:
            if (fleet_now_ns := self._gateway.fleet_now()) is not None:
                await asyncio.to_thread(learn_minutes, self._store, fleet_now_ns)
            await asyncio.sleep(LEARN_S)

    async def _renew_in_time(self) -> None:
        loop = asyncio.get_running_loop()

        def ask(query: RenewQuery) -> Issued | Failure:
            return asyncio.run_coroutine_threadsafe(self._ask_leader(query), loop).result()

        renewal = Renewal(self._config.tls, ask)
        while True:
            wait_ns = await asyncio.to_thread(renewal.step)
            await asyncio.sleep(wait_ns / S)

    async def _ask_leader(self, query: RenewQuery) -> Issued | Failure:
        """Ask the leader for this gateway itself. Raises `SyntonyError`: there is no answer."""
        own = await asyncio.to_thread(load_credentials, self._config.tls)
        request = RelayedRequest(query=encode(query), certificate=own.certificate, peer="itself")
        pages = await self._gateway.link.ask(request)
        if not pages:
            raise RemoteError("the leader has not answered")
        return decode_answer(pages[0], Issued)


class _Exporter(NamedTuple):
    gateway: Gateway
    certificate: ServerCertificate

    async def sheet(self) -> Sheet:
        sheet, gateway = new_sheet("gateway"), self.gateway
        left_ns = max(0, self.certificate.validity.expires_ns - civil_now())
        sheet.put("certificate_expiry_seconds", left_ns / S)
        sheet.put("gateway_leader_connected", gateway.link.connected)
        sheet.put("gateway_leader_changes_total", gateway.link.connections)
        sheet.put("agents", gateway.agents, state="connected")
        sheet.put("agents_refused_total", gateway.refused_agents)
        sheet.put("ingest_rows_total", gateway.rows)
        put_ingest(sheet, gateway.ingest)
        return sheet


class _Dial:
    """Opens streams to leaders.

    Args:
        files: of this gateway's certificate; read each time.
        several: whether there are several leaders.
    """

    def __init__(self, files: TlsFiles, *, several: bool) -> None:
        self._files = files
        self._options = channel_options(several=several)

    @contextlib.asynccontextmanager
    async def open(self, address: str) -> AsyncIterator[Call]:
        """Open a stream. Raises `MissingError`, `WireError`: our certificate cannot be used."""
        credentials = channel_credentials(self._files)
        async with grpc.aio.secure_channel(address, credentials, self._options) as channel:
            yield _Call(channel)


class _Call:
    """See `leader_link.Call`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stream = channel.stream_stream(RELAY)()
        self._ask = channel.unary_stream(RELAY_QUERY)

    async def write(self, data: bytes) -> None:
        try:
            await self._stream.write(data)
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            raise RemoteError("the stream has ended") from error

    async def answers(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._stream:
                yield data
        except grpc.RpcError as error:
            raise RemoteError(explain(error)) from error

    async def ask(self, data: bytes) -> list[bytes]:
        try:
            return [page async for page in self._ask(data, timeout=ASK_TIMEOUT_S)]
        except grpc.RpcError as error:
            raise RemoteError(explain(error)) from error
