"""Caches values derived from names that a host repeats every second. Pure.

A check that they are the same objects is far cheaper than deriving all of them again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Ints = NDArray[np.int64]


class RepeatedColumns:
    """One for each table. Used by one thread at a time.

    Args:
        derive: computes the values from rows of names, row by row: (fields, rows).
    """

    def __init__(self, derive: Callable[[pa.Table], Ints]) -> None:
        self._derive = derive
        self.forget()

    def forget(self) -> None:
        """Invalidate the cache: the derivation has changed."""
        self._known: dict[int, tuple[pa.RecordBatch, Ints]] = {}
        """By identity of each batch, which stays valid as long as the batch is in here."""
        self._last: tuple[list[int], Ints] | None = None

    def of(self, batches: Sequence[pa.RecordBatch]) -> Ints:
        """Values for the rows of one second, (fields, rows): the same object as for the previous
        second if it is equal."""
        order = list(map(id, batches))
        if self._last is not None and self._last[0] == order:
            return self._last[1]
        fresh = [each for each in dict(zip(order, batches, strict=True)).values()
                 if id(each) not in self._known]  # fmt: skip
        known = {each: found for each in order if (found := self._known.get(each)) is not None}
        known.update(self._derived(fresh))
        if len(self._known) < 2 * len(known):  # hosts that are absent may be back
            known = self._known | known
        self._known = known
        fields = np.concatenate([known[each][1] for each in order], axis=1)
        self._last = order, fields
        return fields

    def _derived(self, batches: Sequence[pa.RecordBatch]) -> dict[int, tuple[pa.RecordBatch, Ints]]:
        import pyarrow as pa

        if not batches:
            return {}
        fields, start, found = self._derive(pa.Table.from_batches(batches)), 0, {}
        for batch in batches:
            end = start + batch.num_rows
            found[id(batch)] = batch, fields[:, start:end]
            start = end
        return found
