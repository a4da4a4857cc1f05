"""Operators' orders: carried out one at a time, each in the audit log before the answer."""

from __future__ import annotations

import asyncio
import time

import msgspec

from syntony.controller.questions import RequestContext, order
from syntony.controller.services import Services
from syntony.errors import StateError
from syntony.fabric.names import cable_name, link_name
from syntony.wire.access_tokens import (
    AccessRevoked,
    AccessTokenCommand,
    AccessTokenMade,
    RevokeAccessCommand,
)
from syntony.wire.audit import AuditCommand, AuditStarted
from syntony.wire.control import EpochRaised, Issuer, TakeoverCommand
from syntony.wire.enrol import RevokeCommand, Revoked, TokenCommand, TokenMade
from syntony.wire.failover import FailoverStatus, SwitchCommand
from syntony.wire.incidents import IncidentAction, IncidentsReply, SilenceAction
from syntony.wire.probes import KeysStatus, RotateKeys
from syntony.wire.traffic import PlacementCommand, Traffic, TrafficQuery


async def known_names(services: Services) -> frozenset[str]:
    """Hosts, NICs, switches, cables in both directions, gateways and jobs. To be awaited on the
    controller's event loop, which it does not block."""
    fabric = await asyncio.to_thread(services.locating.fabric_map)
    names = {device.name for device in fabric.devices}
    for a, b in fabric.cables:
        names |= {cable_name(a, b), link_name(a, b), link_name(b, a)}
    for host, member in services.fleet.members.items():
        names |= {host, *(f"{host}/{nic.name}" for nic in member.hello.nics)}
    names |= {gateway.name for gateway in services.gateways.statuses()}
    names |= services.traffic.used(time.monotonic_ns()).keys()
    return frozenset(names).union(services.jobs.names)


@order(SwitchCommand)
async def throw_switch(
    context: RequestContext, command: SwitchCommand, issuer: Issuer
) -> FailoverStatus:
    traffic, sessions = context.services.traffic, context.services.sessions
    switch, row, unrecorded = await asyncio.to_thread(
        traffic.throw, command, issuer, context.now_ns
    )
    context.services.put_local(row)
    for session in sessions.values():
        session.outbox.put(msgspec.structs.replace(switch, live=True))
    if unrecorded is not None:
        raise StateError(
            f"agents are stopped, but the order is not recorded yet ({unrecorded}); it will be "
            "once control state can be written. If this controller ends before, repeat it: agents "
            "that are not attached now do not know it"
        )
    return traffic.status(time.monotonic_ns())


@order(PlacementCommand)
async def set_mode(context: RequestContext, command: PlacementCommand, issuer: Issuer) -> Traffic:
    placement = context.services.placement
    row = await asyncio.to_thread(placement.command, command, issuer, context.now_ns)
    context.services.put_local(row)
    return placement.traffic(TrafficQuery(), time.monotonic_ns())


@order(IncidentAction)
async def act_on_incident(
    context: RequestContext, action: IncidentAction, issuer: Issuer
) -> IncidentsReply:
    return await asyncio.to_thread(context.services.alerts.act, action, issuer, context.now_ns)


@order(SilenceAction)
async def silence(context: RequestContext, action: SilenceAction, issuer: Issuer) -> IncidentsReply:
    known = await known_names(context.services)
    return await asyncio.to_thread(
        context.services.alerts.silence, action, issuer, context.now_ns, known
    )


@order(AuditCommand)
async def audit(context: RequestContext, command: AuditCommand, issuer: Issuer) -> AuditStarted:
    sessions = context.services.sessions
    started, sent = await asyncio.to_thread(
        context.services.audits.start, command, issuer, frozenset(sessions), context.now_ns
    )
    for each in sent:
        session = sessions.get(each.host)
        if session is not None:
            session.outbox.put(each)
    return started


@order(RotateKeys)
async def rotate_keys(context: RequestContext, command: RotateKeys, issuer: Issuer) -> KeysStatus:
    return await context.services.keys.rotate(command, issuer)


@order(TakeoverCommand)
async def take_over(
    context: RequestContext, command: TakeoverCommand, issuer: Issuer
) -> EpochRaised:
    return await context.services.leadership.take_over(command, issuer, context.now_ns)


@order(TokenCommand)
async def make_token(context: RequestContext, command: TokenCommand, issuer: Issuer) -> TokenMade:
    enrolment = context.services.membership.enrolment
    return await asyncio.to_thread(enrolment.make_token, command, issuer, context.now_ns)


@order(RevokeCommand)
async def revoke(context: RequestContext, command: RevokeCommand, issuer: Issuer) -> Revoked:
    return await context.services.membership.revoke(command, issuer, context.now_ns)


@order(AccessTokenCommand)
async def make_access_token(
    context: RequestContext, command: AccessTokenCommand, issuer: Issuer
) -> AccessTokenMade:
    access = context.services.access
    return await asyncio.to_thread(access.make, command, issuer, context.now_ns)


@order(RevokeAccessCommand)
async def revoke_access(
    context: RequestContext, command: RevokeAccessCommand, issuer: Issuer
) -> AccessRevoked:
    access = context.services.access
    return await asyncio.to_thread(access.revoke, command, issuer, context.now_ns)
