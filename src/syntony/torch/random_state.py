"""The states of a program's random generators: of torch, also on its GPU, Python and NumPy."""

from __future__ import annotations

import array
import random
import sys
from typing import Any


def random_state() -> Any:
    """Simple values that can be pickled and compared; NumPy's only once the program has imported
    it."""
    import torch

    from syntony.torch import gpu

    numpy = sys.modules.get("numpy")
    version, words, gauss = random.getstate()
    return (
        torch.get_rng_state().numpy().tobytes(),
        (version, array.array("I", words).tobytes(), gauss),
        None if numpy is None else _numpy_state(numpy),
        gpu.random_state(),
    )


def _numpy_state(numpy: Any) -> tuple[Any, ...]:
    name, words, *rest = numpy.random.get_state()
    return name, words.tobytes(), *rest


def set_random_state(state: Any) -> None:
    """Set the state that `random_state` returned."""
    import torch

    from syntony.torch import gpu

    gpu.set_random_state(state[3])
    torch.set_rng_state(torch.frombuffer(bytearray(state[0]), dtype=torch.uint8).clone())
    version, words, gauss = state[1]
    random.setstate((version, tuple(array.array("I", words)), gauss))
    if state[2] is not None:
        import numpy as np

        name, data, *rest = state[2]
        np.random.set_state((name, np.frombuffer(data, dtype=np.uint32), *rest))  # noqa: NPY002
