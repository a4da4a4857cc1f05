"""What components are called, and what a name says by itself. Pure.

A device is called by its name (``leaf0-1``, ``h3/rail0``, ``h3``), one direction of a link
``leaf0-1->spine0``, a cable (both directions) ``leaf0-1--spine0``, and whatever is unknown between
two known devices ``leaf0-1..leaf0-2``.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Collection

ARROW = "->"
CABLE = "--"
GROUP = ".."
ANY = "*"
REPLIES_OF = "replies of "
BOTH_WAYS = "<->"
"""Between the NICs of a connection of which it is not known which direction suffers."""
HOSTS_AT = "hosts at "
"""All hosts of one switch together."""
OR = " or "
"""Between the names of what no path can tell apart."""


class ComponentKind(enum.StrEnum):
    """What can be to blame."""

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
    """Parts between two known ones, not known one by one."""
    REPLIES = "replies"
    """What a NIC answers with, seen from round trips alone: a host that stalls, not a fabric that
    loses."""
    CLOCK = "clock"
    """A host's clock: nothing of the fabric."""
    COMPONENT = "component"
    """The name does not say."""


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
    """The direction from `a` to `b`."""
    return f"{a}{ARROW}{b}"


def cable_name(a: str, b: str) -> str:
    """Both directions; the same whichever end is given first."""
    first, second = sorted((a, b))
    return f"{first}{CABLE}{second}"


def replies_name(nic: str) -> str:
    """What a NIC, or a host, answers with."""
    return f"{REPLIES_OF}{nic}"


def hosts_at(switch: str) -> str:
    """All hosts of a switch together."""
    return f"{HOSTS_AT}{switch}"


@functools.lru_cache(maxsize=1 << 16)
def link_ends(name: str) -> tuple[str, str] | None:
    """The devices at the ends of a link or cable called as above; None for anything else."""
    for mark in (ARROW, CABLE):
        a, found, b = name.partition(mark)
        if found and a and b and mark not in b:
            return a, b
    return None


def guess_kind(name: str) -> ComponentKind:
    """The kind that a name suggests, where no topology tells it."""
    if name.startswith(REPLIES_OF):
        return ComponentKind.REPLIES
    for mark, kind in _MARKS.items():
        if mark in name:
            return kind
    host, slash, _ = name.partition("/")
    if slash and host:
        # The lab and most tools call a NIC HOST/NIC, and a switch port SWITCH/PORT.
        kind = guess_kind(host)
        switch = {ComponentKind.LEAF, ComponentKind.SPINE, ComponentKind.CORE, ComponentKind.SWITCH}
        return ComponentKind.CABLE if kind in switch else ComponentKind.NIC
    words = re.findall(r"super-?spine|[a-z]+", name.lower())
    kinds = [_WORDS[word] for word in words if word in _WORDS]
    if len(kinds) > 1:
        return ComponentKind.LINK
    return kinds[0] if kinds else ComponentKind.COMPONENT


def suspects(subject: str) -> tuple[str, ...]:
    """The components that a subject names: several where they cannot be distinguished."""
    return tuple(subject.split(OR))


def same_place(names: Collection[str]) -> bool:
    """Whether one repair serves all of these: a NIC, its cable and its host; a link and its
    cable."""
    return len({_place(name) for name in names}) == 1


def _place(name: str) -> str:
    ends = link_ends(name)
    if ends is None:
        return name.partition("/")[0]
    edge = next((end for end in ends if "/" in end), "")
    return edge.partition("/")[0] or cable_name(*ends)


def crosses(subject: str, components: Collection[str]) -> bool:
    """Whether a path with these components (links by direction) crosses what `subject` names, a
    cable in either direction; of several suspects, any."""
    for name in suspects(subject):
        ends = link_ends(name)
        names = (name,) if ends is None or ARROW in name else _directions(*ends)
        if any(each in components for each in names):
            return True
    return False


def _directions(a: str, b: str) -> tuple[str, str]:
    return link_name(a, b), link_name(b, a)
