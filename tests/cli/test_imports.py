"""What `--help` of each command group loads: nothing heavy, for each costs tens of milliseconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.command_tree import commands

from syntony.cli import GROUPS, root
from syntony.cli.controller import ENVIRONMENT
from syntony.cli.lazy import LazyGroup

CONFIG = Path(__file__).parents[2] / "deploy/config"
HEAVY = {
    "asyncio", "chdb", "cryptography", "grpc", "http.client", "matplotlib", "multiprocessing",
    "nanoarrow", "numpy", "prometheus_client", "psycopg", "pyarrow", "rich", "scipy", "starlette",
    "syntony.agent.config",
}  # fmt: skip
ALLOWED = {
    "kubernetes": {"http.client"},
}
"""By group; shrink it."""
MOST = 240
"""Modules of any origin; the most that a group loaded was 210 when this was written, 120 without a
group."""

_EACH = """
import contextlib, io, json, os, sys
from syntony.cli import GROUPS, run
heavy = json.loads(sys.argv[1])
for group in ["", *GROUPS]:
    sys.stdout.flush()
    if os.fork() == 0:
        with contextlib.redirect_stdout(io.StringIO()):
            run([group, "--help"] if group else ["--help"])
        found = sorted(name for name in heavy if name in sys.modules)
        print(json.dumps([group, found, len(sys.modules)]), flush=True)
        os._exit(0)
    os.wait()
"""


def test_help_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _EACH, json.dumps(sorted(HEAVY))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [group for group, _, _ in found] == ["", *GROUPS]
    assert {group: set(names) for group, names, _ in found if names} == ALLOWED
    assert {group: count for group, _, count in found if count > MOST} == {}


_CONTROLLER = """
import json, os, sys
from syntony.cli import controller
loaded = sorted({"grpc", "numpy", "scipy"} & sys.modules.keys())
def stop(*_):
    print(json.dumps([loaded, {name: os.environ[name] for name in controller.ENVIRONMENT}]))
    raise SystemExit
controller.load_config = stop
controller.command([])
"""


@pytest.mark.parametrize("given", ["", "mine"])
def test_the_controller_says_how_libraries_run_before_they_are_loaded(given: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    environ |= {"GRPC_EXPERIMENTS": given} if given else {}
    done = subprocess.run(
        [sys.executable, "-c", _CONTROLLER], env=environ, capture_output=True, text=True, check=True
    )
    expected = ENVIRONMENT | {"GRPC_EXPERIMENTS": given or "-event_engine_listener"}
    assert json.loads(done.stdout) == [[], expected]


def test_lazy_groups_say_what_their_commands_say() -> None:
    found = {
        each.command_path: each.command
        for each in commands()
        if isinstance(each.command, LazyGroup)
    }
    assert {"syntony lab", "syntony audit", "syntony sim", "syntony clock"} <= set(found)
    for name, group in found.items():
        for each, (_, line) in group.lazy.items():
            command = group.get_command(click.Context(group), each)
            assert command is not None, f"{name} {each}"
            assert not command.hidden, f"{name} {each}"
            assert line == command.get_short_help_str(1000), f"{name} {each}"


@pytest.mark.parametrize("width", [40, 80])
def test_their_help_lists_all_commands(width: int) -> None:
    group = root.get_command(click.Context(root), "audit")
    assert isinstance(group, LazyGroup)
    shown = group.get_help(click.Context(group, terminal_width=width))
    _, _, commands = shown.partition("Commands:\n")
    listed = [line.split()[0] for line in commands.splitlines() if line[:3].strip()]
    assert listed == sorted(group.lazy)


_INTERRUPTED = """
import sys
from syntony.__main__ import main
class CtrlC:
    wanted = sys.argv[1]
    def find_spec(self, name, *_):
        if name == self.wanted:
            raise KeyboardInterrupt
sys.meta_path.insert(0, CtrlC())
sys.argv = ["syntony", "clock", "now"]
main()
"""


@pytest.mark.parametrize("module", ["click", "syntony.cli", "syntony.cli.clock"])
def test_ctrl_c_while_modules_are_loaded_is_one_line(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, module], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nsyntony: interrupted\n")


@pytest.mark.parametrize(
    ("words", "code", "unwanted"),
    [
        (["config", "check", str(CONFIG / "agent.toml")], 0, {"syntony.controller"}),
        (["config", "check", str(CONFIG / "controller.toml")], 0, {"syntony.controller.gateway"}),
        (["audit", "checks"], 0, {"syntony.controller"}),
        (["audit", "diff"], 2, {"syntony.controller"}),
    ],
)
def test_commands_that_need_no_fleet_load_no_more_than_they_need(
    words: list[str], code: int, unwanted: set[str], tmp_path: Path
) -> None:
    """The first two are what a fleet's configuration management runs on every host."""
    script = (
        "import json, sys; from syntony.cli import run; code = run(sys.argv[1:]);"
        "print(json.dumps([[*sys.modules], code]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True, text=True, check=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )  # fmt: skip
    loaded, ended = json.loads(done.stdout.splitlines()[-1])
    assert (unwanted | {"numpy", "grpc"}) & set(loaded) == set()
    assert ended == code
