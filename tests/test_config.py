import re
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import syntony
from syntony.agent.config import AgentConfig
from syntony.config import load_config
from syntony.controller.config import ControllerConfig
from syntony.errors import ConfigError

GOOD = """
host = "h0"
controller = "10.0.0.1:8443"
spool_dir = "/var/lib/syntony/spool"
[tls]
ca = "ca.pem"
cert = "h0.pem"
key = "h0.key"
[[nics]]
name = "rail0"
rail = 0
"""


def load(tmp_path: Path, text: str) -> AgentConfig:
    path = tmp_path / "agent.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, AgentConfig)


def test_a_good_file(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    assert config.nics[0].name == "rail0"
    assert config.probe_port == 8620


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("controller =", "controler ="), r"unknown key 'controler'; did you mean 'controller'\?"),
        (('host = "h0"', ""), "key 'host' is missing"),
        (('host = "h0"', 'hots = "h0"'), r"unknown key 'hots'; did you mean 'host'\?"),
        (("rail = 0", "rial = 0"), r"unknown key 'rial'.*nics.*; did you mean 'rail'\?"),
        (('host = "h0"', "host = 7"), "Expected `str`, got `int`"),
        (('key = "h0.key"', ""), r"key 'tls\.key' is missing"),
        (("[tls]", "[tls"), "not TOML"),
    ],
)
def test_a_typo_is_one_clear_line(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load(tmp_path, GOOD.replace(*change))
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "agent.toml") in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read: No such file"):
        load_config(tmp_path / "nowhere.toml", AgentConfig)


def keys(kind: type[msgspec.Struct]) -> Iterator[str]:
    """Names of a file's keys, with those of its tables."""
    hints = typing.get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        yield field.name
        parts = [hints[field.name], *typing.get_args(hints[field.name])]
        for each in parts:
            if isinstance(each, type) and issubclass(each, msgspec.Struct):
                yield from keys(each)


@pytest.mark.parametrize("kind", [AgentConfig, ControllerConfig])
def test_every_key_is_read(kind: type[msgspec.Struct]) -> None:
    """A key that nothing reads would be documented and have no effect."""
    sources = Path(syntony.__file__).parent.rglob("*.py")
    read = {name for path in sources for name in re.findall(r"\.([a-z]\w*)", path.read_text())}
    names = set(keys(kind))
    assert len(names) > 40
    assert not names - read
