"""What an operator asks and orders while a world suffers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from tests.world.hostile import NAME as HOSTILE
from tests.world.ledger import Order

from syntony.wire.coding import encode
from syntony.wire.control import ControllerQuery, ControllerStatus, EpochRaised, TakeoverCommand
from syntony.wire.enrol import RevokeCommand, Revoked
from syntony.wire.failover import FailoverStatus, SwitchCommand
from syntony.wire.probes import RotateKeys
from syntony.wire.query import A, Failure, Query, answer_type, decode_answer
from syntony.wire.traffic import PlacementCommand

if TYPE_CHECKING:
    from tests.world.unit import Unit
    from tests.world.world import World


async def ask(world: World, process: Unit, query: Query[A]) -> A | Failure | None:
    """A question, or an order, of the operator. None: no answer."""
    data = await world.network.ask("operator", process.address, world.operator_pem, encode(query))
    return None if data is None else decode_answer(data, answer_type(type(query)))


async def operate(world: World) -> None:
    """Stops and starts failover, rotates keys, changes placement's mode, raises the epoch; repeats
    nothing."""
    while True:
        await asyncio.sleep(world.chance.expovariate(1 / world.settings.order_gap_s))
        process: Unit | None = world.leader if world.chance.random() < 0.8 else None
        process = process or world.chance.choice(world.units)
        draw = world.chance.random()
        if draw < 0.06 and world.settings.hostile and not world.ledger.revoked:
            await _revoke(world, process)
        elif draw < 0.3:
            await _order(world, process, RotateKeys(by="op"))
        elif draw < 0.45:
            mode = world.chance.choice(("observe", "off", "act", "act"))
            await _order(world, process, PlacementCommand(mode=mode, by="op"))
        elif draw < 0.55:
            await _take_over(world, process)
        else:
            await _throw(world, process)


async def _order(world: World, process: Unit, command: Query[A]) -> A | Failure | None:
    """Give an order, with a reason of its own, which the audit log repeats."""
    why = world.ledger.gives_order()
    answer = await ask(world, process, msgspec.structs.replace(command, why=why))
    if not isinstance(answer, Failure | None):
        world.ledger.logged(why)
    return answer


async def _take_over(world: World, process: Unit) -> None:
    """Raise the epoch, as after control state was restored from a backup."""
    status = await ask(world, process, ControllerQuery())
    if not isinstance(status, ControllerStatus):
        return
    above = max(status.epoch, status.seen_epoch) + world.chance.randrange(3)
    why = world.ledger.gives_order()
    command = TakeoverCommand(above=above, by="op", comment=why)
    answer = await ask(world, process, command)
    world.log.say("operator", f"takeover --above {above}: {answer}")
    if isinstance(answer, EpochRaised):
        world.ledger.logged(why)
        world.ledger.raised(answer.epoch)


async def _revoke(world: World, process: Unit) -> None:
    """The hostile host's certificate."""
    answer = await ask(world, process, RevokeCommand(what=HOSTILE, by="op", comment="world"))
    world.log.say("operator", f"revokes {HOSTILE}: {type(answer).__name__}")
    world.ledger.revoked |= isinstance(answer, Revoked)


async def place(world: World) -> bool:
    """Let flows be moved from now on, as far as the leader takes these orders."""
    if (leader := world.leader) is None:
        return False
    await _throw(world, leader, stopped=False)
    answer = await _order(world, leader, PlacementCommand(mode="act", by="op"))
    return not isinstance(answer, Failure | None)


async def _throw(world: World, process: Unit, *, stopped: bool | None = None) -> None:
    ledger = world.ledger
    drawn = world.chance.random() < 0.6
    order = Order(len(ledger.orders) + 1, drawn if stopped is None else stopped)
    ledger.orders.append(order)
    command = SwitchCommand(stopped=order.stopped, by=f"order-{order.number}")
    answer = await _order(world, process, command)
    world.log.say("operator", f"{order}: {type(answer).__name__}")
    if isinstance(answer, FailoverStatus):
        ledger.acknowledged_order = order
