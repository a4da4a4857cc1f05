"""Links, NICs' slots, hosts and GPUs by window: what devices report of themselves."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from syntony.workload.bundle import BundleTable, Floats
from syntony.workload.grid import Flags, Grid


class DeviceTable:
    """Named objects of one table by windows."""

    def __init__(self, table: BundleTable, key: str) -> None:
        self.table = table
        codes = table.codes(key)
        self.names: list[str] = [str(each) for each in codes.values]
        self.index = {name: place for place, name in enumerate(self.names)}
        width = int(np.median(table.ints("window_ns"))) if table.rows else 1
        self.grid = Grid(table, codes.codes, len(self.names), table.ints("at_ns"), width)

    def column(self, name: str, combine: str = "mean") -> Floats:
        """(things, windows)."""
        return self.grid.matrix(self.table.numbers(name), combine)  # type: ignore[arg-type]

    def row(self, matrix: Floats, name: str) -> Floats | None:
        """One object's row of a matrix; None for an unknown name."""
        place = self.index.get(name)
        return None if place is None else matrix[place]

    def during(self, begin_ns: int, last_ns: int) -> slice:
        """Windows that overlap a time interval."""
        first = (begin_ns - self.grid.begin_ns) // self.grid.width_ns
        last = -(-(last_ns - self.grid.begin_ns) // self.grid.width_ns)
        first = min(max(first, 0), self.grid.windows)
        return slice(first, min(max(last, first + 1), max(self.grid.windows, 1)))


class LinkTable(DeviceTable):
    """Ports and links."""

    def __init__(self, table: BundleTable) -> None:
        super().__init__(table, "link")

    @cached_property
    def utilisation(self) -> Floats:
        """0 to 1."""
        return self.column("utilisation")

    @cached_property
    def pause(self) -> Floats:
        """Share of the window for which the sender was paused."""
        return self.column("pause_ns", "sum") / self.grid.width_ns

    @cached_property
    def errors(self) -> Floats:
        """Symbol errors per window."""
        return self.column("symbol_errors", "sum")

    @cached_property
    def planned(self) -> Flags:
        """Windows that a planned change covers."""
        planned: Flags = np.nan_to_num(self.column("planned", "max")) > 0
        return planned

    def level(self, matrix: Floats, name: str, begin_ns: int, last_ns: int) -> float | None:
        """Median of one link's row over a time interval; None if nothing was recorded."""
        row = self.row(matrix, name)
        if row is None:
            return None
        part = row[self.during(begin_ns, last_ns)]
        part = part[np.isfinite(part)]
        return float(np.median(part)) if len(part) else None


class HostTable(DeviceTable):
    """Hosts: rows without a GPU."""

    def __init__(self, table: BundleTable) -> None:
        super().__init__(table.where(table.codes("gpu").codes < 0), "host")


class GpuTable(DeviceTable):
    """GPUs: rows with one."""

    def __init__(self, table: BundleTable) -> None:
        super().__init__(table.where(table.codes("gpu").codes >= 0), "gpu")
        hosts, gpus = self.table.codes("host"), self.table.codes("gpu")
        self.host = {str(gpus.at(row)): str(hosts.at(row)) for row in
                     np.unique(gpus.codes, return_index=True)[1]}  # fmt: skip
