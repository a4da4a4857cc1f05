"""Finds training loops and makes them iterate through `position`, source to source.

Only loops and calls of `iter` are changed. A loop is a training loop if its body calls
`.backward()` and `.step()`, directly or through functions of the same file, or if it is a known
loop of a library. When a replacement continues in the middle of a loop, the variables that the loop
had assigned are assigned again.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from syntony.torch import seeds

RUNTIME = "__syntony__"
"""The name under which the program finds `position.Position`."""
UNSUPPORTED = {
    "FullyShardedDataParallel": "FSDP shards parameters",
    "FSDP": "FSDP shards parameters",
    "ZeroRedundancyOptimizer": "its optimizer state is sharded",
    "PostLocalSGDOptimizer": "ranks differ between averaging steps",
    "deepspeed": "DeepSpeed replaces the training loop",
    "rpc_async": "RPC is not repeated",
    "rpc_sync": "RPC is not repeated",
}
"""Names whose use means that a program cannot be protected yet."""
_STAGES = {"PipelineStage", "build_stage"}
"""Names of `torch.distributed.pipelining`, whose schedules do the backward pass."""
_Loop = ast.For | ast.While


class LibraryFile(NamedTuple):
    """Known facts about a library's file."""

    name: str = ""
    """Prefix of the sites of its loops."""
    functions: frozenset[str] = frozenset()
    """Functions of which all loops are training loops, because the functions that they call are
    elsewhere."""
    batches: frozenset[str] = frozenset()
    """Variables with the batches of one step: a loop over them is within a step."""


@dataclass
class Program:
    """A transformed program and what was found in it."""

    tree: ast.Module
    loops: list[str] = field(default_factory=list)
    """Sites of training loops."""
    unsupported: list[str] = field(default_factory=list)
    """Why it cannot be protected, as text for the user."""
    imports: frozenset[str] = frozenset()
    """Packages that it imports."""
    pipeline: bool = False
    """Whether its ranks are stages of a pipeline."""


def transform(source: str, file: str, known: LibraryFile | None = None) -> Program:
    """Rewrite training loops.

    Args:
        source: of a program, or of a library's file.
        known: facts about a library's file.

    Raises:
        SyntaxError: the source is invalid.
    """
    tree = ast.parse(source, file)
    imports = _imports(tree)
    names = _names(tree) | imports
    program = Program(tree, unsupported=_unsupported(tree, names), imports=imports)
    program.pipeline = bool(names & _STAGES)
    needs = frozenset({"step"} if program.pipeline else {"backward", "step"})
    rewriter = _Rewriter(_TrainingCode(tree, needs), program, known or LibraryFile())
    program.tree = cast("ast.Module", ast.fix_missing_locations(rewriter.visit(tree)))
    return program


def _names(tree: ast.Module) -> frozenset[str]:
    names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    return frozenset(names | {e.attr for e in ast.walk(tree) if isinstance(e, ast.Attribute)})


def _unsupported(tree: ast.Module, names: frozenset[str]) -> list[str]:
    known = [f"{name}: {UNSUPPORTED[name]}" for name in sorted(names & set(UNSUPPORTED))]
    return known + seeds.by_chance(tree)


def _imports(tree: ast.Module) -> frozenset[str]:
    """Imported packages, and names imported from them."""
    found = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.Import | ast.ImportFrom):
            found |= {alias.name.split(".")[0] for alias in each.names}
        if isinstance(each, ast.ImportFrom) and each.module and not each.level:
            found.add(each.module.split(".")[0])
    return frozenset(found)


class _TrainingCode:
    """Finds functions and loops that do a backward pass, or a step."""

    def __init__(self, tree: ast.Module, needs: frozenset[str]) -> None:
        """`needs`: the calls that make a training loop."""
        self._needs = needs
        self._functions: dict[str, set[str]] = {}
        found = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
        before = -1
        while sum(map(len, self._functions.values())) != before:
            before = sum(map(len, self._functions.values()))
            for each in found:
                self._functions.setdefault(each.name, set()).update(self.does(each))

    def does(self, node: ast.AST) -> set[str]:
        """Which of `backward` and `step` a node does."""
        done: set[str] = set()
        for each in ast.walk(node):
            if isinstance(each, ast.Call):
                name = _called(each)
                done |= {name} & {"backward", "step"} if _is_method(each) else set()
                done |= self._functions.get(name, set())
        return done

    def trains(self, node: ast.AST) -> bool:
        return self.does(node) >= self._needs


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_method(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, hot: _TrainingCode, program: Program, known: LibraryFile) -> None:
        self._hot = hot
        self._program = program
        self._known = known
        self._scope: ast.FunctionDef | None = None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outside, self._scope = self._scope, node
        self.generic_visit(node)
        self._scope = outside
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outside, self._scope = self._scope, None
        self.generic_visit(node)
        self._scope = outside
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        explicit = isinstance(node.iter, ast.Call) and _called(node.iter) == "steps"
        if explicit:  # `syntony.torch.steps`: the program has marked it itself
            self._site(node)
        if explicit or not self._trains(node) or self._is_within_a_step(node):
            return self.generic_visit(node)
        site = self._site(node)
        targets = {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        prelude = self._prelude(site, targets)
        self.generic_visit(node)
        source = _Enumerate().visit(node.iter)
        node.iter = ast.Call(_runtime("loop"), [source, ast.Constant(site)], [])
        node.body = prelude + node.body
        # A rank lost after the last iteration's step: the body does not run again.
        node.orelse = self._prelude(site, set()) + node.orelse
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        if not self._trains(node):
            return self.generic_visit(node)
        if node.orelse:
            self._program.unsupported.append(f"line {node.lineno}: a while loop with else")
            return self.generic_visit(node)
        site = self._site(node)
        prelude = self._prelude(site, set())
        self.generic_visit(node)
        leave = ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.Break()], [])
        tick = ast.Call(_runtime("loop"), [_runtime("forever"), ast.Constant(site)], [])
        target = ast.Name(f"{RUNTIME}_turn", ast.Store())
        turned = ast.For(target, tick, [*prelude, leave, *node.body], [])
        return ast.copy_location(turned, node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "iter" and len(node.args) == 1:
            node.func = _runtime("iter")
        return node

    def _trains(self, node: _Loop) -> bool:
        named = self._scope is not None and self._scope.name in self._known.functions
        return named or self._hot.trains(node)

    def _is_within_a_step(self, node: ast.For) -> bool:
        names = {each.id for each in ast.walk(node.iter) if isinstance(each, ast.Name)}
        return bool(names & self._known.batches)

    def _site(self, node: _Loop) -> str:
        name = self._scope.name if self._scope is not None else "module"
        site = f"{self._known.name}{name}:{node.lineno}"
        self._program.loops.append(site)
        return site

    def _prelude(self, site: str, targets: set[str]) -> list[ast.stmt]:
        names = sorted(self._assigned() - targets)
        lines = [f"if {RUNTIME}.has({site!r}):", f"    {RUNTIME}_l = {RUNTIME}.take({site!r})"]
        lines += [
            f"    if {each!r} in {RUNTIME}_l: {each} = {RUNTIME}_l[{each!r}]" for each in names
        ]
        return ast.parse("\n".join(lines)).body

    def _assigned(self) -> set[str]:
        """Names that the scope around the loop assigns, or receives."""
        scope: ast.AST = self._scope if self._scope is not None else self._program.tree
        names = set() if self._scope is None else _parameters(self._scope)
        waiting = list(ast.iter_child_nodes(scope))
        while waiting:
            each = waiting.pop()
            if isinstance(each, ast.FunctionDef | ast.ClassDef | ast.Lambda | ast.comprehension):
                continue
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                names.add(each.id)
            waiting += ast.iter_child_nodes(each)
        return {each for each in names if not each.startswith("__")}


def _parameters(function: ast.FunctionDef) -> set[str]:
    arguments = function.args
    each = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    return {one.arg for one in each if one is not None}


class _Enumerate(ast.NodeTransformer):
    """An `enumerate` that can begin in the middle."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "enumerate":
            node.func = _runtime("enumerate")
        return node


def _runtime(name: str) -> ast.Attribute:
    return ast.Attribute(ast.Name(RUNTIME, ast.Load()), name, ast.Load())
