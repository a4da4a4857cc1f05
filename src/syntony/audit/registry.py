"""Every check there is, found by importing `syntony.audit.checks`."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterable

from syntony.audit import checks as _folder
from syntony.audit.check import Check, HostCheck, Section
from syntony.errors import UsageError
from syntony.model.names import did_you_mean


@functools.cache
def every_check() -> tuple[type[Check], ...]:
    """All checks, in the order of the tree, then by id."""
    order = list(Section)
    found = {check.id: check for check in _classes()}
    return tuple(sorted(found.values(), key=lambda check: (order.index(check.section), check.id)))


def host_checks(wanted: Iterable[str] = (), *, active: bool = False) -> tuple[type[HostCheck], ...]:
    """The checks of one host; those named, or whose id begins with a name, or all.

    Args:
        wanted: ids, or beginnings of them (``sw``, ``be.act``).
        active: those that load the host too, where none is named.

    Raises:
        UsageError: a name that is none.
    """
    names = tuple(wanted)
    chosen = (check for check in named_checks(names) if issubclass(check, HostCheck))
    return tuple(check for check in chosen if names or active or not check.active)


def fleet_checks() -> tuple[type[Check], ...]:
    """The checks that no host can make alone."""
    return tuple(check for check in every_check() if not issubclass(check, HostCheck))


def named_checks(names: Iterable[str]) -> tuple[type[Check], ...]:
    """The checks named, or whose id begins with a name; all if none is. Raises `UsageError`."""
    wanted = tuple(names)
    for name in wanted:
        if not any(_named(check.id, name) for check in every_check()):
            hint = did_you_mean(name, [check.id for check in every_check()])
            raise UsageError(f"no check {name!r}{hint} (see: syntony audit checks)")
    return tuple(
        check for check in every_check()
        if not wanted or any(_named(check.id, name) for name in wanted)
    )  # fmt: skip


def _named(check: str, name: str) -> bool:
    return check == name or check.startswith(f"{name}.")


def _classes() -> list[type[Check]]:
    found = []
    for module in pkgutil.walk_packages(_folder.__path__, f"{_folder.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            several = value if isinstance(value, tuple) else (value,)
            found += [each for each in several if _is_check(each, module.name)]
    return found


def _is_check(value: object, module: str) -> bool:
    return (
        inspect.isclass(value)
        and issubclass(value, Check)
        and not inspect.isabstract(value)
        and value.__module__ == module
        and hasattr(value, "id")
    )


_TWIGS = (
    (Section.SOFTWARE, Section.MEMORY, Section.PCIE),
    (Section.NODE,),
    (Section.FRONTEND,),
    (Section.INITIALIZED, Section.ACTIVE, Section.GID, Section.CONNECTIVITY, Section.LATENCY,
     Section.TOPOLOGY),
    (Section.NCCL,),
)  # fmt: skip
_BRANCHES = ("configuration", "node", "frontend", "backend", "nccl")


def section_names() -> dict[str, tuple[Section, ...]]:
    """``backend``, ``4``, ``latency``, ``4.5`` and all others to what they stand for."""
    names: dict[str, tuple[Section, ...]] = {}
    for number, (branch, twigs) in enumerate(zip(_BRANCHES, _TWIGS, strict=True), start=1):
        names[branch] = names[str(number)] = twigs
        for place, twig in enumerate(twigs, start=1):
            names[twig.name.lower()] = (twig,)
            names[f"{number}.{place}"] = (twig,)
    return names


def chosen_sections(only: Iterable[str], skip: Iterable[str]) -> frozenset[Section]:
    """Those named, all if none is, less those skipped. Raises `UsageError`: a name that is none
    (with the nearest that is), or nothing is left."""
    named = [section for name in only for section in _matching(name)]
    left = frozenset(named or Section) - {s for name in skip for s in _matching(name)}
    if not left:
        raise UsageError("--only and --skip together leave nothing to audit")
    return left


def _matching(text: str) -> tuple[Section, ...]:
    names = section_names()
    found: list[Section] = []
    for name in text.lower().replace("-", "").split(","):
        if name not in names:
            words = [word for word in names if not word[0].isdigit()]
            hint = did_you_mean(name, words) or f"; there are {', '.join(words)}"
            raise UsageError(f"no section {name!r}{hint}")
        found += names[name]
    return tuple(found)
