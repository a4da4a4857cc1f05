"""Routing tables of switches: asked for over a command line, or read from files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from syntony.audit.facts import UnreadableError
from syntony.audit.parse.routes import RoutingTable, parse_routes
from syntony.errors import InputError, RemoteError
from syntony.input_files import read_bytes

COMMAND = ("ip", "-j", "route", "show", "table", "all")
TIMEOUT_S = 20.0
AT_ONCE = 64
MAX_BYTES = 256 << 20


def switch_tables(
    switches: Sequence[str], argv: Callable[[str], Sequence[str]]
) -> tuple[list[RoutingTable], dict[str, str]]:
    """Every switch's table, and why there is none of the others.

    Args:
        argv: how to run `COMMAND` there.
    """

    def one(switch: str) -> RoutingTable | str:
        try:
            return parse_routes(_output(argv(switch)), switch)
        except (RemoteError, UnreadableError) as error:
            return str(error)

    with ThreadPoolExecutor(max_workers=max(1, min(AT_ONCE, len(switches)))) as pool:
        reported = list(pool.map(one, switches))
    silent = {s: each for s, each in zip(switches, reported, strict=True) if isinstance(each, str)}
    return [each for each in reported if isinstance(each, RoutingTable)], silent


def read_tables(folder: Path) -> tuple[list[RoutingTable], dict[str, str]]:
    """``DEVICE.json`` of each device in a folder. Raises `InputError`: there is none."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError("no-tables", f"{folder}: no DEVICE.json of `ip -j route` or FRR in it")
    tables, silent = [], {}
    for file in files:
        try:
            text = read_bytes(file, MAX_BYTES).decode("utf-8", "replace")
            tables.append(parse_routes(text, file.stem))
        except (OSError, UnreadableError) as error:
            silent[file.stem] = str(error)
    return tables, silent


def _output(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RemoteError(f"{argv[0]}: no answer: {error}") from error
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise RemoteError(f"`{' '.join(COMMAND)}` failed there: {last[0][:160]}")
    return done.stdout
