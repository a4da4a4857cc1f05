"""The state of a job at one step, in files: what is kept when no spare is left to replace a rank.

A directory: `state`, which a rank wrote (what all ranks share: parameters and optimizers, as one
rank sends them to another); `records`, each rank's own, which the coordinator had; and, written
last, `manifest.json` with sizes and SHA-256 of both. Without a manifest there is no checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

STATE, RECORDS, MANIFEST = "state", "records", "manifest.json"
FORMAT = 1
_ENTRY = struct.Struct(">QQ")
"""Rank, bytes of its record."""
_CHUNK = 1 << 20


class CheckpointError(Exception):
    """A checkpoint that cannot be used; one line."""


class Checkpoint(NamedTuple):
    """What a manifest says."""

    boundary: int
    """The step that is done next."""
    world: int
    """Ranks of the job that it was written by."""
    undo: bool
    """`state` also has the parameters from before that step, which was under way: it is done again,
    with the result that is kept."""
    files: dict[str, tuple[int, str]]
    """Name to bytes and SHA-256."""


def write(
    place: Path, boundary: int, undo: bool, records: Mapping[int, bytes], state: tuple[int, str]
) -> None:
    """Complete a checkpoint whose `state` is there, with its bytes and SHA-256.

    Raises:
        OSError: it cannot be written.
    """
    data = b"".join(_ENTRY.pack(rank, len(each)) + each for rank, each in sorted(records.items()))
    files = {STATE: state, RECORDS: (len(data), hashlib.sha256(data).hexdigest())}
    made = Checkpoint(boundary, len(records), undo, files)
    _store(place / RECORDS, data)
    manifest = {"format": FORMAT} | made._asdict()
    _store(place / MANIFEST, json.dumps(manifest, indent=2).encode() + b"\n")


def _store(path: Path, data: bytes) -> None:
    """Whole or not at all, also after a loss of power."""
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


def read(place: Path) -> Checkpoint:
    """The checkpoint there, all of it checked.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    try:
        manifest = json.loads((place / MANIFEST).read_text())
        found = _parsed(manifest)
        for name, (size, digest) in found.files.items():
            _check(place / name, size, digest)
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
    files = {name: (int(manifest["files"][name][0]), str(manifest["files"][name][1]))
             for name in (STATE, RECORDS)}  # fmt: skip
    boundary, world = int(manifest["boundary"]), int(manifest["world"])
    if boundary < 0 or world < 1:
        raise ValueError
    return Checkpoint(boundary, world, bool(manifest["undo"]), files)


def _check(path: Path, size: int, digest: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if path.stat().st_size != size or found != digest:
        raise CheckpointError(f"{path} is damaged: its SHA-256 is not the manifest's")


def records(place: Path) -> dict[int, bytes]:
    """By rank, of a checkpoint that was checked."""
    data = (place / RECORDS).read_bytes()
    found, at = {}, 0
    while at < len(data):
        rank, size = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        found[rank] = data[at : at + size]
        at += size
    return found
