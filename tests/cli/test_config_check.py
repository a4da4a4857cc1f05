"""`syntony config check` on what is shipped, and on what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.cli import run

CONFIG = Path(__file__).parents[2] / "deploy/config"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("agent.toml", "a valid agent file"),
        ("controller.toml", "a valid controller file"),
        ("sla.toml", "a valid file of objectives"),
    ],
)
def test_what_is_shipped_is_valid(capsys: pytest.CaptureFixture[str], name: str, says: str) -> None:
    code = run(["config", "check", str(CONFIG / name)])
    said = capsys.readouterr()
    assert (code, says in said.out) == (0, True), said.err


@pytest.mark.parametrize(
    ("name", "wrong", "says"),
    [
        ("agent.toml", ("127.0.0.1:9862", "0.0.0.0:9862"), "can be reached from outside"),
        ("controller.toml", ("127.0.0.1:9863", "9863"), "not ADDRESS:PORT"),
        ("agent.toml", ("\nlisten", "\nlistn"), "did you mean 'listen'"),
        ("controller.toml", ('# detail_retention = "7d"', 'detail_retention = "30d"'), "6h to 7d"),
        ("controller.toml", ('# detail_retention = "7d"', 'detail_retention = "5h"'), "6h to 7d"),
        ("controller.toml", ('# detail_retention = "7d"', 'detail_retention = "7"'), "detail_ret"),
        ("sla.toml", ("p99", "p999"), "did you mean 'p99'"),
        ("sla.toml", ('"50us"', '"50"'), "'50' is not a duration"),
    ],
)
def test_what_is_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, wrong: tuple[str, str], says: str
) -> None:
    path = tmp_path / name
    path.write_text((CONFIG / name).read_text().replace(*wrong))
    code = run(["config", "check", str(path)])
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    assert says in said
