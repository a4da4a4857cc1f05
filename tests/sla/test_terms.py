"""An operator's file of objectives, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.config import load_config
from syntony.errors import ConfigError
from syntony.sla.terms import Terms, check_terms

GOOD = """
[[objective]]
class = "leaf"
p50 = "10us"
p99 = "50us"
loss = 0.001
[[objective]]
p99 = "1ms"
[history]
times = 3.0
window = "2h"
[peers]
margin = "5us"
"""


def load(directory: Path, text: str) -> Terms:
    path = directory / "sla.toml"
    path.write_text(text)
    return check_terms(load_config(path, Terms), str(path))


def test_a_file_reads_back(tmp_path: Path) -> None:
    terms = load(tmp_path, GOOD)
    assert terms.of("leaf").p99_ns == 50_000
    assert terms.of("leaf").loss == 0.001
    assert terms.of("core").p99_ns == 1_000_000
    assert terms.of("").p50_ns is None
    assert terms.history.times == 3.0
    assert terms.peers.margin_ns == 5_000
    assert Terms().of("leaf").p50_ns is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[objectives]]\n", "did you mean 'objective'"),
        ('[[objective]]\nclas = "leaf"\n', "did you mean 'class'"),
        ('[[objective]]\nclass = "leafs"\n', "no class 'leafs'; did you mean 'leaf'"),
        ('[[objective]]\np99 = "50"\n', "'50' is not a duration"),
        ("[[objective]]\nloss = 2.0\n", "a share between 0 and 1"),
        ('[[objective]]\nclass = "leaf"\n[[objective]]\nclass = "leaf"\n', "two objectives"),
        ("[history]\ntimes = 0.5\n", "1 or more"),
        ("[peers]\ntimes = nan\n", "1 or more"),
        ('[history]\nwindow = "1min"\n', "ends before it begins"),
        ('[history]\nwindw = "1min"\n', "did you mean 'window'"),
        ('[peers]\nmargin = "x"\n', "'x' is not a duration"),
        ("[[objective]\n", "not TOML"),
    ],
)
def test_a_wrong_one_is_told_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"sla\.toml") as error:
        load(tmp_path, text)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
