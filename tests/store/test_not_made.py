"""A store that cannot be made, as on a full disk, leaves nothing that a later start trips over."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.errors import StoreError
from syntony.store import open_store
from syntony.store.embedded import EmbeddedEngine


@pytest.mark.parametrize("statements", [0, 1, 5])
@pytest.mark.parametrize("error", [StoreError("not enough space"), KeyboardInterrupt()])
def test_what_was_made_of_a_new_store_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: int, error: BaseException
) -> None:
    left, execute = [statements], EmbeddedEngine.execute

    def full(self: EmbeddedEngine, sql: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise error
        execute(self, sql)

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedEngine, "execute", full)
        with pytest.raises(type(error)):
            open_store(str(tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]
    open_store(str(tmp_path)).close()


def test_a_store_that_was_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(str(tmp_path)).close()

    def full(_: EmbeddedEngine, __: str) -> None:
        raise StoreError("not enough space")

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedEngine, "execute", full)
        with pytest.raises(StoreError):
            open_store(str(tmp_path))
    assert (tmp_path / "chdb").exists()
    open_store(str(tmp_path)).close()
