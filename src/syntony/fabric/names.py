"""Names of components, and what a name says about its component. Pure.

A device has a plain name (``leaf0-1``, ``h3/rail0``, ``h3``), one direction of a link is
``leaf0-1->spine0``, a cable (both directions) ``leaf0-1--spine0``, and everything unknown between
two known devices ``leaf0-1..leaf0-2``.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from syntony.model.names import host_of

ARROW = "->"
CABLE = "--"
GROUP = ".."
ANY = "*"
REPLIES_OF = "replies of "
BOTH_WAYS = "<->"
"""Between the NICs of a connection if the affected direction is unknown."""
HOSTS_AT = "hosts at "
"""All hosts of one switch together."""
SILENT_AT = "silent switch at "
"""A switch that answers no path trace, named by the devices that it is between."""
MAX_AROUND = 4
"""Of more devices than this, the others are counted."""
OR = " or "
"""Between the names of components that no path can distinguish."""


class ComponentKind(enum.StrEnum):
    """Kinds of components that can be at fault."""

    HOST = "host"
    NIC = "nic"
    LEAF = "leaf"
    AGG = "agg"
    SPINE = "spine"
    CORE = "core"
    SWITCH = "switch"
    """A switch whose tier is not known."""
    LINK = "link"
    """One direction of a cable."""
    CABLE = "cable"
    GROUP = "group"
    """Unknown components between two known ones, taken together."""
    REPLIES = "replies"
    """The replies of a NIC, seen from round trips alone: a host that stalls, not a fabric that
    loses."""
    CLOCK = "clock"
    """A host's clock, which is not part of the fabric."""
    COMPONENT = "component"
    """The kind is not known from the name."""


_WORDS = {
    "leaf": ComponentKind.LEAF,
    "tor": ComponentKind.LEAF,
    "spine": ComponentKind.SPINE,
    "core": ComponentKind.CORE,
    "superspine": ComponentKind.CORE,
    "super-spine": ComponentKind.CORE,
    "agg": ComponentKind.AGG,
    "switch": ComponentKind.SWITCH,
    "sw": ComponentKind.SWITCH,
    "nic": ComponentKind.NIC,
    "hca": ComponentKind.NIC,
    "host": ComponentKind.HOST,
    "gpu": ComponentKind.HOST,
}

_MARKS = {GROUP: ComponentKind.GROUP, ARROW: ComponentKind.LINK, CABLE: ComponentKind.CABLE}


def link_name(a: str, b: str) -> str:
    """One direction of a link, from `a` to `b`."""
    return f"{a}{ARROW}{b}"


def cable_name(a: str, b: str) -> str:
    """Both directions; the same for either order of the ends."""
    first, second = sorted((a, b))
    return f"{first}{CABLE}{second}"


def replies_name(nic: str) -> str:
    """The replies of a NIC or of a host."""
    return f"{REPLIES_OF}{nic}"


def hosts_at(switch: str) -> str:
    """All hosts of a switch together."""
    return f"{HOSTS_AT}{switch}"


def silent_at(devices: Sequence[str]) -> str:
    """A switch that never answers, between these devices."""
    more = len(devices) - MAX_AROUND
    others = [f"{more} more"] if more > 0 else []
    return f"{SILENT_AT}{', '.join([*devices[:MAX_AROUND], *others])}"


@functools.lru_cache(maxsize=1 << 16)
def link_ends(name: str) -> tuple[str, str] | None:
    """The devices at the ends of a link or cable name; None for any other name."""
    for mark in (ARROW, CABLE):
        a, found, b = name.partition(mark)
        if found and a and b and mark not in b:
            return a, b
    return None


def guess_kind(name: str) -> ComponentKind:
    """The kind that a name suggests, for use without a topology."""
    if name.startswith(REPLIES_OF):
        return ComponentKind.REPLIES
    for mark, kind in _MARKS.items():
        if mark in name:
            return kind
    host, slash, _ = name.partition("/")
    if slash and host:
        # The lab and most tools name a NIC HOST/NIC, and a switch port SWITCH/PORT.
        kind = guess_kind(host)
        switch = {ComponentKind.LEAF, ComponentKind.SPINE, ComponentKind.CORE, ComponentKind.SWITCH}
        return ComponentKind.CABLE if kind in switch else ComponentKind.NIC
    words = re.findall(r"super-?spine|[a-z]+", name.lower())
    kinds = [_WORDS[word] for word in words if word in _WORDS]
    if len(kinds) > 1:
        return ComponentKind.LINK
    return kinds[0] if kinds else ComponentKind.COMPONENT


def suspects(subject: str) -> tuple[str, ...]:
    """The components that an incident's subject names: several if they cannot be distinguished."""
    return tuple(subject.split(OR))


def same_place(names: Collection[str]) -> bool:
    """Whether one repair serves all of these: a NIC, its cable and its host; a link and its
    cable."""
    return len({_place(name) for name in names}) == 1


def _place(name: str) -> str:
    ends = link_ends(name)
    if ends is None:
        return host_of(name)
    edge = next((end for end in ends if "/" in end), "")
    return host_of(edge) or cable_name(*ends)


def crosses(subject: str, components: Collection[str]) -> bool:
    """Whether a path with these components (links by direction) crosses what `subject` names: a
    cable in either direction, any of several suspects."""
    return any(each in components for each in _crossed_as(subject))


def pairs_across(
    subjects: Iterable[str], crossing: Mapping[str, Collection[str]]
) -> dict[str, list[str]]:
    """Each subject with the pairs whose paths cross it (`crosses`), from one pass over all pairs: a
    fleet has very many.

    Args:
        subjects: few.
        crossing: ``a->b`` → components that the paths between them cross.
    """
    found: dict[str, list[str]] = {subject: [] for subject in subjects}
    of: dict[str, list[str]] = {}
    for subject in found:
        for name in _crossed_as(subject):
            of.setdefault(name, []).append(subject)
    for pair, components in crossing.items() if found else ():
        for subject in {each for name in of.keys() & components for each in of[name]}:
            found[subject].append(pair)
    return found


def _crossed_as(subject: str) -> Iterator[str]:
    """The components of paths across what a subject names: a cable in either direction."""
    for name in suspects(subject):
        yield from directions(name)


def directions(name: str) -> tuple[str, ...]:
    """The two links of a cable; anything else, and several suspects, as it is."""
    ends = link_ends(name)
    if ends is None or ARROW in name or OR in name:
        return (name,)
    return link_name(*ends), link_name(*reversed(ends))
