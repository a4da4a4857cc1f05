"""A controller that cannot start says why in one line, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

from syntony.cli.controller import command
from syntony.config import to_toml
from syntony.controller.config import ControllerConfig
from syntony.controller.listen import ServerCertificate, open_server
from syntony.controller.pki import create_authority
from syntony.controller.service import FleetService
from syntony.errors import ConfigError, MissingError, StoreError, SyntonyError
from syntony.model import S
from syntony.wire.roles import Role


def config(directory: Path, lifetime_ns: int = 60 * S) -> ControllerConfig:
    tls = create_authority(directory / "ca").issue(
        "controller",
        Role.CONTROLLER,
        addresses=["127.0.0.1"],
        lifetime_ns=lifetime_ns,
        directory=directory,
    )
    return ControllerConfig(
        listen="127.0.0.1:0",
        tls_ca=tls.ca,
        tls_cert=tls.cert,
        tls_key=tls.key,
        store=str(directory / "store"),
    )


def listen(settings: ControllerConfig) -> int:
    async def bind() -> int:
        handlers = FleetService(None).handlers()  # type: ignore[arg-type]
        server, port = open_server(settings, handlers, ServerCertificate(settings))
        await server.stop(0)
        return port

    return asyncio.run(bind())


def test_port_zero_is_one_of_the_systems_choice(tmp_path: Path) -> None:
    assert listen(config(tmp_path)) > 0


def test_an_expired_certificate(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"controller\.crt expired on .*; issue a new one"):
        listen(config(tmp_path, lifetime_ns=-60 * S))


def test_a_certificate_without_a_role(tmp_path: Path) -> None:
    settings, key = config(tmp_path), str(tmp_path / "ca" / "ca.key")
    settings = msgspec.structs.replace(settings, tls_cert=settings.tls_ca, tls_key=key)
    with pytest.raises(ConfigError, match="has no role: it needs the URI"):
        listen(settings)


def test_a_certificate_of_another_role(tmp_path: Path) -> None:
    settings = config(tmp_path)
    made = create_authority(tmp_path / "ca").issue(
        "h0", Role.AGENT, addresses=["127.0.0.1"], lifetime_ns=60 * S, directory=tmp_path
    )
    settings = msgspec.structs.replace(settings, tls_cert=str(made.cert), tls_key=str(made.key))
    with pytest.raises(ConfigError, match=r"h0\.crt is of role agent; a controller needs one of"):
        listen(settings)


def test_a_missing_key(tmp_path: Path) -> None:
    settings = config(tmp_path)
    Path(settings.tls_key).unlink()
    with pytest.raises(MissingError, match=r"controller\.key: cannot be read: No such file"):
        listen(settings)


def test_an_address_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen_at = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = msgspec.structs.replace(config(tmp_path), listen=listen_at)
        with pytest.raises(MissingError, match="is another controller running"):
            listen(settings)


def test_a_socket_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = str(tmp_path / "file" / "x.sock")
    with pytest.raises(MissingError, match="cannot listen on the socket"):
        listen(msgspec.structs.replace(config(tmp_path), local_socket=path))


def test_the_socket_of_another_controller(tmp_path: Path) -> None:
    """It stays the other's while that runs; a socket that was left behind is replaced."""
    path = tmp_path / "x.sock"
    settings = msgspec.structs.replace(config(tmp_path), local_socket=str(path))
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(MissingError, match=r"x\.sock: another process listens there"):
            listen(settings)
        assert path.is_socket()
    assert listen(settings) > 0


def _written(directory: Path, **changes: str) -> str:
    fields = msgspec.to_builtins(config(directory)) | changes
    path = directory / "controller.toml"
    path.write_text(to_toml(fields))
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "kind", "reason"),
    [
        (("--config", "{missing}"), ConfigError, "cannot be read"),
        (("--config", "{typo}"), ConfigError, "unknown key 'lisen'; did you mean 'listen'"),
        (("--config", "{good}", "--store", "/proc/x"), StoreError, "store /proc/x: No such file"),
    ],
)
def test_command_line(
    tmp_path: Path, arguments: tuple[str, ...], kind: type[SyntonyError], reason: str
) -> None:
    (tmp_path / "t").mkdir()
    files = {
        "missing": str(tmp_path / "none.toml"),
        "typo": _written(tmp_path / "t", lisen="127.0.0.1:1"),
        "good": _written(tmp_path),
    }
    result = CliRunner().invoke(command, [part.format(**files) for part in arguments])
    assert isinstance(result.exception, kind)
    assert reason in str(result.exception)
    assert "\n" not in str(result.exception)


def test_an_unknown_log_level_is_a_usage_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--config", _written(tmp_path), "--log-level", "loud"])
    assert result.exit_code == click.UsageError.exit_code
    assert "'loud' is not one of" in result.output
