"""A tree that others wrote as one JSON object, path → content (as Meta's GCM records /sys).

Such dumps hold devices and leave the class directories out: these are linked to the devices again,
as the kernel does.
"""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath

from syntony.errors import InputError
from syntony.input_files import read_bytes

_DEVICES = "sys/bus/pci/devices"
_CLASSES = ("infiniband", "net", "nvme")
MAX_BYTES = 256 << 20


def unpack_dump(file: Path, folder: Path) -> None:
    """Write the tree below `folder`. Raises `InputError`: it cannot be read, or is no object of
    absolute paths to texts."""
    try:
        content = json.loads(read_bytes(file, MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            "not-a-tree", f"{file} is neither a directory nor a dump of one"
        ) from error
    if not isinstance(content, dict) or not content or not all(map(_fits, content.items())):
        raise InputError(
            "not-a-tree", f"{file} is not a JSON object that maps absolute paths to texts"
        )
    for path, text in content.items():
        target = folder / path.lstrip("/")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", errors="replace")
        except OSError as error:
            raise InputError("not-a-tree", f"{file}: {path[:80]}: {error.strerror}") from error
    _link_classes(folder)


def _fits(item: tuple[object, object]) -> bool:
    path, text = item
    if not isinstance(path, str) or not isinstance(text, str) or "\0" in path:
        return False
    parts = PurePosixPath(path).parts
    return parts[:1] == ("/",) and ".." not in parts and len(parts) > 1


def _link_classes(folder: Path) -> None:
    for kind in _CLASSES:
        for device in sorted(folder.glob(f"{_DEVICES}/*/{kind}/*")):
            link = folder / "sys/class" / kind / device.name
            if not link.exists() and device.is_dir():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(os.path.relpath(device, link.parent))
                if not (device / "device").exists():
                    (device / "device").symlink_to("../..")
