"""Parses the specification of a fleet that operators write (TOML).

[roles.compute]
hosts = ["gpu*"]
backend = ["mlx5_[0-7]"]                     # where it cannot be reported from the default route

[roles.compute.expect]
"sw.kernel" = "5.15.0-1078-generic"          # equal
"sw.driver" = {min = "535.129.03"}           # at least; also max
"sw.nic-fw/MT_0000000838" = ["28.41.1000", "28.43.2566"]   # one of
"mem.total" = {about = 2113929216, within = 0.04}

[checks."node.gpu-health"]
hot_c = 80
"""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from syntony.audit.check import Check, Key
from syntony.audit.parse.text import version_key
from syntony.audit.registry import every_check
from syntony.audit.result import Value
from syntony.errors import ConfigError
from syntony.model.names import did_you_mean


class Range(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An expected range; fields that are left out do not count."""

    min: Value | None = None
    max: Value | None = None
    about: float | None = None
    within: float = 0.0
    """Relative, of `about`."""

    def holds(self, value: Value) -> bool:
        """Whether the value is inside; versions are compared as versions."""
        if self.about is not None:
            if isinstance(value, str | bool):
                return False
            return abs(value - self.about) <= self.within * abs(self.about)
        low = self.min is None or operator.ge(*_comparable(value, self.min))
        return low and (self.max is None or operator.le(*_comparable(value, self.max)))

    def words(self, unit: str = "") -> str:
        """The range in words, for people."""
        if self.about is not None:
            about = with_unit(self.about, unit) if unit else f"{self.about:g}"
            return f"{about} ± {100 * self.within:g} %"
        bounds = (f"{word} {with_unit(bound, unit)}"
                  for word, bound in (("≥", self.min), ("≤", self.max))
                  if bound is not None)  # fmt: skip
        return ", ".join(bounds)

    def __str__(self) -> str:
        return self.words()


Rule = Value | tuple[Value, ...] | Range


class HostRole(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts that should be alike."""

    hosts: tuple[str, ...] = ("*",)
    """Shell patterns."""
    backend: tuple[str, ...] = ()
    """RDMA devices or interfaces (shell patterns) that carry the job; none: found out."""
    expect: dict[str, Rule] = {}


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    roles: dict[str, HostRole] = {}
    checks: dict[str, dict[str, Any]] = {}
    """Check → its limits."""

    def role_of(self, host: str) -> str:
        """The first role one of whose patterns fits; ``-`` for a host of none."""
        for name, role in self.roles.items():
            if any(fnmatch.fnmatchcase(host, pattern) for pattern in role.hosts):
                return name
        return NO_ROLE

    def backend(self, host: str) -> tuple[str, ...]:
        """Which ports of the host carry the job, as its role says; empty: to be found out."""
        role = self.roles.get(self.role_of(host))
        return role.backend if role else ()

    def rule(self, host: str, key: str, variant: str) -> Rule | None:
        """What is expected of a reading; a rule for its variant goes before one for all."""
        role = self.roles.get(self.role_of(host))
        if role is None:
            return None
        return role.expect.get(f"{key}/{variant}", role.expect.get(key))


NO_ROLE = "-"
EMPTY = Spec()


def holds(rule: Rule, value: Value) -> bool:
    if isinstance(rule, Range):
        return rule.holds(value)
    if isinstance(rule, tuple):
        return any(holds(each, value) for each in rule)
    return rule == value or str(rule) == str(value)


def words(rule: Rule, unit: str = "") -> str:
    """A rule for people.

    Args:
        unit: of the key's amounts.
    """
    if isinstance(rule, tuple):
        return " or ".join(with_unit(each, unit) for each in rule)
    return rule.words(unit) if isinstance(rule, Range) else with_unit(rule, unit)


_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def with_unit(value: Value, unit: str) -> str:
    """``2.02 TiB`` of bytes, ``391.2 GB/s``; a text or a flag as it is."""
    if not unit or isinstance(value, str | bool):
        return str(value)
    if unit != _BINARY[0]:
        return f"{value:.6g} {unit}"
    power = 0
    while abs(value) >= 1024 and power < len(_BINARY) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.4g} {_BINARY[power]}"


def parse_spec(data: Mapping[str, Any], name: str) -> Spec:
    """A specification from parsed TOML.

    Args:
        name: of the file, for what is wrong with it.

    Raises:
        ConfigError: a key, a check or a limit that does not exist (with the nearest that does), or
            a value of the wrong form.
    """
    try:
        spec = msgspec.convert(data, Spec)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {_explain(str(error))}") from error
    keys = every_key()
    for role, each in spec.roles.items():
        for key in each.expect:
            if key.partition("/")[0] not in keys:
                raise ConfigError(f"{name}: role {role}: no key {key!r}{_near(key, keys)}")
    limits(spec, every_check(), name)
    return spec


def limits(
    spec: Spec, checks: Iterable[type[Check]], name: str = "the spec"
) -> dict[str, msgspec.Struct]:
    """Each check's limits: the spec's where it sets any, else the check's own. Raises
    `ConfigError`: as `parse_spec`."""
    known = {check.id: check for check in checks}
    everything = {check.id for check in every_check()}
    for check in spec.checks:
        if check not in everything:
            raise ConfigError(f"{name}: no check {check!r}{_near(check, everything)}")
    return {id_: _limits_of(check, spec, name) for id_, check in known.items()}


def every_key() -> dict[str, Key]:
    """What a spec may expect."""
    return {key.name: key for check in every_check() for key in check.keys}


def _limits_of(check: type[Check], spec: Spec, name: str) -> msgspec.Struct:
    given = spec.checks.get(check.id, {})
    known = {field.name for field in msgspec.structs.fields(check.Input)}
    for field in given:
        if field not in known:
            raise ConfigError(f"{name}: {check.id} has no limit {field!r}{_near(field, known)}")
    try:
        return msgspec.convert(given, check.Input)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: checks.{check.id}: {error}") from error


def _near(word: str, known: Iterable[str]) -> str:
    return did_you_mean(word, known) or " (see: syntony audit checks)"


_FIELDS = ("roles", "checks", "hosts", "backend", "expect", "min", "max", "about", "within")


def _explain(message: str) -> str:
    unknown = message.partition("unknown field `")[2].partition("`")[0]
    return f"{message}{_near(unknown, _FIELDS)}" if unknown else message


def _comparable(value: Value, bound: Value) -> tuple[Any, Any]:
    """A reading and a bound, to be compared: amounts as numbers, and so are texts if both are whole
    numbers; other texts as versions, of which ``1.10`` is after ``1.9``."""
    number = int if isinstance(value, str) else float
    try:
        return number(str(value)), number(str(bound))
    except ValueError:
        return version_key(str(value)), version_key(str(bound))
