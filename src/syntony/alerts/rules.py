"""Rules: which value of which metric opens an incident, and the texts for the engineer on call.

Rules are TOML tables, ``[[rule]]`` each. Those that come with Syntony are in ``defaults.toml``; an
operator's file adds rules, and replaces or disables (``enabled = false``) those of the same name.
"""

from __future__ import annotations

import enum
import math
import string
import tomllib
from collections.abc import Iterable
from importlib import resources
from typing import Any

import msgspec

from syntony.errors import ConfigError, UsageError
from syntony.model import parse_duration_ns
from syntony.model.names import did_you_mean

MAX_EVALUATIONS = 1_000_000
"""Of `open_after` and `clear_after`: days, in which nobody would want to wait."""
_FIELDS = frozenset({"subject", "value", "limit"})


class Severity(enum.StrEnum):
    """How soon an engineer should look at it."""

    INFO = "info"
    WARNING = "warning"
    """In working hours."""
    CRITICAL = "critical"
    """Now."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule. A value greater than `above`, or less than `below`, is bad."""

    name: str
    metric: str
    """One of the metrics in docs/reference/incidents.md."""
    severity: Severity
    summary: str
    """One line; may contain ``{subject}``, ``{value}``, ``{limit}``."""
    remedy: str
    above: float | None = None
    below: float | None = None
    open_after: int = 2
    """Number of consecutive bad evaluations that opens an incident."""
    clear_after: int = 3
    """Number of consecutive good evaluations before it may be resolved …"""
    stable: str = "1min"
    """… and their minimum duration."""
    wait: str = "0s"
    """How long a page is delayed so that a wider cause may be found first, and after such a cause
    has ended: at least the metric's measuring window."""
    idle_wait: str = ""
    """The same from its opening, if no job is known to use the subject and no other incident of the
    rule is live; empty: as `wait`."""
    explained_by: tuple[str, ...] = ()
    """Rules whose incident explains this one if it has the same subject or one that contains it:
    this one is then evidence and does not page."""
    joins: tuple[str, ...] = ()
    """Rules whose incident may be the same fault under another name. Once reported, such an
    incident stays open while only this rule has findings, which become its evidence."""
    counts: bool = False
    """Whether the value is a count of events in a window: events counted while a cause was live
    remain explained by it, until the count rises."""
    proven: bool = False
    """Whether the finding was observed, not inferred: it also explains incidents whose subject may
    be, but need not be, a part of its own subject."""
    of_jobs: bool = False
    """Whether it is about the impact on running jobs: its cause then lists these jobs."""
    unit: str = ""
    """Unit for showing `value`: ``ns``, ``ratio``, ``s``, what is counted (``flaps``), or none if
    it is true or not."""
    enabled: bool = True

    @property
    def stable_ns(self) -> int:
        return parse_duration_ns(self.stable)

    @property
    def wait_ns(self) -> int:
        return parse_duration_ns(self.wait)

    @property
    def idle_wait_ns(self) -> int:
        return parse_duration_ns(self.idle_wait or self.wait)

    @property
    def limit(self) -> float:
        """The threshold."""
        return next(limit for limit in (self.above, self.below) if limit is not None)

    def is_bad(self, value: float) -> bool:
        """Whether a value is beyond the limit."""
        if self.above is not None:
            return value > self.above
        return self.below is not None and value < self.below


def default_rules() -> tuple[Rule, ...]:
    """The rules of ``defaults.toml``."""
    text = resources.files("syntony.alerts").joinpath("defaults.toml").read_text(encoding="utf-8")
    return parse_rules(text, "defaults.toml")


def with_defaults(operator_rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The default rules with an operator's changes, without disabled ones. Raises `ConfigError`: a
    rule is explained by one that does not exist, or by itself."""
    merged = {rule.name: rule for rule in default_rules()} | {
        rule.name: rule for rule in operator_rules
    }
    for rule in merged.values():
        _check_explanations(rule, merged)
    return tuple(rule for rule in merged.values() if rule.enabled)


def _check_explanations(rule: Rule, rules: dict[str, Rule]) -> None:
    """Check that every named rule exists, and that none explains itself: such rules would never
    page. `joins` may be mutual, because one of two incidents is older."""
    _check_names(rule, "joins", rule.joins, rules)
    explaining, seen = list(rule.explained_by), set()
    while explaining:
        name = explaining.pop()
        _check_names(rule, "explained_by", (name,), rules)
        if name == rule.name:
            raise ConfigError(f"rule {rule.name!r}: explained_by: it would explain itself")
        if name not in seen:
            seen.add(name)
            explaining.extend(rules[name].explained_by)


def _check_names(rule: Rule, field: str, names: Iterable[str], rules: dict[str, Rule]) -> None:
    for name in names:
        if name not in rules:
            hint = did_you_mean(name, rules)
            raise ConfigError(f"rule {rule.name!r}: {field}: no rule {name!r}{hint}")


def parse_rules(text: str, where: str) -> tuple[Rule, ...]:
    """Parse the rules of a file. Raises `ConfigError`: the text is not TOML, or a rule is
    invalid."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not TOML: {error}") from error
    for key in document:
        if key != "rule":
            raise ConfigError(f"{where}: {key!r} is not known here; rules begin with [[rule]]")
    tables = document.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{where}: rules begin with [[rule]], one for each")
    rules = tuple(_rule(table, number, where) for number, table in enumerate(tables, start=1))
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{where}: rule {name!r} is there twice; give one another name")
    return rules


def _rule(table: dict[str, Any], number: int, where: str) -> Rule:
    called = f"{where}: rule {table.get('name', number)!r}"
    for key in table:
        if key not in Rule.__struct_fields__:
            hint = did_you_mean(key, Rule.__struct_fields__)
            raise ConfigError(f"{called}: {key!r} is not a setting of a rule{hint}")
    try:
        rule = msgspec.convert(table, Rule)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{called}: {error}") from error
    _check(rule, called)
    return rule


def _check(rule: Rule, called: str) -> None:
    if (rule.above is None) == (rule.below is None):
        raise ConfigError(f"{called}: give it either `above` or `below`")
    if math.isnan(rule.limit):
        raise ConfigError(f"{called}: the limit is nan, which no value exceeds; give a number")
    if not all(1 <= each <= MAX_EVALUATIONS for each in (rule.open_after, rule.clear_after)):
        raise ConfigError(
            f"{called}: `open_after` and `clear_after` are 1 or more, up to {MAX_EVALUATIONS}"
        )
    for name in ("stable", "wait", "idle_wait"):
        try:
            getattr(rule, f"{name}_ns")
        except UsageError as error:
            raise ConfigError(f"{called}: {name}: {error}") from error
    try:
        parts = list(string.Formatter().parse(rule.summary))
    except ValueError as error:
        raise ConfigError(f"{called}: summary: {error}") from error
    for _, inside, form, conversion in parts:
        shape = f"{'!' if conversion else ''}{conversion or ''}{':' if form else ''}{form or ''}"
        if inside is not None and f"{inside}{shape}" not in _FIELDS:
            raise ConfigError(
                f"{called}: summary: {{{inside}{shape}}} is not one of {{subject}}, {{value}}, "
                "{limit}"
            )
