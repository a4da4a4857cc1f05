"""The coordinator's decisions."""

from __future__ import annotations

import copy

import pytest
from tests.resilience.members import RANKS, logged, running, sends
from tests.resilience.simulated import MS, S

from syntony.torch import suspicion
from syntony.torch.membership import Membership
from syntony.torch.orders import Forget, Log, Order, Send, Settings, Spawn, Worker
from syntony.torch.recovery import RankReport
from syntony.torch.suspicion import SILENT_NS


def test_a_killed_rank_is_fenced_and_a_spare_takes_its_place() -> None:
    state = running()
    orders = state.on_exit(state.workers["r2"], -9, S)
    assert sends(orders, "freeze") == ["r0", "r1", "r3"]
    assert sends(orders, "assign") == ["s0"]
    assert state.holders[2] == "s0"
    assert "r2" not in state.workers
    assert sum(isinstance(each, Spawn) for each in orders) == 1


def test_survivors_freeze_before_there_is_a_plan() -> None:
    state = running()
    state.on_exit(state.workers["r2"], -9, S)
    report = RankReport(3, stepped=False)
    assert not state.on_frozen(state.workers["r0"], 1, report)
    assert not state.on_frozen(state.workers["r1"], 0, report), "of another generation"
    assert not state.on_frozen(state.workers["r1"], 1, report)
    orders = state.on_frozen(state.workers["r3"], 1, report)
    assert sorted(sends(orders, "plan")) == ["r0", "r1", "r3", "s0"]
    records = [each.record for each in orders if isinstance(each, Send) and each.record]
    assert records == [(2, 3)]


@pytest.mark.parametrize("code", [0, 1, -15, -2, -1])
def test_ends_that_are_no_losses(code: int) -> None:
    state = running()
    orders = state.on_exit(state.workers["r2"], code, S)
    assert not sends(orders, "freeze")
    assert sends(orders, "end") == ["r2"]


def test_without_spares_or_protection_the_launcher_hears_of_it() -> None:
    bare = running(0)
    assert sends(bare.on_exit(bare.workers["r1"], -9, S), "end") == ["r1"]
    state = running()
    state.on_unprotected(state.workers["r0"], "sharded")
    orders = state.on_exit(state.workers["r1"], -9, S)
    assert logged(orders) == ["lost", "gave-up"]
    assert sends(orders, "end") == ["r1"]


@pytest.mark.parametrize(("harms", "replaced"), [(True, 1), (True, 0), (False, 1)])
def test_what_harms_a_replaced_rank_ends_the_job(harms: bool, replaced: int) -> None:
    state = running()
    state.replaced = replaced
    orders = state.on_unprotected(state.workers["r0"], "carried", harms=harms)
    ends = harms and replaced > 0
    assert logged(orders) == (["unprotected", "gave-up"] if ends else ["unprotected"])
    assert bool(sends(orders, "end")) == ends


def test_a_job_that_is_not_protected_ends_with_the_failure_that_ended_it() -> None:
    state = running()
    state.on_unprotected(state.workers["r0"], "sharded")
    (log, *_) = state.on_failed(0, S, "allgather failed: no such size")
    assert isinstance(log, Log)
    assert log.event["reason"] == "allgather failed: no such size; not protected: sharded"


def test_a_rank_that_dies_again_and_again_at_one_step_is_the_programs_fault() -> None:
    state = running(3)
    for attempt in range(3):
        name = state.holders[1]
        orders = state.on_exit(state.workers[name], -11, S)
        assert ("gave-up" in logged(orders)) == (attempt == 2)


def test_a_stopped_rank_is_lost_after_a_second_but_a_paused_job_is_not() -> None:
    state = running()
    state.on_state(state.workers["r1"], stopped=True, now_ns=S)
    for at in range(20):
        assert not state.on_tick(at * 100 * MS)
    assert "lost" in logged(state.on_tick(2 * S))
    paused = running()
    for name in ("r0", "r1"):
        paused.on_state(paused.workers[name], stopped=True, now_ns=S)
    for at in range(10, 100):
        assert not paused.on_tick(at * 100 * MS)


@pytest.mark.parametrize(
    ("ranks", "stopped", "lost"), [(2, 1, [0]), (2, 2, []), (1, 1, []), (3, 1, [0]), (3, 2, [])]
)
def test_who_is_stopped_and_who_paused(ranks: int, stopped: int, lost: list[int]) -> None:
    workers = [Worker(f"r{n}", n, last_received_ns=S) for n in range(ranks)]
    for each in workers[:stopped]:
        each.stopped_ns = S
    assert list(suspicion.of_ranks(workers, S, 2 * S - 1)) == []
    assert list(suspicion.of_ranks(workers, S, 2 * S)) == lost


def ticked(state: Membership, until_ns: int) -> list[Order]:
    """From the first second on."""
    return [each for at in range(S, until_ns + 1, 100 * MS) for each in state.on_tick(at)]


def test_a_stopped_spare_makes_way_for_another_unless_the_job_is_paused() -> None:
    state, paused, lost = running(), running(), running()
    for each in (state, paused, lost):
        each.on_tick(S)
        each.on_state(each.workers["s0"], stopped=True, now_ns=S)
    assert not ticked(state, 2 * S - 1)
    orders = ticked(state, 2 * S)
    assert sends(orders, "kill") == ["s0"]
    assert Spawn() in orders
    for rank in range(RANKS):
        paused.on_state(paused.workers[f"r{rank}"], stopped=True, now_ns=S)
    assert not ticked(paused, 9 * S)
    assert logged(lost.on_exit(lost.workers["r2"], -9, S))[-1] == "no-spare"
    assert Spawn() in ticked(lost, 2 * S), "the rank does not wait for it"


def test_a_spare_that_is_stopped_as_it_is_put_in_place_is_replaced() -> None:
    state = running(2)
    state.on_exit(state.workers["r2"], -9, S)
    taken = state.holders[2]
    state.on_tick(S)
    state.on_state(state.workers[taken], stopped=True, now_ns=S)
    orders = ticked(state, 2 * S)
    assert logged(orders) == ["lost", "assigned"]
    assert sends(orders, "kill") == [taken]
    assert state.holders[2] != taken


def test_silence_counts_from_when_the_coordinator_listened() -> None:
    state = running()
    assert not state.on_tick(60 * S), "it was away itself"
    for tenth in range(600, 600 + SILENT_NS // (100 * MS) + 1):
        for name in ("r0", "r1", "r2"):
            state.on_heard(state.workers[name], tenth * 100 * MS)
        orders = state.on_tick(tenth * 100 * MS)
        assert not orders
    assert logged(state.on_tick(60 * S + SILENT_NS + 200 * MS))[0] == "lost"


def test_what_a_fenced_worker_says_is_not_heard() -> None:
    state = running()
    old = state.workers["r2"]
    state.on_exit(old, -9, S)
    assert "r2" not in state.workers
    assert state.on_exit(state.workers["s0"], -9, S)


def test_parameters_that_differ_protect_nothing() -> None:
    state = running()
    for rank in range(RANKS):
        orders = state.on_digest(state.workers[f"r{rank}"], 0, "ab"[rank == 3])
    assert logged(orders) == ["digest", "unprotected"]


def test_parameters_that_differ_after_a_replacement_end_the_job() -> None:
    state = running()
    state.generation = state.replaced = 1
    for rank in range(RANKS):
        orders = state.on_digest(state.workers[f"r{rank}"], 5, "ab"[rank == 3])
    assert logged(orders) == ["digest", "gave-up"]


def test_drain_needs_a_spare() -> None:
    state = running()
    assert logged(state.on_drain(9, S)) == ["drain-refused"]
    assert "lost" in logged(state.on_drain(2, S))
    bare = running(0)
    assert logged(bare.on_drain(2, S)) == ["drain-refused"]
    unprotected = running()
    unprotected.on_unprotected(unprotected.workers["r0"], "sharded")
    assert logged(unprotected.on_drain(2, S)) == ["drain-refused"], "it would end the job"


def draining(*hosts: str, spares: str, checkpoint: str = "") -> Membership:
    """Ranks and ready spares on these hosts."""
    state = running(len(spares))
    state.settings = Settings(len(spares), checkpoint=checkpoint)
    for rank, host in enumerate(hosts):
        state.workers[f"r{rank}"].host = host
    for number, host in enumerate(spares):
        state.workers[f"s{number}"].host = host
    return state


def reason(orders: list[Order]) -> str:
    (event,) = [each.event for each in orders if isinstance(each, Log)]
    assert event["event"] == "drain-refused"
    return str(event["reason"])


def test_all_ranks_of_a_host_leave_it_for_spares_of_others() -> None:
    state = draining("a", "a", "b", "b", spares="bcc")
    orders = state.on_drain_host("b", S, keep=False)
    assert logged(orders)[:3] == ["drain-host", "lost", "lost"]
    assert {state.holders[2], state.holders[3]} == {"s1", "s2"}
    assert sorted(sends(orders, "kill")) == ["r2", "r3", "s0"], "its spare goes as well"
    assert state.workers.keys() == {"r0", "r1", "s1", "s2"}
    late = state.on_keeper("s3", None, 0, S, "b")
    assert sends(late, "kill") == ["s3"], "it was starting"
    assert Spawn() in late
    assert not state.on_keeper("s4", None, 0, S, "c")


@pytest.mark.parametrize(
    ("hosts", "spares", "host", "line"),
    [
        ("aabb", "cc", "d", "no rank runs on d"),
        ("aabb", "bbc", "b", "2 ranks run there; ready spares of other hosts: 1"),
        ("aabb", "bb", "b", "no spare is ready"),
        ("aaaa", "cccc", "a", "all ranks run there"),
    ],
)
def test_a_host_is_not_drained_by_halves(hosts: str, spares: str, host: str, line: str) -> None:
    state = draining(*hosts, spares=spares)
    assert reason(state.on_drain_host(host, S, keep=False)) == line
    assert state.forming is None


def test_a_stopped_spare_takes_nobodys_place() -> None:
    state = draining("a", "a", "b", "b", spares="cc")
    state.on_state(state.workers["s1"], True, S)
    line = "2 ranks run there; ready spares of other hosts: 1"
    assert reason(state.on_drain_host("b", S, keep=False)) == line


def test_a_host_that_cannot_be_left_is_not_drained_whatever_spares_there_are() -> None:
    state = draining("a", "a", "b", "b", spares="cc")
    assert reason(state.on_drain_host("b", S, keep=False, fixed="the launcher")) == "the launcher"


def test_ranks_whose_parameters_nobody_else_has_leave_one_by_one() -> None:
    state = draining("a", "a", "b", "b", spares="cc")
    for rank in range(RANKS):
        state.on_sharded(state.workers[f"r{rank}"], f"{rank}/4", shadowed=True)
    line = "parameters are split: drain its ranks one after another: 2, 3"
    assert reason(state.on_drain_host("b", S, keep=False)) == line
    state.workers["r3"].host = "c"
    assert logged(copy.deepcopy(state).on_drain_host("b", S, keep=False))[0] == "drain-host"
    state.workers["r3"].host = "b"
    for rank in range(RANKS):  # replicas: a part is on both hosts
        state.on_sharded(state.workers[f"r{rank}"], f"{rank % 2}/2", shadowed=False)
    assert logged(state.on_drain_host("b", S, keep=False))[0] == "drain-host"


def test_without_spares_a_drained_host_ends_the_job_with_its_state_kept_if_so_wished() -> None:
    state = draining("a", "a", "b", "b", spares="", checkpoint="/kept")
    assert reason(state.on_drain_host("b", S, keep=False)) == "there are no spares"
    orders = state.on_drain_host("b", S, keep=True)
    assert sends(orders, "freeze") == ["r0", "r1", "r2", "r3"], "nobody is killed"
    for rank in range(RANKS):
        report = RankReport(3, stepped=False)
        orders = state.on_frozen(state.workers[f"r{rank}"], 1, report)
    assert logged(orders) == ["preserve"]
    bare = draining("a", "a", "b", "b", spares="")
    line = "there are no spares, and the job has no --checkpoint"
    assert reason(bare.on_drain_host("b", S, keep=True)) == line
    early = draining("a", "a", "b", "b", spares="", checkpoint="/kept")
    early.records.clear()
    assert reason(early.on_drain_host("b", S, keep=True)).endswith("no step was done yet")


def test_stages_of_a_pipeline_are_drained_with_their_state_kept_and_never_replaced() -> None:
    state = draining("a", "a", "b", "b", spares="", checkpoint="/kept")
    assert logged(state.on_fixed("stages")) == ["fixed"]
    assert not state.on_fixed("stages"), "it is said once"
    assert reason(state.on_drain(2, S)) == "ranks cannot be replaced: stages"
    assert not state.on_resumed(S), "a coordinator that is started again connects nobody anew"
    returned = {"generation": 0, "reason": "", "harms": False, "finished": False, "waiting": False}
    state._awaited.clear()
    assert not state.on_returned(state.workers["r1"], returned, S)
    for rank in range(RANKS):
        state.on_sharded(state.workers[f"r{rank}"], f"{rank}/4", shadowed=False)
    orders = state.on_drain_host("b", S, keep=True)
    assert sends(orders, "freeze") == ["r0", "r1", "r2", "r3"]
    for rank in range(RANKS):
        orders = state.on_frozen(state.workers[f"r{rank}"], 1, RankReport(3, stepped=rank == 0))
    assert len(sends(orders, "plan")) == RANKS, "each writes its own part"
    assert "gave-up" in logged(state.on_exit(state.workers["r2"], -9, S)), "nobody has its part"


def test_a_lost_stage_of_a_pipeline_ends_the_job_and_so_do_lost_connections() -> None:
    for event in ("exit", "failed"):
        state = running()
        state.on_fixed("stages")
        orders = (
            state.on_failed(0, S) if event == "failed" else
            state.on_exit(state.workers["r2"], -9, S)
        )  # fmt: skip
        assert "gave-up" in logged(orders)
        assert not sends(orders, "assign")


def test_a_drain_that_would_end_the_job_is_refused() -> None:
    state = running()
    state.replaced = state.settings.max_replacements
    assert "no more are allowed" in reason(state.on_drain(2, S))
    assert not state.over


def test_nobody_is_drained_while_ranks_are_connected() -> None:
    state = draining("a", "a", "b", "b", spares="ccc", checkpoint="/kept")
    state.on_exit(state.workers["r0"], -9, S)
    line = "ranks are being connected; try again"
    assert reason(state.on_drain(2, S)) == line
    for keep in (False, True):
        assert reason(state.on_drain_host("b", S, keep=keep)) == line


def test_a_drained_rank_goes_to_another_host_if_it_can() -> None:
    state = draining("a", "a", "b", "b", spares="bc")
    state.on_heard(state.workers["s0"], 5 * S)
    assert sends(state.on_drain(2, 5 * S), "assign") == ["s1"], "though the other was heard last"


def test_a_rank_does_not_wait_for_spares_that_cannot_start() -> None:
    state = running(2)
    assert state.on_exit(state.workers["r1"], -9, S).count(Spawn()) == 1
    assert state.on_exit(state.workers["r2"], -9, S).count(Spawn()) == 1
    assert "no-spare" in logged(state.on_exit(state.workers["r3"], -9, S))
    state.on_keeper("s2", None, 0, S)
    assert logged(state.on_exit(state.workers["s2"], 1, S)) == ["spare-exit"], "one still starts"
    state.on_keeper("s3", None, 0, S)
    orders = state.on_exit(state.workers["s3"], 1, S)
    assert logged(orders) == ["spare-exit", "gave-up"]
    assert "r3" in sends(orders, "end")


def test_a_spare_that_cannot_start_is_made_up_for_at_the_next_loss() -> None:
    state = running(2)
    assert logged(state.on_exit(state.workers["s1"], 1, S)) == ["spare-exit"]
    assert state.on_exit(state.workers["r1"], -9, S).count(Spawn()) == 2


def test_all_wait_for_the_last_to_finish() -> None:
    state = running()
    for rank in range(RANKS - 1):
        assert not state.on_finished(state.workers[f"r{rank}"])
    assert len(sends(state.on_finished(state.workers["r3"]), "release")) == RANKS


def of_hosts(*hosts: str) -> Membership:
    """Ranks on these hosts, one spare on host z; all were heard at 0."""
    state = running()
    for rank, host in enumerate(hosts):
        state.workers[f"r{rank}"].host = host
    state.workers["s0"].host = "z"
    return state


@pytest.mark.parametrize(
    ("hosts", "silent", "lost"),
    [
        ("aabb", (2, 3), {2, 3}),  # a host is gone, though it had half of all
        ("aabb", (1, 2), set()),  # half of all, of two hosts: it may be the coordinator
        ("aaab", (0, 1, 2), {0, 1, 2}),
        ("aaaa", (0, 1, 2, 3), set()),
        ("aaaa", (2,), {2}),
        ("abcd", (1, 2, 3), set()),
    ],
)
def test_a_silent_host_is_lost_as_a_whole(
    hosts: str, silent: tuple[int, ...], lost: set[int]
) -> None:
    state = of_hosts(*hosts)
    for tenth in range(1, SILENT_NS // (100 * MS) + 2):
        for worker in state.workers.values():
            if worker.rank not in silent:
                state.on_heard(worker, tenth * 100 * MS)
        orders = state.on_tick(tenth * 100 * MS)
    found = {o.event["rank"] for o in orders if isinstance(o, Log) and o.event["event"] == "lost"}
    assert found == lost


def test_a_spare_that_is_silent_is_not_chosen_and_made_up_for() -> None:
    state = running(2)
    state.on_heard(state.workers["s1"], S)
    orders = state.on_exit(state.workers["r2"], -9, S)
    assert sends(orders, "assign") == ["s1"], "it was heard last"
    for tenth in range(1, SILENT_NS // (100 * MS) + 2):
        for worker in state.workers.values():
            if worker.name != "s0":
                state.on_heard(worker, tenth * 100 * MS)
        orders = state.on_tick(tenth * 100 * MS)
    assert "s0" not in state.workers
    assert Spawn() in orders


def test_other_hosts_offer_spares_and_take_them_back() -> None:
    state = running(0)
    assert state.on_offer("z", 2).count(Spawn()) == 2
    assert state.on_offer("y", 1).count(Spawn()) == 1
    assert not state.on_offer("z", 2), "it connected again"
    assert state.spares_to_keep == 3
    assert not state.on_offer("z", 0)
    assert state.spares_to_keep == 1
    assert "gave-up" not in logged(state.on_exit(state.workers["r2"], -9, S))
    state.on_offer("y", 0)
    assert "gave-up" in logged(state.on_exit(state.workers["r1"], -9, S))


@pytest.mark.parametrize(("alone", "floor"), [(True, 2), (False, 3)])
def test_records_of_one_more_step_are_kept_while_copies_may_be_behind(
    alone: bool, floor: int
) -> None:
    state = running()
    for rank in range(RANKS):
        state.on_sharded(state.workers[f"r{rank}"], f"{rank}/4", shadowed=alone)
        orders = state.on_boundary(state.workers[f"r{rank}"], 4, 0)
    assert state.floor == floor + 1
    assert [each.before for each in orders if isinstance(each, Forget)] == [floor + 1]


@pytest.mark.parametrize(
    ("digests", "equal"), [("abab", True), ("abba", False), ("aaaa", True), ("abac", False)]
)
def test_digests_are_compared_among_ranks_of_one_part(digests: str, equal: bool) -> None:
    state = running()
    for rank in range(RANKS):
        state.on_sharded(state.workers[f"r{rank}"], f"{rank % 2}/2", shadowed=False)
    orders: list[object] = []
    for rank, digest in enumerate(digests):
        orders += state.on_digest(state.workers[f"r{rank}"], 4, digest)
    event = next(e.event for e in orders if isinstance(e, Log) and e.event["event"] == "digest")
    assert (event["equal"], event["alike"]) == (equal, 2)
    assert bool(state.unprotected) is not equal


def test_a_plan_names_the_source_of_each_part() -> None:
    state = running(spares=2)
    for rank in range(RANKS):
        state.on_sharded(state.workers[f"r{rank}"], f"{rank % 2}/2", shadowed=False)
    state.on_exit(state.workers["r3"], -9, S)
    orders: list[object] = []
    for rank in range(3):
        report = RankReport(3, stepped=rank == 1)
        orders += state.on_frozen(state.workers[f"r{rank}"], 1, report)
    plans = [e.message for e in orders if isinstance(e, Send) and e.message["kind"] == "plan"]
    assert [each["sources"] for each in plans] == [[[3, 1, True]]] * 4


def test_records_are_kept_for_a_rank_that_was_lost_and_is_not_replaced_yet() -> None:
    """Another rank that is told of its next step meanwhile may be lost as well."""
    state = running(spares=1)
    state.on_exit(state.workers["s0"], -9, S)
    state.on_exit(state.workers["r3"], -9, S)
    for rank in range(3):
        orders = state.on_boundary(state.workers[f"r{rank}"], 4, 0)
        assert [each.before for each in orders if isinstance(each, Forget)] == [3]
    assert state.floor == 3
