"""What latency should be: an operator's TOML.

Without a file there are no absolute limits, since the fabric is unknown. Latency that is worse than
its own past, or than that of similar pairs, is still reported.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from syntony.errors import ConfigError, UsageError
from syntony.model import parse_duration_ns
from syntony.model.names import did_you_mean

CLASSES = ("leaf", "spine", "core")
"""By the switches that a path crosses: one, up to three, more."""
ANY = "any"


class Objective(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[objective]]``: what paths of one class must keep. Empty: nothing is promised of it."""

    path_class: str = msgspec.field(name="class", default=ANY)
    """``leaf``, ``spine``, ``core`` or ``any``; the class's own comes before ``any``."""
    p50: str = ""
    """Longest median of one-way delay."""
    p99: str = ""
    loss: float | None = None
    """Largest share of lost probes."""

    @property
    def p50_ns(self) -> int | None:
        return parse_duration_ns(self.p50) if self.p50 else None

    @property
    def p99_ns(self) -> int | None:
        return parse_duration_ns(self.p99) if self.p99 else None


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When something is worse than what it is compared with: by a factor, and by a margin."""

    times: float = 2.0
    margin: str = "20us"
    """Differences below this are never reported: a burst of full-size packets at 10 Gb/s."""

    @property
    def margin_ns(self) -> int:
        return parse_duration_ns(self.margin)


class History(Comparison, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[history]``: p99 against the same subject's own past."""

    window: str = "1h"
    """The past begins so long ago …"""
    until: str = "5min"
    """… and ends so long ago: what is wrong now does not count as usual at once."""

    @property
    def window_ns(self) -> int:
        return parse_duration_ns(self.window)

    @property
    def until_ns(self) -> int:
        return parse_duration_ns(self.until)


class Terms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    objective: tuple[Objective, ...] = ()
    history: History = History()
    peers: Comparison = Comparison()
    """``[peers]``: the median against those of the other paths of its class."""

    def of(self, path_class: str) -> Objective:
        by_class = {each.path_class: each for each in self.objective}
        return by_class.get(path_class) or by_class.get(ANY) or Objective()


def check_terms(terms: Terms, where: str) -> Terms:
    """The same, if it makes sense. Raises `ConfigError`: an unknown class (with the nearest), one
    class twice, or a value out of range."""
    seen = set()
    for each in terms.objective:
        name = each.path_class
        if name not in {*CLASSES, ANY}:
            hint = did_you_mean(name, [*CLASSES, ANY]) or f"; use one of {', '.join(CLASSES)}"
            raise ConfigError(f"{where}: no class {name!r}{hint}")
        if name in seen:
            raise ConfigError(f"{where}: class {name!r} has two objectives; put them into one")
        seen.add(name)
        if each.loss is not None and not 0 <= each.loss <= 1:
            raise ConfigError(f"{where}: loss is {each.loss}; give a share between 0 and 1")
    for comparison in (terms.history, terms.peers):
        if not comparison.times >= 1:  # nan is neither
            raise ConfigError(f"{where}: times is {comparison.times}; give 1 or more")
    _check_durations(terms, where)
    if terms.history.until_ns >= terms.history.window_ns:
        raise ConfigError(f"{where}: history ends before it begins; make `window` longer")
    return terms


def _check_durations(terms: Terms, where: str) -> None:
    texts: Iterable[str] = (
        *(text for each in terms.objective for text in (each.p50, each.p99) if text),
        terms.history.margin, terms.history.window, terms.history.until, terms.peers.margin,
    )  # fmt: skip
    for text in texts:
        try:
            parse_duration_ns(text)
        except UsageError as error:
            raise ConfigError(f"{where}: {error}") from error
