"""Libraries that contain a training loop: rewrites them as they are imported."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from syntony.torch import loops

_LIGHTNING = {
    "loops.fit_loop": loops.LibraryFile("fit.", functions=frozenset({"run"})),
    "loops.training_epoch_loop": loops.LibraryFile("epoch.", functions=frozenset({"run"})),
    "loops.fetchers": loops.LibraryFile(),
}
FILES = {
    "transformers.trainer": loops.LibraryFile("trainer.", batches=frozenset({"batch_samples"})),
    **{f"pytorch_lightning.{name}": known for name, known in _LIGHTNING.items()},
    **{f"lightning.pytorch.{name}": known for name, known in _LIGHTNING.items()},
}
"""Modules that are rewritten."""
TRAINERS = {
    "transformers": "transformers.trainer",
    "pytorch_lightning": "pytorch_lightning",
    "lightning": "lightning.pytorch",
}
"""Packages that train, and what a spare imports of them while it waits."""
MODULES = frozenset({
    "transformers.trainer", "transformers.trainer_callback", "transformers.trainer_utils",
    "transformers.trainer_pt_utils", "transformers.training_args", "trl", "accelerate",
    "pytorch_lightning", "lightning", "lightning_fabric", "lightning_utilities", "torchmetrics",
})  # fmt: skip
"""Modules that define classes of objects that change during training."""


def trainers(imports: Iterable[str]) -> list[str]:
    """Those of a program's imports that may contain its training loop."""
    return sorted(set(imports) & set(TRAINERS))


def install(runtime: Any, unprotect: Callable[[str], None]) -> None:
    """Rewrite the libraries' files when they are imported.

    Args:
        runtime: the object that they find under the name `loops.RUNTIME`.
        unprotect: called with the reason if one of them cannot be rewritten.
    """
    sys.meta_path.insert(0, _Finder(runtime, unprotect))


def preload(imports: Iterable[str]) -> None:
    """Import trainers in a spare, before it runs its program: that takes seconds.

    Imported modules find no rank in the environment and may assume rank 0.
    """
    for each in trainers(imports):
        try:
            importlib.import_module(TRAINERS[each])
        except ImportError:
            continue  # the program will report it


def tell_rank(rank: int) -> None:
    """Set the rank that Lightning read when it was imported."""
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
        """Compile the rewritten file; never from cached bytecode."""
        known = FILES[fullname]
        source = self.get_data(self.path).decode()
        program = loops.transform(source, self.path, known)
        if not program.loops and known != loops.LibraryFile():
            self._unprotect(f"the training loop of {fullname} is not one that is known")
        return compile(program.tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)[loops.RUNTIME] = self._runtime
        super().exec_module(module)
