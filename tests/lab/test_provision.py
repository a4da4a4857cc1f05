"""What the daemons are given reads back as what was meant."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from syntony.agent.config import AgentConfig, NicConfig, TlsFiles
from syntony.config import load_config
from syntony.lab.provision import to_toml
from syntony.model import SyntheticClockSpec

if TYPE_CHECKING:
    from pathlib import Path

_PLAIN = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=20)
)
_KEYS = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
_DATA = st.dictionaries(
    _KEYS, _PLAIN | st.lists(_PLAIN, max_size=3) | st.dictionaries(_KEYS, _PLAIN, max_size=3)
)


@given(_DATA)
def test_toml_round_trips(data: dict[str, object]) -> None:
    assert tomllib.loads(to_toml(data)) == data


def test_none_is_left_out() -> None:
    assert tomllib.loads(to_toml({"a": None, "b": {"c": None, "d": 1}})) == {"b": {"d": 1}}


def test_an_agent_reads_back_its_configuration(tmp_path: Path) -> None:
    config = AgentConfig(
        host="h0",
        controller="172.30.0.1:1",
        tls=TlsFiles(ca="/a", cert="/b", key="/c"),
        nics=(NicConfig(name="rail0", rail=0), NicConfig(name="rail1", rail=1)),
        spool_dir="/spool",
        synthetic_clock=SyntheticClockSpec(base_ns=10**18, drift_ppb=-1.5, steps=((1, 2), (3, 4))),
    )
    path = tmp_path / "agent.toml"
    path.write_text(to_toml(msgspec.to_builtins(config)), encoding="utf-8")
    assert load_config(path, AgentConfig) == config
