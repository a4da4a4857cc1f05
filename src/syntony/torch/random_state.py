"""The states of the random generators that every program has: of torch, Python and NumPy."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch


def random_state() -> Any:
    """Simple values that can be pickled; NumPy's only once the program has imported it."""
    numpy = sys.modules.get("numpy")
    return (
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        None if numpy is None else numpy.random.get_state(),
    )


def set_random_state(state: Any) -> None:
    """What `random_state` returned."""
    torch.set_rng_state(torch.frombuffer(bytearray(state[0]), dtype=torch.uint8).clone())
    random.setstate(state[1])
    if state[2] is not None:
        import numpy as np

        np.random.set_state(state[2])  # noqa: NPY002 - the program's own
