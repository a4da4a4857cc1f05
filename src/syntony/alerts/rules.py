"""Rules: which value of which metric is worth an incident, and what to tell the person who gets it.

Rules are TOML tables, ``[[rule]]`` each. Those that come with Syntony are in ``defaults.toml``; an
operator's file adds rules, and replaces or switches off (``enabled = false``) those it names again.
"""

from __future__ import annotations

import enum
import string
import tomllib
from collections.abc import Iterable
from importlib import resources
from typing import Any

import msgspec

from syntony.errors import ConfigError, UsageError
from syntony.model import parse_duration_ns
from syntony.model.names import did_you_mean


class Severity(enum.StrEnum):
    """How soon somebody should look."""

    INFO = "info"
    WARNING = "warning"
    """In working hours."""
    CRITICAL = "critical"
    """Now."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule. A value beyond `above` (or short of `below`) is bad."""

    name: str
    metric: str
    """See docs/reference/incidents.md for the metrics there are."""
    severity: Severity
    summary: str
    """One line for a person; may hold ``{subject}``, ``{value}``, ``{limit}``."""
    remedy: str
    """What to do."""
    above: float | None = None
    below: float | None = None
    open_after: int = 2
    """Evaluations in a row that must be bad before an incident opens."""
    clear_after: int = 3
    """Evaluations in a row that must be good before it may be resolved …"""
    stable: str = "1min"
    """… and for how long they must have been."""
    wait: str = "0s"
    """How long a page is held back so that a wider cause may be found first, and after such a cause
    is over: at least the window that the metric is measured over."""
    idle_wait: str = ""
    """The same from its opening on where no job is known to use the subject and no other incident
    of the rule is live; empty: as `wait`."""
    explained_by: tuple[str, ...] = ()
    """Rules whose incident on the same subject, or on one that contains it, makes this one
    evidence of that instead of a page of its own."""
    joins: tuple[str, ...] = ()
    """Rules whose incident may be the same fault by another name. Once reported, such an incident
    stays open while only this rule's findings are seen, and takes them as evidence."""
    counts: bool = False
    """The value counts what happened within a window: what was counted while a cause was there
    stays that cause's, until more is counted."""
    proven: bool = False
    """What it says was seen, not inferred: it explains also what may be a part of its subject and
    cannot be reported from others, instead of only what must be."""
    of_jobs: bool = False
    """It says what running jobs suffer: what explains it says which."""
    unit: str = ""
    """How `value` is shown: ``ns``, ``ratio``, ``s`` or nothing."""
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
        """What the value is held against."""
        return next(limit for limit in (self.above, self.below) if limit is not None)

    def is_bad(self, value: float) -> bool:
        """Whether a value is beyond the limit."""
        if self.above is not None:
            return value > self.above
        return self.below is not None and value < self.below


def default_rules() -> tuple[Rule, ...]:
    """The rules that come with Syntony."""
    text = resources.files("syntony.alerts").joinpath("defaults.toml").read_text(encoding="utf-8")
    return parse_rules(text, "defaults.toml")


def with_defaults(own: Iterable[Rule]) -> tuple[Rule, ...]:
    """An operator's rules on top of the default ones; without those that are switched off.

    Raises:
        ConfigError: a rule is explained by one that is not there, or by itself.
    """
    merged = {rule.name: rule for rule in default_rules()} | {rule.name: rule for rule in own}
    for rule in merged.values():
        _check_explanations(rule, merged)
    return tuple(rule for rule in merged.values() if rule.enabled)


def _check_explanations(rule: Rule, rules: dict[str, Rule]) -> None:
    """Every rule named is there, and none explains itself: neither would page. What
    joins cannot: of two one is older."""
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
    """Rules from a file's text.

    Raises:
        ConfigError: it is not TOML, or not rules: the rule, what is wrong and what to write.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
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
    if rule.open_after < 1 or rule.clear_after < 1:
        raise ConfigError(f"{called}: `open_after` and `clear_after` are 1 or more")
    for name in ("stable", "wait", "idle_wait"):
        try:
            getattr(rule, f"{name}_ns")
        except UsageError as error:
            raise ConfigError(f"{called}: {name}: {error}") from error
    known = {"subject", "value", "limit"}
    try:
        fields = {name for _, name, _, _ in string.Formatter().parse(rule.summary) if name}
    except ValueError as error:
        raise ConfigError(f"{called}: summary: {error}") from error
    if fields - known:
        raise ConfigError(
            f"{called}: summary: {{{min(fields - known)}}} is not one of {{subject}}, {{value}}, "
            "{limit}"
        )
