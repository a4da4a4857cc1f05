"""Orders of operators: carried out one at a time, each in the audit log before it is answered."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from syntony.controller.questions import Asked, order
from syntony.errors import StateError
from syntony.wire.audit import AuditCommand, AuditStarted
from syntony.wire.control import EpochRaised, TakeoverCommand
from syntony.wire.enrol import RevokeCommand, Revoked, TokenCommand, TokenMade
from syntony.wire.failover import FailoverStatus, SwitchCommand
from syntony.wire.incidents import IncidentAction, IncidentsReply, SilenceAction
from syntony.wire.probes import KeysStatus, RotateKeys
from syntony.wire.traffic import PlacementCommand, Traffic, TrafficQuery

if TYPE_CHECKING:
    from syntony.wire.control import Issuer


@order(SwitchCommand)
async def throw_switch(asked: Asked, command: SwitchCommand, issuer: Issuer) -> FailoverStatus:
    traffic, sessions = asked.desks.traffic, asked.desks.sessions
    switch, row, unrecorded = await asyncio.to_thread(traffic.throw, command, issuer, asked.now_ns)
    asked.desks.put_local(row)
    for session in sessions.values():
        session.outbox.put(switch)
    if unrecorded is not None:
        raise StateError(
            f"agents are stopped, but the order is not recorded ({unrecorded}); "
            "repeat it before this controller restarts"
        )
    return traffic.status(time.monotonic_ns())


@order(PlacementCommand)
async def set_mode(asked: Asked, command: PlacementCommand, issuer: Issuer) -> Traffic:
    placement = asked.desks.placement
    row = await asyncio.to_thread(placement.command, command, issuer, asked.now_ns)
    asked.desks.put_local(row)
    return placement.traffic(TrafficQuery(), time.monotonic_ns())


@order(IncidentAction)
async def act_on_incident(asked: Asked, action: IncidentAction, issuer: Issuer) -> IncidentsReply:
    return await asyncio.to_thread(asked.desks.alerts.act, action, issuer, asked.now_ns)


@order(SilenceAction)
async def silence(asked: Asked, action: SilenceAction, issuer: Issuer) -> IncidentsReply:
    return await asyncio.to_thread(asked.desks.alerts.silence, action, issuer, asked.now_ns)


@order(AuditCommand)
async def audit(asked: Asked, command: AuditCommand, issuer: Issuer) -> AuditStarted:
    sessions = asked.desks.sessions
    started, sent = await asyncio.to_thread(
        asked.desks.audits.start, command, issuer, frozenset(sessions), asked.now_ns
    )
    for each in sent:
        session = sessions.get(each.host)
        if session is not None:
            session.outbox.put(each)
    return started


@order(RotateKeys)
async def rotate_keys(asked: Asked, command: RotateKeys, issuer: Issuer) -> KeysStatus:
    return await asked.desks.keys.rotate(command, issuer)


@order(TakeoverCommand)
async def take_over(asked: Asked, command: TakeoverCommand, issuer: Issuer) -> EpochRaised:
    return await asked.desks.leadership.take_over(command, issuer, asked.now_ns)


@order(TokenCommand)
async def make_token(asked: Asked, command: TokenCommand, issuer: Issuer) -> TokenMade:
    enrolment = asked.desks.membership.enrolment
    return await asyncio.to_thread(enrolment.make_token, command, issuer, asked.now_ns)


@order(RevokeCommand)
async def revoke(asked: Asked, command: RevokeCommand, issuer: Issuer) -> Revoked:
    return await asked.desks.membership.revoke(command, issuer, asked.now_ns)
