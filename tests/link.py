"""A real controller process and the certificates to talk to it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tests.live import eventually
from tests.ports import free_port

from syntony.agent.config import AgentConfig
from syntony.agent.spool import Spool
from syntony.cli import fleet
from syntony.controller import client
from syntony.controller.client import ask
from syntony.controller.pki import Authority, create_authority
from syntony.errors import RemoteError
from syntony.model import HOUR_NS, S
from syntony.model.tls_files import TlsFiles
from syntony.wire.arrow import encode_columns
from syntony.wire.messages import PROTOCOL, Fleet, FleetQuery, Hello, NicInfo
from syntony.wire.roles import Role
from syntony.wire.tables import PROBE

T0 = 1_700_000_000 * S
_RUN = (
    "from syntony.controller import questions as q; q.BUDGET_NS = q.STORE_BUDGET_NS = 300 * 10**9\n"
    "from syntony.cli.controller import command; command()"
)
"""A request's time goes on while the controller is stopped."""
PATIENCE_S = 300.0
"""Machines that run tests are slow and shared; a wait this long is a failure, not a measurement."""
# A test's controller may be stopped for longer than a person waits.
client.DEFAULT_TIMEOUT_NS = round(PATIENCE_S * S)
for _request in (client.ask, client.join, fleet.ask):
    (_request.__kwdefaults__ or {})["timeout_ns"] = client.DEFAULT_TIMEOUT_NS


class ControllerProcess:
    """`syntony controller` as its own process on loopback."""

    def __init__(
        self,
        directory: Path,
        store: str | None = None,
        state: str = "",
        *,
        name: str = "controller",
        standby: bool = False,
    ) -> None:
        self.directory = directory
        self.authority: Authority = create_authority(directory / "ca")
        self.port, self.join_port = free_port(), free_port()
        self.name = name
        self.socket = directory / f"{name}.sock"
        self.store = store or str(directory / f"store-{name}")
        self._process: subprocess.Popen[bytes] | None = None
        tls = self.tls = self.issue(name, Role.CONTROLLER)
        self.config = directory / f"{name}.toml"
        self.config.write_text(
            f'listen = "127.0.0.1:{self.port}"\nlocal_socket = "{self.socket}"\n'
            f'store = "{self.store}"\ntls_ca = "{tls.ca}"\ntls_cert = "{tls.cert}"\n'
            f'tls_key = "{tls.key}"\nstate_dir = "{directory / "state"}"\nstate = "{state}"\n'
            f"{'standby = true' if standby else ''}\n"  # the version before does not know it
            f'enrolment = {{ listen = "127.0.0.1:{self.join_port}", '
            f'authority = "{directory / "ca"}", lifetime_ns = {HOUR_NS} }}\n'
        )

    def issue(
        self,
        name: str,
        role: Role = Role.AGENT,
        *,
        lifetime_ns: int = HOUR_NS,
        place: str = "tls",
    ) -> TlsFiles:
        """Certificate files of this fleet's CA."""
        return self.authority.issue(
            name,
            role,
            addresses=["127.0.0.1"],
            lifetime_ns=lifetime_ns,
            directory=self.directory / place,
        )

    def start(self, run: str = _RUN) -> None:
        """Start it, and wait until it answers.

        Args:
            run: Python that runs the command.
        """
        self.begin(run)
        eventually(lambda: self.ended() is not None or self.up())
        if not self.up():
            raise AssertionError(self.log())

    def begin(self, run: str = _RUN) -> None:
        """Start it without waiting: a standby answers nobody."""
        log = (self.directory / f"{self.name}.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", run, "--config", str(self.config)],
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def up(self) -> bool:
        """Whether it answers on its local socket."""
        if not self.socket.exists():  # to look costs less than to ask
            return False
        try:
            ask(f"unix:{self.socket}", FleetQuery(), timeout_ns=5 * S)
        except RemoteError:
            return False
        return True

    def fleet(self) -> Fleet:
        """What it says of the fleet."""
        answer = ask(f"unix:{self.socket}", FleetQuery())
        assert isinstance(answer, Fleet)
        return answer

    def log(self) -> str:
        """Everything it wrote."""
        return (self.directory / f"{self.name}.log").read_text()

    def ended(self) -> int | None:
        """Its exit status, once it has ended by itself."""
        return None if self._process is None else self._process.poll()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        return process.wait(PATIENCE_S)

    def agent_config(self, host: str, tls: TlsFiles | None = None) -> AgentConfig:
        """Configuration of an agent of this fleet."""
        return AgentConfig(
            host=host,
            controller=f"127.0.0.1:{self.port}",
            tls=tls or self.issue(host),
            nics=(),
            spool_dir=str(self.directory / f"spool-{host}"),
        )


class GatewayProcess(ControllerProcess):
    """`syntony controller` as a gateway of others.

    Args:
        leaders: whom it follows; the first one's directory and authority are its own too.
        name: in its certificate.
        store: where it stores rows; None: in one of its own.
        lifetime_ns: of its certificate.
    """

    def __init__(
        self,
        *leaders: ControllerProcess,
        name: str,
        store: str | None = None,
        lifetime_ns: int = HOUR_NS,
    ) -> None:
        first = leaders[0]
        self.directory, self.authority, self.name = first.directory, first.authority, name
        self.port = free_port()
        self.socket = first.directory / f"{name}.sock"
        self.store = store or str(first.directory / f"store-{name}")
        self._process = None
        tls = self.tls = self.issue(name, Role.GATEWAY, lifetime_ns=lifetime_ns)
        self.config = first.directory / f"{name}.toml"
        addresses = [f"127.0.0.1:{each.port}" for each in leaders]
        self.config.write_text(
            f'listen = "127.0.0.1:{self.port}"\nstore = "{self.store}"\ntls_ca = "{tls.ca}"\n'
            f'tls_cert = "{tls.cert}"\ntls_key = "{tls.key}"\ngateway = true\n'
            f"leaders = {addresses}\n"
        )

    def up(self) -> bool:
        """Whether agents may attach."""
        return "gateway up" in self.log()


@contextlib.contextmanager
def running(directory: Path, state: str = "") -> Iterator[ControllerProcess]:
    """A started controller, ended with the block."""
    controller = ControllerProcess(directory, state=state)
    controller.start()
    try:
        yield controller
    finally:
        controller.end(signal.SIGKILL)


def hello(host: str, stream: str, rails: int = 2) -> Hello:
    """What an agent with `rails` NICs says first; addresses differ between hosts."""
    third, fourth = divmod(zlib.crc32(host.encode()) % 64_000, 250)
    nics = tuple(
        NicInfo(
            name=f"rail{rail}",
            rail=rail,
            addresses=(f"10.{rail}.{third}.{fourth + 1}",),
            clock=host,
            stamping="kernel",
            port=8620,
        )
        for rail in range(rails)
    )
    return Hello(protocol=PROTOCOL, version="test", host=host, nics=nics, stream=stream)


def probe_rows(host: str, second: int, peers: Sequence[str] = ("h9/rail0",)) -> tuple[int, bytes]:
    """One second of `probe_1s` of a host: (rows, Arrow); all arrived."""
    count = len(peers)
    values: dict[str, list[str] | np.ndarray[tuple[int], np.dtype[np.int64]]] = {
        column.name: np.full(count, 40 if column.name in {"sent", "count"} else 0)
        for column in PROBE.columns
    }
    values["ts_ns"] = np.full(count, T0 + second * S)
    values["src"] = values["prober"] = [f"{host}/rail0"] * count
    values["dst"] = list(peers)
    return count, encode_columns(PROBE, values)


def open_spool(directory: str | Path, max_bytes: int) -> Spool:
    """An open spool. Raises as `Spool.open` does."""
    spool = Spool(directory, max_bytes)
    spool.open()
    return spool
