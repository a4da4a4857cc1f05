"""A second profiler gets the events that NCCL would pass to it, under its own handles; ours records
as without it."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tests.nccl import profiler

from syntony.errors import MissingError
from syntony.io.nccl_plugin import NEXT_VARIABLE, profiler_plugin

ALL = 0xFFFF
OURS = 30
GROUP, COLL, P2P, PROXY_OP, STEP, KERNEL, NET, COLL_API, PHASE = (
    1, 2, 4, 8, 16, 64, 128, 512, 1 << 15,
)  # fmt: skip


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return profiler.build(tmp_path_factory.mktemp("chain") / "chain", "chain")
    except MissingError as error:
        pytest.skip(f"{error}: the profiler plug-in is NOT tested")


def _run(
    chain: Path, version: int, second: Path | str, log: Path, *, agent: bool = True, **more: str
) -> tuple[str, str, list[list[str]]]:
    environment = {key: value for key, value in os.environ.items() if key != "SYNTONY_AGENT"}
    environment |= {"SECOND_MASK": str(ALL), NEXT_VARIABLE: str(second), "SECOND_LOG": str(log)}
    log.write_text("")
    done = subprocess.run(
        [chain, profiler_plugin(), str(version), "agent" if agent else "none"],
        capture_output=True, text=True, check=True, timeout=600, env=environment | more,
    )  # fmt: skip
    return done.stdout, done.stderr, [line.split() for line in log.read_text().splitlines()]


def _starts(lines: list[list[str]]) -> dict[int, list[int]]:
    """Type to [handle, parent, group, context], one event of each type."""
    starts = [[int(word) for word in line[1:]] for line in lines if line[0] == "start"]
    assert max(Counter(kind for kind, *_ in starts).values()) == 1
    return {kind: rest for kind, *rest in starts}


@pytest.mark.parametrize("agent", [True, False])
@pytest.mark.parametrize(
    ("ours", "second"), [(2, 2), (4, 4), (5, 4), (7, 4), (6, 5), (7, 5), (7, 7)]
)
def test_it_gets_what_nccl_would_tell_it(
    ours: int, second: int, agent: bool, chain: Path, tmp_path: Path
) -> None:
    library = profiler.build_second(tmp_path / "second.so", second)
    out, said, lines = _run(chain, ours, library, tmp_path / "log", agent=agent)
    assert f"mask {ALL}" in said
    first = lines[0]
    assert first[:5] == (
        ["init", str(ALL), "0", "0", "0"] if second == 2 else ["init", str(ALL), "abc", "3", "8"]
    )
    assert lines[-1] == ["finalize", first[-1]]
    starts = _starts(lines)
    known = {GROUP, COLL, P2P, PROXY_OP, STEP}
    known |= {KERNEL, NET} if second >= 4 else set()
    known |= {COLL_API} if second >= 5 else set()
    known |= {PHASE} if second >= 7 else set()
    assert set(starts) == known
    group, coll, part = starts[GROUP][0], starts[COLL][0], starts[PROXY_OP][0]
    of = {kind: (parent, its_group) for kind, (_, parent, its_group, _) in starts.items()}
    expected = (starts[COLL_API][0], group) if second >= 5 else (group, 0)
    assert of[COLL] == of[P2P] == expected
    assert of[PROXY_OP] == (coll, 0)
    assert of[STEP] == (part, 0)
    if second >= 4:
        assert of[NET] == (starts[STEP][0], 0)
        assert of[KERNEL] == (coll, 0)
    assert {rest[3] for rest in starts.values()} == {int(first[-1])}
    handles = sorted(rest[0] for rest in starts.values())
    assert sorted(int(line[1]) for line in lines if line[0] == "stop") == handles
    assert [line[1:] for line in lines if line[0] == "record"] == [[str(starts[STEP][0]), "8"]]
    assert out == ("2 1 1\n" if agent else "")


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (0, set()),
        (COLL, {GROUP, COLL, COLL_API}),
        (KERNEL, {GROUP, COLL, P2P, KERNEL, COLL_API}),
        (STEP, {GROUP, COLL, P2P, PROXY_OP, STEP, COLL_API}),
        (COLL_API, {COLL_API}),
    ],
)
def test_it_gets_the_events_that_it_wants(
    mask: int, expected: set[int], chain: Path, tmp_path: Path
) -> None:
    library = profiler.build_second(tmp_path / "second.so", 5)
    _, said, lines = _run(chain, 7, library, tmp_path / "log", SECOND_MASK=str(mask))
    assert f"mask {mask | OURS}" in said
    assert {int(line[1]) for line in lines if line[0] == "start"} == expected


@pytest.mark.parametrize("agent", [True, False])
def test_its_mask_is_followed(agent: bool, chain: Path, tmp_path: Path) -> None:
    library = profiler.build_second(tmp_path / "second.so", 5)
    masks = {"SECOND_MASK": str(COLL_API), "SECOND_LATER": str(KERNEL)}
    _, said, lines = _run(chain, 7, library, tmp_path / "log", agent=agent, **masks)
    ours = OURS if agent else 0
    assert [line for line in said.splitlines() if "mask" in line] == [
        f"mask {COLL_API | ours}", f"last mask {KERNEL | ours}",
    ]  # fmt: skip
    if agent:  # else NCCL itself selects events
        starts = {int(line[1]) for line in lines if line[0] == "start"}
        assert starts == {COLL_API, GROUP, COLL, P2P, KERNEL}


def test_one_that_refuses_or_is_none_is_left_out(chain: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    library = profiler.build_second(tmp_path / "second.so", 5)
    out, said, lines = _run(chain, 5, library, log, SECOND_FAILS="1")
    assert (out, [line[0] for line in lines]) == ("2 1 1\n", ["init"])
    assert f"mask {OURS}" in said
    assert "WARN" in said
    for what, version in (
        (tmp_path / "none.so", 5), ("no-such-profiler", 5), (profiler_plugin(), 5), (library, 4),
        (library, 2),
    ):  # fmt: skip
        out, said, lines = _run(chain, version, what, log)
        assert (out, lines) == ("2 1 1\n", []), what
        # Version 2 has no log.
        assert said.count("WARN PROFILER/Syntony: SYNTONY_NCCL_PROFILER_NEXT is left out") == (
            version != 2
        ), what


def test_nothing_is_wanted_without_an_agent(chain: Path, tmp_path: Path) -> None:
    out, said, _ = _run(chain, 7, "", tmp_path / "log", agent=False)
    assert (out, "mask 0" in said) == ("", True)


def test_it_is_found_by_its_name(chain: Path, tmp_path: Path) -> None:
    profiler.build_second(tmp_path / "libnccl-profiler-second.so", 7)
    _, _, lines = _run(chain, 7, "second", tmp_path / "log", LD_LIBRARY_PATH=str(tmp_path))
    assert lines[0][0] == "init"
