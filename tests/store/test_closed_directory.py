"""A controller that is started where its user may not be: `cd /root; runuser -u syntony -- …`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from syntony.errors import StoreError
from syntony.store.embedded import EmbeddedEngine, leave_closed_directory


def test_a_directory_that_can_be_entered_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    leave_closed_directory()
    assert Path.cwd() == tmp_path


def test_the_engine_leaves_one_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything else: here the store itself is refused."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        with pytest.raises(StoreError, match="question mark"):
            EmbeddedEngine(tmp_path / "a?b")
        assert Path.cwd() == Path("/")
    finally:
        os.chdir(tmp_path)
