"""A worker: runs the program of a rank, or waits as a spare until it gets a rank.

Run as a file by `keeper`, with the program and its arguments.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import traceback
import types
from pathlib import Path
from typing import Any

OLDEST, NEWEST = (2, 5), (2, 13)
"""Versions of torch whose internals are known."""


def _load_package() -> None:
    """Make our package importable, and nothing else: the job's environment stays as it is."""
    root = Path(__file__).resolve().parents[1]
    spec = importlib.util.spec_from_file_location(
        "syntony", root / "__init__.py", submodule_search_locations=[str(root)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["syntony"] = module
    spec.loader.exec_module(module)


class _Program:
    """The program to run as `__main__`."""

    def __init__(self, words: list[str]) -> None:
        """From `script arguments` or `-m module arguments`."""
        self.package: str | None = None
        if words[0] == "-m":
            spec = importlib.util.find_spec(words[1])
            if spec is not None and spec.submodule_search_locations is not None:
                spec = importlib.util.find_spec(f"{words[1]}.__main__")
            if spec is None or spec.origin is None:
                sys.exit(f"{sys.executable}: No module named {words[1]}")
            self.file, self.package = spec.origin, spec.parent
            sys.argv = [spec.origin, *words[2:]]
            sys.path[0] = str(Path.cwd())
        else:
            self.file = words[0]
            sys.argv = list(words)
            sys.path[0] = str(Path(self.file).resolve().parent)
        self.source = Path(self.file).read_text()

    def run(self, tree: Any, extra: dict[str, Any]) -> None:
        module = types.ModuleType("__main__")
        module.__dict__.update(
            __file__=self.file, __builtins__=__builtins__, __package__=self.package, **extra
        )
        sys.modules["__main__"] = module
        exec(compile(tree, self.file, "exec"), module.__dict__)  # noqa: S102 - what we are for


def _run_plain(program: _Program) -> None:
    program.run(program.source, {})


def main() -> None:
    _load_package()
    from syntony.torch import launchers, libraries, loops, messages
    from syntony.torch.session import CoordinatorSession

    name = os.environ.pop(messages.NAME_VARIABLE)
    target = os.environ.pop(messages.VARIABLE)
    program = _Program(sys.argv[1:])
    try:
        session = CoordinatorSession(target, name)
    except (OSError, ValueError):
        _run_plain(program)  # the keeper has reported why
        return
    found = loops.transform(program.source, program.file)
    reasons = list(found.unsupported)
    trainers = libraries.trainers(found.imports)
    if not found.loops and not trainers:
        reasons.append(f"no training loop (.backward() and .step()) in {program.file}")
    version = _torch_version()
    if version is None or not OLDEST <= version <= NEWEST:
        reasons.append(f"torch {version or 'is not installed'}: 2.5 to 2.13 are known")
    if reasons:
        session.unprotect("; ".join(reasons))
    place = launchers.place(os.environ)
    if place is not None and place[0] == 0 and not reasons:
        names = [*found.loops, *(f"those of {each}" for each in trainers)]
        session.event("program", file=program.file, loops=names, pipeline=found.pipeline)
    if version is None or reasons:
        if place is None:
            session.wait_rank()  # never comes: the process ends with the job
        _run_plain(program)
        session.send("finished")
        return
    _run_protected(program, found, session, place)


def _run_protected(
    program: _Program, found: Any, session: Any, place: tuple[int, int] | None
) -> None:
    import syntony.torch
    from syntony.torch import job as jobs
    from syntony.torch import libraries

    if place is None:  # a spare
        jobs.warm_up()
    job = jobs.RankProcess(session, frozenset({"__main__"}) | libraries.MODULES)
    job.replica.expects_loop = not found.loops
    if found.pipeline:
        job.expect_stages()
    libraries.install(job.position, session.unprotect)
    syntony.torch._Active.job = job
    digest = hashlib.sha256(program.source.encode()).hexdigest()
    job.position.program = f"{digest} {sys.modules['torch'].__version__}"
    if place is None:
        libraries.preload(found.imports)
        _wait_at_rank(session)
    else:
        session.rank, session.world = place
    code, process = 0, os.getpid()
    try:
        program.run(found.tree, {"__syntony__": job.position})
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as the interpreter would do at its top
        traceback.print_exc()
        code = 1
    if code == 0 and os.getpid() == process:  # not for a child that it forked
        job.finish()
    sys.stdout.flush()
    sys.stderr.flush()
    if code:
        os._exit(code)  # collectives of others may still be running; nothing here needs cleaning up


def _wait_at_rank(session: Any) -> None:
    """A spare's program runs until it asks for its rank: from then on it is that rank."""

    from syntony.torch.launchers import RANK_NAMES

    class Waiting(type(os.environ)):  # type: ignore[misc]
        def __getitem__(self, name: str) -> str:
            if name not in RANK_NAMES:
                return str(super().__getitem__(name))
            _take_rank(session)
            return os.environ[name]  # its class may have changed

        def __contains__(self, name: object) -> bool:
            if name not in RANK_NAMES:
                return bool(super().__contains__(name))
            _take_rank(session)
            return name in os.environ

    os.environ.__class__ = Waiting


def _take_rank(session: Any) -> None:
    from syntony.torch import launchers, libraries

    rank = session.wait_rank()
    os.environ.__class__ = os.environ.__class__.__mro__[1]
    os.environ |= launchers.variables(os.environ, rank, session.world)
    libraries.tell_rank(rank)


def _torch_version() -> tuple[int, int] | None:
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


if __name__ == "__main__":
    main()
