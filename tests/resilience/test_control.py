"""What operators see of a protected job, and what they may do to it: over a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.resilience.members import running
from tests.resilience.simulated import S

from syntony.torch import control
from syntony.torch.control import ControlError


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return control.directory()


async def settled() -> None:
    """Until every connection has been served."""
    while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - they are the server's own
        await asyncio.sleep(0.01)


async def asked(
    job: str, *wishes: Any, drain: Callable[[int], str] = lambda _: "",
    drain_host: Callable[[str, bool], str] = lambda _host, _keep: "",
) -> list[Any]:  # fmt: skip
    async with await control.listen(job, lambda: {"generation": 7}, drain, drain_host):
        found: list[Any] = []
        for wish in wishes:
            try:
                found.append(await asyncio.to_thread(control.ask, job, wish))
            except ControlError as error:
                found.append(str(error))
        await settled()
        return found


def test_a_job_shows_itself_and_is_drained() -> None:
    drained: list[int] = []

    def drain(rank: int) -> str:
        drained.append(rank)
        return "no spare is ready" if rank == 2 else ""

    wishes = ({"do": "show"}, {"do": "drain", "rank": 1}, {"do": "drain", "rank": 2})
    found = asyncio.run(asked("night", *wishes, drain=drain))
    assert found == [{"generation": 7}, {"rank": 1}, "no spare is ready"]
    assert drained == [1, 2]


def test_a_host_is_drained_or_the_job_kept() -> None:
    drained: list[tuple[str, bool]] = []

    def drain_host(host: str, keep: bool) -> str:
        drained.append((host, keep))
        return "" if keep else "no spare is ready"

    wishes = [{"do": "drain", "host": "h1", "keep": keep} for keep in (False, True)]
    found = asyncio.run(asked("night", *wishes, drain_host=drain_host))
    assert found == ["no spare is ready", {"host": "h1"}]
    assert drained == [("h1", False), ("h1", True)]


@pytest.mark.parametrize(
    "wish",
    [{}, [], {"do": "drain"}, {"do": "drain", "rank": "1"}, 3, {"do": "drain", "host": "h1"},
     {"do": "drain", "host": 1, "keep": True}],
)  # fmt: skip
def test_what_is_no_wish_is_refused(wish: Any) -> None:
    assert asyncio.run(asked("night", wish)) == ["ask for show or drain"]


def test_a_job_that_does_not_run_is_not_found() -> None:
    with pytest.raises(ControlError, match="no protected job night"):
        control.ask("night", {"do": "show"})
    with pytest.raises(ControlError, match="no protected job /tmp/night"):
        control.ask("/tmp/night", {"do": "show"})  # noqa: S108
    asyncio.run(asked("night"))
    with pytest.raises(ControlError, match="no protected job night"):
        control.ask("night", {"do": "show"})
    assert asyncio.run(asked("night", {"do": "show"})) == [{"generation": 7}], "its name is free"


def test_two_jobs_of_one_name_do_not_share_a_socket() -> None:
    def drain_host(_host: str, _keep: bool) -> str:
        return ""

    async def twice() -> dict[str, Any]:
        async with await control.listen("night", lambda: {"generation": 7}, str, drain_host):
            seen = await asyncio.to_thread(control.ask, "night", {"do": "show"})
            with pytest.raises(FileExistsError):
                await control.listen("night", dict, str, drain_host)
            await settled()
            return seen

    assert asyncio.run(twice()) == {"generation": 7}


def test_directories_are_made_for_this_user_alone(place: Path) -> None:
    asyncio.run(asked("night"))
    assert [each.stat().st_mode & 0o777 for each in (place.parent, place)] == [0o700, 0o700]


@pytest.mark.parametrize("wide", [0, 1])
def test_a_directory_that_others_can_write_is_not_trusted(place: Path, wide: int) -> None:
    place.parent.mkdir(mode=0o700)
    place.mkdir(mode=0o700)
    (place, place.parent)[wide].chmod(0o777)
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(str(place / "night"))
        planted.listen()
        with pytest.raises(ControlError):
            control.ask("night", {"do": "show"})
    with pytest.raises(PermissionError):
        asyncio.run(asked("night"))


def test_an_overview_says_who_holds_what() -> None:
    state = running()
    pids = {name: number for number, name in enumerate(state.workers)}
    whole = control.overview(state, pids, {"r1": "h1"})
    assert [each["state"] for each in whole["ranks"]] == ["running"] * len(whole["ranks"])
    assert [each["host"] for each in whole["ranks"]][:2] == [None, "h1"]
    assert whole["protected"]
    assert whole["lost"] == []
    state.on_state(state.workers["r1"], True, S)
    assert control.overview(state, pids, {"r1": "h1"})["ranks"][1]["state"] == "stopped"
    spares = len(whole["spares"])
    assert spares
    state.on_exit(state.workers["r2"], -9, S)
    after = control.overview(state, pids, {"r1": "h1"})
    assert [each["rank"] for each in after["ranks"] if each["state"] == "joining"] == [2]
    assert len(after["spares"]) == spares - 1
    state.on_fixed("stages")
    assert not control.overview(state, pids, {})["protected"]
    assert control.overview(state, pids, {})["reason"] == "stages"
    state.on_unprotected(state.workers["r0"], "sharded")
    assert not control.overview(state, pids, {"r1": "h1"})["protected"]
    assert control.overview(state, pids, {"r1": "h1"})["reason"] == "sharded"
