"""Hosts as trees of files, links and outputs of commands, and how they are written to disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from syntony.io.audit.commands import file_name


class Tree(NamedTuple):
    """Files, links and outputs of one host; a path or command whose value is None is not there."""

    files: dict[str, str | None]
    links: dict[str, str]
    commands: dict[str, str | None]


class Broken(NamedTuple):
    """What differs from a good host."""

    files: dict[str, str | None] = {}  # noqa: RUF012 - never changed
    commands: dict[str, str | None] = {}  # noqa: RUF012 - never changed
    denied: tuple[str, ...] = ()
    """Commands that fail: not root."""


def write(tree: Tree, root: Path) -> Path:
    """The tree on disk, with a second look that is like the first."""
    texts = {path: text for path, text in tree.files.items() if text is not None}
    for command, text in tree.commands.items():
        words = command.split(" ")
        name = f"{words[0]}.absent" if text is None else file_name(tuple(words))
        texts[f"/commands/{name}"] = text or ""
    for folder in {os.path.dirname(path) for path in texts}:  # noqa: PTH120 - of thousands
        (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        with open(f"{root}{path}", "w", encoding="utf-8") as file:  # noqa: PTH123 - the same
            file.write(f"{text}\n")
    for path, target in tree.links.items():
        link = root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(root / target.lstrip("/"), link.parent))
    shutil.copytree(root / "sys", root / "later/sys", symlinks=True, copy_function=os.link)
    shutil.copytree(root / "proc", root / "later/proc", symlinks=True, copy_function=os.link)
    return root


def broken(good: Path, root: Path, change: Broken) -> Path:
    """A copy of a good tree with some things changed, in both looks."""
    shutil.copytree(good, root, symlinks=True, copy_function=os.link, dirs_exist_ok=True)
    for path, text in change.files.items():
        later = path.startswith("later:")
        paths = [f"/later{path[6:]}"] if later else [path]
        if not later and path.startswith(("/sys", "/proc")):
            paths.append(f"/later{path}")
        for each in paths:
            _put(root, each, text)
    for command, text in change.commands.items():
        name = file_name(tuple(command.split(" ")))
        _put(root, f"/commands/{name}", text)
        if text is None:
            _put(root, f"/commands/{command.split(' ')[0]}.absent", "")
    for command in change.denied:
        name = file_name(tuple(command.split(" ")))
        _put(root, f"/commands/{name}", "permission denied")
        _put(root, f"/commands/{name}.exit", "1")
    return root


def _put(root: Path, path: str, text: str | None) -> None:
    file = root / path.lstrip("/")
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    # Links on the way are followed; a hard link to the good tree's file is not written through.
    file = file.parent.resolve() / file.name
    file.unlink(missing_ok=True)
    if text is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
