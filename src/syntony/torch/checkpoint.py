"""The state of a job at one step, in files, written if no spare is left to replace a rank.

The directory contains `state`, written by a rank (what all ranks share: parameters and optimizers,
in the format in which one rank sends them to another), or, for split parameters, one such file for
each part; `records`, the state of each rank, written by the coordinator; and `manifest.json`,
written last, with sizes and SHA-256 of all of them. Without a manifest there is no checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

STATE, RECORDS, MANIFEST = "state", "records", "manifest.json"
FORMAT = 2
_ENTRY = struct.Struct(">QQ")
"""Rank, length of its record in bytes."""
_STATE_NAME = re.compile(rf"{STATE}(-\d+of\d+(\.\d+of\d+)*)?")


class CheckpointError(Exception):
    """A checkpoint cannot be used; the message is one line."""


class CheckpointFile(NamedTuple):
    """A file's entry in the manifest."""

    size: int
    sha256: str
    undo: bool = False
    """Whether it also has the parameters from before the step in progress, which is done again with
    the result that is kept."""


class Checkpoint(NamedTuple):
    """The contents of a manifest."""

    boundary: int
    """The next step."""
    world: int
    """Number of ranks of the job that wrote it."""
    files: dict[str, CheckpointFile]


def state_name(part: str) -> str:
    """The file for a part of the parameters (`sharding.Part.name`; empty: all of them)."""
    return f"{STATE}-{part.replace('/', 'of')}" if part else STATE


def write(
    place: Path, boundary: int, records: Mapping[int, bytes], states: Mapping[str, CheckpointFile]
) -> None:
    """Complete a checkpoint whose files of state are written. Raises `OSError`: it cannot be
    written."""
    data = b"".join(_ENTRY.pack(rank, len(each)) + each for rank, each in sorted(records.items()))
    files = {**states, RECORDS: CheckpointFile(len(data), hashlib.sha256(data).hexdigest())}
    made = Checkpoint(boundary, len(records), files)
    _store(place / RECORDS, data)
    manifest = {"format": FORMAT} | made._asdict()
    _store(place / MANIFEST, json.dumps(manifest, indent=2).encode() + b"\n")


def _store(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, also if power is lost."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read(place: Path, *, check: bool = True) -> Checkpoint:
    """Read the manifest of a checkpoint.

    Args:
        check: read all files, and compare hashes.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    try:
        found = _parsed(json.loads((place / MANIFEST).read_text()))
        for name, kept in found.files.items() if check else ():
            _check(place / name, kept)
    except FileNotFoundError as error:
        raise CheckpointError(f"{place}: no checkpoint: {error.filename} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{place}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{place / MANIFEST} is not a checkpoint's manifest") from None
    return found


def _parsed(manifest: Any) -> Checkpoint:
    if manifest["format"] != FORMAT:
        raise CheckpointError(f"a checkpoint of format {manifest['format']}, not {FORMAT}")
    files = {str(name): CheckpointFile(int(size), str(digest), bool(undo))
             for name, (size, digest, undo) in manifest["files"].items()}  # fmt: skip
    boundary, world = int(manifest["boundary"]), int(manifest["world"])
    states = set(files) - {RECORDS}
    if boundary < 0 or world < 1 or not states or RECORDS not in files:
        raise ValueError
    if not all(_STATE_NAME.fullmatch(each) for each in states):
        raise ValueError
    return Checkpoint(boundary, world, files)


def _check(path: Path, kept: CheckpointFile) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if path.stat().st_size != kept.size or found != kept.sha256:
        raise CheckpointError(f"{path} is damaged: its SHA-256 is not the manifest's")


def records(place: Path) -> dict[int, bytes]:
    """Records by rank, of a checkpoint that was checked."""
    data = (place / RECORDS).read_bytes()
    found, at = {}, 0
    while at < len(data):
        rank, size = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        found[rank] = data[at : at + size]
        at += size
    return found
