"""The placing desk against a fabric in memory: contention goes, and nothing else happens."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

import pytest
from tests.controller.placed import PORTS, RATE_BPS, WINDOW_NS, Fabric, Route, World

from syntony.controller.config import PacingConfig, PlacementConfig, PlacementMode
from syntony.controller.placement import Placement
from syntony.controller.placing import PORT_REST_NS, Decided, PlacementService
from syntony.errors import ConfigError
from syntony.model import S
from syntony.state import ControlState
from syntony.traffic.classes import Classes, JobClass
from syntony.traffic.demand import Priority
from syntony.traffic.lease import EXPIRY_NS
from syntony.traffic.trials import MoveTrial, TrialResult
from syntony.wire.control import Issuer
from syntony.wire.traffic import MoveOutcome

if TYPE_CHECKING:
    from syntony.store import Store

RINGS = [
    (job, ranks[k], ranks[(k + 1) % 4])
    for job, ranks in (("a", ("h0", "h4", "h1", "h5")), ("b", ("h2", "h6", "h3", "h7")))
    for k in range(4)
]


def crowded(src: str, dst: str, sport: int, dport: int) -> int:
    """All first choices fall on one spine; ports from the pool lead everywhere."""
    return 0 if sport < 50_000 and sport > 8_621 else (sport + dport) % 7


def apart(src: str, *_: object) -> int:
    """Hosts of a leaf to a spine each."""
    return int(src[1]) % 4


def results(world: World) -> list[str]:
    return [move.result for move in world.service.moves("", 100)]


def test_two_rings_get_all_there_is() -> None:
    world = World(Fabric(route=crowded), RINGS)
    assert min(world.rates()) == pytest.approx(RATE_BPS / 4)
    world.run(12)
    assert min(world.rates()) == pytest.approx(RATE_BPS)
    assert len(world.moves) <= len(RINGS), "at most one move a flow"
    assert set(results(world)) == {"helped"}


def test_what_is_not_crowded_is_left_alone() -> None:
    world = World(Fabric(route=apart), RINGS)
    assert min(world.rates()) == pytest.approx(RATE_BPS)
    world.run(30)
    assert not world.moves


def test_observing_moves_nothing_and_says_what_it_would() -> None:
    world = World(Fabric(route=crowded), RINGS, mode=PlacementMode.OBSERVE)
    world.run(12)
    assert not world.moves
    assert set(results(world)) == {"would move"}
    row = world.service.set_mode(PlacementMode.ACT, "ann", "enough seen", world.now_ns)
    assert row.rows["action"].to_pylist() == ["placement-act"]
    world.run(12)
    assert min(world.rates()) == pytest.approx(RATE_BPS)


def test_a_job_that_did_not_opt_in_is_placed_around() -> None:
    world = World(Fabric(route=crowded), RINGS)
    for flow in world.flows[:4]:
        flow.movable = False
    world.run(12)
    moved = {int(move.connection, 16) for move in world.moves}
    assert moved <= {flow.token for flow in world.flows[4:]}
    assert max(world.rates()) == pytest.approx(RATE_BPS)


def test_refusals_are_told_and_end_there() -> None:
    world = World(Fabric(route=crowded), RINGS)
    world.obey = lambda _: "failover has it in hand"
    world.run(8)
    assert set(results(world)) == {"failover has it in hand"}
    assert len(world.moves) <= 3 * len(RINGS), "what was refused is not asked for all the time"


def test_what_became_of_moves_is_counted_under_its_name() -> None:
    world = World(Fabric(route=crowded), RINGS)
    world.run(12)
    helped = world.service.counts
    assert helped["helped"] == helped["ordered"] == len(world.moves)
    assert helped["failed"] == 0

    world = World(Fabric(route=crowded), RINGS)
    world.obey = lambda _: "failover has it in hand"
    world.run(8)
    assert world.service.counts["failed"] == len(results(world))


def test_a_move_that_nobody_could_judge_has_not_failed() -> None:
    world = World(Fabric(route=crowded), RINGS)
    while not world.moves:
        world.step()
    for _ in range(120):
        for flow in world.flows:
            flow.windows = -1  # agents have measured nothing
        world.step()
    assert "kept" in results(world)
    assert world.service.counts["kept"] == results(world).count("kept")
    assert world.service.counts["failed"] == 0


def test_a_move_without_gain_that_cannot_be_taken_back_has_not_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MoveTrial, "judge", lambda *_: TrialResult.NO_GAIN)
    world = World(Fabric(route=crowded), RINGS)
    while not world.moves:
        world.step()
    for flow in world.flows:
        flow.movable = False
    world.run(12)
    assert "no gain" in results(world)
    assert world.service.counts["no gain"] == 0
    assert world.service.counts["no-gain"] == results(world).count("no gain")
    assert world.service.counts["failed"] == 0


def test_agents_that_do_not_answer_are_given_up() -> None:
    world = World(Fabric(route=crowded), RINGS)
    world.obey = lambda _: ""
    world.run(20)
    assert "no answer" in results(world)


def test_an_order_that_arrived_too_late_is_counted_as_such() -> None:
    world = World(Fabric(route=crowded), RINGS)
    world.obey = lambda _: "expired 2300 ms ago"
    world.run(8)
    assert set(results(world)) == {"expired 2300 ms ago"}
    assert world.service.counts["late"] == len(results(world))
    assert world.service.counts["failed"] == 0


@pytest.mark.parametrize("answer", ["expired 4900 ms ago", "moved"])
def test_an_answer_that_comes_after_the_end_of_a_move_is_logged(answer: str) -> None:
    world = World(Fabric(route=crowded), RINGS)
    world.obey = lambda _: ""
    while "no answer" not in results(world):
        world.step()
    late = world.moves[0]
    host = next(flow.src for flow in world.flows if flow.token == int(late.connection, 16))
    world.outcomes[host].append(MoveOutcome(move_id=late.move_id, result=answer))
    ends = [
        piece.rows.to_pylist()[0]
        for _ in range(4)
        for piece in world.step().rows
        if piece.rows.column("connection").to_pylist() == [late.move_id]
    ]
    assert [(row["action"], row["result"]) for row in ends] == [
        ("move-end", f"no answer in time, then: {answer}")
    ], "once"
    view = next(m for m in world.service.moves("", 100) if m.move_id == late.move_id)
    assert view.result == f"no answer in time, then: {answer}"
    assert view.took_ns > 5 * S


def shifted(every: int) -> Route:
    """A map by which every so-and-so-many-th port leads one spine further than it does."""

    def route(src: str, dst: str, sport: int, dport: int) -> int:
        return crowded(src, dst, sport, dport) + (sport % every == 0)

    return route


@pytest.mark.parametrize(("every", "least"), [(8, 1.0), (2, 0.5)])
def test_a_stale_map_is_corrected_by_what_flows_do(every: int, least: float) -> None:
    world = World(Fabric(route=crowded), RINGS, believed=shifted(every))
    world.run(60)
    assert min(world.rates()) >= least * RATE_BPS * 0.999
    assert len(world.moves) <= 3 * len(RINGS)


@pytest.mark.slow
def test_a_map_that_is_all_wrong_does_no_harm_and_comes_to_rest() -> None:
    world = World(Fabric(route=crowded), RINGS, believed=shifted(1))
    before = min(world.rates())
    world.run(60)
    assert min(world.rates()) >= before
    assert len(world.moves) <= 4 * len(RINGS)
    made = len(world.moves)
    world.run(20)
    assert len(world.moves) - made <= 1


def test_a_job_that_ends_in_the_middle_of_its_moves() -> None:
    world = World(Fabric(route=crowded), RINGS)
    world.obey = lambda _: ""
    world.step()
    world.run(6)
    assert world.moves
    del world.flows[:4]
    world.obey = lambda _: "moved"
    world.run(40)
    assert "the flow has ended" in results(world) or "no answer" in results(world)
    assert min(world.rates()) == pytest.approx(RATE_BPS)


def test_a_controller_restarted_in_the_middle_goes_on_from_what_is() -> None:
    world = World(Fabric(route=crowded), RINGS)
    while not world.moves:
        world.step()
    world.service = world.new_service()
    began = len(world.moves)
    world.step()
    assert not world.service.deciding[0], "the orders of its predecessor may be under way"
    world.run(20)
    assert min(world.rates()) == pytest.approx(RATE_BPS)
    assert len(world.moves) - began <= len(RINGS)


def test_a_minority_decides_nothing() -> None:
    world = World(Fabric(route=crowded), RINGS)
    world.silent = {"h0", "h1", "h2", "h3"}
    world.run(12)
    assert not world.moves
    assert "report to this controller" in world.service.deciding[1]


def test_orders_expire_and_name_what_they_move() -> None:
    world = World(Fabric(route=crowded), RINGS)
    while not world.moves:
        world.step()
    move = world.moves[0]
    assert 0 < move.expires_ns - world.now_ns <= EXPIRY_NS
    assert move.port in PORTS
    assert "→" in move.evidence


def test_no_port_is_given_twice() -> None:
    world = World(Fabric(hosts=4, spines=2, route=crowded), [
        (job, "h0", "h2") for job in ("a", "b", "c")
    ])  # fmt: skip
    world.run(60)
    given = [(move.remote, move.port) for move in world.moves]
    assert len(given) == len(set(given))


def test_a_guaranteed_job_is_placed_as_if_others_were_not_there() -> None:
    """Four flows over two spines: anyone who is guaranteed has a spine for itself."""
    pairs = [(job, f"h{k}", f"h{k + 4}") for k, job in enumerate(("gold", "a", "b", "c"))]
    classes = (JobClass(jobs=("gold*",), priority="guaranteed"),)
    world = World(Fabric(spines=2, route=crowded), pairs, classes=classes)
    world.run(20)
    gold, *others = world.rates()
    assert gold == pytest.approx(RATE_BPS)
    assert others == pytest.approx([RATE_BPS / 3] * 3)


@pytest.mark.parametrize(
    "bad",
    [
        JobClass(jobs=("*",), priority="gold"),
        JobClass(jobs=("*",), weight=0),
        JobClass(jobs=("*",), weight=float("nan")),
        JobClass(jobs=()),
    ],
)
def test_a_class_that_cannot_be_one_is_refused_in_one_line(bad: JobClass) -> None:
    with pytest.raises(ConfigError) as error:
        Classes([bad])
    assert "\n" not in str(error.value)


def test_the_first_class_that_names_a_job_counts() -> None:
    classes = Classes(
        [
            JobClass(jobs=("train-9",), priority="guaranteed", weight=2.0),
            JobClass(jobs=("train-*", "x"), priority="scavenger"),
        ]
    )
    assert classes.of("train-9") == (Priority.GUARANTEED, 2.0)
    assert classes.of("train-8") == (Priority.SCAVENGER, 1.0)
    assert classes.of("other") == (Priority.STANDARD, 1.0)


class LateWorld(World):
    """Decides by the fleet time of reports, as a controller does."""

    def __init__(self, fabric: Fabric, pairs: list[tuple[str, str, str]]) -> None:
        super().__init__(fabric, pairs)
        state = ControlState(None)
        self.placement = Placement(
            cast("Store", None), self.config, PacingConfig(), fabric.topology, state
        )
        self.placement.service = self.service
        self.mono_ns = 0

    def step(self, service: PlacementService | None = None) -> Decided:
        self.now_ns += WINDOW_NS // 2
        self.mono_ns += WINDOW_NS // 2
        for host, report in self.reports().items():
            self.placement.take(host, report, self.mono_ns)
        nics = {self.fabric.address(host): f"{host}/rail0" for host in self.fabric.hosts}
        fleet_ns = self.placement.now(self.mono_ns)
        assert fleet_ns is not None
        decided = self.placement.step(fleet_ns, nics, self.fabric.hosts, ())
        for host, orders in decided.orders.items():
            for move in orders.moves:
                self._do(host, move)
        return decided


@pytest.mark.parametrize("what", ["placement", "pacing"])
def test_a_mode_that_an_operator_set_outweighs_the_file_and_the_log_says_so(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    def modes(state: ControlState) -> dict[str, PlacementMode]:
        made = Placement(cast("Store", None), PlacementConfig(), PacingConfig(), None, state)
        return {"placement": made.service.mode, "pacing": made.pacing.mode}

    state = ControlState(None)
    assert set(modes(state).values()) == {PlacementMode.OBSERVE}
    assert not caplog.text
    state.set_mode(what, "act", "observe", at_ns=1, issuer=Issuer("ann", "unix"), comment="")
    assert modes(state) == dict.fromkeys(modes(ControlState(None)), PlacementMode.OBSERVE) | {
        what: PlacementMode.ACT
    }
    assert f"{what}: act, as an operator has set; not observe, as [{what}] in" in caplog.text


@pytest.mark.parametrize("back_s", [3600, random.randrange(2, 900)])
def test_flows_are_moved_again_after_fleet_time_stepped_back(
    back_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"{back_s} s")
    world = LateWorld(Fabric(route=crowded), RINGS)
    paces = list[int]()
    monkeypatch.setattr(world.placement.pacing, "forget_times", lambda: paces.append(world.mono_ns))
    world.run(30)
    assert not paces
    assert min(world.rates()) == pytest.approx(RATE_BPS)
    world.now_ns -= back_s * S
    for number, flow in enumerate(world.flows):  # begun anew, on one spine
        flow.sport, flow.dport, flow.token, flow.windows = 40_000 + number, 5_000, 100 + number, 0
    assert min(world.rates()) == pytest.approx(RATE_BPS / 4)
    world.run(60)
    assert min(world.rates()) == pytest.approx(RATE_BPS)
    assert len(paces) == 1, "rates are sent anew"
    assert max(world.service._rest.values()) <= world.now_ns + PORT_REST_NS
