"""Libraries that have a training loop of their own: rewritten as they are imported."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from typing import TYPE_CHECKING, Any

from syntony.torch import loops

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterable, Sequence

_LIGHTNING = {
    "loops.fit_loop": loops.Known("fit.", functions=frozenset({"run"})),
    "loops.training_epoch_loop": loops.Known("epoch.", functions=frozenset({"run"})),
    "loops.fetchers": loops.Known(),
}
FILES = {
    "transformers.trainer": loops.Known("trainer.", batches=frozenset({"batch_samples"})),
    **{f"pytorch_lightning.{name}": known for name, known in _LIGHTNING.items()},
    **{f"lightning.pytorch.{name}": known for name, known in _LIGHTNING.items()},
}
"""Modules that are rewritten."""
TRAINERS = {
    "transformers": "transformers.trainer",
    "pytorch_lightning": "pytorch_lightning",
    "lightning": "lightning.pytorch",
}
"""Packages that train, and what of them a spare imports while it waits."""
MODULES = frozenset({
    "transformers.trainer", "transformers.trainer_callback", "transformers.trainer_utils",
    "transformers.trainer_pt_utils", "transformers.training_args", "trl", "accelerate",
    "pytorch_lightning", "lightning", "lightning_fabric", "lightning_utilities", "torchmetrics",
})  # fmt: skip
"""Where classes of objects are that change during training."""


def trainers(imports: Iterable[str]) -> list[str]:
    """Of a program's imports, those that may have its training loop."""
    return sorted(set(imports) & set(TRAINERS))


def install(runtime: Any, unprotect: Callable[[str], None]) -> None:
    """Rewrite the libraries' files when they are imported.

    Args:
        runtime: what they find under the name `loops.RUNTIME`.
        unprotect: is told why one of them cannot be.
    """
    sys.meta_path.insert(0, _Finder(runtime, unprotect))


def preload(imports: Iterable[str]) -> None:
    """Of a spare, before it runs its program: importing a trainer takes seconds.

    What is imported finds no rank in the environment and may take itself for rank 0.
    """
    for each in trainers(imports):
        try:
            importlib.import_module(TRAINERS[each])
        except ImportError:
            continue  # the program finds out


def tell_rank(rank: int) -> None:
    """Lightning notes the rank when it is imported."""
    module = sys.modules.get("lightning_utilities.core.rank_zero")
    if module is not None:
        module.rank_zero_only.rank = rank


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, runtime: Any, unprotect: Callable[[str], None]) -> None:
        self._runtime, self._unprotect = runtime, unprotect

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in FILES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader, self._runtime, self._unprotect)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(
        self, found: importlib.machinery.SourceFileLoader, runtime: Any,
        unprotect: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(found.name, found.path)
        self._runtime, self._unprotect = runtime, unprotect

    def get_code(self, fullname: str) -> types.CodeType:
        """Of the rewritten file: never from a file of bytecode."""
        known = FILES[fullname]
        source = self.get_data(self.path).decode()
        program = loops.transform(source, self.path, known)
        if not program.loops and known != loops.Known():
            self._unprotect(f"the training loop of {fullname} is not one that is known")
        return compile(program.tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)[loops.RUNTIME] = self._runtime
        super().exec_module(module)
