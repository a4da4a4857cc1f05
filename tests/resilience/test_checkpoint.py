"""The state of a job in files, and the decision to keep it: without torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tests.resilience.members import RANKS, logged, running, sends
from tests.resilience.simulated import S

from syntony.torch import checkpoint
from syntony.torch.checkpoint import CheckpointError, CheckpointFile
from syntony.torch.coordinator import Coordinator
from syntony.torch.membership import Membership
from syntony.torch.messages import VARIABLE
from syntony.torch.orders import PRESERVED, Log, Origin, Preserve, Send, Settings
from syntony.torch.recovery import START, RankReport
from syntony.torch.sharding import WHOLE, Part, in_stages
from syntony.torch.spool import JobSpool

STATE = bytes(range(256)) * 40
RECORDS = {0: b"zero", 1: b"", 2: b"two" * 1000}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "step-7"
    made.mkdir()
    (made / "state").write_bytes(STATE)
    kept = CheckpointFile(len(STATE), hashlib.sha256(STATE).hexdigest(), undo=True)
    checkpoint.write(made, 7, RECORDS, {"state": kept})
    return made


def test_what_was_written_is_read(place: Path) -> None:
    found = checkpoint.read(place)
    assert (found.boundary, found.world) == (7, 3)
    assert found.files["state"] == (len(STATE), hashlib.sha256(STATE).hexdigest(), True)
    assert checkpoint.records(place) == RECORDS
    assert not list(place.glob("*.new"))


def test_each_stage_of_a_pipeline_has_a_file() -> None:
    one = in_stages(WHOLE, [(1, 4)])
    assert (one, checkpoint.state_name(one.name)) == (Part("1/4", 4), "state-1of4")
    two = in_stages(Part("0/2", 2), [(6, 8), (2, 8), (2, 8)])
    assert (two, checkpoint.state_name(two.name)) == (
        Part("2/8.6/8.0/2", 8),
        "state-2of8.6of8.0of2",
    )
    assert in_stages(Part("0/2", 2), []) == Part("0/2", 2)


@pytest.mark.parametrize("name", ["state", "records"])
@pytest.mark.parametrize("change", ["flip", "cut", "longer", "gone"])
def test_damage_is_found(place: Path, name: str, change: str) -> None:
    data = bytearray((place / name).read_bytes())
    if change == "flip":
        data[len(data) // 3] ^= 4
    elif change == "cut":
        del data[-1:]
    else:
        data += b"x"
    (place / name).write_bytes(data)
    if change == "gone":
        (place / name).unlink()
    with pytest.raises(CheckpointError, match=r"damaged|missing"):
        checkpoint.read(place)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2}', '{"format": 2, "files": {}}', "\x00"]
)
def test_what_is_no_manifest(place: Path, text: str) -> None:
    (place / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match="is not a checkpoint's manifest"):
        checkpoint.read(place)


def test_without_a_manifest_there_is_none_and_other_formats_are_named(place: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        checkpoint.read(place.parent / "nothing")
    manifest = place / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 3}))
    with pytest.raises(CheckpointError, match="format 3"):
        checkpoint.read(place)


# --- the decision ---


def short(spares: int = 0) -> Membership:
    """A job at step 3 that may not replace anybody (any more), and keeps its state."""
    state = running(spares)
    state.settings = Settings(spares, checkpoint="/kept")
    return state


def frozen(state: Membership, reports: dict[int, RankReport]) -> list[object]:
    found: list[object] = []
    for rank, report in reports.items():
        found += state.on_frozen(state.workers[f"r{rank}"], state.generation, report)
    return found


LIVE, PAST = RankReport(3, stepped=False), RankReport(3, stepped=True)


def test_without_a_spare_one_survivor_writes_and_all_end() -> None:
    state = short()
    orders = state.on_exit(state.workers["r2"], -9, S)
    assert sends(orders, "freeze") == ["r0", "r1", "r3"]
    written = frozen(state, {0: PAST, 1: LIVE, 3: PAST})
    (plan,) = [each for each in written if isinstance(each, Send)]
    assert (plan.worker, plan.message["preserve"]) == ("r1", "/kept/step-3")
    assert plan.message["files"] == [("state", 1, False)]
    done = {"state": (5, "ab")}
    assert not state.on_preserved(state.generation - 1, done, ""), "of another generation"
    orders = state.on_preserved(state.generation, done, "")
    assert orders[0] == Preserve(3, {"state": CheckpointFile(5, "ab", undo=False)})
    ends = [each for each in orders if isinstance(each, Send)]
    assert {each.worker for each in ends} == {f"r{rank}" for rank in range(RANKS)}
    assert {each.message["code"] for each in ends} == {PRESERVED}
    assert state.over


def test_a_writer_that_dies_is_followed_by_another() -> None:
    state = short()
    state.on_exit(state.workers["r2"], -9, S)
    frozen(state, {0: PAST, 1: LIVE, 3: PAST})
    state.on_exit(state.workers["r1"], -9, S)
    orders = frozen(state, {0: PAST, 3: PAST})
    (plan,) = [each for each in orders if isinstance(each, Send)]
    assert (plan.worker, plan.message["boundary"]) == ("r0", 3)
    assert plan.message["files"] == [("state", 0, True)]


def test_what_cannot_be_kept_ends_the_job_with_the_reason() -> None:
    state = short()
    state.on_exit(state.workers["r2"], -9, S)
    frozen(state, {0: PAST, 1: LIVE, 3: PAST})
    orders = state.on_preserved(state.generation, {}, "No space left on device")
    assert logged(orders) == ["gave-up"]
    assert state.over
    early = Membership(Settings(0, checkpoint="/kept"))
    for rank in range(2):
        early.on_keeper(f"r{rank}", rank, 2, 0)
        early.on_arrived(early.workers[f"r{rank}"], 0)
    for rank in range(2):
        early.on_formed(early.workers[f"r{rank}"], 0, 0)
    early.on_exit(early.workers["r0"], -9, S)
    orders = early.on_frozen(early.workers["r1"], 1, RankReport(START, stepped=False))
    assert logged(orders) == ["gave-up"], "no step was done yet"


def test_the_last_spare_that_cannot_start_leads_to_a_checkpoint() -> None:
    state = short(1)
    state.on_exit(state.workers["s0"], 1, S)
    state.on_exit(state.workers["r2"], -9, S)
    frozen(state, {0: PAST, 1: LIVE, 3: PAST})
    state.on_keeper("s1", None, 0, S)
    orders = state.on_exit(state.workers["s1"], 1, S)
    assert "preserve" in logged(orders)


@pytest.mark.parametrize(
    ("ranks", "least", "fits"), [(4, 0, True), (3, 0, False), (3, 3, True), (2, 3, False),
                                 (5, 3, False), (4, 2, True)]
)  # fmt: skip
def test_how_many_ranks_may_go_on(ranks: int, least: int, fits: bool) -> None:
    origin = Origin("/kept/step-3", 3, 4)
    state = Membership(Settings(1, min_ranks=least), origin)
    orders: list[object] = []
    for rank in range(ranks):
        orders += state.on_keeper(f"r{rank}", rank, ranks, 0)
    assert ("gave-up" in logged(orders)) != fits
    if fits:
        plans = [e for e in orders if isinstance(e, Send) and e.message["kind"] == "plan"]
        assert [each.record for each in plans] == [(rank, 3) for rank in range(ranks)]
        assert plans[0].message["boundary"] == START
        assert plans[0].message["resume"]["path"] == "/kept/step-3"


def test_where_the_state_is_kept_is_printed_if_it_cannot_be_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's own directory is full, that of checkpoints is not."""
    monkeypatch.setenv(VARIABLE, "127.0.0.1:1:secret")
    spool = JobSpool(tmp_path / "full")
    lines: list[str] = []
    settings = Settings(0, checkpoint=str(tmp_path))
    coordinator = Coordinator(settings, spool, audit=None, say=lines.append)
    coordinator._state.world = 1
    coordinator._records[0, 7] = b"record"
    kept = CheckpointFile(len(STATE), hashlib.sha256(STATE).hexdigest())
    (tmp_path / "step-7").mkdir()
    (tmp_path / "step-7" / "state").write_bytes(STATE)
    coordinator._carry_out([Preserve(7, {"state": kept}), Log({"event": "exit", "rank": 0})])
    assert f"--resume {tmp_path / 'step-7'}" in lines[-1]
    assert checkpoint.read(tmp_path / "step-7").world == 1
    assert coordinator._recent[-1]["event"] == "exit", "what was ordered next is done"
