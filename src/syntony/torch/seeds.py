"""Finds seeds that differ in each process: a replacement would produce other data. Pure."""

from __future__ import annotations

import ast

_SEEDING = {"seed", "seed_all", "manual_seed", "manual_seed_all", "default_rng", "set_seed",
            "seed_everything", "RandomState"}  # fmt: skip
_MODULES = {"random", "torch", "np", "numpy"}
_CHANCE = {
    ("time", "time"), ("time", "time_ns"), ("time", "perf_counter"), ("time", "monotonic"),
    ("os", "getpid"), ("os", "urandom"), ("datetime", "now"), ("uuid", "uuid4"),
    ("secrets", "randbits"), ("secrets", "randbelow"),
}  # fmt: skip


def by_chance(tree: ast.Module) -> list[str]:
    """Lines that seed a generator by time or similar, as text for the user.

    A seed that may also be given (`args.seed or time.time()`) counts as given.
    """
    names = {
        target.id
        for each in ast.walk(tree)
        if isinstance(each, ast.Assign) and _is_chance(each.value, set())
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    return [
        f"line {each.lineno}: {ast.unparse(each)}: a replacement would have another seed"
        for each in ast.walk(tree)
        if isinstance(each, ast.Call) and _seeds(each, names)
    ]


def _seeds(call: ast.Call, names: set[str]) -> bool:
    owner, name = _named(call.func)
    if name not in _SEEDING:
        return False
    arguments = [*call.args, *(each.value for each in call.keywords)]
    if not arguments:
        return name == "default_rng" or (owner in _MODULES and name == "seed")
    return any(_is_chance(each, names) for each in arguments)


def _is_chance(value: ast.expr, names: set[str]) -> bool:
    inner = list(ast.walk(value))
    if any(isinstance(each, ast.IfExp | ast.BoolOp) for each in inner):
        return False
    return any(
        (isinstance(each, ast.Call) and _named(each.func) in _CHANCE)
        or (isinstance(each, ast.Name) and each.id in names)
        for each in inner
    )


def _named(function: ast.expr) -> tuple[str, str]:
    """`time.time` and `datetime.datetime.now`: the object and the attribute's name."""
    if isinstance(function, ast.Attribute):
        owner = function.value
        last = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        return last, function.attr
    return "", getattr(function, "id", "")
