"""Which tests cost too much processor time for `make test`, and are run by `make test-live`.

A test, with all its cases, may cost `BUDGET_S` there. Of one that costs more only as many cases,
from the first, stay as fit; `costly.txt` lists those tests, each with how many cases stay. It is
made anew from the record of a run of all of them:

    python -m pytest -m 'not slow and not lab' -n 2 --dist loadfile --junit-xml=/tmp/run.xml
    python -m tests.costly /tmp/run.xml
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

BUDGET_S = 0.5
LIST = Path(__file__).with_suffix(".txt")


def read_costly() -> dict[str, int]:
    """Tests (`FOLDER/FILE.py::NAME`, from this folder) and how many cases of each stay."""
    lines = (line.split() for line in LIST.read_text().splitlines())
    return {name: int(kept) for kept, name in lines}


def kept_cases(costs_s: Sequence[float]) -> int:
    """How many cases, from the first, cost no more than `BUDGET_S` together."""
    spent_s = 0.0
    for number, cost_s in enumerate(costs_s):
        spent_s += cost_s
        if spent_s > BUDGET_S:
            return number
    return len(costs_s)


def find_costly(costs_s: Mapping[str, Sequence[float]]) -> dict[str, int]:
    """Of the costs of each test's cases, in order: those that do not all stay, and how many do."""
    kept = {name: kept_cases(costs) for name, costs in sorted(costs_s.items())}
    return {name: kept[name] for name in kept if kept[name] < len(costs_s[name])}


def _read_costs(record: Path) -> dict[str, list[float]]:
    """Of pytest's JUnit file: what each case cost, in the order in which they ran."""
    costs: defaultdict[str, list[float]] = defaultdict(list)
    files = {
        ".".join(path.relative_to(LIST.parents[1]).with_suffix("").parts): path
        for path in LIST.parent.rglob("test_*.py")
    }
    for case in ET.parse(record).iter("testcase"):  # noqa: S314 - pytest wrote it
        module, within = case.get("classname", ""), ""
        while module and module not in files:  # the rest names classes
            module, _, last = module.rpartition(".")
            within = f"{last}::{within}"
        properties = {each.get("name"): each.get("value", "0") for each in case.iter("property")}
        if module and "cpu_s" in properties:
            file = files[module].relative_to(LIST.parent).as_posix()
            name = case.get("name", "").partition("[")[0]
            costs[f"{file}::{within}{name}"].append(float(properties["cpu_s"]))
    return costs


if __name__ == "__main__":
    found = find_costly(_read_costs(Path(sys.argv[1])))
    LIST.write_text("".join(f"{kept} {name}\n" for name, kept in found.items()))
    print(f"{len(found)} tests in {LIST}")
