"""Small files that may be missing, or not be this process's to use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from syntony.io.files import is_denied


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
