"""Measure what a room's tests notice: change its code in one place, run its tests, count.

`make mutate ROOM=links N=30 SEED=1` draws N changes (see `tests/mutants.py`) of lines of
`src/syntony/links`, and runs for each the room's tests that cover the changed line, the quickest
files first, until one fails. A change that no test notices is printed with its place and its
difference. Nothing is written to the working tree: every change lives in a forked process, which
imports the changed module from memory. docs/reference/mutation.md says how to read the result.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import multiprocessing as mp
import os
import random
import resource
import signal
import sys
import tempfile
import time
import tomllib
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import cast

import coverage
import pytest
from hypothesis import Phase, settings
from tests.mutants import Mutant, mutant, sites

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
ALLOWED = Path(__file__).with_name("mutate_allowed.toml")
HEAVY = ("numpy", "scipy.optimize", "scipy.sparse.linalg", "scipy.stats", "rich.console")
"""Imported once, before the forks."""
MEMORY_BYTES = 8 << 30
"""A changed loop must not take the machine with it."""
OPTIONS = ["-q", "-x", "--assert=plain", "--tb=short", "-pno:cacheprovider"]
OPTIONS += ["-m", "not slow and not lab"]


def sample(room: str, only: str, size: int, seed: int) -> list[Mutant]:
    """One change each of lines drawn at random, none that is known to make no difference."""
    allowed = {(a["file"], a["diff"].strip()) for a in tomllib.loads(ALLOWED.read_text())["equal"]}
    by_line: defaultdict[tuple[Path, int], list[int]] = defaultdict(list)
    for path in sorted((SRC / "syntony" / room).rglob("*.py")):
        for number, site in enumerate(sites(path) if only in str(path) else ()):
            by_line[path, site.line].append(number)
    rng = random.Random(seed)
    lines = rng.sample(list(by_line.items()), len(by_line))
    drawn = (mutant(path, rng.choice(numbers), SRC) for (path, _), numbers in lines)
    return list(islice((m for m in drawn if m.diff and (m.file, m.diff) not in allowed), size))


class Recorder:
    """A pytest plugin for the unchanged run: which test covers which line, and its time."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - began

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        # What a module's fixture does is every test's of that file, not the first one's.
        self._measured.switch_context(_file(item.nodeid))

    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self._measured.switch_context(item.nodeid)


class Chosen:
    """A pytest plugin: only the given tests, in the given order, with the same examples for every
    change; what failed is not shrunk."""

    def __init__(self, tests: Sequence[str] | None = None) -> None:
        self._order = None if tests is None else {test: i for i, test in enumerate(tests)}

    def pytest_configure(self) -> None:
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile(
            "mutate", deadline=None, derandomize=True, database=None, phases=phases
        )
        settings.load_profile("mutate")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if (order := self._order) is not None:
            items[:] = [item for item in items if item.nodeid in order]
            items.sort(key=lambda item: order[item.nodeid])


class FromMemory(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the changed module, and leaves all others to the usual finders."""

    def __init__(self, changed: Mutant) -> None:
        self._file, self._source = SRC / changed.file, changed.source
        self._name = changed.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        package = [str(self._file.parent)] if self._file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            fullname, self._file, loader=self, submodule_search_locations=package
        )

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self._source, self._file, "exec"), module.__dict__)  # noqa: S102


class Covering:
    """Which of a room's tests run which lines, measured on the unchanged code."""

    def __init__(self, room: str, paths: Sequence[str], folder: Path) -> None:
        data_file, times = folder / "coverage", folder / "seconds.json"
        output = folder / "output"

        def measure() -> int:
            measured = coverage.Coverage(
                data_file=str(data_file), source=[str(SRC / "syntony" / room)], config_file=False
            )
            recorder = Recorder(measured)
            measured.start()
            status = int(pytest.main([*OPTIONS, *paths], [Chosen(), recorder]))
            measured.stop()
            measured.save()
            times.write_text(json.dumps(recorder.seconds))
            return status

        process = forked(measure, 3600, output)
        process.join()
        if process.exitcode:
            said = output.read_text(errors="replace")[-4000:]
            sys.exit(f"{said}\n{' '.join(paths)}: fail without any change ({process.exitcode})")
        self.seconds: dict[str, float] = json.loads(times.read_text())
        data = coverage.CoverageData(str(data_file))
        data.read()
        self._lines = {
            Path(file).relative_to(SRC).as_posix(): data.contexts_by_lineno(file)
            for file in data.measured_files()
        }

    def tests(self, changed: Mutant, budget_s: float) -> list[str]:
        """Tests that run the changed lines, quick files first, as many as the budget is enough for.

        Of what runs at import: those of its module first, then all others.
        """
        of_module = self._lines.get(changed.file, {})
        first, last = changed.lines
        contexts = {c for line in range(first, last + 1) for c in of_module.get(line, ())}
        at_import = "" in contexts or not changed.in_function
        if at_import:
            contexts = {context for those in of_module.values() for context in those}
        covering = {t for t in self.seconds if t in contexts or _file(t) in contexts}
        chosen = set(self.seconds) if at_import else covering
        of_file: defaultdict[str, float] = defaultdict(float)
        for test in chosen:
            of_file[_file(test)] += self.seconds[test]

        def turn(test: str) -> tuple[bool, float, str, float]:
            return test not in covering, of_file[_file(test)], _file(test), self.seconds[test]

        ordered = sorted(chosen, key=turn)
        spent = accumulate(self.seconds[test] for test in ordered)
        enough = sum(seconds <= budget_s for seconds in spent)
        return ordered[: max(enough, 1)]


def forked(work: Callable[[], int], seconds: float, output: Path | None = None) -> BaseProcess:
    """A process that does `work`, and is ended after so many seconds of processor time, or ten
    times as long. What it prints goes to the file `output`, or nowhere."""

    def quietly() -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        sink = os.open(output or os.devnull, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os._exit(work())

    process = mp.get_context("fork").Process(target=quietly)
    process.start()
    return process


def begin(changed: Mutant, tests: list[str], seconds: float) -> BaseProcess:
    """A process that runs these tests on the changed module: 0 if they pass."""

    def work() -> int:
        sys.meta_path.insert(0, FromMemory(changed))
        files = list(dict.fromkeys(map(_file, tests)))
        return int(pytest.main([*OPTIONS, *files], [Chosen(tests)]))

    return forked(work, seconds)


def survivors(
    mutants: Sequence[Mutant], covering: Covering, jobs: int, budget_s: float
) -> list[Mutant]:
    """The changes that no test noticed; a test that does not end has noticed."""
    waiting, found = list(reversed(mutants)), []
    running: dict[int, tuple[BaseProcess, Mutant]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            changed = waiting.pop()
            if tests := covering.tests(changed, budget_s):
                limit_s = 20 + 5 * sum(covering.seconds[test] for test in tests)
                process = begin(changed, tests, limit_s)
                running[process.sentinel] = process, changed
            else:
                found.append(_reported(changed))
        # Without a process to wait for, `wait` does not return.
        for sentinel in wait(list(running)) if running else ():
            process, changed = running.pop(cast(int, sentinel))
            process.join()
            if process.exitcode == 0:
                found.append(_reported(changed))
    return sorted(found, key=lambda each: (each.file, each.lines))


def _reported(changed: Mutant) -> Mutant:
    """Printed at once: a room takes many minutes."""
    print(f"{changed.where}\n{changed.diff}\n", flush=True)
    return changed


def _file(test: str) -> str:
    return test.partition("::")[0]


def pure_rooms() -> list[str]:
    """The rooms that pyproject.toml keeps free of input and output."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = project["tool"]["importlinter"]["contracts"][0]
    return [module.removeprefix("syntony.") for module in contract["source_modules"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rooms", nargs="*", help="default: every pure room")
    parser.add_argument("--sample", type=int, default=30, help="changes per room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="of files whose path contains this")
    parser.add_argument("--tests", nargs="*", help="files; default: all of tests/ROOM")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests per change")
    parser.add_argument("--at-least", type=float, default=85.0, help="per cent to be noticed")
    parser.add_argument("--json", type=Path, help="write the result there, too")
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for heavy in HEAVY:
        importlib.import_module(heavy)
    results = []
    for room in options.rooms or pure_rooms():
        mutants = sample(room, options.only, options.sample, options.seed)
        with tempfile.TemporaryDirectory() as folder:
            covering = Covering(room, options.tests or [f"tests/{room}"], Path(folder))
        unnoticed = survivors(mutants, covering, options.jobs, options.budget)
        score = 100 * (1 - len(unnoticed) / len(mutants)) if mutants else 100.0
        noticed = f"{len(mutants) - len(unnoticed)} of {len(mutants)}"
        print(f"{room}: {noticed} noticed ({score:.0f} %), seed {options.seed}", flush=True)
        reported = [{"where": each.where, "diff": each.diff} for each in unnoticed]
        results.append({"room": room, "seed": options.seed, "sample": len(mutants),
                        "score": round(score, 1), "survivors": reported})  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    return int(any(result["score"] < options.at_least for result in results))


if __name__ == "__main__":
    sys.exit(main())
