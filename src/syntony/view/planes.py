"""Lists where probes over UDP and over verbs disagree."""

from __future__ import annotations

from syntony.model import format_ns
from syntony.view import lazy_rich
from syntony.wire.probes import PlaneDisagreement, Planes

_MOST = 20
"""Maximum number of lines; the rest is counted."""


def disagreement_list(planes: Planes) -> lazy_rich.RenderableType:
    """One line for each, worst first."""
    found = planes.disagreements
    if not found:
        return lazy_rich.Text(
            f"{planes.compared} directions probed over both: they agree", style="dim"
        )
    lines = [lazy_rich.Text(_line(each), style="yellow") for each in found[:_MOST]]
    if len(found) > _MOST:
        lines.append(lazy_rich.Text(f"and {len(found) - _MOST} more", style="dim"))
    return lazy_rich.Group(*lines)


def _line(each: PlaneDisagreement) -> str:
    where = f"{each.src} → {each.dst}, " if each.src else ""
    where += f"class {each.dscp}"
    if each.what == "loss":
        return f"{where}: {each.udp:.1%} lost over UDP, {each.verbs:.1%} over verbs"
    udp, verbs = format_ns(round(each.udp)), format_ns(round(each.verbs))
    usual = format_ns(round(each.usual_ns))
    rest = "in the class" if each.src else "in the least delayed class"
    return f"{where}: {udp} over UDP, {verbs} over verbs; {usual} more is usual {rest}"
