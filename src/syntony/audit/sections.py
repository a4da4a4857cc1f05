"""Maps names on the command line to sections of the tree of checks."""

from __future__ import annotations

from collections.abc import Iterable

from syntony.audit.check import Section
from syntony.errors import UsageError
from syntony.model.names import did_you_mean

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
    named = [section for name in only for section in _named(name)]
    left = frozenset(named or Section) - {s for name in skip for s in _named(name)}
    if not left:
        raise UsageError("--only and --skip together leave nothing to audit")
    return left


def _named(text: str) -> tuple[Section, ...]:
    names = section_names()
    found: list[Section] = []
    for name in text.lower().replace("-", "").split(","):
        if name not in names:
            words = [word for word in names if not word[0].isdigit()]
            hint = did_you_mean(name, words) or f"; there are {', '.join(words)}"
            raise UsageError(f"no section {name!r}{hint}")
        found += names[name]
    return tuple(found)
