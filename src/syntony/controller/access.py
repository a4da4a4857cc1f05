"""Who may ask what: roles from certificates, and the allow-list of requests. Deny by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from syntony.errors import UsageError
from syntony.wire import messages as wire
from syntony.wire.audit import AuditCommand, AuditReportsQuery
from syntony.wire.clocks import ClockHistoryQuery, ClockQuery, PairsQuery
from syntony.wire.control import ChangesQuery, Issuer
from syntony.wire.fabric import FabricChangesQuery, FindingsQuery, PathsQuery
from syntony.wire.failover import (
    ConnectionsQuery,
    FailoverLogQuery,
    FailoverStatusQuery,
    SwitchCommand,
)
from syntony.wire.incidents import IncidentAction, IncidentsQuery, RulesQuery, SilenceAction
from syntony.wire.links import LinkHistoryQuery, LinksQuery
from syntony.wire.probes import MatrixQuery, PlanQuery, SeriesQuery
from syntony.wire.roles import Identity, Role, identity
from syntony.wire.sla import QueuesQuery, SlaCheckQuery, SlaReportQuery
from syntony.wire.traffic import MovesQuery, PlacementCommand, TrafficQuery

LOCAL = "local"
"""Origin of what came over the local socket: who may open it is the file system's matter."""
_MAX_ISSUER = 200
_READ = frozenset({Role.VIEWER, Role.OPERATOR})
_ORDER = frozenset({Role.OPERATOR})
ALLOWED: Mapping[type[wire.Query], frozenset[Role]] = {
    **dict.fromkeys(
        (
            MatrixQuery, SeriesQuery, ClockQuery, ClockHistoryQuery, PairsQuery, wire.FleetQuery,
            PlanQuery, LinksQuery, LinkHistoryQuery, FindingsQuery, FabricChangesQuery, PathsQuery,
            IncidentsQuery, RulesQuery, ConnectionsQuery, FailoverLogQuery, FailoverStatusQuery,
            TrafficQuery, MovesQuery, SlaReportQuery, SlaCheckQuery, QueuesQuery, ChangesQuery,
        ),
        _READ,
    ),
    **dict.fromkeys(
        (
            IncidentAction, SilenceAction, SwitchCommand, PlacementCommand, AuditCommand,
            AuditReportsQuery,
        ),
        _ORDER,
    ),
}  # fmt: skip
"""Request → the roles that may make it; a request that is not here is refused to everybody."""


class Caller(NamedTuple):
    """The other end of one request."""

    identity: Identity
    origin: str
    """Its address as gRPC words it, or `LOCAL`."""

    def issuer(self, by: str) -> Issuer:
        """For the audit log. Raises `UsageError`: neither certificate nor command names anybody."""
        who = " ".join(f"{self.identity.name} {by}".split())[:_MAX_ISSUER]
        if not who:
            raise UsageError("an order needs the name of who gives it: --by NAME")
        return Issuer(who, self.origin)


def caller(context: Any) -> Caller:
    """Who asks, from a call's TLS session. Raises `WireError`: an unusable certificate."""
    peer = str(context.peer())
    if peer.startswith("unix:"):
        return Caller(Identity(Role.OPERATOR, ""), LOCAL)
    auth: Mapping[str, list[bytes]] = context.auth_context()
    names = auth.get("x509_common_name") or [b""]
    uris = [each.decode(errors="replace") for each in auth.get("peer_uri", ())]
    return Caller(identity(names[0].decode(errors="replace"), uris), peer)


def authorise(query: wire.Query, who: Caller) -> None:
    """Raises `UsageError`: the role may not make this request."""
    allowed = ALLOWED.get(type(query), frozenset())
    role, name = who.identity
    if role in allowed:
        return
    wanted = " or ".join(sorted(allowed)) or "nobody's"
    raise UsageError(
        f"{type(query).__name__} needs a certificate of role {wanted}; {name!r} is {_article(role)}"
    )


def _article(role: Role) -> str:
    return f"an {role}" if role[0] in "aeiou" else f"a {role}"


def allow_list() -> str:
    """The allow-list as a Markdown table, for the docs."""
    lines = ["| Request | " + " | ".join(Role) + " |", "| --- |" + " --- |" * len(Role)]
    attach = ["yes" if role is Role.AGENT else "" for role in Role]
    lines.append("| attach, as the certificate's host | " + " | ".join(attach) + " |")
    for query, roles in sorted(ALLOWED.items(), key=lambda item: item[0].__name__):
        cells = ["yes" if role in roles else "" for role in Role]
        lines.append(f"| {query.__name__} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
