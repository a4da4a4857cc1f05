"""Small files that may be missing, or not be this process's to use."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from syntony.io.files import is_denied, write_atomically


def test_what_this_process_may_not_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may use everything, so both answers of the system are played."""
    file = tmp_path / "file"
    assert not is_denied(file)
    file.touch()
    assert not is_denied(file)
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
        assert is_denied(file, os.W_OK)
        assert not is_denied(file)

    def refused(_: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "stat", refused)
    assert is_denied(file)


def test_a_full_disk_names_the_file_that_was_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system names none: the write fails, not the opening."""
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        write_atomically(file, b"new")
    assert raised.value.filename == str(file)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]
