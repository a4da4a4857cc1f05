"""What every test has: examples without a deadline, a directory of its own for labs, a CPU budget.

A person's own labs do not matter to the tests, nor the tests to them.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import resource
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.costly import BUDGET_S, read_costly
from tests.split import LONGEST_S, find_files, share_of
from tests.workers import draws_seed

# Draws are the same in every run. `SYNTONY_TEST_SEED=new` makes new ones, and its number, which is
# printed, repeats them (Hypothesis prints by itself how to repeat a failure).
SEED = draws_seed()
# The same 30 examples in every run; new ones are worth more.
settings.register_profile(
    "syntony", deadline=None, max_examples=30 if SEED == "0" else 100, derandomize=SEED == "0"
)
settings.load_profile("syntony")

FOLDER = Path(__file__).parent
OTHERS = pytest.StashKey[frozenset[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", help="K/N: only the files of worker K of N (tests/split.py)")


def pytest_report_header() -> str:
    return f"SYNTONY_TEST_SEED={SEED}"


def pytest_collectstart(collector: pytest.Collector) -> None:
    """What a module draws when it is imported does not depend on which were imported before it."""
    if isinstance(collector, pytest.Module):
        random.seed(f"{SEED} {collector.nodeid}")


@pytest.fixture(autouse=True)
def independent(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test draws does not depend on which tests ran before it, nor do others on what it
    leaves: one that silences the log would fail another that reads it, in some orders only."""
    random.seed(f"{SEED} {request.node.nodeid}")
    logger = logging.getLogger("syntony")
    before = logger.level, logger.propagate, logger.disabled
    yield
    assert (logger.level, logger.propagate, logger.disabled) == before


def pytest_configure(config: pytest.Config) -> None:
    """Nothing that is imported and collected is garbage: it is not looked through for any."""
    gc.disable()
    if share := config.getoption("share"):
        worker, _, workers = share.partition("/")
        files = find_files(FOLDER)
        others = files.keys() - share_of(files, int(worker), int(workers))
        config.stash[OTHERS] = frozenset(FOLDER / name for name in others)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--share` a worker has its own share of the files (`tests/split.py`)."""
    others = config.stash.get(OTHERS, frozenset())
    return collection_path in others or None


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)  # tests leave little garbage
    gc.enable()


def _cpu_s() -> float:
    """Of this process and the children it has waited for."""
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in spent)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what `tests/costly.txt` lists; the longest files first, the others stay in order."""
    others = config.stash.get(OTHERS, frozenset())  # files that are named are never ignored
    items[:] = [item for item in items if item.path not in others]
    costly = read_costly()
    cases: Counter[str] = Counter()
    for item in items:
        name = item.nodeid.partition("[")[0].removeprefix("tests/")
        cases[name] += 1
        if cases[name] > costly.get(name, cases[name]):
            item.add_marker(pytest.mark.costly)
    first = {FOLDER / name for name in LONGEST_S}
    items.sort(key=lambda item: item.path not in first)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Measure what the test itself costs; fixtures are shared and not counted."""
    before_s = _cpu_s()
    result = yield
    item.user_properties.append(("cpu_s", _cpu_s() - before_s))
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that cost far too much for every run."""
    if "not costly" not in terminalreporter.config.option.markexpr:
        return
    costly = [
        (value, report.nodeid)
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "cpu_s" and isinstance(value, float) and value > 3 * BUDGET_S
    ]
    if costly:
        terminalreporter.section("too costly for every run: cheaper, or listed (tests/costly.py)?")
        for value, nodeid in sorted(costly, reverse=True):
            terminalreporter.line(f"{value:5.1f} s  {nodeid}")


@pytest.fixture(scope="session", autouse=True)
def labs_of_our_own() -> Iterator[None]:
    """A short path: sockets live below it."""
    before = os.environ.get("TMPDIR")
    directory = tempfile.mkdtemp(prefix="syt")
    os.environ["TMPDIR"] = directory
    yield
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def captures() -> Path:
    """Real outputs of real clusters, which are not part of the repository (`SYNTONY_CAPTURES`)."""
    default = Path(__file__).parents[2] / "shared/data/captures"
    folder = Path(os.environ.get("SYNTONY_CAPTURES") or default)
    if not folder.is_dir():
        pytest.skip(
            "needs outputs of real clusters, which are not published (SYNTONY_CAPTURES names "
            f"their folder; {folder} is none): reading them is NOT tested"
        )
    return folder
