"""Which loops are rewritten, and that a rewritten program continues in its middle."""

from __future__ import annotations

import textwrap

import pytest

from syntony.torch.capture import Instance, Restoring, capture_all
from syntony.torch.keeper import split
from syntony.torch.launchers import RANK_NAMES, place, variables
from syntony.torch.loops import transform


def sites(source: str) -> list[str]:
    return transform(textwrap.dedent(source), "train.py").loops


METHODS = """
class T:
    def one(self): b.backward(); o.step()
    def fit(self):
        while True: self.one()
"""


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("for x in d:\n    l(x).backward()\n    o.step()", ["module:1"]),
        ("for x in d:\n    l(x).backward()", []),
        ("for x in d:\n    o.step()", []),
        ("for x in d:\n    f(x)", []),
        ("def f():\n    b.backward(); o.step()\nfor x in d:\n    f()", ["module:3"]),
        ("def f():\n    b.backward()\ndef g():\n    o.step()\nfor x in d:\n    f(); g()",
         ["module:5"]),
        ("def t():\n    for x in d:\n        b.backward(); o.step()\nfor e in range(3):\n    t()",
         ["t:2", "module:4"]),
        (METHODS, ["fit:5"]),
        ("while n < 3:\n    b.backward(); o.step()", ["module:1"]),
    ],
)  # fmt: skip
def test_training_loops(source: str, found: list[str]) -> None:
    assert sorted(sites(source)) == sorted(found)


def test_a_pipelines_schedule_does_the_backward_pass() -> None:
    loop = "for x in data:\n    schedule.step(x)\n    optimizer.step()\n"
    stages = "stage = PipelineStage(part, 0, 2, device)\n" + loop
    found = transform(stages, "train.py")
    assert (found.pipeline, found.loops, found.unsupported) == (True, ["module:2"], [])
    other = transform(loop, "train.py")
    assert (other.pipeline, other.loops) == (False, [])


def test_names_that_cannot_be_protected_are_reported() -> None:
    program = transform("from torch.distributed.fsdp import FSDP\nFSDP(m)", "t.py")
    assert program.unsupported == ["FSDP: FSDP shards parameters"]
    assert not transform("import torch", "t.py").unsupported


class Runtime:
    """Takes the place of `position.Position`: begins each loop where it is told to."""

    enumerate = enumerate
    forever = staticmethod(lambda: None)

    def __init__(self, begin: int, variables: dict[str, object]) -> None:
        self.begin, self.variables = begin, variables

    def loop(self, iterable: object, site: str) -> object:
        values = range(100) if iterable is self.forever else iterable
        return iter(list(values)[self.begin :])  # type: ignore[call-overload]

    def has(self, site: str) -> bool:
        return bool(self.variables)

    def take(self, site: str) -> dict[str, object]:
        taken, self.variables = self.variables, {}
        return taken


SUM = """
    def main():
        total, seen = 0, []
        for i, x in enumerate(range(10, 20)):
            b.backward(); o.step()
            total += x
            seen.append(i)
        return total, seen
    result = main()
"""
ELSE = """
    n, i = 0, None
    for i in range(3):
        b.backward(); o.step()
        n += 10
    else:
        n += 1
    result = i, n
"""
COUNT = """
    n = 0
    while n < 5:
        b.backward(); o.step()
        n += 1
    result = n
"""


class Anything:
    def backward(self) -> None: ...
    def step(self) -> None: ...


@pytest.mark.parametrize(
    ("source", "begin", "variables", "result"),
    [
        (SUM, 0, {}, (145, list(range(10)))),
        (SUM, 7, {"total": 1000, "seen": [0]}, (1054, [0, 7, 8, 9])),
        (SUM, 10, {"total": 7, "seen": [9]}, (7, [9])),
        (ELSE, 3, {"i": 2, "n": 40}, (2, 41)),
        (COUNT, 0, {}, 5),
        (COUNT, 0, {"n": 4}, 5),
        (COUNT, 0, {"n": 9}, 9),
    ],
)
def test_a_rewritten_program_does_the_same_and_continues(
    source: str, begin: int, variables: dict[str, object], result: object
) -> None:
    tree = transform(textwrap.dedent(source), "t.py").tree
    names = {"__syntony__": Runtime(begin, variables), "b": Anything(), "o": Anything()}
    exec(compile(tree, "t.py", "exec"), names)  # noqa: S102 - what is tested
    assert names["result"] == result


class Meter:
    def __init__(self) -> None:
        self.total = 1.5
        self.parts = [1, 2]
        self.file = object()


@pytest.mark.parametrize(
    "value", [None, 1, 2.5, "a", (1, "b"), [1, [2, {"k": 3.0}]], {1, 2}, {"a": [1]}, b"x"]
)
def test_small_values_are_copied(value: object) -> None:
    assert Restoring().of(capture_all({"it": value}, frozenset())["it"], None) == value


@pytest.mark.parametrize("value", [object(), [object()], {"a": object()}, len, list(range(30_000))])
def test_others_are_missing(value: object) -> None:
    assert not capture_all({"it": value}, frozenset())


def test_objects_of_the_program_keep_their_identity() -> None:
    modules = frozenset({Meter.__module__})
    before, now = Meter(), Meter()
    before.total, before.parts = 9.0, [7]
    kept = capture_all({"it": before}, modules)["it"]
    assert isinstance(kept, Instance)
    before.parts.append(8)
    parts = now.parts
    assert Restoring().of(kept, now) is now
    assert (now.total, now.parts) == (9.0, [7])
    assert now.parts is parts, "somebody may hold the list"
    assert not capture_all({"it": before}, frozenset())


@pytest.mark.parametrize(
    ("argv", "flags", "words"),
    [
        (["train.py", "-x"], [], ["train.py", "-x"]),
        (["-u", "train.py"], ["-u"], ["train.py"]),
        (["-X", "dev", "-Wx", "-m", "pkg", "a"], ["-X", "dev", "-Wx"], ["-m", "pkg", "a"]),
    ],
)  # fmt: skip
def test_how_a_rank_was_started(argv: list[str], flags: list[str], words: list[str]) -> None:
    assert split(argv) == (flags, words)


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"RANK": "2", "WORLD_SIZE": "4"}, (2, 4)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 8)),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, (3, 4)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, (1, 4)),
        # torchrun that srun has started.
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "RANK": "9", "WORLD_SIZE": "16"}, (9, 16)),
        ({"RANK": "x", "WORLD_SIZE": "4"}, None),
        ({"RANK": "1"}, None),
        ({}, None),
    ],
)
def test_where_a_launcher_put_it(environ: dict[str, str], found: tuple[int, int] | None) -> None:
    assert place(environ) == found


@pytest.mark.parametrize(
    ("environ", "rank", "found"),
    [
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, 3, {"RANK": "3", "LOCAL_RANK": "1"}),
        ({"WORLD_SIZE": "4"}, 3, {"RANK": "3", "LOCAL_RANK": "3"}),
        ({"SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2"}, 2,
         {"RANK": "2", "LOCAL_RANK": "0", "SLURM_PROCID": "2", "SLURM_LOCALID": "0"}),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 1,
         {"RANK": "1", "LOCAL_RANK": "1", "OMPI_COMM_WORLD_RANK": "1",
          "OMPI_COMM_WORLD_LOCAL_RANK": "1"}),
        ({"PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"}, 2,
         {"RANK": "2", "LOCAL_RANK": "2", "PMI_RANK": "2", "MPI_LOCALRANKID": "2"}),
    ],
)  # fmt: skip
def test_a_spare_has_what_the_launcher_would_have_set(
    environ: dict[str, str], rank: int, found: dict[str, str]
) -> None:
    assert variables(environ, rank, 4) == found | {"WORLD_SIZE": "4"}
    assert set(found) <= RANK_NAMES
    assert place(environ | variables(environ, rank, 4)) == (rank, 4)
