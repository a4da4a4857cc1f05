"""Operators' orders: carried out one at a time, each in the audit log before the answer."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from syntony.controller.questions import Requested, order
from syntony.errors import StateError
from syntony.fabric.names import cable_name, link_name
from syntony.wire.access_tokens import (
    AccessRevoked,
    AccessTokenCommand,
    AccessTokenMade,
    RevokeAccessCommand,
)
from syntony.wire.audit import AuditCommand, AuditStarted
from syntony.wire.control import EpochRaised, TakeoverCommand
from syntony.wire.enrol import RevokeCommand, Revoked, TokenCommand, TokenMade
from syntony.wire.failover import FailoverStatus, SwitchCommand
from syntony.wire.incidents import IncidentAction, IncidentsReply, SilenceAction
from syntony.wire.probes import KeysStatus, RotateKeys
from syntony.wire.traffic import PlacementCommand, Traffic, TrafficQuery

if TYPE_CHECKING:
    from syntony.controller.services import Services
    from syntony.wire.control import Issuer


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
    requested: Requested, command: SwitchCommand, issuer: Issuer
) -> FailoverStatus:
    traffic, sessions = requested.services.traffic, requested.services.sessions
    switch, row, unrecorded = await asyncio.to_thread(
        traffic.throw, command, issuer, requested.now_ns
    )
    requested.services.put_local(row)
    for session in sessions.values():
        session.outbox.put(switch)
    if unrecorded is not None:
        raise StateError(
            f"agents are stopped, but the order is not recorded yet ({unrecorded}); it will be "
            "once control state can be written. If this controller restarts before, repeat it"
        )
    return traffic.status(time.monotonic_ns())


@order(PlacementCommand)
async def set_mode(requested: Requested, command: PlacementCommand, issuer: Issuer) -> Traffic:
    placement = requested.services.placement
    row = await asyncio.to_thread(placement.command, command, issuer, requested.now_ns)
    requested.services.put_local(row)
    return placement.traffic(TrafficQuery(), time.monotonic_ns())


@order(IncidentAction)
async def act_on_incident(
    requested: Requested, action: IncidentAction, issuer: Issuer
) -> IncidentsReply:
    return await asyncio.to_thread(requested.services.alerts.act, action, issuer, requested.now_ns)


@order(SilenceAction)
async def silence(requested: Requested, action: SilenceAction, issuer: Issuer) -> IncidentsReply:
    known = await known_names(requested.services)
    return await asyncio.to_thread(
        requested.services.alerts.silence, action, issuer, requested.now_ns, known
    )


@order(AuditCommand)
async def audit(requested: Requested, command: AuditCommand, issuer: Issuer) -> AuditStarted:
    sessions = requested.services.sessions
    started, sent = await asyncio.to_thread(
        requested.services.audits.start, command, issuer, frozenset(sessions), requested.now_ns
    )
    for each in sent:
        session = sessions.get(each.host)
        if session is not None:
            session.outbox.put(each)
    return started


@order(RotateKeys)
async def rotate_keys(requested: Requested, command: RotateKeys, issuer: Issuer) -> KeysStatus:
    return await requested.services.keys.rotate(command, issuer)


@order(TakeoverCommand)
async def take_over(requested: Requested, command: TakeoverCommand, issuer: Issuer) -> EpochRaised:
    return await requested.services.leadership.take_over(command, issuer, requested.now_ns)


@order(TokenCommand)
async def make_token(requested: Requested, command: TokenCommand, issuer: Issuer) -> TokenMade:
    enrolment = requested.services.membership.enrolment
    return await asyncio.to_thread(enrolment.make_token, command, issuer, requested.now_ns)


@order(RevokeCommand)
async def revoke(requested: Requested, command: RevokeCommand, issuer: Issuer) -> Revoked:
    return await requested.services.membership.revoke(command, issuer, requested.now_ns)


@order(AccessTokenCommand)
async def make_access_token(
    requested: Requested, command: AccessTokenCommand, issuer: Issuer
) -> AccessTokenMade:
    access = requested.services.access
    return await asyncio.to_thread(access.make, command, issuer, requested.now_ns)


@order(RevokeAccessCommand)
async def revoke_access(
    requested: Requested, command: RevokeAccessCommand, issuer: Issuer
) -> AccessRevoked:
    access = requested.services.access
    return await asyncio.to_thread(access.revoke, command, issuer, requested.now_ns)
