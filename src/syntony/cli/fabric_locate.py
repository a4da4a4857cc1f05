"""`syntony fabric locate`: locates faulty components from files, with the controller's code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from syntony.cli.output import console, json_option, print_json
from syntony.cli.parquet import as_arrays, read_parquet
from syntony.errors import InputError
from syntony.model import format_ns
from syntony.model.findings import Finding
from syntony.view.tables import plain_table

if TYPE_CHECKING:
    import pyarrow as pa

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--paths", "paths_file", type=_FILE, required=True, help="path_id, components.")
@click.option("--obs", "obs_file", type=_FILE, required=True, help="path_id, sent, lost, …")
@click.option("--topology", type=_FILE, help="Topology file: kinds of components, parallel cables.")
@json_option
def locate(paths_file: Path, obs_file: Path, topology: Path | None, as_json: bool) -> None:
    """Name the components that lose or delay packets; an empty list if nothing is wrong.

    PATHS (Parquet): path_id, components (list of names in order). OBS (Parquet): path_id, sent,
    lost; optional owd_p50_ns, owd_base_ns, window. A round trip is a path with the components of
    both directions.

    \b
    Example:
      syntony fabric locate --paths paths.parquet --obs obs.parquet --json
    """
    from syntony.fabric.graph import Topology
    from syntony.fabric.locate import locate as locate_faults
    from syntony.fabric.numbering import make_candidates
    from syntony.fabric.observed import check_observed, window_counts
    from syntony.io.operator_files import load_topology

    paths, listing = _read_paths(paths_file)
    columns, place = _read_observations(obs_file, paths)
    observed = check_observed(columns, place)
    known = load_topology(topology) if topology else Topology(devices=(), cables=())
    candidates = make_candidates(listing, known.kind_of, known.parallel)
    findings = locate_faults(candidates, window_counts(observed, listing.paths))
    if as_json:
        print_json(findings)
    else:
        show_findings(findings)


def show_findings(findings: tuple[Finding, ...]) -> None:
    if not findings:
        console.print("no part is found at fault")
        return
    table = plain_table(
        "component", "kind", "fault", ">loss", ">delay", "sure", "window", "or else"
    )
    for found in findings:
        table.add_row(
            f"{found.component} (1 of {found.one_of})" if found.one_of > 1 else found.component,
            found.kind,
            found.fault,
            _loss(found),
            format_ns(found.delay_ns) if found.delay_ns else "",
            f"{found.confidence:.2f}",
            found.window,
            _others(found),
        )
    console.print(table)


def _loss(found: Finding) -> str:
    """The loss of affected flows, and their share if not all are; empty for a delay."""
    flows = f" of {found.flows:.0%} of the paths" if found.flows < 1 else ""
    return f"{100 * found.loss:.3g} %{flows}" if found.loss else ""


def _others(found: Finding) -> str:
    """All twins, then the best rivals, each with its probability."""
    reported = ", ".join(found.odds()[1 : 1 + max(found.twins, 3)])
    return f"{reported} (cannot be distinguished)" if found.twins else reported


def _read_paths(file: Path) -> tuple[pa.Table, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    from syntony.fabric.candidates import Listing

    table = read_parquet(file, ("path_id", "components"))
    missing = [name for name in ("path_id", "components") if name not in table.column_names]
    if missing:
        raise InputError("missing-columns", f"PATHS has no column {', '.join(missing)}")
    if not table.num_rows:
        raise InputError("empty", "PATHS holds no paths")
    ids, lists = table.column("path_id"), table.column("components").combine_chunks()
    if ids.null_count:
        raise InputError("missing-path", "PATHS: a path_id is empty")
    if len(ids.unique()) != len(ids):
        counted = ids.value_counts().to_pylist()
        twice = next(entry["values"] for entry in counted if entry["counts"] > 1)
        raise InputError("duplicate-path", f"PATHS: path_id {twice} is there twice")
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise InputError("not-lists", f"PATHS: components is {lists.type}, not a list of names")
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    if (lengths == 0).any():
        row = int(np.argmax(lengths == 0))
        raise InputError("no-components", f"PATHS: path_id {ids[row]} lists no components")
    flat = lists.flatten()
    if not (pa.types.is_string(flat.type) or pa.types.is_large_string(flat.type)):
        raise InputError("not-names", f"PATHS: components are {flat.type}, not names")
    if flat.null_count or pc.any(pc.equal(flat, "")).as_py():
        raise InputError("not-names", "PATHS: a component has no name")
    coded = flat.dictionary_encode()
    starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)))
    names = tuple(coded.dictionary.to_pylist())
    return table, Listing(names, coded.indices.to_numpy().astype(np.int64), starts)


def _read_observations(file: Path, paths: pa.Table) -> tuple[dict[str, Any], Any]:
    """Columns as arrays, and each row's place in `paths`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from syntony.fabric.observed import OPTIONAL, REQUIRED

    table = read_parquet(file, (*REQUIRED, *OPTIONAL))
    columns = as_arrays(table)
    if "path_id" not in columns:
        return columns, np.zeros(0, dtype=np.int64)
    known, ids = paths.column("path_id"), table.column("path_id")
    if ids.null_count:
        raise InputError("missing-path", "OBS: a path_id is empty")
    try:
        places = pc.index_in(ids.cast(known.type), value_set=known.combine_chunks())
    except pa.ArrowException as error:
        raise InputError(
            "path-types", f"path_id is {known.type} in PATHS and {ids.type} in OBS"
        ) from error
    return columns, pc.fill_null(places, -1).to_numpy().astype(np.int64)
