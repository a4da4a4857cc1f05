"""Files that operators write: topologies, incident rules, latency objectives."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.alerts.rules import Rule, default_rules, parse_rules, with_defaults
from syntony.config import load_config
from syntony.errors import ConfigError, InputError
from syntony.input_files import MAX_CONFIG_BYTES, read_text
from syntony.model.names import did_you_mean
from syntony.sla.terms import Terms, check_terms

if TYPE_CHECKING:
    from syntony.fabric.graph import Topology


def load_topology(path: str | Path, form: str = "") -> Topology:
    """A topology of any form that `syntony fabric import` reads. Raises `InputError`: it cannot be
    read or is none; with the file's name."""
    from syntony.fabric.files import parse_topology

    try:
        return parse_topology(read_text(path), form)
    except OSError as error:
        name = "not-text" if error.errno == errno.EILSEQ else "unreadable"
        raise InputError(name, f"{path}: cannot be read: {error.strerror}") from error
    except InputError as error:
        text = str(error).removeprefix(f"{error.name}: ")
        raise InputError(error.name, f"{path}: {text}") from error


def load_rules(path: str | Path) -> tuple[Rule, ...]:
    """The default rules with those of a file.

    Raises:
        ConfigError: it cannot be read, or a rule is invalid; also if no default rule has its
            metric, since it would never open an incident. With the file's name.
    """
    try:
        text = read_text(path, MAX_CONFIG_BYTES)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    own = parse_rules(text, str(path))
    metrics = {rule.metric for rule in default_rules()}
    for rule in own:
        if rule.metric not in metrics:
            hint = did_you_mean(rule.metric, metrics)
            raise ConfigError(f"{path}: rule {rule.name!r}: no metric {rule.metric!r}{hint}")
    try:
        return with_defaults(own)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def load_objectives(path: str | Path) -> Terms:
    """Latency objectives. Raises `ConfigError`, with the file's name."""
    return check_terms(load_config(path, Terms), str(path))
