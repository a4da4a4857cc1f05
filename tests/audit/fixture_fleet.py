"""Healthy shapes and faults of `fixtures/`: one TOML file each, drawn, audited and judged.

A shape describes a kind of host and should draw no failure, alone, among its peers or against the
specification learnt from them. A fault names a shape, what changes on one host (or, under
``[peers]``, on the others), and what the audit has to say about it.
"""

from __future__ import annotations

import functools
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.audit import machine_gpus
from tests.audit.machine import Place, deltas, edit, fill, render
from tests.audit.trees import Tree, write

from syntony.audit.judge import Golden, Judge, Majority
from syntony.audit.learn import learn
from syntony.audit.registry import host_checks
from syntony.audit.result import HostReport, Result, Status
from syntony.audit.spec import EMPTY, Spec, limits, parse_spec
from syntony.io.audit.commands import file_name
from syntony.io.audit.examine import examine_tree
from syntony.io.audit.host import recorded_host
from syntony.model.names import host_of

FOLDER = Path(__file__).parent / "fixtures"
SHAPES = sorted(path.stem for path in (FOLDER / "shapes").glob("*.toml"))
FAULTS = sorted(path.stem for path in (FOLDER / "faults").glob("*.toml"))
HOSTS = 3


def judge_all(
    reports: Iterable[HostReport], spec: Spec = EMPTY, golden: HostReport | None = None
) -> list[Result]:
    """Verdicts of a fleet that fits in memory."""
    kept = list(reports)
    majority = Majority(spec)
    for report in kept:
        majority.count(report)
    judge = Judge(spec, Golden(golden) if golden else None, majority)
    return [result for report in kept for result in judge.verdicts(report)]


class Fault(NamedTuple):
    """One fault, and what was said of it."""

    name: str
    place: Place
    """The host that has it."""
    wanted: Mapping[str, Any]
    results: tuple[Result, ...]
    """Of the whole fleet."""
    before: tuple[Result, ...]
    """Of the same fleet without the fault."""

    @property
    def named(self) -> bool:
        """Whether a wanted check says so, of the wanted place, naming the item."""
        return any(self._names(each) for each in self.results)

    def _names(self, result: Result) -> bool:
        wanted = self.wanted
        words = [fill(word, self.place) for word in wanted.get("says", [])]
        statuses = wanted.get("status", ["fail", "warn"])
        return (
            result.check == wanted["check"]
            and result.status in ([statuses] if isinstance(statuses, str) else statuses)
            and wanted.get("at", "") in result.subject
            and all(word in f"{result.subject} {result.got} {result.evidence}"
                    for word in words)
            and bool(result.remedy or result.status is Status.UNKNOWN)
        )  # fmt: skip

    @property
    def others(self) -> tuple[Result, ...]:
        """Failures on hosts that have no fault."""
        bad = self.wanted.get("blamed", ["01"])
        return tuple(
            each for each in self.results if each.status is Status.FAIL
            and not any(host_of(each.subject).endswith(number) for number in bad)
        )  # fmt: skip


def load(kind: str, name: str) -> dict[str, Any]:
    """A file, merged over what its ``base`` says."""
    with (FOLDER / kind / f"{name}.toml").open("rb") as file:
        found = tomllib.load(file)
    if kind == "shapes" and "base" in found:
        return merged(load("shapes", found["base"]), found)
    return found


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are joined, all else is replaced."""
    both = dict(base)
    for name, value in more.items():
        old = both.get(name)
        both[name] = (
            merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return both


@functools.cache
def trees(shape: str) -> tuple[tuple[Tree, Place], ...]:
    """The hosts of a shape."""
    return tuple(_drawn(load("shapes", shape), number) for number in range(1, HOSTS + 1))


def _drawn(shape: Mapping[str, Any], number: int) -> tuple[Tree, Place]:
    tree, place = render(shape, number)
    if machine_gpus.GPUS.get(shape.get("gpu", "")) is not None:
        gpu = machine_gpus.GPUS[shape["gpu"]]
        if gpu.vendor == "nvidia" and tree.commands.get("nvidia-smi topo -m") is None:
            tree.commands["nvidia-smi topo -m"] = machine_gpus.topology(place)
    return tree, place


def examined(tree: Tree, place: Place, spec: Spec = EMPTY) -> HostReport:
    """What all passive checks say of a host."""
    with tempfile.TemporaryDirectory(dir=_fast()) as folder:
        root = write_tree(tree, place, Path(folder) / place.name)
        chosen = host_checks()
        given = limits(spec, chosen)
        checks = [check(given[check.id]) for check in chosen]
        host = recorded_host(root, place.name, spec.backend)
        return examine_tree(host, checks, taken_ns=0)


def _fast() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - if there is one


def write_tree(tree: Tree, place: Place, root: Path) -> Path:
    """The tree on disk, with commands that fail."""
    write(tree, root)
    for path, text in tree.files.items():
        if path.startswith("/sys") and path.endswith("/config") and text:
            raw = (
                b"\xff" * 64
                if text == "gone"
                else bytes.fromhex(text[2:4] + text[:2] + text[6:8] + text[4:6]) + bytes(60)
            )
            (root / path.lstrip("/")).write_bytes(raw)
    for command, status in place.exits.items():
        (root / "commands" / f"{file_name(tuple(command.split(' ')))}.exit").write_text(str(status))
    return root


@functools.cache
def reports(shape: str) -> tuple[HostReport, ...]:
    """What is said of each host of a healthy shape."""
    spec = spec_of(load("shapes", shape))
    return tuple(examined(tree, place, spec) for tree, place in trees(shape))


def spec_of(found: Mapping[str, Any]) -> Spec:
    """The operators' own specification, where a fixture has one."""
    return parse_spec(found["spec"], "the fixture") if "spec" in found else EMPTY


@functools.cache
def judged(shape: str) -> tuple[Result, ...]:
    """A healthy fleet's verdicts."""
    return tuple(judge_all(reports(shape), spec_of(load("shapes", shape))))


@functools.cache
def learnt(shape: str) -> Spec:
    """The specification of a healthy fleet."""
    return parse_spec(tomllib.loads(learn(reports(shape), EMPTY)), "learnt")


@functools.cache
def fault(name: str) -> Fault:
    """A fault, put on the first host of its shape."""
    found = load("faults", name)
    shape = found["base"]
    wanted = found["expect"]
    bad = ["01"]
    spec = spec_of(found)
    kept = []
    for (tree, place), healthy in zip(trees(shape), reports(shape), strict=True):
        here = found if any(place.name.endswith(number) for number in bad) else found.get("peers")
        if here is None and "spec" not in found:
            kept.append(healthy)
            continue
        changed, marked = broken(tree, place, here or {})
        kept.append(examined(changed, marked, spec))
    if found.get("alone"):
        kept = kept[:1]
    if found.get("learnt"):
        spec = learnt(shape)
    results = tuple(judge_all(kept, spec))
    return Fault(name, trees(shape)[0][1], wanted, results, judged(shape))


def broken(tree: Tree, place: Place, change: Mapping[str, Any]) -> tuple[Tree, Place]:
    """A host with a fixture's deltas applied."""
    files, links, commands = dict(tree.files), dict(tree.links), dict(tree.commands)
    marked = Place(place.shape, place.number)
    marked.names = place.names
    marked.exits |= place.exits
    for path, text in deltas(place, tree, change):
        gone = [each for each in (*files, *links) if each == path or each.startswith(f"{path}/")]
        for each in gone if text is None else ():
            files.pop(each, None)
            links.pop(each, None)
        if text is not None:
            files[path] = text
    for form, target in change.get("links", {}).items():
        links[fill(form, place)] = fill(target, place)
    for form, value in change.get("commands", {}).items():
        command = fill(form, place)
        if value is False:
            commands[command] = None
        elif isinstance(value, dict):
            commands[command] = edit(commands.get(command) or "", value, place)
            if "exit" in value:
                marked.exits[command] = value["exit"]
        else:
            commands[command] = value
    return Tree(files, links, commands), marked


def failures(results: tuple[Result, ...] | list[Result]) -> list[str]:
    """In a line each."""
    return [f"{each.subject} {each.check}: {each.got} (expected {each.expected}; {each.evidence})"
            for each in results if each.status is Status.FAIL]  # fmt: skip


def healthy_runs(shape: str) -> Iterator[tuple[str, list[Result]]]:
    """A shape's verdicts each way a fleet is audited: together, alone, against what was learnt."""
    yield "together", list(judged(shape))
    yield "alone", judge_all(reports(shape)[:1], spec_of(load("shapes", shape)))
    yield "learnt", judge_all(reports(shape), learnt(shape))


__all__ = ["FAULTS", "SHAPES", "Majority", "fault", "healthy_runs", "judged"]
