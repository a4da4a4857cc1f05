"""Writes a spec from a fleet that is known to be good, sorted, so that two can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syntony.audit.check import Compare
from syntony.audit.judge import Majority
from syntony.audit.result import HostReport
from syntony.audit.spec import NO_ROLE, Range, Rule, Spec, every_key
from syntony.config import to_toml, toml_key, toml_value


def learn(reports: Iterable[HostReport], spec: Spec) -> str:
    """TOML of what most hosts of each role have in common; what is undecided is a comment.

    Args:
        reports: of hosts that are right. Fewer than three are enough when they agree.
        spec: its roles say which hosts are alike; its limits are kept.
    """
    majority = Majority(spec, min_peers=1)
    for report in reports:
        majority.count(report)
    lines: list[str] = []
    for role in [*spec.roles, NO_ROLE]:
        rows = list(_rows(majority, role))
        if role == NO_ROLE and not rows:
            continue
        name = "all" if role == NO_ROLE else role
        hosts = ("*",) if role == NO_ROLE else spec.roles[role].hosts
        lines += [f"[roles.{toml_key(name)}]", f"hosts = {toml_value(list(hosts))}", ""]
        lines += [f"[roles.{toml_key(name)}.expect]", *rows, ""]
    for check, given in sorted(spec.checks.items()):
        lines.append(f"[checks.{toml_key(check)}]")
        lines.append(to_toml(dict(sorted(given.items()))))
    return "\n".join(lines)


def _rows(majority: Majority, role: str) -> Iterator[str]:
    keys = every_key()
    for place, key, variant in majority.places():
        if place != role:
            continue
        if keys[key].compare is Compare.UNIQUE:
            continue  # every host has its own
        name = f"{key}/{variant}" if variant else key
        expected = majority.expected(role, key, variant)
        if expected.rule is None:
            yield f"# {_one_line(name)}: {_one_line(expected.source)}"
        elif not (keys[key].compare is Compare.COMMON and expected.rule == "none"):
            yield f"{toml_key(name)} = {toml_value(_plain(expected.rule))}"


def _plain(rule: Rule) -> object:
    if isinstance(rule, Range):
        if rule.about is not None:
            return {"about": rule.about, "within": rule.within}
        bounds = {"min": rule.min, "max": rule.max}
        return {name: bound for name, bound in bounds.items() if bound is not None}
    return list(rule) if isinstance(rule, tuple) else rule


def _one_line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
