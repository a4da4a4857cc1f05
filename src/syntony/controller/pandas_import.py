"""Keeps pandas out of the controller's process."""

from __future__ import annotations

import sys


class _NoPandas:
    """Finds no module for pandas."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"{name}: not used by the controller", name=name)


def leave_out_pandas() -> None:
    """Keep pyarrow from importing pandas (45 MB, 0.2 s on an idle core), which the embedded store's
    package brings along.

    pyarrow looks for it once, at the first conversion to an array, which here would be on the event
    loop; it has no option against that.
    """
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)
