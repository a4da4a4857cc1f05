"""Rules: those that come along, an operator's own, and every way to get one wrong."""

from __future__ import annotations

import msgspec
import pytest

from syntony.alerts.rules import Rule, Severity, default_rules, parse_rules, with_defaults
from syntony.errors import ConfigError

GOOD = """
[[rule]]
name = "mine"
metric = "flaps_1h"
severity = "critical"
above = 3
summary = "{subject} {value} {limit}"
remedy = "look"
"""


def test_the_fields_known_rule_is_among_the_defaults() -> None:
    """The alert that operators know: more than 8 flaps within the past hour."""
    rules = {rule.name: rule for rule in default_rules()}
    flapping = rules["link-flapping"]
    assert (flapping.metric, flapping.above, flapping.severity) == ("flaps_1h", 8, "critical")
    assert not flapping.is_bad(8)
    assert flapping.is_bad(9)
    assert rules["link-flaps"].is_bad(3)
    assert not rules["link-flaps"].is_bad(2)


def test_an_operators_rule_replaces_adds_and_switches_off() -> None:
    own = parse_rules(
        GOOD
        + GOOD.replace('"mine"', '"link-flaps"').replace("above = 3", "above = 5")
        + GOOD.replace('"mine"', '"module-limit"').replace(
            "above = 3", "above = 5\nenabled = false"
        ),
        "own.toml",
    )
    rules = {rule.name: rule for rule in with_defaults(own)}
    assert rules["link-flaps"].above == 5
    assert "mine" in rules
    assert "module-limit" not in rules
    assert "link-flapping" in rules


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[rule", "not TOML"),
        ("rules = 1", "'rules' is not known here; rules begin with [[rule]]"),
        ("rule = 1", "rules begin with [[rule]], one for each"),
        (
            GOOD.replace("above", "abvoe"),
            "'abvoe' is not a setting of a rule; did you mean",
        ),
        (GOOD.replace("above = 3", ""), "either `above` or `below`"),
        (GOOD.replace("above = 3", "above = 3\nbelow = 1"), "either `above` or `below`"),
        (GOOD.replace('"critical"', '"fatal"'), "Invalid enum value 'fatal'"),
        (GOOD.replace("above = 3", "above = 'x'"), "Expected `float | null`"),
        (GOOD.replace("above = 3", "above = 3\nstable = '5'"), "stable: '5' is not a duration"),
        (GOOD.replace("above = 3", "above = 3\nstable = ''"), "stable: '' is not a duration"),
        (GOOD.replace("above = 3", "above = 3\nidle_wait = 'no'"), "idle_wait: 'no' is not a"),
        (GOOD.replace("above = 3", "above = 3\nopen_after = 0"), "are 1 or more"),
        (GOOD.replace("above = 3", "above = 3\nclear_after = 2000000"), "up to 1000000"),
        (GOOD.replace("above = 3", "above = nan"), "the limit is nan"),
        (GOOD.replace("{limit}", "{limits}"), "{limits} is not one of"),
        (GOOD.replace("{limit}", "{}"), "{} is not one of"),
        (GOOD.replace("{limit}", "{limit:.2f}"), "{limit:.2f} is not one of"),
        (GOOD.replace("{limit}", "{limit!x}"), "{limit!x} is not one of"),
        (GOOD.replace("{limit}", "{limit"), "summary:"),
        (GOOD + GOOD, "'mine' is there twice"),
        (GOOD.replace('name = "mine"', ""), "missing required field `name`"),
    ],
)
def test_wrong_rules_are_one_clear_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rules(text, "own.toml")
    assert says in str(caught.value)
    assert str(caught.value).startswith("own.toml")
    assert "\n" not in str(caught.value)


def rule(name: str, *explained_by: str) -> Rule:
    return Rule(
        name=name, metric="m", severity=Severity.INFO, summary="", remedy="", above=0.0,
        explained_by=explained_by,
    )  # fmt: skip


def test_an_unknown_rule_is_told_with_the_setting_that_names_it() -> None:
    joins = msgspec.structs.replace(rule("a"), joins=("link-los",))
    with pytest.raises(ConfigError, match=r"'a': joins: no rule 'link-los'; .*'link-loss'"):
        with_defaults([joins])
    with pytest.raises(ConfigError, match=r"'a': explained_by: no rule 'b'"):
        with_defaults([rule("a", "b")])


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ([rule("a", "a")], "explain itself"),
        ([rule("a", "b"), rule("b", "a")], "explain itself"),
        ([rule("a", "port-dwon")], "did you mean 'port-down'"),
    ],
)
def test_explanations_that_would_hide_everything(rules: list[Rule], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        with_defaults(rules)
